"""What only PyTorch's programs ask for: typed storages, `native_` names, removed functions, layouts."""
