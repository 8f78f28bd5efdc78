"""How one float32 array, or two together, are walked through: row by row, in the memory order of the first one.

Within a row each array has its own step. Rows whose elements are not adjacent (every other one; one number repeated, as
in an expanded gradient) are copied, a stretch that stays in the first-level cache at a time: one loop serves all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import zip_longest

import numpy as np
from llvmlite import ir

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba import layout
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.internals import array_at
from tensorgrad.kernels.numba.runtime.language import inner, intrinsic, types
from tensorgrad.kernels.numba.runtime.launch import Shared, of_numbers, shared

_SHORTEST = 8  # elements of a row: NumPy is no slower for shorter ones
_STRETCH = 2048  # elements that stay in the first-level cache together with others


@lru_cache(maxsize=512)
def plan(xs: tuple, ys: tuple):
    """Plans a joint walk over two arrays without gaps: the result's shape, and `walk`'s numbers; else None.

    The numbers are: elements per row, rows per plane, and for each array its step from plane to plane, from row to row,
    and within a row.
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
    if 0 in shape or not dims or len(dims) > 3 or dims[0][0] < _SHORTEST or not 0 < max(dims[0][1:]) <= layout.NEAR:
        return None
    row, *outer = dims
    outer += [(1, 0, 0)] * (2 - len(outer))
    (rows, *in_plane), (_, *planes) = outer
    return row[0], rows, planes[0], in_plane[0], row[1], planes[1], in_plane[1], row[2]


@lru_cache(maxsize=512)
def alone(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns the numbers of a walk through one array (as `plan` does); None if it has to be copied."""
    if layout.order(shape, strides) is not None:
        return None
    dims: list[tuple[int, int]] = []  # size and step, the innermost first
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if dims and stride // 4 == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0] * size, dims[-1][1])
        else:
            dims.append((size, stride // 4))
    if 0 in shape or not dims or len(dims) > 3 or dims[0][0] < _SHORTEST or dims[0][1] > layout.NEAR:
        return None
    (length, step), (rows, row_step), (_, plane_step) = (*dims, (1, 0), (1, 0))[:3]
    return length, rows, plane_step, row_step, step


@inner
def taken(x, at, step, to):
    """Copies elements that are `step` apart."""
    if step == 0:
        to[:] = x[at]
    elif step == 2:
        pairs = x[at : at + 2 * to.size - 1]
        for i in range(np.uint64(to.size)):
            to[i] = pairs[i + i]
    else:
        source = x[at:]
        for i in range(np.uint64(to.size)):
            to[i] = source[i * np.uint64(step)]


@intrinsic
def _numbers_at(typing, address, size):
    """The `size` float32 numbers at an address, as an array."""
    kind = types.Array(types.float32, 1, "C")

    def code(context, builder, signature, given):
        data = builder.inttoptr(given[0], ir.FloatType().as_pointer())
        itemsize = given[1].type(4)
        return array_at(context, builder, kind, data, [given[1]], [itemsize], itemsize)

    return kind(types.int64, types.int64), code


@intrinsic
def _call(typing, code, arguments):
    """Calls the C function of whole numbers at the address `code`."""

    def generate(context, builder, signature, given):
        numbers = [builder.extract_value(given[1], n) for n in range(len(arguments))]
        kind = ir.FunctionType(numbers[0].type, [number.type for number in numbers])
        return builder.call(builder.inttoptr(given[0], kind.as_pointer()), numbers)

    return types.int64(code, arguments), generate


@inner
def address(x):
    return np.int64(x.ctypes.data)


# The walk through one array is the same for all functions, and is compiled once for a family: it calls the loop over a
# stretch by its address. (Two arrays have a walk for each function, as sums and products took 10 % longer so.)


def loop_of_one(function) -> tuple[Shared, int]:
    """Returns the compiled walk through an array, and the address of its loop, which applies a scalar function."""

    @of_numbers("int64(int64, int64, int64)")
    def stretch(x, out, size):
        a, b = _numbers_at(x, size), _numbers_at(out, size)
        if x == out:  # arrays that may be the same are not vectorized
            for i in range(size):
                b[i] = function(b[i])
        else:
            for i in range(size):
                b[i] = function(a[i])
        return 0

    @shared("void(float32[::1], float32[::1], UniTuple(int64, 5), int64, int64, int64)")
    def unary(x, out, numbers, code, first, last):
        from_x, to = address(x), address(out)
        if from_x == to:
            _call(code, (to + 4 * first, to + 4 * first, last - first))
            return
        length, rows, plane_step, row_step, step = numbers
        held = np.empty(0 if step == 1 else min(length, _STRETCH), np.float32)
        most = held.size if held.size else length
        at, column, row = first, first % length, first // length
        plane, row = row // rows, row % rows  # a division takes as long as dozens of additions: none in the loop
        while at < last:
            n = min(length - column, last - at, most)
            p = plane * plane_step + row * row_step + column * step
            if step != 1:
                taken(x, p, step, held[:n])
            _call(code, (from_x + 4 * p if step == 1 else address(held), to + 4 * at, n))
            at, column = at + n, column + n
            if column == length:
                column, row = 0, row + 1
                if row == rows:
                    plane, row = plane + 1, 0

    return unary, stretch.address


def loop_of_two(function):
    """Makes the compiled loop of a function of two scalars over a range of the elements of the result."""

    @inner(fastmath={"contract"})
    def from_two(a, b, c):
        for i in range(c.size):
            c[i] = function(a[i], b[i])

    @shared("void(float32[::1], float32[::1], float32[::1], UniTuple(int64, 8), int64, int64)")
    def binary(x, y, out, numbers, first, last):
        length, rows, x_plane, x_row, x_step, y_plane, y_row, y_step = numbers
        most = length if x_step == 1 and y_step == 1 else min(length, _STRETCH)
        held = np.empty(0 if x_step == 1 else most, np.float32)
        other = np.empty(0 if y_step == 1 else most, np.float32)
        x_before, y_before = -1, -1  # the number that is repeated
        at, column, row = first, first % length, first // length
        plane, row = row // rows, row % rows
        while at < last:
            n = min(length - column, last - at, most)
            p = plane * x_plane + row * x_row + column * x_step
            q = plane * y_plane + row * y_row + column * y_step
            if x_step > 1 or (x_step == 0 and p != x_before):
                taken(x, p, x_step, held if x_step == 0 else held[:n])
                x_before = p
            if y_step > 1 or (y_step == 0 and q != y_before):
                taken(y, q, y_step, other if y_step == 0 else other[:n])
                y_before = q
            a, b = x[p : p + n] if x_step == 1 else held, y[q : q + n] if y_step == 1 else other
            from_two(a, b, out[at : at + n])
            at, column = at + n, column + n
            if column == length:
                column, row = 0, row + 1
                if row == rows:
                    plane, row = plane + 1, 0

    return binary


def joint(function: Callable, cost: float) -> Callable:
    """Makes the kernel of a function of two scalars, for arrays that broadcast.

    `cost` is an element's, relative to that of an addition.
    """
    loop = loop_of_two(function)

    def kernel(x, y):
        if not layout.suits(x) or not layout.suits(y):
            return in_order(x, y)
        planned = plan(x.shape, y.shape)
        if planned is None:
            return NotImplemented
        shape, numbers = planned
        out = np.empty(shape, F32)
        thread_pool.run(loop, out.size, (x.reshape(-1), y.reshape(-1), out.reshape(-1), numbers), int(out.size * cost))
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
            thread_pool.run(loop, out.size, (*memory, numbers), int(out.size * cost))
        return out if found.back is None or out is NotImplemented else out.transpose(found.back)

    return kernel
