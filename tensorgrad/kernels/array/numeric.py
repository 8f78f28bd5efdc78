"""Histograms in several dimensions, and hashing, over plain arrays."""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.dtypes import scalar_type


def histogramdd(xp, x, edges, weight, density):
    """Counts the points (or sums their weights) in the last dimension of `x` in the cells of a grid.

    The last cell of each dimension is closed. `edges`: one ascending array per dimension; `density`: normalizes to a
    density.
    """
    points = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    cell = xp.zeros(len(points), np.int64)
    inside = xp.full(len(points), len(edges) > 0)
    for column, line in zip(points.T, edges):
        inside &= (column >= line[0]) & (column <= line[-1])
        place = xp.minimum(xp.searchsorted(line, column, "right"), len(line) - 1) - 1
        cell = cell * (len(line) - 1) + place
    weight = None if weight is None else weight.reshape(-1)[inside].astype(np.float64)
    shape = tuple(len(line) - 1 for line in edges)
    hist = xp.bincount(cell[inside], weights=weight, minlength=math.prod(shape)).reshape(shape)
    if density:
        with np.errstate(all="ignore"):
            hist = hist / hist.sum()
            for dim, line in enumerate(edges):
                hist = hist / xp.diff(line).reshape(-1, *[1] * (len(shape) - dim - 1))
    return hist.astype(x.dtype)


def hash_tensor(xp, x, dim, keepdim, mode):
    """The exclusive or of the elements' 64 bits, as uint64: floats as float64, integers as int64.

    Raises: NotImplementedError for complex and the wider unsigned dtypes, IndexError for a dimension of size 0.
    """
    if x.dtype.kind == "c" or (x.dtype.kind == "u" and x.dtype.itemsize > 1):
        raise NotImplementedError(f"\"xor_sum_cpu\" not implemented for '{scalar_type(x)}'")
    dims = tuple(range(x.ndim)) if dim is None else dim
    for d in dims:
        if not x.shape[d]:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    wide = np.int64 if x.dtype.kind in "biu" else np.float64
    kept = [d for d in range(x.ndim) if d not in dims]
    shape = [x.shape[d] for d in kept]
    bits = xp.ascontiguousarray(x.transpose(*dims, *kept).astype(wide)).view(np.uint64)
    bits = bits.reshape(-1, *shape) if x.size else bits.reshape(1, *shape)
    while len(bits) > 1:  # fold one half onto the other
        half = len(bits) // 2
        folded = bits[:half] ^ bits[half : 2 * half]
        if len(bits) % 2:
            folded[0] ^= bits[-1]
        bits = folded
    return bits.reshape([1 if d in dims else n for d, n in enumerate(x.shape)] if keepdim else shape)
