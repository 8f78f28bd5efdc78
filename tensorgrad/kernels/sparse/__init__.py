"""Kernels for sparse layouts: the same families as in kernels/array, for arrays of storage/sparse.py.

Which op has one on which layout: `table.py`.
"""
