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
from tensorgrad.kernels.array.matmul import added
from tensorgrad.kernels.compiled import matmul_skinny
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import in_rows
from tensorgrad.kernels.compiled.moments import row_dot
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared, with_loops
from tensorgrad.kernels.compiled.simd.panels import flat, into_panels
from tensorgrad.kernels.compiled.simd.vectors import (
    LANES,
    MANY,
    NO,
    ONE,
    PARTS,
    ROWS,
    WIDE_ROWS,
    runs_1,
    runs_2,
    runs_3,
    runs_4,
)  # fmt: skip
from tensorgrad.rows.kernel_tables import run_kernel

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
_COPYING = 12  # rows or columns that can be computed in the time of copying one of the other factor into panels
_NONE = np.int64(-1)  # no number for each row: sums begin with what is in an array
_THIN = 4  # columns of the result below which the left factor is hardly read twice: the BLAS does not copy it
_FEW_ROWS = 24  # up to which reading the right factor where it is costs less than copying it into panels

# Multiplications of a layer up to which simple loops take less time than calls of the BLAS: for a few rows, for more
_TINY, _TINY_OF_MANY = 1 << 16, 1 << 14
_FEW_FORWARD, _FEW_BACKWARD = 8, 1  # those few rows

_ROW, _MATRIX, _SIZES = "float32[::1]", "float32[:,::1]", "UniTuple(int64, 14)"


