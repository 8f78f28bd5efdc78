"""Random tensors, and in-place random sampling."""
