"""Arrays that are not row-major (transposed, sliced, expanded, channels last), for kernels that need rows.

Elementwise kernels walk through memory in order: dimensions are permuted until the array is row-major, perhaps with
gaps, and the result is permuted back. All other kernels get copies. A transposed copy is made in blocks that stay in
the first-level cache, whereas NumPy's strides widely through memory; threads share the copy of rows that lie apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.layouts import inverse
from tensorgrad.rows import kernel_tables
from tensorgrad.settings import get_num_threads
from tensorgrad.storage.fresh import fresh

_BAND = 32  # rows that are copied in turn: two cache lines of each column
NEAR = 8  # elements that an element is away from the one before it, so that most of what is fetched is used
_SMALLEST = 4096  # elements from which copying by blocks is faster
_LONG, _SHARED = 16, 49152  # elements of a row, and of an array, that threads are worth to copy


def suits(array: Any) -> bool:
    """Returns whether a compiled kernel supports this array."""
    return array.__class__ is np.ndarray and array.dtype is F32 and array.flags.c_contiguous


def in_rows(array: np.ndarray) -> np.ndarray:
    """Returns the array in row-major order, copied if needed."""
    if array.flags.c_contiguous:
        return array
    row = kernel_tables.COMPILED.get("clone_copy")
    if row is not None and array.size >= _SMALLEST and row.available():
        copied = row.ready(array, "contiguous")
        if copied is not NotImplemented:
            return copied
    return np.ascontiguousarray(array)


# --- the order of dimensions, and steps: cached by shapes and strides, of which a program has few ---


@lru_cache(maxsize=1024)
def _order(shapes: tuple[tuple, ...], strides: tuple[tuple, ...]) -> tuple[list[int], list[int]] | None:
    """Returns the memory order of the dimensions, the outermost first, and its inverse; None if it is row-major.

    It is that of the first array that repeats no element.
    """
    for shape, steps in zip(shapes, strides, strict=True):
        if not any(s == 0 and n > 1 for n, s in zip(shape, steps, strict=True)):
            order = sorted(range(len(shape)), key=lambda d: -steps[d] if shape[d] > 1 else 0)
            return None if order == list(range(len(shape))) else (order, inverse(order))
    return None


def order(shape: tuple, strides: tuple) -> tuple[list[int], list[int]] | None:
    """Returns the memory order of one array's dimensions, and its inverse; None if it is row-major."""
    return _order((shape,), (strides,))


def whole(array: np.ndarray) -> bool:
    """Returns whether the strides are whole elements, and none is negative."""
    return bool(array.size) and all([s >= 0 and not s % 4 for s in array.strides])


class Together(NamedTuple):
    """How to walk through two arrays together: in the memory order of the first one."""

    shape: tuple[int, ...]  # of the result, in that order
    order: list[int] | None  # None if row-major
    back: list[int] | None  # the permutation that restores the result
    steps: tuple[tuple[int, int], ...]  # of both arrays in each dimension, the innermost first, in elements
    across: bool  # whether one of them has another order: then both must be copied to rows first


