"""Reductions of the elements that a mask includes: `torch.masked.sum` and others of sparse tensors.

An element that the mask includes counts even if it is not stored: then it is 0. One that is stored and not included
does not count. Without a mask, the stored elements count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.kernels.sparse.convert import coo, coo_of_dense, dense, like
from tensorgrad.kernels.sparse.coordinates import coalesced, keys, values_at
from tensorgrad.kernels.sparse.pointwise import broadcast
from tensorgrad.storage.sparse import CompressedArray, COOArray, SparseArray

COMBINE = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum, "mean": np.add}


def _identity(name: str, dtype: np.dtype) -> Any:
    """What an element that does not count is replaced by."""
    if name in ("sum", "mean", "prod"):
        return dtype.type(name == "prod")
    low = name == "amax"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if low else np.iinfo(dtype).max
    return dtype.type(-np.inf if low else np.inf)


def included(array: Any, mask: Any, name: str) -> COOArray:
    """The elements of `array` that the mask, dense or sparse, includes."""
    x = coalesced(coo(array))
    if isinstance(mask, SparseArray):
        m = coalesced(broadcast(coo(mask), x.shape))
        m = m if m.sparse_dim == x.sparse_dim else coo_of_dense(dense(m), x.sparse_dim)
    else:
        m = coo_of_dense(np.broadcast_to(mask, x.shape), x.sparse_dim)
    true = m.values.astype(bool)
    kept = true.reshape(len(true), -1).any(1) if true.ndim > 1 else true
    indices = m.indices[:, kept]
    values = values_at(x, indices)
    if true.ndim > 1:
        values = np.where(true[kept], values, _identity(name, values.dtype))
    return COOArray(indices, values, x.shape, coalesced=True)


def reduction(array: Any, mask: Any, name: str, dims: tuple[int, ...], keepdim: bool, dtype: Any) -> Any:
    """One of `COMBINE` over dimensions of the elements that count: always sparse, in the layout of `array`.

    Raises: RuntimeError for compressed layouts without `keepdim`, NotImplementedError for others than sums over dense
    dimensions.
    """
    if isinstance(array, CompressedArray) and not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    x = coo(array) if mask is None else included(array, mask, name)
    made = _over(x.with_values(x.values.astype(dtype.numpy)), name, dims, keepdim)
    return like(coalesced(made), array) if isinstance(array, CompressedArray) else made


def _over(x: COOArray, name: str, dims: tuple[int, ...], keepdim: bool) -> COOArray:
    values, combine = x.values, COMBINE[name]
    inner = tuple(d - x.sparse_dim + 1 for d in dims if x.sparse_dim <= d < x.ndim)
    if inner and name != "sum":
        raise NotImplementedError(f"masked.{name}: over dense dimensions of a sparse tensor, only sums are supported")
    if inner:
        values = values.sum(inner, dtype=values.dtype, keepdims=keepdim)
    left = [d for d in range(x.sparse_dim) if d not in dims]
    shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims)
    if not left:
        if len(values):
            total = combine.reduce(values, 0, dtype=values.dtype)
        else:
            total = np.full(values.shape[1:], _identity(name, values.dtype))
        made = np.asarray(total / max(len(values), 1) if name == "mean" else total, values.dtype).reshape(shape)
        return coo_of_dense(made, made.ndim)
    found = keys(x.indices[left], tuple(x.shape[d] for d in left))
    order = np.argsort(found, kind="stable")
    ordered = found[order]
    new = np.ones(len(found), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    indices = x.indices[:, order[starts]]
    if keepdim:
        indices[[d for d in range(x.sparse_dim) if d in dims]] = 0
    else:
        indices = indices[left]
    if len(starts):
        values = combine.reduceat(values[order], starts, axis=0, dtype=values.dtype)
    if name == "mean":
        counts = np.diff(np.append(starts, len(found)))
        values = (values / counts.reshape(-1, *[1] * (values.ndim - 1))).astype(values.dtype)
    return COOArray(indices, values, shape)
