"""From one layout to another.

Everything goes through coordinates (COO), except between CSR and COO, where only one array of indices differs. Batches
of compressed matrices are converted one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.kernels.sparse.coordinates import coalesced
from tensorgrad.storage.sparse import COMPRESSED, CompressedArray, COOArray, CSRArray
from tensorgrad.storage.stubs import STORAGES

# --- dense and COO -------------------------------------------------------------------------------------------------


def coo_of_dense(x: np.ndarray, sparse_dim: int) -> COOArray:
    """The elements that are not zero; with dense dimensions, the parts that are not all zeros."""
    there = (x != 0).any(tuple(range(sparse_dim, x.ndim)))
    found = np.nonzero(there) if sparse_dim else (np.nonzero(np.reshape(there, 1))[0],)
    indices = np.stack(found).astype(np.int64) if sparse_dim else np.empty((0, len(found[0])), np.int64)
    values = x[tuple(indices)] if sparse_dim else np.repeat(x[None], len(found[0]), 0)
    return COOArray(indices, np.ascontiguousarray(values), x.shape, coalesced=True)


def elements(array: COOArray) -> COOArray:
    """A hybrid array with all of its dimensions sparse."""
    inner = array.shape[array.sparse_dim :]
    places = np.indices(inner).reshape(len(inner), -1)
    indices = np.concatenate([np.repeat(array.indices, places.shape[1], 1), np.tile(places, len(array.values))])
    return COOArray(indices, array.values.reshape(-1), array.shape)


def dense_of_coo(array: COOArray) -> np.ndarray:
    """The whole array, with its zeros."""
    array = coalesced(array)
    dense = np.zeros(array.shape, array.dtype)
    if len(array.indices):
        dense[tuple(array.indices)] = array.values
    elif len(array.values):
        dense[...] = array.values[0]
    return dense


# --- COO and compressed --------------------------------------------------------------------------------------------


def pointers(lines: np.ndarray, count: int, dtype: Any = np.int64) -> np.ndarray:
    """Where each of `count` lines begins, from the sorted line numbers of the elements.

    >>> import numpy as np
    >>> from tensorgrad.kernels.sparse.convert import pointers
    >>> pointers(np.array([0, 2, 2]), 3).tolist()
    [0, 1, 1, 3]
    """
    if count < len(lines):
        return np.searchsorted(lines, np.arange(count + 1)).astype(dtype, copy=False)
    return counted(lines, count, dtype)


def counted(lines: np.ndarray, count: int, dtype: Any = np.int64) -> np.ndarray:
    """The same from line numbers in any order: where each line would begin."""
    made = np.zeros(count + 1, dtype)
    np.cumsum(np.bincount(lines, minlength=count), out=made[1:])
    return made


def lines_of(compressed: np.ndarray) -> np.ndarray:
    """The line of each element, from where the lines begin."""
    return np.repeat(np.arange(len(compressed) - 1, dtype=compressed.dtype), np.diff(compressed))


def compressed_of_coo(array: COOArray, kind: type[CompressedArray], block: tuple = (1, 1), dtype: Any = np.int64):
    """A matrix as CSR, CSC, BSR or BSC."""
    array = coalesced(array)
    (rows, columns), values, shape = array.indices, array.values, array.shape
    if not kind.blocked:
        if not kind.by_rows:
            order = np.lexsort((rows, columns))
            rows, columns, values = columns[order], rows[order], values[order]
        lines = shape[0 if kind.by_rows else 1]
        return kind(pointers(rows, lines, dtype), columns.astype(dtype, copy=False), values, shape)
    (high, wide), inner = block, values.shape[1:]
    across, down = shape[1] // wide, shape[0] // high
    tiles = (rows // high) * across + columns // wide if kind.by_rows else (columns // wide) * down + rows // high
    found, tile = np.unique(tiles, return_inverse=True)
    made = np.zeros((len(found), high, wide, *inner), values.dtype)
    made[tile, rows % high, columns % wide] = values
    per_line = across if kind.by_rows else down
    lines = down if kind.by_rows else across
    return kind(pointers(found // per_line, lines, dtype), (found % per_line).astype(dtype), made, shape)


def coo_of_compressed(array: CompressedArray) -> COOArray:
    """A compressed array as COO; a batch becomes sparse dimensions."""
    if array.batch_dim:
        return _stacked(array)
    lines, plain, values = lines_of(array.compressed), array.plain, array.values
    if array.blocked:
        high, wide = array.block
        inner = values.shape[3:]
        rows, columns = (lines, plain) if array.by_rows else (plain, lines)
        down, across = np.meshgrid(np.arange(high), np.arange(wide), indexing="ij")
        rows = (rows[:, None, None] * high + down).reshape(-1)
        columns = (columns[:, None, None] * wide + across).reshape(-1)
        made = COOArray(np.stack([rows, columns]).astype(np.int64), values.reshape(-1, *inner), array.shape)
        return coalesced(made)
    rows, columns = (lines, plain) if array.by_rows else (plain, lines)
    made = COOArray(np.stack([rows, columns]).astype(np.int64), values, array.shape)
    return coalesced(made)


def _stacked(array: CompressedArray) -> COOArray:
    """The matrices of a batch as one COO array."""
    indices, values = [], []
    for place in np.ndindex(array.shape[: array.batch_dim]):
        part = coo_of_compressed(matrix_of(array, place))
        batch = np.repeat(np.array(place, np.int64)[:, None], part.indices.shape[1], 1)
        indices.append(np.concatenate([batch, part.indices]))
        values.append(part.values)
    if not indices:
        return COOArray.without_elements(array.shape, array.dtype, array.dense_dim)
    return COOArray(np.concatenate(indices, 1), np.concatenate(values), array.shape, coalesced=True)


def matrix_of(array: CompressedArray, place: tuple) -> CompressedArray:
    """One matrix of a batch."""
    shape = array.shape[array.batch_dim :]
    return type(array)(array.compressed[place], array.plain[place], array.values[place], shape)


def batch_of(matrices: list[CompressedArray], batch: tuple[int, ...], kind: type[CompressedArray]) -> CompressedArray:
    """Compressed matrices as a batch. Raises: RuntimeError unless each stores as many elements."""
    if len({m.plain.shape[-1] for m in matrices}) > 1:
        raise RuntimeError(
            "Expect the same number of specified elements per batch, but found "
            f"{sorted({m.plain.shape[-1] for m in matrices})}"
        )
    compressed, plain, values = (
        np.stack(each).reshape(*batch, *each[0].shape) for each in zip(*(m.parts() for m in matrices))
    )
    return kind(compressed, plain, values, (*batch, *matrices[0].shape))


def compressed_of_dense(x: np.ndarray, kind: type[CompressedArray], block: tuple, dense_dim: int) -> CompressedArray:
    """A matrix, or a batch of them, as CSR, CSC, BSR or BSC. (With blocks, those that are not all zeros.)"""
    batch = x.shape[: x.ndim - 2 - dense_dim]
    if not batch:
        return compressed_of_coo(coo_of_dense(x, 2), kind, block)
    if 0 in batch:
        return kind.without_elements(x.shape, x.dtype, dense_dim, block)
    return batch_of([compressed_of_dense(x[place], kind, block, dense_dim) for place in np.ndindex(batch)], batch, kind)


def dense_of_compressed(array: CompressedArray) -> np.ndarray:
    """The whole array, with its zeros."""
    return dense_of_coo(coo_of_compressed(array))


def compressed_of_compressed(array: CompressedArray, kind: type[CompressedArray], block: tuple) -> CompressedArray:
    """Another compressed layout, or other blocks."""
    if kind is type(array) and (not kind.blocked or tuple(block) == tuple(array.block)):
        return array.copy()
    if array.batch_dim:
        batch = array.shape[: array.batch_dim]
        return batch_of(
            [compressed_of_compressed(matrix_of(array, place), kind, block) for place in np.ndindex(batch)], batch, kind
        )
    return compressed_of_coo(coo_of_compressed(array), kind, block, array.plain.dtype)


# --- any to any ----------------------------------------------------------------------------------------------------


def dense(array: Any) -> np.ndarray:
    """A dense array of the same elements."""
    return dense_of_coo(array) if array.__class__ is COOArray else dense_of_compressed(array)


def coo(array: Any) -> COOArray:
    """A COO array of the same elements."""
    return array if array.__class__ is COOArray else coo_of_compressed(array)


def csr(array: Any) -> CSRArray:
    """A matrix as CSR, without copying one that is."""
    if array.__class__ is CSRArray:
        return array
    return compressed_of_coo(coo(array), CSRArray)


def to_layout(array: Any, layout: Any, block: tuple = (1, 1), dense_dim: int = 0, sparse_dim: int | None = None):
    """An array of any layout (a dense one too) as one of a sparse layout."""
    kind = COMPRESSED.get(layout)
    if array.__class__ is np.ndarray:
        if kind is None:
            return coo_of_dense(array, array.ndim - dense_dim if sparse_dim is None else sparse_dim)
        return compressed_of_dense(array, kind, block, dense_dim)
    if kind is None:
        made = coo(array).copy()
        made.coalesced = array.__class__ in (COOArray, CSRArray) or len(made.values) < 2  # as PyTorch knows it
        return made
    if array.__class__ is COOArray:
        if array.sparse_dim > 2:
            return _batch_of_coo(array, kind, block)
        if array.sparse_dim != 2:
            raise RuntimeError(
                f"conversion to {kind.title} from a sparse tensor with {array.sparse_dim} sparse dimensions: expected 2"
            )
        return compressed_of_coo(array, kind, block)
    return compressed_of_compressed(array, kind, block)


def _batch_of_coo(array: COOArray, kind: type[CompressedArray], block: tuple) -> CompressedArray:
    """A COO array, whose last two sparse dimensions are those of matrices, as a batch of compressed ones."""
    array, first = coalesced(array), array.sparse_dim - 2
    batch = array.shape[:first]
    if 0 in batch:
        return kind.without_elements(array.shape, array.dtype, array.ndim - array.sparse_dim, block)
    matrices = []
    for place in np.ndindex(batch):
        here = (array.indices[:first] == np.array(place)[:, None]).all(0)
        part = COOArray(array.indices[first:, here], array.values[here], array.shape[first:], coalesced=True)
        matrices.append(compressed_of_coo(part, kind, block))
    return batch_of(matrices, batch, kind)


def like(array: Any, model: Any) -> Any:
    """An array in the layout of `model`, with its blocks."""
    if model.__class__ is np.ndarray:
        return dense(array)
    block = getattr(model, "block", (1, 1))
    dense_dim = model.ndim - model.sparse_dim if model.__class__ is COOArray else model.dense_dim
    return to_layout(array, STORAGES[model.__class__].layout, block, dense_dim)


def to_dense(array: Any, masked: bool) -> np.ndarray:
    """The kernel of `sparse_to_dense`; `masked` concerns the gradient."""
    return dense(array)


def cast(array: Any, dtype: Any) -> Any:
    """The kernel of `to_copy`: another dtype."""
    return STORAGES[array.__class__].cast(array, dtype.numpy)


def clone(array: Any, memory_format: str | None) -> Any:
    """The kernel of `clone_copy`."""
    return array.copy()
