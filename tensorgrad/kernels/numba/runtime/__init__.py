"""How kernels are compiled, kept, loaded and run: everything of the compiled backend that is no kernel."""
