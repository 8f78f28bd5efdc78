"""Views of dense tensors as kernels of sparse ones: here they make new arrays, which share values where they can."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.errors import wrap_dim
from tensorgrad.kernels.sparse.convert import coo, like
from tensorgrad.storage.sparse import BSCArray, BSRArray, CompressedArray, COOArray, CSCArray, CSRArray, SparseArray

FLIPPED = {CSRArray: CSCArray, CSCArray: CSRArray, BSRArray: BSCArray, BSCArray: BSRArray}


def alias(array: Any) -> Any:
    """The same array."""
    return array


def transpose(array: Any, dim0: int, dim1: int) -> Any:
    """Exchanges two dimensions, both sparse or both dense; of compressed arrays, those of the matrix or the batch."""
    ndim = array.ndim
    dim0, dim1 = sorted((wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)))
    order = [*range(ndim)]
    order[dim0], order[dim1] = dim1, dim0
    made = permute(array, order)
    if made.__class__ is COOArray and not len(made.values):
        made.coalesced = True
    return made


def transposed(array: Any) -> Any:
    """The kernel of `t`."""
    if array.__class__ is COOArray and (array.sparse_dim > 2 or array.sparse_dim < array.ndim):
        raise RuntimeError(
            "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got "
            f"{array.sparse_dim} sparse and {array.ndim - array.sparse_dim} dense dimensions"
        )
    if array.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {array.ndim}D")
    return array if array.ndim < 2 else transpose(array, 0, 1)


def permute(array: Any, dims: Any) -> Any:
    """Rearranges dimensions: sparse ones among each other, dense ones among each other."""
    dims = [wrap_dim(d, array.ndim) for d in dims]
    if sorted(dims) != [*range(array.ndim)]:
        raise RuntimeError(f"permute: expected each of {array.ndim} dimensions once, got {tuple(dims)}")
    if dims == [*range(array.ndim)]:
        return array
    if isinstance(array, CompressedArray):
        return _permuted(array, dims)
    sparse = array.sparse_dim
    if any((old < sparse) != (new < sparse) for new, old in enumerate(dims)):
        raise RuntimeError("permute: transpositions between sparse and dense dimensions are not allowed")
    values = array.values.transpose(0, *(d - sparse + 1 for d in dims[sparse:]))
    in_order = array.coalesced and dims[:sparse] == [*range(sparse)]
    return COOArray(array.indices[dims[:sparse]], values, tuple(array.shape[d] for d in dims), in_order)


def _permuted(array: CompressedArray, dims: list[int]) -> CompressedArray:
    batch = array.batch_dim
    shape = tuple(array.shape[d] for d in dims)
    if dims[batch : batch + 2] == [batch + 1, batch] and dims[:batch] == [*range(batch)]:
        values = array.values
        if array.blocked:
            values = np.swapaxes(values, batch + 1, batch + 2)
        if dims[batch + 2 :] == [*range(batch + 2, array.ndim)]:
            return FLIPPED[type(array)](array.compressed, array.plain, values, shape)
    if dims[batch:] == [*range(batch, array.ndim)]:
        compressed, plain, values = (part.transpose(*dims[:batch], *range(batch, part.ndim)) for part in array.parts())
        return type(array)(compressed, plain, values, shape)
    raise RuntimeError(
        f"transpose: of {array.title} tensors, the two dimensions of the matrix can be exchanged, or those of the batch"
    )


def unsqueeze(array: Any, dim: int) -> COOArray:
    """A new dimension of size 1."""
    if isinstance(array, CompressedArray):
        raise RuntimeError(f"unsqueeze: not supported for {array.title} tensors; convert with to_sparse_coo() first")
    dim = wrap_dim(dim, array.ndim + 1)
    shape = (*array.shape[:dim], 1, *array.shape[dim:])
    if dim <= array.sparse_dim:
        row = np.zeros((1, array.indices.shape[1]), np.int64)
        indices = np.concatenate([array.indices[:dim], row, array.indices[dim:]])
        return COOArray(indices, array.values, shape)
    return COOArray(array.indices, np.expand_dims(array.values, dim - array.sparse_dim + 1), shape)


def squeeze(array: Any, dims: tuple[int, ...]) -> COOArray:
    """Without those of these dimensions that have size 1."""
    if isinstance(array, CompressedArray):
        raise RuntimeError(f"squeeze: not supported for {array.title} tensors; convert with to_sparse_coo() first")
    gone = [d for d in dims if array.shape[d] == 1]
    shape = tuple(n for d, n in enumerate(array.shape) if d not in gone)
    sparse = [d for d in gone if d < array.sparse_dim]
    values = np.squeeze(array.values, tuple(d - array.sparse_dim + 1 for d in gone if d >= array.sparse_dim))
    return COOArray(np.delete(array.indices, sparse, 0), values, shape, array.coalesced)


def expand(array: Any, size: tuple[int, ...]) -> Any:
    """The array itself. Raises: RuntimeError for another size."""
    if tuple(size) != tuple(array.shape):
        raise RuntimeError("expand is unsupported for Sparse tensors")
    return array


def real(array: Any) -> Any:
    """The real parts of complex numbers."""
    return _of_values(array, array.values.real)


def imag(array: Any) -> Any:
    """The imaginary parts of complex numbers."""
    return _of_values(array, array.values.imag)


def _of_values(array: Any, values: np.ndarray) -> Any:
    made = array.with_values(np.ascontiguousarray(values))
    if made.__class__ is COOArray:
        made.coalesced = len(values) < 2  # PyTorch does not know either
    return made


def as_real(array: Any) -> Any:
    """Complex numbers as pairs, in a new dense dimension."""
    made = array.with_values(np.stack([array.values.real, array.values.imag], -1))
    made.shape = (*array.shape, 2)
    return made


def as_complex(array: Any) -> Any:
    """Pairs in the last dimension, a dense one, as complex numbers."""
    made = array.with_values(np.ascontiguousarray(array.values).view(np.result_type(array.dtype, np.complex64))[..., 0])
    made.shape = array.shape[:-1]
    return made


def cat(arrays: list, dim: int) -> Any:
    """Joins COO arrays along a dimension, sparse or dense."""
    first = arrays[0]
    if any(a.__class__ is not first.__class__ for a in arrays):
        at = next(k for k, a in enumerate(arrays) if a.__class__ is not first.__class__)
        if not isinstance(arrays[at], SparseArray):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {at}.")
        raise RuntimeError("cat: expected tensors of one layout, found several")
    if isinstance(first, CompressedArray):
        return like(cat([coo(a) for a in arrays], dim), first)
    dim = wrap_dim(dim, first.ndim)
    for k, a in enumerate(arrays):
        if a.ndim == first.ndim and a.sparse_dim != first.sparse_dim:
            raise RuntimeError(
                "All tensors must have the same sparse_dim and dense_dim: "
                f"{first.sparse_dim}, {first.ndim - first.sparse_dim}, but tensor at position {k} has {a.sparse_dim}, "
                f"{a.ndim - a.sparse_dim}."
            )
        if a.ndim != first.ndim or any(m != n for d, (m, n) in enumerate(zip(a.shape, first.shape)) if d != dim):
            raise RuntimeError(
                f"All tensors must have the same shape: {list(first.shape)} (except in the concatenating dimension), "
                f"but found shape: {list(a.shape)} at position {k}."
            )
    dtype = np.result_type(*(a.dtype for a in arrays))
    total = sum(a.shape[dim] for a in arrays)
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    indices, values, start = [], [], 0
    for a in arrays:
        moved, part = a.indices, a.values.astype(dtype, copy=False)
        if dim < a.sparse_dim:
            moved = moved.copy()
            moved[dim] += start
        else:
            after = [(0, 0)] * part.ndim
            after[dim - a.sparse_dim + 1] = (start, total - start - a.shape[dim])
            part = np.pad(part, after)
        indices.append(moved)
        values.append(part)
        start += a.shape[dim]
    return COOArray(np.concatenate(indices, 1), np.concatenate(values), shape)


def stack(arrays: list, dim: int) -> Any:
    """Joins COO arrays along a new dimension."""
    dim = wrap_dim(dim, arrays[0].ndim + 1)
    return cat([unsqueeze(coo(a), dim) for a in arrays], dim)


def index_select(array: Any, dim: int, index: np.ndarray) -> Any:
    """The slices of a dimension that `index` lists."""
    if isinstance(array, CompressedArray):
        return like(index_select(coo(array), dim, index), array)
    dim, count = wrap_dim(dim, array.ndim), len(index)
    size = array.shape[dim]
    if index.ndim != 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if count and (index.min() < -size or index.max() >= size):
        raise IndexError(
            f"index_select(): index {index.min() if index.min() < -size else index.max()} out of range [0, {size})"
        )
    index = np.where(index < 0, index + size, index)
    shape = (*array.shape[:dim], count, *array.shape[dim + 1 :])
    if dim >= array.sparse_dim:
        return COOArray(array.indices, np.take(array.values, index, dim - array.sparse_dim + 1), shape, False)
    order = np.argsort(index, kind="stable")
    low = np.searchsorted(index[order], array.indices[dim], "left")
    times = np.searchsorted(index[order], array.indices[dim], "right") - low
    of = np.repeat(np.arange(len(times)), times)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(times) - times, times)
    indices = array.indices[:, of]
    indices[dim] = order[low[of] + nth]
    return COOArray(indices, array.values[of], shape)
