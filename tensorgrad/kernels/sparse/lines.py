"""The stored elements of a matrix by rows or by columns, as products need them, whatever its layout.

An order is computed once for each pattern: an adjacency matrix that is multiplied in every step is sorted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorgrad.kernels.sparse.convert import coo, counted, lines_of, pointers
from tensorgrad.rows.kernel_tables import run_compiled
from tensorgrad.storage.sparse import CompressedArray, COOArray


@dataclass
class Lines:
    """Line i has the elements from `starts[i]` to `starts[i + 1]`; element k is at `places[k]` of its line."""

    starts: np.ndarray  # int64, one more than lines
    places: np.ndarray  # int64
    order: np.ndarray | None  # which stored element each of them is; None: in the order in which they are stored
    short: tuple[np.ndarray, np.ndarray] | None = None  # places and starts as 32-bit integers, for SciPy

    def values_of(self, array: Any) -> np.ndarray:
        """The values of the array in this order."""
        return np.ascontiguousarray(array.values if self.order is None else array.values[self.order])


def by_rows(array: Any) -> Lines:
    """The elements of a matrix row by row. Equal coordinates stay apart: products add them anyway."""
    return _lines(array, "rows", 0)


def by_columns(array: Any) -> Lines:
    """The elements of a matrix column by column."""
    return _lines(array, "columns", 1)


def _lines(array: Any, name: str, of: int) -> Lines:
    found = array.orders.get(name)
    if found is None:
        found = array.orders[name] = _computed(array, of)
    return found


def _computed(array: Any, of: int) -> Lines:
    if isinstance(array, CompressedArray):
        plain = array.plain.astype(np.int64, copy=False)
        if array.by_rows == (of == 0):
            return Lines(array.compressed.astype(np.int64, copy=False), plain, None)
        lines, places, in_order = plain, lines_of(array.compressed).astype(np.int64, copy=False), False
    else:
        lines, places = array.indices[of], array.indices[1 - of]
        in_order = of == 0 and array.coalesced
    if in_order or (lines[1:] >= lines[:-1]).all():
        return Lines(pointers(lines, array.shape[of]), np.ascontiguousarray(places), None)
    starts = counted(lines, array.shape[of])
    order = sorted_by(lines, starts)
    return Lines(starts, places[order], order)


def sorted_by(lines: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The elements in the order of their lines, which begin at `starts`; those of one line as they were."""
    made = run_compiled("sparse_order", lines.size, np.ascontiguousarray(lines), starts)
    return np.argsort(lines, kind="stable") if made is NotImplemented else made


def unblocked(array: Any) -> Any:
    """The matrix in a layout without blocks."""
    return coo(array) if getattr(array, "blocked", False) else array


def transposed(array: COOArray) -> COOArray:
    """The transpose of a matrix, as COO."""
    return COOArray(array.indices[::-1], array.values, array.shape[::-1])
