"""Matrix products of float32, shared by threads without the BLAS, in blocks that stay in registers.

The innermost loop (`vectors.runs_3`) reads numbers of the left factor anywhere in memory, and of the right one whole
registers. So a left factor whose inner dimension is contiguous is read where it is, and so are other factors if they
are small and computed with few rows or columns. Otherwise each stretch of the inner dimension is copied once, into
panels in the memory order of the loop: that takes as long as computing with a dozen rows or columns, while reading
numbers that are far apart takes a twentieth more. A column of the result belongs to one thread, and its sums run over
the inner dimension in order, so results depend neither on the number of threads nor on what is copied.

Source: Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.matmul import added, column_sum
from tensorgrad.kernels.numba import thin
from tensorgrad.kernels.numba.layout import in_rows
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.language import inner
from tensorgrad.kernels.numba.runtime.launch import shared, with_loops
from tensorgrad.kernels.numba.simd.panels import flat, into_panels
from tensorgrad.kernels.numba.simd.vectors import (
    LANES,
    MANY,
    NO,
    ONE,
    ROWS,
    WIDE_ROWS,
    runs_1,
    runs_2,
    runs_3,
    runs_4,
)  # fmt: skip

_DEPTH = 512  # of the inner dimension at a time: a panel of the left factor then stays in a first-level cache
_TALL = 192  # rows of the left factor at a time: they stay in a second-level cache
_WIDE = 480  # columns of the right factor at a time: these panels are in the last-level cache, if not in the second
_BLOCK = 3 * LANES  # columns of a block
_SMALL = 1 << 17  # the numbers over which a factor that is read where it is extends: it stays in a second-level cache
_REACH = 1 << 16  # the numbers over which such reading extends at a time: the processor keeps that many pages in mind
_MANY_LINES, _MANY_COLUMNS = 512, 256  # rows of the left and columns of the right factor that are worth a copy
_MANY_ROWS = 48  # rows from which on blocks of fewer rows and more columns waste little of the last one
_FEW = 1 << 18  # multiplications below which calling the BLAS costs less
_FEW_ALONE = 1 << 20  # the same for two matrices, neither of which is transposed for the BLAS
_ALONE = 1 << 18  # multiplications per matrix of a stack up to which the BLAS uses no threads, and we do
_FEW_ALONG = 300_000  # the same for a few rows and a matrix whose inner dimension is contiguous
_NONE = np.int64(-1)  # no number for each row: sums begin with what is in an array
_THIN = 4  # columns of the result below which the left factor is hardly read twice: the BLAS does not copy it
_FEW_ROWS = 24  # up to which reading the right factor where it is costs less than copying it into panels

_ROW = "float32[::1]"


@inner
def _copied(source, at, step, out, to, pitch, rows, columns):
    for r in range(rows):
        a, b = np.uint64(at + r * step), np.uint64(to + r * pitch)
        for i in range(np.uint64(columns)):
            out[b + i] = source[a + i]


@inner(forceinline=True)
def _block(left, w, step, row, last, right, at, pace, apart, registers, table, held, h, held_pitch, out, to, pitch):
    if registers == 4:
        runs_4(left, w, step, row, last, right, at, pace, apart, table, NO, ONE, held, _NONE, held, h, held_pitch, out,
               to, pitch, LANES)  # fmt: skip
    elif registers == 3:
        runs_3(left, w, step, row, last, right, at, pace, apart, table, NO, ONE, held, _NONE, held, h, held_pitch, out,
               to, pitch, LANES)  # fmt: skip
    elif registers == 2:
        runs_2(left, w, step, row, last, right, at, pace, apart, table, NO, ONE, held, _NONE, held, h, held_pitch, out,
               to, pitch, LANES)  # fmt: skip
    else:
        runs_1(left, w, step, row, last, right, at, pace, apart, table, NO, ONE, held, _NONE, held, h, held_pitch, out,
               to, pitch, LANES)  # fmt: skip


@inner
def _blocks(left, left_panels, at_left, row, step, right, right_panels, at_right, pace, table, first, first_at, fresh,
            rows, columns, out, to, width, edge):  # fmt: skip
    """Adds a product to `rows` and `columns` of the result. If `fresh`, each row begins with `first` instead.

    A factor is in panels, or where it was: then rows of `left` are `row` apart, their numbers `step`, and columns of
    `right` are adjacent, its rows `pace` apart.
    """
    panels, deep = -(-columns // LANES), table[0, 2]
    count, threes = -(-panels // 3), panels
    if MANY and not left_panels and panels % 3 and rows >= _MANY_ROWS and -panels % 4 * 3 <= panels:
        threes = -panels % 4 * 3  # panels in blocks of three, the others in blocks of four
        count = threes // 3 + (panels - threes) // 4
    for block in range(count):
        if threes < panels:
            registers = 3 if block * 3 < threes else 4
            panel = block * 3 if block * 3 < threes else threes + (block - threes // 3) * 4
        else:
            panel = block * panels // count
            registers = (block + 1) * panels // count - panel
        full, at, place_step, apart = registers * LANES, at_right + panel * LANES, pace, LANES
        if right_panels:
            at, place_step, apart = panel * deep * LANES, LANES, deep * LANES
        wide, start = min(full, columns - panel * LANES), first_at + panel * LANES
        high_step = LANES if registers == 1 else WIDE_ROWS if registers == 4 else ROWS
        for r in range(0, rows, high_step):
            goal, high = to + r * width + panel * LANES, min(high_step, rows - r)
            whole = wide == full and high == high_step
            target, place, pitch = (out, goal, width) if whole else (edge, 0, full)
            held, h, held_pitch = (first, start, 0) if fresh else (target, place, pitch)
            if not fresh and not whole:
                _copied(out, goal, width, edge, NO, full, high, wide)
            w, number_step, line = at_left + r * row, step, row
            if left_panels:
                w, number_step, line = r // LANES * LANES * deep + r % LANES, LANES, 1
            _block(left, w, number_step, line, high - 1, right, at, place_step, apart, registers, table, held, h,
                   held_pitch, target, place, pitch)  # fmt: skip
            if not whole:
                _copied(edge, NO, full, out, goal, width, high, wide)


@inner
def _even(total, most):
    """Returns the size of a part when `total` is divided into the fewest equal parts of at most `most`."""
    parts = (total + most - 1) // most
    return (total + parts - 1) // parts


@inner
def _in_place(column, step, rows, columns, depth):
    """Returns whether to read a right factor where it is: its columns are adjacent and fill registers."""
    return column == 1 and columns % LANES == 0 and step * depth <= _SMALL and rows < _MANY_LINES


@inner
def _initial(columns):
    """Returns the zeros that rows of the result begin with, in whole registers."""
    return np.zeros((columns + LANES - 1) // LANES * LANES, np.float32)


@lru_cache(maxsize=1)
def product_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 11), int64, int64)")
    def loop(a, b, bias, out, sizes, first, last):
        """Computes out[n, r, c] = bias[c] + Σₖ a[n, r, k] b[n, c, k], over the units of all n.

        A unit is LANES rows or columns.
        """
        a_next, b_next, a_row, a_step, b_column, b_step, rows, columns, depth, by_rows, units = sizes
        left = right = np.empty(0, np.float32)
        edge, initial = np.empty(max(3 * ROWS, LANES, 4 * WIDE_ROWS) * LANES, np.float32), _initial(columns)
        for i in range(bias.size):
            initial[i] = bias[i]
        table = np.zeros((1, 3), np.int64)
        while first < last:
            n, unit = first // units, first % units
            stop = min(units, unit + last - first)
            first += stop - unit
            top, end, begin, border = 0, rows, unit * LANES, min(stop * LANES, columns)
            if by_rows:
                top, end, begin, border = unit * LANES, min(stop * LANES, rows), 0, columns
            left_panels = a_step > 1 and (a_step * depth > _SMALL or border - begin >= _MANY_COLUMNS)
            right_panels = not _in_place(b_column, b_step, end - top, border - begin, depth)
            if left_panels and not left.size:
                left = np.empty(min(-(-rows // LANES) * LANES, _TALL) * min(depth, _DEPTH), np.float32)
            if right_panels and not right.size:
                right = np.empty(min(-(-columns // LANES) * LANES, _WIDE) * min(depth, _DEPTH), np.float32)
            step = max(1 if left_panels else a_step, 1 if right_panels else b_step)
            deepest = _even(depth, min(_DEPTH, max(_REACH // step, LANES)))
            widest = (_even(border - begin, _WIDE) + _BLOCK - 1) // _BLOCK * _BLOCK
            for c in range(begin, border, widest):
                wide = min(widest, border - c)
                for k in range(0, depth, deepest):
                    deep = min(deepest, depth - k)
                    table[0, 2] = deep
                    at_right = n * b_next + c * b_column + k * b_step
                    if right_panels:
                        into_panels(b, at_right, b_column, b_step, wide, deep, right, NO)
                    for r in range(top, end, _TALL):
                        tall, at = min(_TALL, end - r), n * a_next + r * a_row + k * a_step
                        if left_panels:
                            into_panels(a, at, a_row, a_step, tall, deep, left, NO)
                        _blocks(left if left_panels else a, left_panels, at, a_row, a_step,
                                right if right_panels else b, right_panels, at_right, b_step, table, initial, c, k == 0,
                                tall, wide, out, (n * rows + r) * columns + c, columns, edge)  # fmt: skip

    return loop


def beside(make: Callable[[], Callable]) -> Callable[[], Callable]:
    """Wraps the maker of another family's kernel that calls these: that family's library needs their loops, too."""

    def made() -> Callable:
        for loop in _LOOPS:
            (loop.__wrapped__ if loop.cache_info().currsize else loop)()
        return make()

    return made


@lru_cache(maxsize=1)
def stack_loop():
    @shared(f"void(float32[:,:,:,:], float32[:,:,:,:], {_ROW}, int64, int64)")
    def loop(a, b, out, first, last):
        """Computes out[n, r, c] = Σₖ a[n, r, k] b[n, c, k] of small matrices, for n over the first two dimensions.

        One of the last two dimensions of each factor is contiguous.
        """
        several, rows, depth = a.shape[1:]
        columns = b.shape[2]
        row, step = a.strides[2] // 4, a.strides[3] // 4
        column, pace = b.strides[2] // 4, b.strides[3] // 4
        right_panels = not _in_place(column, pace, rows, columns, depth)
        right = np.empty(-(-columns // LANES) * LANES * depth if right_panels else 0, np.float32)
        edge, zeros = np.empty(max(3 * ROWS, LANES, 4 * WIDE_ROWS) * LANES, np.float32), _initial(columns)
        table = np.zeros((1, 3), np.int64)
        table[0, 2] = depth
        all_a, all_b = flat(a), flat(b)
        for n in range(first, last):
            at_a = (n // several * a.strides[0] + n % several * a.strides[1]) // 4
            at_b = (n // several * b.strides[0] + n % several * b.strides[1]) // 4
            if right_panels:
                into_panels(all_b, at_b, column, pace, columns, depth, right, NO)
            _blocks(all_a, False, at_a, row, step, right if right_panels else all_b, right_panels, at_b, pace, table,
                    zeros, 0, True, rows, columns, out, n * rows * columns, columns, edge)  # fmt: skip

    return loop


_NO_BIAS = np.empty(0, F32)


@inner
def _scaled(factor, source, at, out, to, count):
    at, to = np.uint64(at), np.uint64(to)
    for i in range(np.uint64(count)):
        out[to + i] = factor * source[at + i]


@lru_cache(maxsize=1)
def outer_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, int64, int64, int64, int64)")
    def loop(a, b, out, rows, columns, first, last):
        """Computes out[n, r, c] = a[n, r] b[n, c], for rows of all n: every number is written once, and not read."""
        while first < last:
            n, begin = first // rows, first % rows
            stop = min(rows, begin + last - first)
            for r in range(begin, stop):
                row = n * rows + r
                _scaled(a[row], b, n * columns, out, row * columns, columns)
            first += stop - begin

    return loop


def outer(a, b):
    """Computes `a @ b` of two stacks of the same shape, one of columns and one of rows."""
    if a.dtype is not F32 or b.dtype is not F32 or a.shape[-1] != 1 or b.shape[-2] != 1 or a.shape[:-2] != b.shape[:-2]:
        return NotImplemented
    rows, columns = a.shape[-2], b.shape[-1]
    if columns < LANES:
        return NotImplemented
    out = np.empty((*a.shape[:-1], columns), F32)
    given = (in_rows(a).reshape(-1), in_rows(b).reshape(-1), out.reshape(-1), rows, columns)
    thread_pool.run(outer_loop(), a.size, given, out.size)
    return out


def _are_few(rows, depth) -> bool:
    """Whether there are so few rows that the matrix they are multiplied with is not copied (thin.py)."""
    return 1 < rows <= _FEW_ROWS and depth >= LANES


def _product(a, b, stack, rows, columns, depth, out, bias=_NO_BIAS):
    """Computes the product of `a` and (transposed) `b`, over a stack of matrices, into `out`.

    Each factor is a triple: its numbers as one row, the steps from row to row and along the inner dimension.
    """
    if stack == 1 and a[2] == 1 and _are_few(rows, depth):
        return thin.product(a[0], b[0], b[2] == 1, rows, columns, depth, out, bias)
    by_rows = rows > columns
    units = -(-(rows if by_rows else columns) // LANES)
    sizes = (rows * depth, columns * depth, a[1], a[2], b[1], b[2], rows, columns, depth, by_rows, units)
    work = stack * rows * columns * depth // 8
    thread_pool.run(product_loop(), stack * units, (a[0], b[0], bias, out.reshape(-1), sizes), work)
    return out


def _memory(x, inner):
    """Returns a factor of `_product`, or None if it has gaps; `inner` is the inner dimension, -1 or -2."""
    if x.flags.c_contiguous:
        return (x.reshape(-1), x.shape[-1], 1) if inner == -1 else (x.reshape(-1), 1, x.shape[-1])
    x = x.swapaxes(-1, -2)
    if not x.flags.c_contiguous:
        return None
    return (x.reshape(-1), 1, x.shape[-1]) if inner == -1 else (x.reshape(-1), x.shape[-1], 1)


def _some(a, b, out, first, last):
    """Computes part of a stack with NumPy."""
    with np.errstate(all="ignore"):
        np.matmul(a[first:last], b[first:last], out=out[first:last])


def _stacked(a, b, inner_a, inner_b):
    """Computes the product of two matrices, of two stacks of the same shape, or of a stack's rows and a matrix."""
    if a.dtype is not F32 or b.dtype is not F32 or a.ndim < 2 or b.ndim < 2:
        return NotImplemented
    rows, depth, columns = a.shape[-3 - inner_a], a.shape[inner_a], b.shape[-3 - inner_b]
    if depth == 1 == b.shape[inner_b] and a.ndim > 2:  # products of columns and rows: nothing is read twice
        return outer(a if inner_a == -1 else a.swapaxes(-1, -2), b if inner_b == -2 else b.swapaxes(-1, -2))
    lead, own = a.shape[:-2], b.shape[:-2]
    if b.shape[inner_b] != depth or (own and own != lead) or min(columns, depth) < _THIN:
        return NotImplemented
    stack = 1
    shape = (*lead, rows, columns)
    if lead:
        if own:
            stack = math.prod(lead)
        elif inner_a == -1 and a.flags.c_contiguous:
            rows *= math.prod(lead)
        else:
            return NotImplemented
    work = rows * columns * depth
    few = stack == 1 and inner_a == -1 and a.flags.c_contiguous and _are_few(rows, depth)
    if rows < _THIN and not few:
        return NotImplemented
    along = few and b.flags.c_contiguous is (inner_b == -1)
    if work * stack < (_FEW_ALONG if along else _FEW if stack > 1 else _FEW_ALONE):
        return NotImplemented
    if stack > 1 and work <= _ALONE and inner_b == -2 and b.flags.c_contiguous and (a.ndim < 4 or a.flags.c_contiguous):
        a, b, out = a.reshape(stack, *a.shape[-2:]), b.reshape(stack, *b.shape[-2:]), np.empty(shape, F32)
        given = (a if inner_a == -1 else a.swapaxes(1, 2), b if inner_b == -2 else b.swapaxes(1, 2))
        thread_pool.run(_some, stack, (*given, out.reshape(stack, rows, columns)), stack * work // 16)
        return out
    left, right = _memory(a, inner_a), _memory(b, inner_b)
    if left is not None and right is not None:
        return _product(left, right, stack, rows, columns, depth, np.empty(shape, F32))
    if stack == 1 or work > 4 * _ALONE or a.ndim > 4 or 4 not in a.strides[-2:] or 4 not in b.strides[-2:]:
        return NotImplemented
    # Attention heads are small matrices with gaps between their rows, which the BLAS takes one at a time.
    a, b = (x if inner == -1 else x.swapaxes(-1, -2) for x, inner in ((a, inner_a), (b, inner_b)))
    if a.ndim == 3:
        a, b = a[None], b[None]
    if not (a.flags.aligned and b.flags.aligned):
        return NotImplemented
    out = np.empty(shape, F32)
    thread_pool.run(stack_loop(), stack, (a, b, out.reshape(-1)), stack * work // 8)
    return out


def matmul(a, b):
    """Computes `a @ b`."""
    return _stacked(a, b, -1, -2)


def mm(a, b):
    """Computes `a @ b` of two matrices."""
    return _stacked(a, b, -1, -2) if a.ndim == b.ndim == 2 else NotImplemented


def bmm(a, b):
    """Computes `a @ b` of two stacks of matrices."""
    return _stacked(a, b, -1, -2) if a.ndim == b.ndim == 3 else NotImplemented


def nt(a, b):
    """Computes `a @ bᵀ`."""
    return _stacked(a, b, -1, -1)


def tn(a, b):
    """Computes `aᵀ @ b`."""
    return _stacked(a, b, -2, -2)


def linear(x, w, bias):
    """Computes `x @ wᵀ + bias`."""
    if w.ndim != 2 or x.ndim < 2:
        return NotImplemented
    (columns, depth), shape = w.shape, x.shape
    if x.size * columns < _FEW or shape[-1] != depth or columns < _THIN or not depth:
        return NotImplemented
    rows = math.prod(shape[:-1])
    few = _are_few(rows, depth)
    if (rows < _THIN and not few) or (few and x.size * columns < _FEW_ALONG):
        return NotImplemented
    if x.dtype is not F32 or w.dtype is not F32:
        return NotImplemented
    if bias is None:
        bias = _NO_BIAS
    elif bias.dtype is not F32 or bias.shape != (columns,) or not bias.flags.c_contiguous:
        return NotImplemented
    right = _memory(w, -1)
    if right is None:
        return NotImplemented
    out = np.empty((*shape[:-1], columns), F32)
    return _product((in_rows(x).reshape(-1), depth, 1), right, 1, rows, columns, depth, out, bias)


def addmm(c, a, b, beta, alpha):
    """Computes `beta · c + alpha · (a @ b)`."""
    if a.ndim != 2 or b.ndim != 2 or a.dtype is not F32 or b.dtype is not F32 or c.dtype is not F32:
        return NotImplemented
    (rows, depth), columns = a.shape, b.shape[1]
    few = a.flags.c_contiguous and _are_few(rows, depth)
    if b.shape[0] != depth or min(columns, depth) < _THIN or (rows < _THIN and not few):
        return NotImplemented
    if rows * columns * depth < _FEW_ALONE:
        return NotImplemented
    left, right = _memory(a, -1), _memory(b, -2)
    if left is None or right is None or c.ndim > 2:
        return NotImplemented
    out = np.empty((rows, columns), F32)
    if beta == alpha == 1 and c.shape == (columns,) and c.flags.c_contiguous:
        return _product(left, right, 1, rows, columns, depth, out, c)
    return added(np, c, _product(left, right, 1, rows, columns, depth, out), beta, alpha)


def linear_backward(g, input, weight, bias_shape, needs):
    """Computes the gradients of `linear` for a batch of rows."""
    if g.ndim != 2 or g.dtype is not F32 or (needs[2] and len(bias_shape) != 1):
        return NotImplemented
    gx = _stacked(g, weight, -1, -2) if needs[0] else None
    gw = _stacked(g, input, -2, -2) if needs[1] else None
    if gx is NotImplemented or gw is NotImplemented:
        return NotImplemented
    return gx, gw, column_sum(np, g) if needs[2] else None


_LOOPS = (product_loop, thin.dots_loop, thin.rows_loop)
KERNELS: dict[str, Callable[[], Callable]] = {
    **{k.__name__: with_loops(k, *_LOOPS) for k in (mm, linear, linear_backward, addmm)},
    **{k.__name__: with_loops(k, *_LOOPS, stack_loop, outer_loop) for k in (matmul, bmm, nt, tn)},
    "outer": with_loops(outer, outer_loop),
}
