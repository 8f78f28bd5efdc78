"""Sums and softmax of sparse arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.errors import wrap_dims
from tensorgrad.kernels.array.reduce import vector_norm
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


def norm(array: Any, ord: float, dim: Any, keepdim: bool, dtype: Any) -> np.ndarray:
    """The vector norm of all elements. Raises: RuntimeError for fewer dimensions than all, as in PyTorch."""
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    _all_dims(array, dim, keepdim, "norm_sparse currently only supports full reductions, so 'dim' must be empty or all")
    array = coalesced(array) if array.__class__ is COOArray else array
    return vector_norm(np, array.values, ord, None, False, dtype)


def any_(array: Any, dim: Any, keepdim: bool) -> np.ndarray:
    """Whether any element is not zero. Raises: RuntimeError for fewer dimensions than all, as in PyTorch."""
    _all_dims(array, dim, keepdim, "any: sparse tensors support full reductions only")
    return np.asarray(array.values.any())


def _all_dims(array: Any, dim: Any, keepdim: bool, message: str) -> None:
    if keepdim or (dim is not None and len(dim) != array.ndim):
        raise RuntimeError(f"{message} (got dim {dim} of {array.ndim} dimensions, keepdim {keepdim})")


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


def softmax_grad(g: np.ndarray, out: COOArray, dim: int, log: bool) -> np.ndarray:
    """The gradient of the values, from the gradient of the results' values and the results."""
    y = out.values
    weights = np.exp(y) if log else y
    part = g if log else g * y
    if dim >= out.sparse_dim:
        total = part.sum(dim - out.sparse_dim + 1, keepdims=True)
    elif not len(y):
        return g
    else:
        order, starts = _groups(out, dim)
        total = np.empty_like(part)
        counts = np.diff(np.append(starts, len(order)))
        total[order] = np.repeat(np.add.reduceat(part[order], starts), counts, 0)
    return g - weights * total if log else weights * (g - total)


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
