"""Coordinates of stored elements: as one number each, in order, each once."""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.rows.kernel_tables import run_compiled
from tensorgrad.storage.sparse import COOArray


def keys(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """One number for each coordinate, in the order of rows: equal coordinates have equal numbers.

    >>> import numpy as np
    >>> from tensorgrad.kernels.sparse.coordinates import keys
    >>> keys(np.array([[0, 1], [2, 0]]), (2, 3)).tolist()
    [2, 3]
    """
    count = indices.shape[1]
    if not indices.shape[0]:
        return np.zeros(count, np.int64)
    if math.prod(max(n, 1) for n in shape[: indices.shape[0]]) >= 2**63:  # ranks stand for numbers that are too large
        order = np.lexsort(indices[::-1])
        new = np.ones(count, bool)
        new[1:] = (indices[:, order[1:]] != indices[:, order[:-1]]).any(0)
        ranks = np.empty(count, np.int64)
        ranks[order] = np.cumsum(new)
        return ranks
    found = indices[0].astype(np.int64)
    for column, size in zip(indices[1:], shape[1:]):
        found = found * size + column
    return found


def coalesced(array: COOArray) -> COOArray:
    """The same tensor with each coordinate once, in order: values of equal coordinates are added."""
    if array.coalesced:
        return array
    found = keys(array.indices, array.shape)
    indices, values = array.indices, array.values
    if (found[1:] > found[:-1]).all():
        return COOArray(indices, values, array.shape, coalesced=True)
    order = None if (found[1:] >= found[:-1]).all() else argsort(found)
    ordered = found if order is None else found[order]
    new = np.ones(len(found), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    firsts = starts if order is None else order[starts]
    return COOArray(indices[:, firsts], sums(values, order, starts), array.shape, coalesced=True)


def argsort(numbers: np.ndarray) -> np.ndarray:
    """The order of numbers that are not negative; equal ones stay as they are."""
    made = run_compiled("sparse_argsort", numbers.size, numbers)
    if made is not NotImplemented:
        return made
    bits = len(numbers).bit_length()
    if not numbers.size or int(numbers.max()).bit_length() + bits > 63:
        return np.argsort(numbers, kind="stable")
    # A number and its position as one integer: these are all different, and sorting integers is far faster.
    packed = (numbers.astype(np.int64, copy=False) << bits) | np.arange(len(numbers))
    packed.sort()
    return packed & ((1 << bits) - 1)


def sums(values: np.ndarray, order: np.ndarray | None, starts: np.ndarray) -> np.ndarray:
    """The sums of groups of values (n, ...), which begin at `starts` of the order."""
    made = run_compiled("sparse_sums", values.size, values, order, starts)
    if made is not NotImplemented:
        return made
    if values.ndim > 1 and len(starts):
        return _sums_of_rows(values, order, starts)
    values = values if order is None else values[order]
    if len(starts) == len(values):
        return values
    add = np.logical_or if values.dtype.kind == "b" else np.add
    return add.reduceat(values, starts, axis=0, dtype=values.dtype)


def add_rows(table: np.ndarray, array: COOArray, factor: float) -> None:
    """table += factor · array, in place. Coordinates may repeat."""
    rows = array.indices[0]
    if array.sparse_dim == 1 and table.ndim == 2:
        made = run_compiled("sparse_add_rows", array.values.size, table, rows, array.values, factor)
        if made is not NotImplemented:
            return
        if not array.coalesced and rows.size:
            _add_repeated_rows(table, array, factor)
            return
    array = coalesced(array)
    change = array.values if factor == 1 else array.values * table.dtype.type(factor)
    table[tuple(array.indices)] += change.astype(table.dtype, copy=False)


def _add_repeated_rows(table: np.ndarray, array: COOArray, factor: float) -> None:
    """The same for rows of which some occur more than once: the sums of only these are computed first."""
    rows = array.indices[0]
    order = argsort(rows)
    ordered = rows[order]
    again = ordered[1:] == ordered[:-1]
    several = np.concatenate([again, [False]]) | np.concatenate([[False], again])
    alike = order[several]
    if 2 * len(alike) > len(rows):  # most of them
        add_rows(table, coalesced(array), factor)
        return
    sums_ = coalesced(COOArray(rows[None, alike], array.values[alike], array.shape))
    right = table[sums_.indices[0]]
    made = table.take(rows, 0)
    for whole, values in ((made, array.values), (right, sums_.values)):
        change = values if factor == 1 else values * table.dtype.type(factor)
        whole += change.astype(table.dtype, copy=False)
    table[rows] = made  # wrong where rows occur more than once
    table[sums_.indices[0]] = right


FEW = 64  # rows of a group that are added one after the other


def _sums_of_rows(values: np.ndarray, order: np.ndarray | None, starts: np.ndarray) -> np.ndarray:
    """The same for rows: the first rows of all groups, then all second ones, ..."""
    add = np.logical_or if values.dtype.kind == "b" else np.add
    counts = np.diff(np.append(starts, len(values)))
    most = int(counts.max())
    if most > FEW:  # few groups, or one that is far larger than the others
        return add.reduceat(values if order is None else values[order], starts, axis=0, dtype=values.dtype)
    made = values[starts if order is None else order[starts]]
    for nth in range(1, most):
        groups = np.flatnonzero(counts > nth)
        rows = starts[groups] + nth
        made[groups] = add(made[groups], values[rows if order is None else order[rows]])
    return made


def at(dense: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The elements (or dense parts) of a dense array at these coordinates."""
    return dense[tuple(indices)] if len(indices) else np.repeat(dense[None], indices.shape[1], 0)


def found_in(array: COOArray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where these coordinates are stored in a coalesced array: positions, and whether each is there."""
    have, wanted = keys_alike(array.indices, indices, array.shape)
    positions = np.minimum(np.searchsorted(have, wanted), max(len(have) - 1, 0))
    if not len(have):
        return positions, np.zeros(len(wanted), bool)
    return positions, have[positions] == wanted


def keys_alike(first: np.ndarray, second: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers for the coordinates of two arrays of one shape, equal where the coordinates are."""
    both = keys(np.concatenate([first, second], 1), shape)
    return both[: first.shape[1]], both[first.shape[1] :]


def values_at(array: COOArray, indices: np.ndarray) -> np.ndarray:
    """The values of a sparse array at these coordinates, zeros where none is stored."""
    array = coalesced(array)
    if array.indices.shape == indices.shape and np.array_equal(array.indices, indices):
        return array.values
    positions, there = found_in(array, indices)
    values = np.zeros((indices.shape[1], *array.values.shape[1:]), array.values.dtype)
    values[there] = array.values[positions[there]]
    return values
