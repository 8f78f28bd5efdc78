"""Kernels of quantized tensors: table.py says which op has one."""
