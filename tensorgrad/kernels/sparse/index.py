"""Indexing: one slice of a dimension, a range of them, new dimensions; and where the gradient of a part belongs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.dispatch.kernel_errors import Composed
from tensorgrad.kernels.array.shape import raise_index_error
from tensorgrad.kernels.sparse.convert import coo, coo_of_dense, dense
from tensorgrad.kernels.sparse.coordinates import coalesced
from tensorgrad.kernels.sparse.shape import unsqueeze
from tensorgrad.storage.sparse import CompressedArray, COOArray, SparseArray


def composed(*given: Any) -> Any:
    """The kernel of view ops: a sparse array shares no memory with its parts, so these are new tensors."""
    raise Composed


def at(array: Any, index: tuple) -> Any:
    """Basic indexing by integers, slices, None and an Ellipsis; dense if no sparse dimension is left."""
    count = sum(1 for i in index if i is not None and i is not Ellipsis)
    if count > array.ndim:
        raise_index_error(array.shape, index)
    dim, rest = 0, [*index]
    while rest and isinstance(array, SparseArray):
        item = rest.pop(0)
        if item is Ellipsis:
            dim += array.ndim - dim - sum(1 for i in rest if i is not None)
        elif item is None:
            array, dim = unsqueeze(array, dim), dim + 1
        elif item.__class__ is int:
            array = select(array, dim, item, index)
        else:
            array, dim = narrowed(array, dim, item), dim + 1
    return np.array(array[(Ellipsis, *rest)] if dim else array[tuple(rest)]) if rest else array


def select(array: Any, dim: int, number: int, index: tuple = ()) -> Any:
    """One slice of a dimension."""
    size = array.shape[dim]
    if not -size <= number < size:
        raise_index_error(array.shape, index)
    number += size if number < 0 else 0
    shape = (*array.shape[:dim], *array.shape[dim + 1 :])
    if isinstance(array, CompressedArray):
        lead = (slice(None),) * dim
        if dim < array.batch_dim:
            return _of_parts(array, [part[(*lead, number)] for part in array.parts()], shape)
        if array.batch_dim and dim < array.batch_dim + 2:
            raise RuntimeError(
                f"select(): batches of {array.title} tensors can be indexed in their first dimensions only"
            )
        if dim >= array.batch_dim + 2:
            first = array.values.ndim - array.dense_dim
            values = np.take(array.values, number, first + dim - array.batch_dim - 2)
            return _of_parts(array, [*array.parts()[:-1], values], shape)
        return coalesced(COOArray(*_slice(coo(array), dim, number), shape))
    if dim >= array.sparse_dim:
        return COOArray(array.indices, np.take(array.values, number, dim - array.sparse_dim + 1), shape)
    if array.sparse_dim > 1:
        return COOArray(*_slice(array, dim, number), shape)
    here = array.indices[dim] == number
    values = array.values[here]
    return np.asarray((np.logical_or if values.dtype.kind == "b" else np.add).reduce(values, 0, values.dtype))


def _of_parts(array: CompressedArray, parts: list[np.ndarray], shape: tuple[int, ...]) -> CompressedArray:
    """An array of the same layout as this one, of other parts and shape."""
    compressed, plain, values = parts
    return type(array)(compressed, plain, values, shape)


def _slice(array: COOArray, dim: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices and values of a slice of a sparse dimension."""
    here = array.indices[dim] == number
    return np.delete(array.indices[:, here], dim, 0), array.values[here]


def narrowed(array: Any, dim: int, part: slice) -> Any:
    """A range of a dimension."""
    start, stop, step = part.indices(array.shape[dim])
    count = len(range(start, stop, step))
    if count == array.shape[dim]:
        return array
    shape = (*array.shape[:dim], count, *array.shape[dim + 1 :])
    if isinstance(array, CompressedArray):
        if dim >= array.batch_dim:
            raise RuntimeError(f"slice: not supported for {array.title} tensors; convert with to_sparse_coo() first")
        lead = (slice(None),) * dim
        return _of_parts(array, [p[(*lead, part)] for p in array.parts()], shape)
    if dim >= array.sparse_dim:
        lead = (slice(None),) * (dim - array.sparse_dim + 1)
        return COOArray(array.indices, array.values[(*lead, part)], shape, array.coalesced)
    place = array.indices[dim] - start
    here = (place >= 0) & (place < stop - start)
    if step != 1:
        here &= place % step == 0
    indices = array.indices[:, here]
    indices[dim] = place[here] // step
    return COOArray(indices, array.values[here], shape, array.coalesced)


def placed(g: Any, shape: tuple, shown: Any, given: tuple) -> COOArray:
    """The kernel of `embed_view`: zeros of `shape` with the elements of `g` where indexing took them from."""
    (index,) = given
    sizes, own = iter(shape), 0  # of each dimension: which it is in `g`, where it starts, in which steps
    steps: list[Any] = []
    for item in _whole(index, len(shape)):
        if item is None:
            own += 1
        elif item.__class__ is int:
            size = next(sizes)
            steps.append((None, item + size if item < 0 else item, 1))
        else:
            start, _, step = item.indices(next(sizes))
            steps.append((own, start, step))
            own += 1
    x = coo(g)
    inner = x.ndim - x.sparse_dim
    if inner and not (
        steps[-inner:] == [(d, 0, 1) for d in range(x.sparse_dim, x.ndim)] and shape[-inner:] == x.shape[-inner:]
    ):
        x, inner = coo_of_dense(dense(x), x.ndim), 0
    indices = np.empty((len(shape) - inner, x.indices.shape[1]), np.int64)
    for row, (own_dim, start, step) in zip(indices, steps):
        row[:] = start if own_dim is None else x.indices[own_dim] * step + start
    return COOArray(indices, x.values, shape)


def _whole(index: tuple, ndim: int) -> list:
    """The index with a slice for each dimension that it leaves out."""
    count = sum(1 for i in index if i is not None and i is not Ellipsis)
    whole = [slice(None)] * (ndim - count)
    at = index.index(Ellipsis) if Ellipsis in index else len(index)
    return [*index[:at], *whole, *index[at + 1 :]]