@inner
def copied(source, at, step, out, to, pitch, rows, columns):
    """Copies numbers: `columns` of each of `rows` rows, `step` apart in the source and `pitch` in `out`."""
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
def blocks(left, left_panels, at_left, row, step, right, right_panels, at_right, pace, table, first, first_at, fresh,
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
                copied(out, goal, width, edge, NO, full, high, wide)
            w, number_step, line = at_left + r * row, step, row
            if left_panels:
                w, number_step, line = r // LANES * LANES * deep + r % LANES, LANES, 1
            _block(left, w, number_step, line, high - 1, right, at, place_step, apart, registers, table, held, h,
                   held_pitch, target, place, pitch)  # fmt: skip
            if not whole:
                copied(edge, NO, full, out, goal, width, high, wide)


@inner
def even(total, most):
    """Returns the size of a part when `total` is divided into the fewest equal parts of at most `most`."""
    parts = (total + most - 1) // most
    return (total + parts - 1) // parts


@inner
def _in_place(column, step, rows, columns, depth):
    """Returns whether to read a right factor where it is: its columns are adjacent and fill registers."""
    return column == 1 and columns % PARTS == 0 and step * depth <= _SMALL and rows < _MANY_LINES


@inner
def initial_row(columns):
    """Returns the zeros that rows of the result begin with, in whole registers."""
    return np.zeros((columns + LANES - 1) // LANES * LANES, np.float32)


@inner
def _sum_along(a, at, step, count, deep, sums, to, fresh):
    """Adds Σₖ a[at + k step + i] to sums[to + i], for i < count and k < deep; if `fresh`, to 0."""
    count, to = np.uint64(count), np.uint64(to)  # an index that could be negative is not vectorized
    if fresh:
        for i in range(count):
            sums[to + i] = np.float32(0)
    whole = deep - deep % 4
    for k in range(0, whole, 4):
        p, q = np.uint64(at + k * step), np.uint64(at + (k + 1) * step)
        r, s = np.uint64(at + (k + 2) * step), np.uint64(at + (k + 3) * step)
        for i in range(count):
            sums[to + i] += (a[p + i] + a[q + i]) + (a[r + i] + a[s + i])
    for k in range(whole, deep):
        p = np.uint64(at + k * step)
        for i in range(count):
            sums[to + i] += a[p + i]


@inner
def _product_of(a, b, bias, out, sums, sizes, first, last):
    """Computes out[n, r, c] = bias[c] + Σₖ a[n, r, k] b[n, c, k], over the units of all strips of all n.

    A unit is `size` rows (or columns if not `by_rows`), a strip `breadth` of the other dimension. If there are `sums`,
    sums[r] = Σₖ a[r, k], too: then n is 0, rows of `a` are adjacent in memory, and what is last of the inner dimension
    comes first, since a product of `a` that was computed before ended with it.
    """
    a_next, b_next, a_row, a_step, b_column, b_step, rows, columns, depth = sizes[:9]
    by_rows, units, size, strips, breadth = sizes[9:]
    left = right = np.empty(0, np.float32)
    edge, initial = np.empty(max(3 * ROWS, LANES, 4 * WIDE_ROWS) * LANES, np.float32), initial_row(columns)
    for i in range(bias.size):
        initial[i] = bias[i]
    table = np.zeros((1, 3), np.int64)
    while first < last:
        n, strip, unit = first // units // strips, first // units % strips, first % units
        stop = min(units, unit + last - first)
        first += stop - unit
        top, begin = strip * breadth, unit * size
        end, border = min(top + breadth, rows), min(stop * size, columns)
        if by_rows:
            top, begin = begin, top
            end, border = min(stop * size, rows), min(begin + breadth, columns)
        high, broad = end - top, border - begin
        if sums.size:  # the order of these sums depends on the stretches, so they must not depend on the part
            high, broad = rows, columns
        left_panels = a_step > 1 and (a_step * depth > _SMALL or broad >= _MANY_COLUMNS)
        right_panels = not _in_place(b_column, b_step, high, broad, depth)
        if left_panels and not left.size:
            left = np.empty(min(-(-rows // LANES) * LANES, _TALL) * min(depth, _DEPTH), np.float32)
        if right_panels and not right.size:
            right = np.empty(min(-(-columns // LANES) * LANES, _WIDE) * min(depth, _DEPTH), np.float32)
        step = max(1 if left_panels else a_step, 1 if right_panels else b_step)
        deepest = even(depth, min(_DEPTH, max(_REACH // step, PARTS)))
        widest = (even(border - begin, _WIDE) + _BLOCK - 1) // _BLOCK * _BLOCK
        for c in range(begin, border, widest):
            wide = min(widest, border - c)
            for done in range(0, depth, deepest):
                k = (depth - 1) // deepest * deepest - done if sums.size else done
                deep = min(deepest, depth - k)
                table[0, 2] = deep
                at_right = n * b_next + c * b_column + k * b_step
                if right_panels:
                    into_panels(b, at_right, b_column, b_step, wide, deep, right, NO)
                for r in range(top, end, _TALL):
                    tall, at = min(_TALL, end - r), n * a_next + r * a_row + k * a_step
                    if sums.size and c == 0:
                        _sum_along(a, at, a_step, tall, deep, sums, r, done == 0)
                    if left_panels:
                        into_panels(a, at, a_row, a_step, tall, deep, left, NO)
                    blocks(left if left_panels else a, left_panels, at, a_row, a_step,
                           right if right_panels else b, right_panels, at_right, b_step, table, initial, c, done == 0,
                           tall, wide, out, (n * rows + r) * columns + c, columns, edge)  # fmt: skip


@lru_cache(maxsize=1)
def product_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_SIZES}, {_ROW}, {_ROW}, {_SIZES}, int64, int64, int64)")
    def loop(a, b, bias, out, sums, sizes, b_before, out_before, sizes_before, total, first, last):
        """Computes a product, and if `out_before` is not empty, another one of the same left factor before it.

        Threads divide both into `total` parts.
        """
        if out_before.size:
            units = out_before.size // (sizes_before[6] * sizes_before[7]) * sizes_before[10] * sizes_before[12]
            _product_of(a, b_before, bias[:0], out_before, sums[:0], sizes_before, first * units // total,
                        last * units // total)  # fmt: skip
        units = out.size // (sizes[6] * sizes[7]) * sizes[10] * sizes[12]
        _product_of(a, b, bias, out, sums, sizes, first * units // total, last * units // total)

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
        edge, zeros = np.empty(max(3 * ROWS, LANES, 4 * WIDE_ROWS) * LANES, np.float32), initial_row(columns)
        table = np.zeros((1, 3), np.int64)
        table[0, 2] = depth
        all_a, all_b = flat(a), flat(b)
        for n in range(first, last):
            at_a = (n // several * a.strides[0] + n % several * a.strides[1]) // 4
            at_b = (n // several * b.strides[0] + n % several * b.strides[1]) // 4
            if right_panels:
                into_panels(all_b, at_b, column, pace, columns, depth, right, NO)
            blocks(all_a, False, at_a, row, step, right if right_panels else all_b, right_panels, at_b, pace, table,
                   zeros, 0, True, rows, columns, out, n * rows * columns, columns, edge)  # fmt: skip

    return loop


_NO_BIAS = _NONE_OF_THEM = np.empty(0, F32)
_NO_MATRIX = np.empty((0, 0), F32)


# --- layers of few numbers: plain loops, without panels ---------------------------------------------------------------


@inner(fastmath={"contract"})
def _add_scaled(factor, a, at, out, to, count):
    at, to = np.uint64(at), np.uint64(to)
    for i in range(np.uint64(count)):
        out[to + i] += factor * a[at + i]


@lru_cache(maxsize=1)
def tiny_layer():
    @shared(f"void({_MATRIX}, {_MATRIX}, {_ROW}, {_MATRIX}, int64, int64)")
    def loop(x, w, bias, out, first, last):
        """Computes out = x wᵀ + bias."""
        rows, columns, depth = x.shape[0], w.shape[0], x.shape[1]
        a, b, to = x.ravel(), w.ravel(), out.ravel()
        for r in range(rows):
            for c in range(columns):
                product = row_dot(a[r * depth : (r + 1) * depth], b[c * depth : (c + 1) * depth])
                to[r * columns + c] = product + (bias[c] if bias.size else F(0.0))

    return loop


@lru_cache(maxsize=1)
def tiny_gradients():
    @shared(f"void({_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_ROW}, int64, int64)")
    def loop(g, x, w, gx, gw, gb, first, last):
        """Computes gx = g w, gw = gᵀ x and gb, the sums of the columns of g, as far as these are not empty."""
        rows, columns = g.shape
        a, into_x, into_w, into_b = g.ravel(), gx.ravel(), gw.ravel(), gb
        numbers, weights, depth = x.ravel(), w.ravel(), max(gx.shape[1], gw.shape[1])
        into_x[:] = F(0.0)
        into_w[:] = F(0.0)
        into_b[:] = F(0.0)
        for r in range(rows):
            for c in range(columns):
                slope = a[r * columns + c]
                if gx.size:
                    _add_scaled(slope, weights, c * depth, into_x, r * depth, depth)
                if gw.size:
                    _add_scaled(slope, numbers, r * depth, into_w, c * depth, depth)
                if gb.size:
                    into_b[c] += slope

    return loop


def _tiny_linear(x, w, bias):
    """Computes `x @ wᵀ + bias` of few numbers. The launcher looks at the memory."""
    columns, depth = w.shape
    if w.dtype is not F32 or x.ndim != 2 or x.shape[1] != depth:
        return NotImplemented
    if bias is not None and (bias.dtype is not F32 or bias.shape != (columns,)):
        return NotImplemented
    out = np.empty((len(x), columns), F32)
    thread_pool.run(tiny_layer(), 1, (x, w, _NO_BIAS if bias is None else bias, out), 0)
    return out


def _tiny_gradients(g, input, weight, needs):
    """Computes the gradients of `linear` of few numbers."""
    to_input, to_weight, to_bias = needs
    columns = g.shape[1]
    gx = np.empty((len(g), weight.shape[1]), F32) if to_input else None
    gw = np.empty((columns, input.shape[1]), F32) if to_weight else None
    gb = np.empty(columns, F32) if to_bias else None
    given = (g, input if to_weight else _NO_MATRIX, weight if to_input else _NO_MATRIX, gx if to_input else _NO_MATRIX,
             gw if to_weight else _NO_MATRIX, gb if to_bias else _NO_BIAS)  # fmt: skip
    thread_pool.run(tiny_gradients(), 1, given, 0)
    return gx, gw, gb


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
    if columns < PARTS:
        return NotImplemented
    out = np.empty((*a.shape[:-1], columns), F32)
    given = (in_rows(a).reshape(-1), in_rows(b).reshape(-1), out.reshape(-1), rows, columns)
    thread_pool.run(outer_loop(), a.size, given, out.size)
    return out


def _are_few(rows, depth) -> bool:
    """Whether there are so few rows that the matrix they are multiplied with is not copied (matmul_skinny.py)."""
    return 1 < rows <= _FEW_ROWS and depth >= PARTS


def _product(a, b, stack, rows, columns, depth, out, bias=_NO_BIAS):
    """Computes the product of `a` and (transposed) `b`, over a stack of matrices, into `out`.

    Each factor is a triple: its numbers as one row, the steps from row to row and along the inner dimension.
    """
    if stack == 1 and a[2] == 1 and _are_few(rows, depth):
        return matmul_skinny.product(a[0], b[0], b[2] == 1, rows, columns, depth, out, bias)
    work = stack * rows * columns * depth // 8
    threads = thread_pool.shares(False, work, work)
    sizes = sizes_of(a, b, rows, columns, depth, threads if stack == 1 else 1)
    units = stack * sizes[10] * sizes[12]
    given = (a[0], b[0], bias, out.reshape(-1), _NONE_OF_THEM, sizes, _NONE_OF_THEM, _NONE_OF_THEM, sizes, units)
    thread_pool.run(product_loop(), units, given, work)
    return out


def sizes_of(a, b, rows, columns, depth, threads):
    """Returns the sizes of a product, as the compiled loop takes them."""
    division = _division(rows, columns, a[2] > 1, threads)
    return (rows * depth, columns * depth, a[1], a[2], b[1], b[2], rows, columns, depth, *division)


@lru_cache(maxsize=1024)
def _division(rows, columns, across, threads):
    """Divides a product: by rows or not, units, rows or columns of a unit, strips of the other dimension, their size.

    Few threads share the longer dimension. More of them divide both, so that each copies less into panels, and all get
    equal parts; `across`: the left factor is copied, too.
    """
    by_rows = rows > columns
    high, wide = -(-rows // LANES), -(-columns // LANES)
    if threads <= 2:
        return (1, high, LANES, 1, columns) if by_rows else (0, wide, LANES, 1, rows)
    best: tuple = (math.inf,)
    for beside in range(1, min(threads, wide) + 1):
        down = min(threads // beside, high)
        tall, broad = -(-high // down), -(-wide // beside)
        products = tall * broad * (1.25 if broad == 1 else 1.1 if broad == 2 else 1.0) * LANES
        cost = products + _COPYING * (broad + (tall if across else 0)), down, beside, tall * LANES, broad * LANES
        best = min(best, cost)
    _, down, beside, tall, broad = best
    down, beside = -(-rows // tall), -(-columns // broad)
    return (1, down, tall, beside, broad) if by_rows else (0, beside, broad, down, tall)


def memory_of(x, inner):
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
    left, right = memory_of(a, inner_a), memory_of(b, inner_b)
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
    if w.ndim != 2 or x.ndim < 2 or x.dtype is not F32:
        return NotImplemented
    (columns, depth), shape = w.shape, x.shape
    if x.size * columns <= (_TINY if shape[0] <= _FEW_FORWARD else _TINY_OF_MANY):
        return _tiny_linear(x, w, bias)
    if x.size * columns < _FEW or shape[-1] != depth or columns < _THIN or not depth:
        return NotImplemented
    rows = math.prod(shape[:-1])
    few = _are_few(rows, depth)
    if (rows < _THIN and not few) or (few and x.size * columns < _FEW_ALONG):
        return NotImplemented
    if w.dtype is not F32:
        return NotImplemented
    if bias is None:
        bias = _NO_BIAS
    elif bias.dtype is not F32 or bias.shape != (columns,) or not bias.flags.c_contiguous:
        return NotImplemented
    right = memory_of(w, -1)
    if right is None:
        return NotImplemented
    out = np.empty((*shape[:-1], columns), F32)
    return _product((in_rows(x).reshape(-1), depth, 1), right, 1, rows, columns, depth, out, bias)


def addmm(c, a, b, beta, alpha):
    """Computes `beta · c + alpha · (a @ b)`."""
    if a.ndim != 2 or b.ndim != 2 or a.dtype is not F32 or b.dtype is not F32 or c.dtype is not F32 or alpha == 0:
        return NotImplemented
    (rows, depth), columns = a.shape, b.shape[1]
    few = a.flags.c_contiguous and _are_few(rows, depth)
    if b.shape[0] != depth or min(columns, depth) < _THIN or (rows < _THIN and not few):
        return NotImplemented
    if rows * columns * depth < _FEW_ALONE:
        return NotImplemented
    left, right = memory_of(a, -1), memory_of(b, -2)
    if left is None or right is None or c.ndim > 2:
        return NotImplemented
    out = np.empty((rows, columns), F32)
    if beta == alpha == 1 and c.shape == (columns,) and c.flags.c_contiguous:
        return _product(left, right, 1, rows, columns, depth, out, c)
    return added(np, c, _product(left, right, 1, rows, columns, depth, out), beta, alpha)


def linear_backward(g, input, weight, bias_shape, needs):
    """Computes the gradients of `linear` for rows."""
    if g.ndim < 2 or g.dtype is not F32 or not g.size or (needs[2] and len(bias_shape) != 1):
        return NotImplemented
    rows, lead = g, g.shape[:-1]
    if input is not None and input.shape[:-1] != lead:
        return NotImplemented
    if needs[0] or needs[1]:
        work = g.size * (weight if needs[0] else input).shape[-1]
        if g.ndim == 2 and work <= (_TINY if len(g) <= _FEW_BACKWARD else _TINY_OF_MANY):
            return _tiny_gradients(g, input, weight, needs)
        if work < _FEW_ALONG:
            return NotImplemented
    if g.ndim > 2:
        rows = in_rows(g).reshape(-1, g.shape[-1])
        input = input if input is None else in_rows(input).reshape(len(rows), -1)
    found = _gradients_at_once(rows, input, weight, needs) if needs[1] else NotImplemented
    if found is NotImplemented:
        gx = _stacked(rows, weight, -1, -2) if needs[0] else None
        if gx is NotImplemented:
            return NotImplemented
        gw = _stacked(rows, input, -2, -2) if needs[1] else None
        if gw is NotImplemented:
            return NotImplemented
        found = gx, gw, run_kernel("column_sum", rows) if needs[2] else None
    gx, gw, gb = found
    return gx if gx is None or g.ndim == 2 else gx.reshape(*lead, gx.shape[-1]), gw, gb


def _gradients_at_once(g, input, weight, needs):
    """Computes the same in one launch, which reads the gradient `g` of the result while it is in a cache."""
    (rows, columns), depth = g.shape, input.shape[-1]
    if input.dtype is not F32 or input.ndim != 2 or len(input) != rows or not g.flags.c_contiguous:
        return NotImplemented
    if min(rows, columns, depth) < _THIN or _are_few(rows, columns) or rows * columns * depth < _FEW_ALONE:
        return NotImplemented
    right, flat = memory_of(input, -2), g.reshape(-1)
    if right is None:
        return NotImplemented
    before, gx = right, None
    if needs[0]:
        before = memory_of(weight, -2) if weight.dtype is F32 and weight.shape == (columns, depth) else None
        if before is None:
            return NotImplemented
        gx = np.empty((rows, depth), F32)
    gw, sums = np.empty((columns, depth), F32), np.empty(columns if needs[2] else 0, F32)
    work = rows * columns * depth // 8 * (2 if needs[0] else 1)
    threads = thread_pool.shares(False, work, work)
    left = flat, 1, columns
    sizes = sizes_of(left, right, columns, depth, rows, threads)
    sizes_before = sizes_of((flat, columns, 1), before, rows, depth, columns, threads) if needs[0] else sizes
    total = max(sizes[10] * sizes[12], sizes_before[10] * sizes_before[12])
    given = (flat, right[0], _NO_BIAS, gw.reshape(-1), sums, sizes, before[0],
             _NONE_OF_THEM if gx is None else gx.reshape(-1), sizes_before, total)  # fmt: skip
    thread_pool.run(product_loop(), total, given, work)
    return gx, gw, sums if needs[2] else None


_LOOPS = product_loop, matmul_skinny.dots_loop, matmul_skinny.rows_loop, tiny_layer, tiny_gradients
KERNELS: dict[str, Callable[[], Callable]] = {
    **{k.__name__: with_loops(k, *_LOOPS) for k in (mm, linear, linear_backward, addmm)},
    **{k.__name__: with_loops(k, *_LOOPS, stack_loop, outer_loop) for k in (matmul, bmm, nt, tn)},
    "outer": with_loops(outer, outer_loop),
}
