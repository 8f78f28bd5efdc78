"""The compiled backend's machinery: how kernels are compiled, cached, loaded and run."""
