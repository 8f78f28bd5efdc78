"""The parts of sparse arrays: their values, and arrays with the pattern of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.kernels.sparse.convert import coo, like
from tensorgrad.kernels.sparse.coordinates import at, found_in, values_at
from tensorgrad.storage.sparse import CompressedArray, COOArray, SparseArray


def values(array: Any) -> np.ndarray:
    """The stored values."""
    return array.values


def with_values(array: Any, values: np.ndarray) -> Any:
    """The pattern of `array` with other values."""
    return array.with_values(values)


def values_at_pattern(g: Any, pattern: Any) -> np.ndarray:
    """What `g`, sparse or dense, has where `pattern` stores its values, in their order."""
    if isinstance(g, SparseArray) and same_pattern(g, pattern):
        return g.values
    if pattern.__class__ is COOArray:
        return values_at(coo(g), pattern.indices) if isinstance(g, SparseArray) else at(g, pattern.indices)
    # Numbers of the pattern's own elements tell where each of them goes.
    numbers = np.arange(1, pattern.values.size + 1).reshape(pattern.values.shape)
    places = coo(pattern.with_values(numbers))
    found = values_at(coo(g), places.indices) if isinstance(g, SparseArray) else at(g, places.indices)
    made = np.zeros(pattern.values.size, found.dtype)
    made[places.values.reshape(-1) - 1] = found.reshape(-1)
    return made.reshape(pattern.values.shape)


def same_pattern(a: Any, b: Any) -> bool:
    """Whether two arrays of one layout store elements at the same places, in the same order."""
    if a.__class__ is not b.__class__ or a.shape != b.shape or a.values.shape != b.values.shape:
        return False
    return all(x is y or np.array_equal(x, y) for x, y in zip(a.parts()[:-1], b.parts()[:-1]))


def shared(x: CompressedArray, pattern: CompressedArray) -> Any:
    """The elements of `x` whose places `pattern` stores as well, in its layout."""
    found, wanted = coo(x), coo(pattern)
    _, there = found_in(wanted, found.indices)
    return like(COOArray(found.indices[:, there], found.values[there], x.shape, coalesced=True), pattern)


def mask(x: Any, pattern: Any) -> Any:
    """The elements of `x`, sparse or dense, where `pattern` stores its own, in its layout."""
    return pattern.with_values(values_at_pattern(x, pattern))
