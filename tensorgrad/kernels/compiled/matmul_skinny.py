"""Products of a few rows and a matrix, which is read once and where it is: what its memory delivers is the limit.

Copying it into panels (matmul.py) takes several times as long as the product of a few rows. If the inner dimension is
contiguous (the weights of a linear layer), each result is an inner product of two rows; otherwise the rows of the
matrix are added to those of the result. Threads share the columns of the result. The sums of a column do not depend on
how they are shared.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.rows import DEEP, added_2, last_1, last_2
from tensorgrad.kernels.compiled.simd.vectors import DOTS, DOTS_PAIR, LANES, PARTS, block_dots, pair_dots

_ROW = "float32[::1]"
_HIGH, _ACROSS, _PAIRED = *DOTS, DOTS_PAIR[1]  # rows and columns of a block of inner products; columns of two rows
_WIDE = math.lcm(_ACROSS, _PAIRED)  # columns at a time
_PITCH = np.int64(_WIDE)
_COLUMNS = np.int64(512)  # columns at a time: DEEP rows of them stay in a first-level cache
_LONG = 1024  # of the inner dimension at a time, if several blocks read the same columns: of more than _FEW rows
_FEW = 4


@inner(fastmath={"contract"})
def _rest_of_dots(x, w, table, rows, start, depth, sums):
    """Adds the last few terms of the inner products of a block."""
    for r in range(rows):
        for c in range(_WIDE):
            total = sums[r * _WIDE + c]
            for k in range(start, depth):
                total += x[r * depth + k] * w[table[c] + k]
            sums[r * _WIDE + c] = total


@lru_cache(maxsize=1)
def dots_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 3), int64, int64)", product=True)
    def loop(x, w, bias, out, sizes, first, last):
        """Computes out[r, c] = bias[c] + Σₖ x[r, k] w[c, k] for blocks of columns; `x` has `_padded(rows)` rows."""
        rows, columns, depth = sizes
        pair = 0 < rows % _HIGH <= 2
        high = rows - rows % _HIGH + (0 if pair or rows % _HIGH == 0 else _HIGH)
        whole, long = depth - depth % PARTS, depth if rows <= _FEW else _LONG
        sums = np.empty((high + 2) * _WIDE, np.float32)
        table, moved = np.empty(_WIDE, np.int64), np.empty(_WIDE, np.int64)
        for block in range(first, last):
            begin = block * _WIDE
            for c in range(_WIDE):
                table[c] = min(begin + c, columns - 1) * depth
            sums[:] = np.float32(0)
            for k in range(0, whole, long):
                count = min(long, whole - k) // PARTS
                for c in range(_WIDE):
                    moved[c] = table[c] + k
                for r in range(0, high, _HIGH):
                    for c in range(0, _WIDE, _ACROSS):
                        block_dots(x, r * depth + k, depth, w, moved, c, count, sums, r * _WIDE + c, _PITCH)
                if pair:
                    for c in range(0, _WIDE, _PAIRED):
                        pair_dots(x, high * depth + k, depth, w, moved, c, count, sums, high * _WIDE + c, _PITCH)
            if whole < depth:
                _rest_of_dots(x, w, table, rows, whole, depth, sums)
            for r in range(rows):
                for c in range(min(_WIDE, columns - begin)):
                    added = bias[begin + c] if bias.size else np.float32(0)
                    out[r * columns + begin + c] = added + sums[r * _WIDE + c]

    return loop


def _padded(rows: int) -> int:
    """Returns how many rows the blocks of `dots_loop` read."""
    rest = rows % _HIGH
    return rows if not rest else rows - rest + (2 if rest <= 2 else _HIGH)


@inner(fastmath={"contract"})
def _add_row(factor, w, at, out, to, count):
    for i in range(count):
        out[to + i] += factor * w[at + i]


@lru_cache(maxsize=1)
def rows_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 3), int64, int64)", product=True)
    def loop(x, w, bias, out, sizes, first, last):
        """Computes out[r, c] = bias[c] + Σₖ x[r, k] w[k, c] for stretches of columns."""
        rows, columns, depth = sizes
        deepest = depth - depth % DEEP
        sums = np.empty(rows * _COLUMNS, np.float32)  # the rows of `out` may be powers of two apart: bad for a cache
        for stretch in range(first, last):
            begin = stretch * _COLUMNS
            wide = min(_COLUMNS, columns - begin)
            blocks, rest = wide // LANES, wide % LANES
            for r in range(rows):
                for c in range(wide):
                    sums[r * _COLUMNS + c] = bias[begin + c] if bias.size else np.float32(0)
            for k in range(0, deepest, DEEP):
                at, r = k * columns + begin, 0
                while r + 2 < rows:
                    added_2(x, r * depth + k, depth, w, at, columns, sums, r * _COLUMNS, _COLUMNS, blocks)
                    r += 2
                if r + 2 == rows:
                    last_2(x, r * depth + k, depth, w, at, columns, sums, r * _COLUMNS, _COLUMNS, blocks)
                else:
                    last_1(x, r * depth + k, depth, w, at, columns, sums, r * _COLUMNS, _COLUMNS, blocks)
                if rest:
                    for r in range(rows):
                        for j in range(DEEP):
                            _add_row(
                                x[r * depth + k + j], w, at + j * columns + wide - rest, sums,
                                r * _COLUMNS + wide - rest, rest,
                            )  # fmt: skip
            for k in range(deepest, depth):
                for r in range(rows):
                    _add_row(x[r * depth + k], w, k * columns + begin, sums, r * _COLUMNS, wide)
            for r in range(rows):
                for c in range(wide):
                    out[r * columns + begin + c] = sums[r * _COLUMNS + c]

    return loop


def product(x, w, along: bool, rows, columns, depth, out, bias):
    """Computes the product of `rows` rows and a matrix, both as one row of numbers, into `out`.

    `along`: whether the matrix is stored by columns, so that the inner dimension is contiguous.
    """
    if along:
        if _padded(rows) > rows:
            padded = np.zeros((_padded(rows), depth), F32)
            padded[:rows] = x.reshape(rows, depth)
            x = padded.reshape(-1)
        loop, units = dots_loop(), -(-columns // _WIDE)
    else:
        loop, units = rows_loop(), -(-columns // int(_COLUMNS))
    work = columns * depth * max(1, rows // 4)
    thread_pool.run(loop, units, (x, w, bias, out.reshape(-1), (rows, columns, depth)), work)
    return out
