"""Products of bfloat16 and float16 matrices, computed in float32 and rounded once.

For a few rows, such as a decoder's token, the weights become float32 in registers while they are read: half as many
bytes as float32 has. For more rows, the blocks are those of matmul.py: both factors become float32 where they are
copied for these, and results are rounded a part at a time, while they are in a cache. Numbers of 16 bits are given to
machine code as uint16.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import casts
from tensorgrad.kernels.compiled.matmul import blocks, even, initial_row, memory_of, sizes_of
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.panels import into_panels
from tensorgrad.kernels.compiled.simd.small_weights import (
    PARTS,
    bfloat16_few,
    float16_few,
    of_bfloat16,
    of_float16,
    to_bfloat16,
    to_float16,
)
from tensorgrad.kernels.compiled.simd.small_weights import ROWS as DOTS
from tensorgrad.kernels.compiled.simd.two_bytes import (
    carry_bfloat16,
    carry_float16,
    rounded,
    turn_bfloat16,
    turn_float16,
    widened,
    widened_rows,
)
from tensorgrad.kernels.compiled.simd.vectors import LANES, NO, ONE, ROWS, WIDE_ROWS
from tensorgrad.storage.fresh import fresh

# Rows up to which reading weights of 16 bits again costs less than making them float32: of bfloat16, and of float16,
# which takes longer to become float32.
_FEW, _FEW_HALF = 12, 6
_SMALL = 4096  # weights below which it is not worth a loop of its own
_DEPTH, _TALL, _WIDE = 512, 192, 480  # as in matmul.py
_HIGH = 768  # rows whose sums are kept in float32 if the inner dimension is longer than _DEPTH
_BLOCK = 3 * LANES  # columns of a block
_BESIDE = 8  # rows that are copied together: adjacent in memory
_BITS, _ROW = "uint16[::1]", "float32[::1]"
_U16 = np.dtype(np.uint16)
_NO_BIAS = np.empty(0, _U16)


def _few(few, wide, rounded):
    """Makes the loop over blocks of weights."""

    @inner
    def rest(x, at, w, start, first, depth, begun):
        for k in range(first, depth):
            begun += x[at + k] * wide(w[start + k])
        return begun

    @shared(f"void({_ROW}, {_BITS}, {_BITS}, {_BITS}, UniTuple(int64, 3), int64, int64)", product=True)
    def loop(x, w, bias, out, sizes, first, last):
        """Computes out[m, n] = bias[n] + Σₖ x[m, k] w[n, k] for blocks of DOTS rows n of the weights."""
        rows, columns, depth = sizes
        sums = np.empty(rows * DOTS, np.float32)
        count = depth // PARTS
        for block in range(first, last):
            start = min(block * DOTS, columns - DOTS)  # the last block overlaps the one before it
            few(x, rows, depth, w, start * depth, count, sums)
            for m in range(rows):
                for r in range(DOTS):
                    n = start + r
                    total = sums[m * DOTS + r]
                    if count * PARTS < depth:
                        total = rest(x, m * depth, w, n * depth, count * PARTS, depth, total)
                    out[m * columns + n] = rounded(total + wide(bias[n]) if bias.size else total)

    return loop


@lru_cache(maxsize=1)
def few_loops() -> tuple:
    """The loops for few rows: of float16 and of bfloat16."""
    return _few(float16_few, of_float16, to_float16), _few(bfloat16_few, of_bfloat16, to_bfloat16)


@inner
def _carry(source, at, apart, out, to, step, count, brain):
    if brain:
        carry_bfloat16(source, at, apart, out, to, step, count)
    else:
        carry_float16(source, at, apart, out, to, step, count)


@inner
def _turn(source, at, apart, present, out, to, step, brain):
    if brain:
        turn_bfloat16(source, at, apart, present, out, to, step)
    else:
        turn_float16(source, at, apart, present, out, to, step)


@inner
def _panels_of(source, at, lane_step, step, lanes, depth, out, scratch, brain):
    """Does what `into_panels` does, of numbers of two bytes. `scratch` has room for LANES rows of `depth`."""
    if lane_step == 1 and lanes >= LANES:
        for k in range(0, depth, _BESIDE):
            count = min(_BESIDE, depth - k)
            for panel in range(lanes // LANES):
                to = (panel * depth + k) * LANES
                _carry(source, at + panel * LANES + k * step, step, out, to, LANES, count, brain)
    for panel in range(lanes // LANES if lane_step == 1 else 0, -(-lanes // LANES)):
        here, goal = at + panel * LANES * lane_step, panel * depth * LANES
        present = min(LANES, lanes - panel * LANES)
        if step == 1 and depth >= 2 * LANES:
            for k in range(0, depth, 2 * LANES):
                k = min(k, depth - 2 * LANES)
                _turn(source, here + k, lane_step, present, out, goal + k * LANES, LANES, brain)
        elif lane_step == 1:
            widened_rows(source, here, step, present, scratch, LANES, depth, brain)
            into_panels(scratch, NO, ONE, np.int64(LANES), present, depth, out, goal)
        else:
            widened_rows(source, here, lane_step, depth, scratch, depth, present, brain)
            into_panels(scratch, NO, depth, ONE, present, depth, out, goal)


@lru_cache(maxsize=1)
def product_loop():
    @shared(f"void({_BITS}, {_BITS}, {_BITS}, {_BITS}, boolean, UniTuple(int64, 14), int64, int64)")
    def loop(a, b, bias, out, brain, sizes, first, last):
        """Computes out[n, r, c] = bias[c] + Σₖ a[n, r, k] b[n, c, k], over the units of all strips (matmul.py).

        One of the last two dimensions of each factor is contiguous.
        """
        a_next, b_next, a_row, a_step, b_column, b_step, rows, columns, depth = sizes[:9]
        by_rows, units, size, strips, breadth = sizes[9:]
        edge, initial = np.empty(max(3 * ROWS, LANES, 4 * WIDE_ROWS) * LANES, np.float32), initial_row(columns)
        widened(bias, initial[: bias.size], brain)
        table = np.zeros((1, 3), np.int64)
        deepest, high, broad = even(depth, _DEPTH), min(rows, _HIGH), min(columns, _WIDE)
        if depth <= _DEPTH:
            high = min(high, _TALL)
        left = np.empty((min(rows, _TALL) + LANES - 1) // LANES * LANES * deepest, np.float32)
        right = np.empty((broad + _BLOCK - 1) // _BLOCK * _BLOCK * deepest, np.float32)
        sums = np.empty((broad + _BLOCK - 1) // _BLOCK * _BLOCK * high, np.float32)
        scratch = np.empty(LANES * max(deepest, LANES), np.float32)
        while first < last:
            n, strip, unit = first // units // strips, first // units % strips, first % units
            stop = min(units, unit + last - first)
            first += stop - unit
            top, begin = strip * breadth, unit * size
            end, border = min(top + breadth, rows), min(stop * size, columns)
            if by_rows:
                top, begin = begin, top
                end, border = min(stop * size, rows), min(begin + breadth, columns)
            widest = (even(border - begin, _WIDE) + _BLOCK - 1) // _BLOCK * _BLOCK
            for c in range(begin, border, widest):
                wide = min(widest, border - c)
                for start in range(top, end, high):
                    for k in range(0, depth, deepest):
                        deep = min(deepest, depth - k)
                        table[0, 2] = deep
                        if deepest < depth or start == top:
                            at = n * b_next + c * b_column + k * b_step
                            _panels_of(b, at, b_column, b_step, wide, deep, right, scratch, brain)
                        for r in range(start, min(start + high, end), _TALL):
                            tall, at = min(_TALL, start + high - r, end - r), n * a_next + r * a_row + k * a_step
                            if a_step == 1:
                                widened_rows(a, at, a_row, deep, left, deep, tall, brain)
                            else:
                                _panels_of(a, at, a_row, a_step, tall, deep, left, scratch, brain)
                            to = (r - start) * wide
                            blocks(left, a_step != 1, NO, deep, ONE, right, True, NO, b_step, table, initial, c,
                                   k == 0, tall, wide, sums, to, wide, edge)  # fmt: skip
                            if k + deep == depth:
                                for i in range(tall):
                                    begun, goal = to + i * wide, (n * rows + r + i) * columns + c
                                    rounded(sums[begun : begun + wide], out[goal : goal + wide], brain)

    return loop


def _of_few_rows(a, b, bias, columns, depth):
    """The product of a few rows and a matrix whose inner dimension is contiguous, as one row."""
    rows = a.size // depth
    out = fresh(rows * columns, _U16)
    given = (a.reshape(-1).astype(F32), b.view(_U16), bias, out, (rows, columns, depth))
    work = b.size * max(1, rows // 2)
    thread_pool.run(few_loops()[a.dtype.char == "E"], -(-columns // DOTS), given, work)
    return out


def product(a, b, bias, inner_a, inner_b):
    """Computes the product of two matrices, of two stacks of the same shape, or of a stack's rows and a matrix.

    `inner_a` and `inner_b` are their inner dimensions, -1 or -2. Without gaps in memory.
    """
    if a.ndim < 2 or b.ndim < 2 or not a.size or not b.size:
        return NotImplemented
    rows, depth, columns = a.shape[-3 - inner_a], a.shape[inner_a], b.shape[-3 - inner_b]
    lead, own = a.shape[:-2], b.shape[:-2]
    if b.shape[inner_b] != depth or (own and own != lead):
        return NotImplemented
    if bias is not None and (bias.shape != (columns,) or not bias.flags.c_contiguous):
        return NotImplemented
    stack, shape = math.prod(own), (*lead, rows, columns)
    if lead and not own:
        if inner_a != -1 or not a.flags.c_contiguous:
            return NotImplemented
        rows *= math.prod(lead)
    bias = _NO_BIAS if bias is None else casts.bits(bias)
    left, right = memory_of(a, inner_a), memory_of(b, inner_b)
    if left is None or right is None:
        return NotImplemented
    most = _FEW if a.dtype.char == "E" else _FEW_HALF
    few = not own and rows <= most and b.size >= _SMALL and columns >= DOTS and depth >= PARTS
    if few and left[2] == right[2] == 1:
        return _of_few_rows(left[0], right[0], bias, columns, depth).view(a.dtype).reshape(shape)
    work = stack * rows * columns * depth // 8
    threads = thread_pool.shares(False, work, work)
    sizes = sizes_of(left, right, rows, columns, depth, threads if stack == 1 else 1)
    units = stack * sizes[10] * sizes[12]
    out = fresh(stack * rows * columns, _U16)
    given = (left[0].view(_U16), right[0].view(_U16), bias, out, a.dtype.char == "E", sizes)
    thread_pool.run(product_loop(), units, given, work)
    return out.view(a.dtype).reshape(shape)


def _product():
    few_loops()
    product_loop()
    return product


KERNELS = {"product": _product}
