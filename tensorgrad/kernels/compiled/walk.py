"""How one float32 array, or two together, are walked through: row by row, in the memory order of the first one.

Within a row each array has its own step. Rows whose elements are not adjacent (every other one; one number repeated, as
in an expanded gradient) are copied, a stretch that stays in the first-level cache at a time: one loop serves all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import zip_longest

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import layout
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MEMORY, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd import two_bytes
from tensorgrad.storage.fresh import fresh

_SHORTEST = 8  # elements of a row: NumPy is no slower for shorter ones


@lru_cache(maxsize=512)
def plan(xs: tuple, ys: tuple):
    """Plans a joint walk over two arrays without gaps: the result's shape, and `walk`'s numbers; else None.

    The numbers are: elements per row, rows per plane, planes per block, and for each array its step from block to
    block, from plane to plane, from row to row, and within a row.
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
    if 0 in shape or not dims or len(dims) > 4 or dims[0][0] < _SHORTEST or not 0 < max(dims[0][1:]) <= layout.NEAR:
        return None
    dims += [(1, 0, 0)] * (4 - len(dims))
    sizes, *own = zip(*dims, strict=True)
    return (*sizes[:3], *[step for steps in own for step in reversed(steps)])


@lru_cache(maxsize=512)
def alone(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple, tuple, list[int] | None] | None:
    """Plans a walk through one array in the order of its memory; None if it has to be copied.

    Returns the numbers (as `plan` does, of up to three dimensions), the result's shape in that order, and the
    permutation that restores it.
    """
    if 0 in shape or any([s < 0 or s % 4 for s in strides]):
        return None
    order, back = layout.order(shape, strides) or (range(len(shape)), None)
    inside = tuple([shape[d] for d in order])
    dims: list[tuple[int, int]] = []  # size and step, the innermost first
    for d in reversed(order):
        size, stride = shape[d], strides[d]
        if size == 1:
            continue
        if dims and stride // 4 == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0] * size, dims[-1][1])
        else:
            dims.append((size, stride // 4))
    if not dims or len(dims) > 3 or dims[0][0] < _SHORTEST or dims[0][1] > layout.NEAR:
        return None
    (length, step), (rows, row_step), (_, plane_step) = (*dims, (1, 0), (1, 0))[:3]
    return (length, rows, plane_step, row_step, step), inside, back


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


def loop_of_one(function, options: int = 0, each: Callable | None = None):
    """Makes the compiled loop of a scalar function over a range of the elements of an array.

    The function takes an element and a tuple of so many `options`, all float32; only the element if there are none.
    `each(x, to)` does the same for adjacent elements, if there is a faster way than the compiler's.
    """
    if each is None:

        @inner(fastmath={"contract"})
        def from_to(a, b, given):
            for i in range(b.size):
                b[i] = function(a[i], given) if options else function(a[i])

        @inner(fastmath={"contract"})
        def in_place(b, given):
            for i in range(b.size):
                b[i] = function(b[i], given) if options else function(b[i])

    else:

        @inner
        def from_to(a, b, given):
            each(a, b)

        @inner
        def in_place(b, given):
            each(b, b)

    signature = f"void({MEMORY}, float32[::1], UniTuple(int64, 5), UniTuple(float32, {options}), int64, int64)"

    @shared(signature, calls=(from_to, in_place))
    def unary(x, out, numbers, given, first, last):
        # Slices that count from 0: an index that could be negative is not vectorized, nor are arrays that may be
        # the same.
        if x.ctypes.data == out.ctypes.data:
            in_place(out[first:last], given)
            return
        length, rows, plane_step, row_step, step = numbers
        held = np.empty(0 if step == 1 else min(length, two_bytes.STRETCH), np.float32)
        most = held.size if held.size else length
        at, column, row = first, first % length, first // length
        plane, row = row // rows, row % rows  # a division takes as long as dozens of additions: none in the loop
        while at < last:
            n = min(length - column, last - at, most)
            p = plane * plane_step + row * row_step + column * step
            if step != 1:
                taken(x, p, step, held[:n])
            from_to(x[p : p + n] if step == 1 else held, out[at : at + n], given)
            at, column = at + n, column + n
            if column == length:
                column, row = 0, row + 1
                if row == rows:
                    plane, row = plane + 1, 0

    return unary


@inner(fastmath={"contract"})
def _taken_as_float32(x, at, step, taken_bits, to, brain):
    """Writes elements of two bytes that are `step` apart as float32."""
    if step == 1:
        two_bytes.widened(x[at : at + to.size], to, brain)
    else:
        taken(x, at, step, taken_bits[: to.size])
        two_bytes.widened(taken_bits[: to.size], to, brain)


def loop_of_two_in_two_bytes(function):
    """Does what `loop_of_two` does, for elements of two bytes: a stretch becomes float32 in a first-level cache."""

    @inner(fastmath={"contract"})
    def from_two(a, b):
        for i in range(a.size):
            a[i] = function(a[i], b[i])

    row, memory = two_bytes.TWO_BYTES.row, two_bytes.TWO_BYTES.memory

    @shared(f"void({memory}, {memory}, {row}, UniTuple(int64, 11), boolean, int64, int64)", calls=(from_two,))
    def binary(x, y, out, numbers, brain, first, last):
        length, rows, planes, x_block, x_plane, x_row, x_step, y_block, y_plane, y_row, y_step = numbers
        most = min(length, two_bytes.STRETCH)
        left, right, some = np.empty(most, np.float32), np.empty(most, np.float32), np.empty(most, np.uint16)
        at, column, row = first, first % length, first // length
        plane, row = row // rows, row % rows
        block, plane = plane // planes, plane % planes
        while at < last:
            n = min(length - column, last - at, most)
            p = block * x_block + plane * x_plane + row * x_row + column * x_step
            q = block * y_block + plane * y_plane + row * y_row + column * y_step
            _taken_as_float32(x, p, x_step, some, left[:n], brain)
            _taken_as_float32(y, q, y_step, some, right[:n], brain)
            from_two(left[:n], right[:n])
            two_bytes.rounded(left[:n], out[at : at + n], brain)
            at, column = at + n, column + n
            if column == length:
                column, row = 0, row + 1
                if row == rows:
                    plane, row = plane + 1, 0
                    if plane == planes:
                        block, plane = block + 1, 0

    return binary


def loop_of_two(function):
    """Makes the compiled loop of a function of two scalars over a range of the elements of the result."""

    @inner(fastmath={"contract"})
    def from_two(a, b, c):
        for i in range(c.size):
            c[i] = function(a[i], b[i])

    @shared(f"void({MEMORY}, {MEMORY}, float32[::1], UniTuple(int64, 11), int64, int64)", calls=(from_two,))
    def binary(x, y, out, numbers, first, last):
        length, rows, planes, x_block, x_plane, x_row, x_step, y_block, y_plane, y_row, y_step = numbers
        most = length if x_step == 1 and y_step == 1 else min(length, two_bytes.STRETCH)
        held = np.empty(0 if x_step == 1 else most, np.float32)
        other = np.empty(0 if y_step == 1 else most, np.float32)
        x_before, y_before = -1, -1  # the number that is repeated
        at, column, row = first, first % length, first // length
        plane, row = row // rows, row % rows
        block, plane = plane // planes, plane % planes
        while at < last:
            n = min(length - column, last - at, most)
            p = block * x_block + plane * x_plane + row * x_row + column * x_step
            q = block * y_block + plane * y_plane + row * y_row + column * y_step
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
                    if plane == planes:
                        block, plane = block + 1, 0

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
        flat = fresh(math.prod(shape), F32)
        thread_pool.run(loop, flat.size, (x, y, flat, numbers), int(flat.size * cost))
        return flat.reshape(shape)

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
            flat = fresh(math.prod(found.shape), F32)
            thread_pool.run(loop, flat.size, (x, y, flat, numbers), int(flat.size * cost))
            out = flat.reshape(found.shape)
        return out if found.back is None or out is NotImplemented else out.transpose(found.back)

    return kernel
