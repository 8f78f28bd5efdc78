"""Ops of sparse layouts: parts, conversions, constructors, products, sums.

All other ops take sparse tensors where kernels/sparse has a kernel for them.
"""
