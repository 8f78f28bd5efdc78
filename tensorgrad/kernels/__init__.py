"""Kernels: how each op runs on plain arrays."""
