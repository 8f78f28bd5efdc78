"""Kernels written once against the array module, for NumPy and any library with its interface."""
