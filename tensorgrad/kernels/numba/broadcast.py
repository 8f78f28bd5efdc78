"""Arithmetic on float32 arrays of different shapes (a bias, a factor for each row or channel), and selection.

NumPy copies operands that broadcast through a buffer; here each row is one loop over the original memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from itertools import zip_longest

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba import layout
from tensorgrad.kernels.numba.pointwise import suits
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.language import inlined, inner
from tensorgrad.kernels.numba.runtime.launch import shared

_SHORTEST = 8  # elements of a row: NumPy is no slower for shorter ones
_COST = 0.75
_WALKED = ((1, 1), (0, 1), (1, 0))  # steps of both arrays within a row


@lru_cache(maxsize=512)
def plan(xs: tuple, ys: tuple):
    """Plans a joint walk over two arrays without gaps: the result's shape, and `walk`'s numbers; else None.

    The numbers are: elements per row, rows per plane, and for each array its step from plane to plane, from row to row,
    and within a row (0 or 1).
    """
    shape: list[int] = []
    steps: list[tuple] = []
    step = [1, 1]
    for n, m in zip_longest(reversed(xs), reversed(ys), fillvalue=1):
        if n != m and 1 not in (n, m):
            return None  # NumPy raises the error
        shape.append(m if n == 1 else n)
        steps.append((0 if n == 1 else step[0], 0 if m == 1 else step[1]))
        step = [step[0] * n, step[1] * m]
    numbers = walked(tuple(shape), tuple(steps))
    return None if numbers is None else (tuple(reversed(shape)), numbers)


@lru_cache(maxsize=512)
def walked(shape: tuple[int, ...], steps: tuple[tuple[int, int], ...]) -> tuple[int, ...] | None:
    """Returns the numbers for `walk` from the result's dimensions and both arrays' steps, the innermost first."""
    dims: list[tuple] = []
    for longer, here in zip(shape, steps, strict=True):
        if longer == 1:
            continue
        if dims and all(a == dims[-1][0] * b for a, b in zip(here, dims[-1][1:], strict=True)):
            dims[-1] = (dims[-1][0] * longer, *dims[-1][1:])  # it continues the inner dimension
        else:
            dims.append((longer, *here))
    if 0 in shape or not dims or len(dims) > 3 or dims[0][0] < _SHORTEST or dims[0][1:] not in _WALKED:
        return None
    row, *outer = dims
    outer += [(1, 0, 0)] * (2 - len(outer))
    (rows, *in_plane), (_, *planes) = outer
    return row[0], rows, planes[0], in_plane[0], row[1], planes[1], in_plane[1], row[2]


@inlined
def _start(row, rows, plane_step, row_step):
    return row // rows * plane_step + row % rows * row_step


def _walk(function):
    """Makes the loop of a function of two scalars over elements first ... last of the result."""

    @inner(fastmath={"contract"})
    def arrays(a, b, to):
        for i in range(to.size):
            to[i] = function(a[i], b[i])

    @inner(fastmath={"contract"})
    def one_right(a, y, to):
        for i in range(to.size):
            to[i] = function(a[i], y)

    @inner(fastmath={"contract"})
    def one_left(x, b, to):
        for i in range(to.size):
            to[i] = function(x, b[i])

    @shared("void(float32[::1], float32[::1], float32[::1], UniTuple(int64, 8), int64, int64)")
    def walk(x, y, out, numbers, first, last):
        length, rows, x_plane, x_row, x_step, y_plane, y_row, y_step = numbers
        at, column, row = first, first % length, first // length
        plane, row = row // rows, row % rows  # a division takes as long as dozens of additions: none in the loop
        while at < last:
            n = min(length - column, last - at)
            p = plane * x_plane + row * x_row + column * x_step
            q = plane * y_plane + row * y_row + column * y_step
            to = out[at : at + n]
            if x_step == 0:
                one_left(x[p], y[q : q + n], to)
            elif y_step == 0:
                one_right(x[p : p + n], y[q], to)
            else:
                arrays(x[p : p + n], y[q : q + n], to)
            at, column, row = at + n, 0, row + 1
            if row == rows:
                plane, row = plane + 1, 0

    return walk


def _joined(function) -> Callable:
    walk = _walk(inlined(function))

    def kernel(x, y):
        if not suits(x) or not suits(y):
            return in_order(x, y)
        planned = plan(x.shape, y.shape)
        if planned is None:
            return NotImplemented
        shape, numbers = planned
        out = np.empty(shape, F32)
        thread_pool.run(walk, out.size, (x.reshape(-1), y.reshape(-1), out.reshape(-1), numbers), int(out.size * _COST))
        return out

    def in_order(x, y):
        """The same for arrays with gaps, repeated elements, or other memory orders."""
        if x.__class__ is not np.ndarray or y.__class__ is not np.ndarray or x.dtype is not F32 or y.dtype is not F32:
            return NotImplemented
        found = layout.together(x.shape, x.strides, y.shape, y.strides)
        if found is None:
            return NotImplemented
        if found.across:
            if x.shape != y.shape:
                return NotImplemented
            order = range(x.ndim) if found.order is None else found.order
            given = [layout.in_rows(v.transpose(order)) for v in (x, y)]
            out = kernel(*given)
        else:
            numbers = walked(found.shape[::-1], found.steps)
            if numbers is None:
                return NotImplemented
            out = np.empty(found.shape, F32)
            memory = layout.flat(x), layout.flat(y), out.reshape(-1)
            thread_pool.run(walk, out.size, (*memory, numbers), int(out.size * _COST))
        return out if found.back is None or out is NotImplemented else out.transpose(found.back)

    return kernel


# --- selection -------------------------------------------------------------------------------------------------------


@cache
def _chosen() -> Callable:
    """Selects x where a condition is true, else y; each is an array of the condition's shape, or a scalar."""

    @inner
    def arrays(c, x, y, to):
        for i in range(to.size):
            a, b = x[i], y[i]
            to[i] = a if c[i] else b

    @inner
    def one_right(c, x, y, to):
        for i in range(to.size):
            a = x[i]
            to[i] = a if c[i] else y

    @inner
    def one_left(c, x, y, to):
        for i in range(to.size):
            b = y[i]
            to[i] = x if c[i] else b

    @inner
    def copied(x, to):
        if x.size == 1:
            for i in range(to.size):
                to[i] = x[0]
        else:
            for i in range(to.size):
                to[i] = x[i]

    @shared("void(boolean[::1], float32[::1], float32[::1], float32[::1], UniTuple(int64, 8), int64, int64)")
    def walk(condition, x, y, out, numbers, first, last):
        """`numbers` are those of the result and the condition."""
        length, rows, _, _, _, c_plane, c_row, c_step = numbers
        at = first
        while at < last:
            row, column = at // length, at % length
            n = min(length - column, last - at)
            q = _start(row, rows, c_plane, c_row) + column * c_step
            to, p = out[at : at + n], at
            if c_step == 0:
                here = x if condition[q] else y
                copied(here[:1] if here.size == 1 else here[p : p + n], to)
            elif x.size == 1:
                one_left(condition[q : q + n], x[0], y[p : p + n], to)
            elif y.size == 1:
                one_right(condition[q : q + n], x[p : p + n], y[0], to)
            else:
                arrays(condition[q : q + n], x[p : p + n], y[p : p + n], to)
            at += n

    def choose(condition, x, y, shape):
        if not suits(x) or not suits(y) or condition.dtype.kind != "b" or not condition.flags.c_contiguous:
            return NotImplemented
        planned = plan(shape, condition.shape)
        if planned is None or planned[0] != shape:
            return NotImplemented
        for value in (x, y):
            if value.shape != shape and (value.size != 1 or value.ndim > len(shape)):
                return NotImplemented
        out = np.empty(shape, F32)
        flat = condition.reshape(-1), x.reshape(-1), y.reshape(-1), out.reshape(-1)
        thread_pool.run(walk, out.size, (*flat, planned[1]), int(out.size * _COST))
        return out

    return choose


def _where() -> Callable:
    choose = _chosen()

    def kernel(condition, x, y):
        if x.dtype is not F32 or y.dtype is not F32:
            return NotImplemented
        return choose(condition, x, y, max(x, y, key=lambda a: a.size).shape)

    return kernel


def _masked_fill() -> Callable:
    choose = _chosen()

    def kernel(x, mask, value):
        if x.dtype is not F32:
            return NotImplemented
        with np.errstate(all="ignore"):
            return choose(mask, np.full(1, value, F32), x, x.shape)

    return kernel


def _add(a, b):
    return a + b


def _sub(a, b):
    return a - b


def _mul(a, b):
    return a * b


def _div(a, b):
    return a / b


KERNELS: dict[str, Callable[[], Callable]] = {
    "add": lambda: _joined(_add), "sub": lambda: _joined(_sub), "mul": lambda: _joined(_mul),
    "div": lambda: _joined(_div), "where": _where, "masked_fill": _masked_fill,
}  # fmt: skip
