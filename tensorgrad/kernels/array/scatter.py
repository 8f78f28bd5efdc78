"""Whole slices and flat positions: selecting, copying and filling them. Every kernel returns a new array."""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.array import index as kernels


def gather(xp, x, dim, index):
    """`out[i, j] = x[index[i, j], j]` for `dim` 0, and so on."""
    return kernels.gather(xp, x, dim, index) if index.size else xp.empty(index.shape, x.dtype)


def scatter(xp, x, dim, index, src):
    """Returns a copy of `x` with `src` written where `gather` would read."""
    return kernels.scatter(xp, x, dim, index, src) if index.size else xp.array(x, order="C")


def scatter_add(xp, x, dim, index, src):
    """Returns a copy of `x` with `src` added where `gather` would read."""
    if x.dtype.kind == "b":
        return scatter_reduce(xp, x, dim, index, src, "amax", True)
    return kernels.scatter_add(xp, x, dim, index, src) if index.size else xp.array(x, order="C")


def scatter_reduce(xp, x, dim, index, src, reduce, include_self):
    """Returns a copy of `x` with `src` reduced into the elements that `gather` would read."""
    if not index.size:
        return xp.array(x, order="C")
    if x.dtype.kind == "b" and reduce in ("sum", "prod"):
        reduce = "amax" if reduce == "sum" else "amin"
    return kernels.scatter_reduce(xp, x, dim, index, src, reduce, include_self)


def index_select(xp, x, dim, index):
    """Selects the slices `index` along `dim`. Raises: IndexError if one is negative or out of range."""
    shape = x.shape or (1,)
    if index.size and not kernels.checks_itself(xp, index, 0, shape[dim], dim):
        low, high = kernels.extremes(xp, index)
        if low < 0 or high >= shape[dim]:
            raise IndexError("index out of range in self")
    if not x.ndim:
        return xp.array(x)
    return x.take(index.reshape(-1), dim)


def index_copy(xp, x, dim, index, src):
    """Returns a copy of `x` with slice k of `src` along `dim` written to slice `index[k]`."""
    shape = x.shape or (1,)
    if index.size and not kernels.checks_itself(xp, index, 0, shape[dim], dim):
        low, high = kernels.extremes(xp, index)
        if low < 0 or high >= shape[dim]:
            wrong = low if low < 0 else high
            raise IndexError(
                f"index_copy_(): index {wrong} is out of bounds for dimension {dim} with size {shape[dim]}"
            )
    out = xp.array(x, order="C")
    index = index.reshape(-1)
    if not x.ndim:
        return src.reshape(()).copy() if index.size else out
    out[(slice(None),) * dim + (index,)] = src if src.ndim else src.reshape(1)
    return out


def index_fill(xp, x, dim, index, value):
    """Returns a copy of `x` with the slices `index` along `dim` set to `value`."""
    shape = x.shape or (1,)
    if index.size and not kernels.checks_itself(xp, index, -shape[dim], shape[dim], dim):
        low, high = kernels.extremes(xp, index)
        if low < -shape[dim] or high >= shape[dim]:
            wrong = high if high >= shape[dim] else low
            raise IndexError(f"index {wrong} is out of bounds for dimension {dim} with size {shape[dim]}")
    out = xp.array(x, order="C")
    if x.ndim:
        out[(slice(None),) * dim + (index.reshape(-1),)] = value
    elif index.size:
        out[...] = value
    return out


def masked_scatter(xp, x, mask, src):
    """Returns a copy of `x` with the elements under `mask` replaced by the first elements of `src`."""
    out = xp.array(x, order="C")
    mask = xp.broadcast_to(mask, x.shape)
    n = int(mask.sum())
    if n > src.size:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    out[mask] = src.reshape(-1)[:n]
    return out


def embedding(xp, table, rows, padding_idx, scale_grad_by_freq):
    """Looks up rows of a table. Raises: IndexError if one is out of range."""
    if rows.size and not kernels.checks_itself(xp, rows, 0, table.shape[0], 0):
        low, high = kernels.extremes(xp, rows)
        if low < 0 or high >= table.shape[0]:
            raise IndexError("index out of range in self")
    return table.take(rows, 0)


def embedding_grad(xp, g, rows, count, padding_idx, scale_grad_by_freq):
    """Computes the gradient of a table of `count` rows: the sum or mean of the gradients of each row's uses."""
    g, dtype = xp.ascontiguousarray(g), g.dtype
    if scale_grad_by_freq and rows.size:
        uses = xp.bincount(rows.reshape(-1), minlength=count)[rows][..., None]
        half = kernels.half_precision(dtype)
        g = kernels.scaled_terms(xp, g, 1 / uses) if half else (g / uses.astype(dtype)).astype(dtype)
    return kernels.embedding_grad(xp, g, rows, count, padding_idx if padding_idx >= 0 else None, dtype)


def uses(xp, rows, count, dtype):
    """Returns for each entry of `rows` how often it occurs in all of them."""
    return xp.bincount(rows.reshape(-1), minlength=count)[rows].astype(np.dtype(dtype))
