"""Kernels written once against the array module, for NumPy and anything that follows it."""
