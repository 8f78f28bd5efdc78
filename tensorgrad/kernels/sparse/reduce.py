"""Sums and softmax of sparse arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.errors import wrap_dims
from tensorgrad.kernels.sparse.convert import coo, like
from tensorgrad.kernels.sparse.coordinates import at, coalesced, keys, values_at
from tensorgrad.storage.sparse import CompressedArray, COOArray


def sum_(array: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """The sum over dimensions: dense if no sparse dimension is left, else sparse."""
    target = dtype.numpy if dtype is not None else np.dtype(np.int64) if array.dtype.kind in "biu" else array.dtype
    if isinstance(array, CompressedArray):
        return _of_compressed(array, dim, keepdim, target)
    return _of_coo(array, dim, keepdim, target)


def _total(values: np.ndarray, axis: Any, dtype: np.dtype, keepdims: bool = False) -> np.ndarray:
    """A sum of values; those of 16 bits are added in float32."""
    short = dtype.itemsize == 2 and dtype.kind in "fV"
    return np.asarray(values.sum(axis, dtype=np.float32 if short else dtype, keepdims=keepdims)).astype(
        dtype, copy=False
    )


def _of_coo(array: COOArray, dim: Any, keepdim: bool, target: np.dtype) -> Any:
    dims = wrap_dims(dim if isinstance(dim, tuple | list) else (dim,), array.ndim) if dim not in (None, ()) else ()
    if not dims:
        total = _total(array.values, None, target)
        return np.asarray(total).reshape((1,) * array.ndim if keepdim else ())
    sparse = array.sparse_dim
    inner = tuple(d - sparse + 1 for d in dims if d >= sparse)
    values = _total(array.values, inner, target, keepdim) if inner else array.values.astype(target)
    left = [d for d in range(sparse) if d not in dims]
    if keepdim:
        shape = tuple(1 if d in dims else n for d, n in enumerate(array.shape))
        if not left:
            return np.asarray(_total(values, 0, target)).reshape(shape)
        indices = array.indices.copy()
        indices[[d for d in dims if d < sparse]] = 0
        made = coalesced(COOArray(indices, values, shape))
        made.coalesced = len(made.values) < 2  # PyTorch does not know either
        return made
    shape = tuple(n for d, n in enumerate(array.shape) if d not in dims)
    if not left:
        return np.asarray(_total(values, 0, target))
    return coalesced(COOArray(array.indices[left], values, shape, array.coalesced and len(left) == sparse))


def any_(array: Any, dim: Any, keepdim: bool) -> np.ndarray:
    """Whether any element is not zero. Raises: RuntimeError for fewer dimensions than all, as in PyTorch."""
    if keepdim or (dim is not None and len(dim) != array.ndim):
        raise RuntimeError(f"any: sparse tensors support full reductions only, got dim {dim}, keepdim {keepdim}")
    return np.asarray(array.values.any())


def _of_compressed(array: CompressedArray, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if dim in (None, ()):
        return np.asarray(_total(array.values, None, dtype)).reshape((1,) * array.ndim if keepdim else ())
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    return like(_of_coo(coo(array), dim, True, dtype), array)


def _groups(array: COOArray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The elements sorted by all coordinates but `dim`: the order, and where the groups begin."""
    others = np.delete(array.indices, dim, 0)
    found = keys(others, tuple(np.delete(array.shape[: array.sparse_dim], dim)))
    order = np.argsort(found, kind="stable")
    ends = found[order]
    new = np.ones(len(ends), bool)
    new[1:] = ends[1:] != ends[:-1]
    return order, np.flatnonzero(new)


def softmax(array: COOArray, dim: int, log: bool) -> COOArray:
    """Softmax along a dimension among the stored elements only: all others are as -inf."""
    array = coalesced(array)
    if dim >= array.sparse_dim:
        return array.with_values(_dense_softmax(array.values, dim - array.sparse_dim + 1, log))
    if not len(array.values):
        return array.copy()
    order, starts = _groups(array, dim)
    counts = np.diff(np.append(starts, len(order)))
    x = array.values[order]
    shifted = x - np.repeat(np.maximum.reduceat(x, starts), counts, 0)
    e = np.exp(shifted)
    total = np.repeat(np.add.reduceat(e, starts), counts, 0)
    values = np.empty_like(x)
    values[order] = shifted - np.log(total) if log else e / total
    return array.with_values(values)


def _dense_softmax(x: np.ndarray, axis: int, log: bool) -> np.ndarray:
    shifted = x - x.max(axis, keepdims=True) if x.size else x
    e = np.exp(shifted)
    total = e.sum(axis, keepdims=True)
    return shifted - np.log(total) if log else e / total


def softmax_tangent(t: np.ndarray, out: COOArray, dim: int, log: bool) -> np.ndarray:
    """The tangent of the results' values, from that of the values and the results."""
    y = np.exp(out.values) if log else out.values
    centred = t - _total_of_groups(y * t, out, dim)
    return centred if log else y * centred


def softmax_grad(g: np.ndarray, out: COOArray, dim: int, log: bool) -> np.ndarray:
    """The gradient of the values, from the gradient of the results' values and the results."""
    weights = np.exp(out.values) if log else out.values
    part = g if log else g * weights
    total = _total_of_groups(part, out, dim)
    return g - weights * total if log else weights * (g - total)


def _total_of_groups(part: np.ndarray, out: COOArray, dim: int) -> np.ndarray:
    """The sums of values along a dimension, for each stored element."""
    if dim >= out.sparse_dim:
        return part.sum(dim - out.sparse_dim + 1, keepdims=True)
    if not len(part):
        return part
    order, starts = _groups(out, dim)
    total = np.empty_like(part)
    counts = np.diff(np.append(starts, len(order)))
    total[order] = np.repeat(np.add.reduceat(part[order], starts), counts, 0)
    return total


def sum_over(array: COOArray, dims: tuple) -> Any:
    """The kernel of `torch.sparse.sum`: without `keepdim`."""
    made = sum_(array, dims, False, None)
    return made.astype(array.dtype) if isinstance(made, COOArray) else made


def sum_grad(g: Any, pattern: COOArray, dims: tuple) -> np.ndarray:
    """The gradient of the values of `pattern`, from that of their sum over `dims`, sparse or dense."""
    sparse = pattern.sparse_dim
    left = [d for d in range(sparse) if d not in dims]
    inner = tuple(d - sparse + 1 for d in dims if d >= sparse)
    where = pattern.indices[left]
    if isinstance(g, COOArray):
        values = values_at(g, where)
    else:
        values = at(np.asarray(g), where)
    values = np.expand_dims(values, inner) if inner else values
    return np.ascontiguousarray(np.broadcast_to(values, pattern.values.shape))
