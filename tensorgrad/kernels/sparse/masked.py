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


def identity(name: str, dtype: np.dtype) -> Any:
    """What an element that does not count is replaced by."""
    if name in ("sum", "mean", "prod"):
        return dtype.type(name == "prod")
    low = name == "amax"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if low else np.iinfo(dtype).max
    return dtype.type(-np.inf if low else np.inf)


def included(x: COOArray, mask: Any) -> tuple[np.ndarray, Any]:
    """The coordinates of the elements of `x`, coalesced, that the mask, dense or sparse, includes.

    Of hybrid arrays also which elements of each dense part (else None): some of each are included.
    """
    if isinstance(mask, SparseArray):
        m = coalesced(broadcast(coo(mask), x.shape))
        m = m if m.sparse_dim == x.sparse_dim else coo_of_dense(dense(m), x.sparse_dim)
    else:
        m = coo_of_dense(np.broadcast_to(mask, x.shape), x.sparse_dim)
    true = m.values.astype(bool)
    if true.ndim == 1:
        return m.indices[:, true], None
    kept = true.reshape(len(true), -1).any(1)
    return m.indices[:, kept], true[kept]


class Groups:
    """Which of the elements at `places`, coordinates in `x`, are reduced to one, and where that goes.

    `order` sorts the elements by group; then groups begin at `starts` and have `counts` elements. `inner` are the
    dimensions of the values that are reduced as well. `indices` and `shape` are those of the result; `indices` is None
    if no sparse dimension is left of a COO array.
    """

    def __init__(self, x: COOArray, places: np.ndarray, dims: tuple[int, ...], keepdim: bool, compressed: bool):
        left = [d for d in range(x.sparse_dim) if d not in dims]
        self.shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims)
        self.inner = tuple(d - x.sparse_dim + 1 for d in dims if x.sparse_dim <= d < x.ndim)
        found = keys(places[left], tuple(x.shape[d] for d in left))
        self.order = np.argsort(found, kind="stable")
        ordered = found[self.order]
        new = np.ones(len(found), bool)
        new[1:] = ordered[1:] != ordered[:-1]
        self.starts = np.flatnonzero(new)
        self.numbers = np.searchsorted(ordered[self.starts], found)  # of each element's group
        self.counts = np.diff(np.append(self.starts, len(found)))
        self.indices = None
        if left or compressed:
            self.indices = places[:, self.order[self.starts]]
            self.indices[[d for d in range(x.sparse_dim) if d in dims]] = 0
            self.indices = self.indices if keepdim else self.indices[left]


def groups(
    array: Any, mask: Any, name: str, dims: tuple[int, ...], keepdim: bool
) -> tuple[COOArray, np.ndarray, Any, Groups]:
    """An array as COO, coalesced if there is a mask; what is included of it; and the groups of that.

    Raises: RuntimeError for compressed layouts without `keepdim`, NotImplementedError for others than sums over dense
    dimensions.
    """
    if isinstance(array, CompressedArray) and not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    x = coo(array) if mask is None else coalesced(coo(array))
    places, true = (x.indices, None) if mask is None else included(x, mask)
    found = Groups(x, places, dims, keepdim, isinstance(array, CompressedArray))
    if found.inner and name != "sum":
        raise NotImplementedError(f"masked.{name}: over dense dimensions of a sparse tensor, only sums are supported")
    return x, places, true, found


def reduction(array: Any, mask: Any, name: str, dims: tuple[int, ...], keepdim: bool, dtype: Any) -> Any:
    """One of `COMBINE` over dimensions of the elements that count: always sparse, in the layout of `array`."""
    x, places, true, found = groups(array, mask, name, dims, keepdim)
    values = (x.values if mask is None else values_at(x, places)).astype(dtype.numpy)
    if true is not None:
        values = np.where(true, values, identity(name, values.dtype))
    if values.dtype.itemsize == 2 and values.dtype.kind in "fV":  # numbers of 16 bits are added in float32
        values = values.astype(np.float32)
    if found.inner:
        values = values.sum(found.inner, dtype=values.dtype, keepdims=keepdim)
    if len(found.starts):
        values = COMBINE[name].reduceat(values[found.order], found.starts, axis=0, dtype=values.dtype)
    if name == "mean":
        values = values / found.counts.reshape(-1, *[1] * (values.ndim - 1))
    if found.indices is not None:
        made = COOArray(found.indices, values.astype(dtype.numpy, copy=False), found.shape)
    else:
        whole = values if len(values) else np.full(values.shape[1:], identity(name, values.dtype))
        made = coo_of_dense(whole.astype(dtype.numpy, copy=False).reshape(found.shape), len(found.shape))
    return like(coalesced(made), array) if isinstance(array, CompressedArray) else made