@lru_cache(maxsize=1024)
def together(xs: tuple, x_strides: tuple, ys: tuple, y_strides: tuple) -> Together | None:
    """Plans the walk for these shapes and strides; None if they do not broadcast, or a stride is negative."""
    rank = max(len(xs), len(ys))
    shapes = [(1,) * (rank - len(s)) + s for s in (xs, ys)]
    shape = tuple([m if n == 1 else n for n, m in zip(*shapes, strict=True)])
    if 0 in shape or any(n not in (1, m) for s in shapes for n, m in zip(s, shape, strict=True)):
        return None
    if any(s < 0 or s % 4 for s in (*x_strides, *y_strides)):
        return None
    steps = []
    for own, strides in zip(shapes, (x_strides, y_strides), strict=True):
        strides = (0,) * (rank - len(strides)) + strides
        steps.append(tuple([0 if n == 1 else s // 4 for n, s in zip(own, strides, strict=True)]))
    turned = _order((shape, shape), tuple(steps))
    dims = range(rank) if turned is None else turned[0]
    pairs = tuple([(steps[0][d], steps[1][d]) for d in reversed(dims)])
    across = max(next((pair for d, pair in zip(reversed(dims), pairs, strict=True) if shape[d] > 1), (0, 0))) > NEAR
    order, back = turned or (None, None)
    return Together(tuple([shape[d] for d in dims]), order, back, pairs, across)


def _gaps(value: Any) -> bool:
    return value.__class__ is np.ndarray and value.dtype is F32 and not value.flags.c_contiguous


# --- kernels called again, for arrays that they declined ---


def elementwise(kernel: Callable, given: tuple) -> Any:
    """Runs an elementwise kernel on arrays of one shape, some of which are not row-major."""
    arrays = [value for value in given if value.__class__ is np.ndarray]
    if not any(map(_gaps, arrays)) or any([a.shape != arrays[0].shape for a in arrays]):
        return NotImplemented
    found = _order(tuple([a.shape for a in arrays]), tuple([a.strides for a in arrays]))
    if found is not None:
        given = tuple([v.transpose(found[0]) if v.__class__ is np.ndarray else v for v in given])
        made = kernel(*given)
    if found is None or made is NotImplemented:
        made = kernel(*[in_rows(v) if v.__class__ is np.ndarray else v for v in given])
    return made if found is None or made is NotImplemented else made.transpose(found[1])


def by_rows(kernel: Callable, given: tuple) -> Any:
    """Runs a kernel on arrays some of which are not row-major."""
    if not any(map(_gaps, given)):
        return NotImplemented
    return kernel(*[in_rows(value) if _gaps(value) else value for value in given])


# --- copies ---


def _merged(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[list[int]]:
    """Joins dimensions that follow each other in memory: size, stride, and stride of the copy; the innermost first."""
    dims: list[list[int]] = []
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if dims and stride == dims[-1][0] * dims[-1][1]:
            dims[-1][0] *= size
        else:
            dims.append([size, stride, step])
        step *= size
    return dims


@lru_cache(maxsize=512)
def _plan(shape: tuple[int, ...], strides: tuple[int, ...], lanes: int) -> tuple[int, ...] | None:
    """Plans a copy by blocks: the numbers of the loop, in elements; None if NumPy does as well."""
    dims = _merged(shape, strides)
    rows = [dim for dim in dims[1:] if dim[1] == 1]
    if len(dims) > 3 or len(rows) != 1 or dims[0][1] <= 1 or min(dims[0][0], rows[0][0]) < lanes:
        return None
    inner, *rest = dims
    rest.remove(rows[0])
    (count, batch, batch_to), (height, _, row_to) = (rest or [[1, 0, 0]])[0], rows[0]
    return count, height, inner[0], batch, inner[1], batch_to, row_to


@lru_cache(maxsize=512)
def _rows_plan(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Plans a copy by rows: their length, and the sizes and strides of up to three dimensions; None for others."""
    dims = _merged(shape, strides)
    if not 2 <= len(dims) <= 4 or dims[0][1] != 1 or dims[0][0] < _LONG:
        return None
    (width, _, _), *rest = dims
    rest += [[1, 0, 0]] * (3 - len(rest))
    return (width, *[number for size, stride, _ in rest for number in (size, stride)])


def _clone() -> Callable:
    from tensorgrad.kernels.compiled.runtime import thread_pool
    from tensorgrad.kernels.compiled.runtime.language import MEMORY
    from tensorgrad.kernels.compiled.runtime.launch import shared
    from tensorgrad.kernels.compiled.simd.vectors import LANES, turn

    @shared(f"void({MEMORY}, float32[::1], UniTuple(int64, 7), int64, int64)")
    def copy(x, out, numbers, first, last):
        _, height, width, batch, apart, batch_to, row_to = numbers
        bands = -(-height // _BAND)
        for n in range(first, last):
            band = n % bands * _BAND
            start, to, end = n // bands * batch, n // bands * batch_to, min(band + _BAND, height)
            for column in range(0, width, LANES):
                c = min(column, width - LANES)  # the last block begins earlier, and writes some numbers again
                for row in range(band, end, LANES):
                    r = min(row, height - LANES)
                    turn(x, start + c * apart + r, apart, LANES, out, to + r * row_to + c, row_to, LANES)

    @shared(f"void({MEMORY}, float32[::1], UniTuple(int64, 7), int64, int64)")
    def copy_rows(x, out, numbers, first, last):
        width, near, near_step, far, far_step, _, farthest_step = numbers
        for n in range(first, last):
            block = n // near
            start = n % near * near_step + block % far * far_step + block // far * farthest_step
            row, to = x[start : start + width], out[n * width : (n + 1) * width]
            for i in range(width):
                to[i] = row[i]

    def in_rows(array):
        if not whole(array):
            return NotImplemented
        steps = tuple([s // 4 for s in array.strides])
        plan = _plan(array.shape, steps, LANES)
        if plan is None:
            rows = _rows_plan(array.shape, steps) if array.size >= _SHARED and get_num_threads() > 1 else None
            if rows is None:
                return NotImplemented
            out = fresh(array.size, F32).reshape(array.shape)
            thread_pool.run(copy_rows, array.size // rows[0], (array, out.reshape(-1), rows), array.size)
            return out
        out = fresh(array.size, F32).reshape(array.shape)
        thread_pool.run(copy, plan[0] * -(-plan[1] // _BAND), (array, out.reshape(-1), plan), 2 * array.size)
        return out

    def kernel(array, memory_format):
        if array.__class__ is not np.ndarray or array.dtype is not F32 or memory_format is None:
            return NotImplemented
        if memory_format == "contiguous":
            return in_rows(array)
        inside = range(2, array.ndim)
        made = in_rows(array.transpose(0, *inside, 1))
        return made if made is NotImplemented else made.transpose(0, array.ndim - 1, *[d - 1 for d in inside])

    return kernel


def reshaped(x, size):
    """Copies an array to another shape."""
    return in_rows(x).reshape(size) if x.__class__ is np.ndarray and x.dtype is F32 else NotImplemented


KERNELS: dict[str, Callable[[], Callable]] = {"clone": _clone, "reshaped": lambda: reshaped}
