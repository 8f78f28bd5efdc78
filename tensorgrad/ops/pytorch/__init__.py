"""Names kept for compatibility with PyTorch: typed storages, `native_` names, removed functions, layouts."""
