"""Products of integers of 8 bits, whose sums are exact (kernels/array/integer_products.py says what they are for).

The numbers, less their zero point, are copied to integers of 16 bits, in rows that whole registers divide; the weights
are read where they are. Each row of weights is read once for a few rows of numbers. What is made of a sum, a product
with a scale and a sum with a bias, is made while it is in a register.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array import integer_products as general
from tensorgrad.kernels.compiled.layout import in_rows, suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.integers import (
    BLOCK,
    COLUMNS,
    STEP,
    block_numbers,
    block_sums,
    extremes,
    row_numbers,
    row_sums,
)
from tensorgrad.kernels.compiled.simd.vectors import LANES
from tensorgrad.storage.fresh import fresh
from tensorgrad.storage.scales import chosen_for_one

_DEEPEST = 1 << 16  # products of 255 and -128 whose sum has 32 bits
_AT_A_TIME = np.int64(16)  # rows of weights: they stay in a first-level cache
_SMALL = 4096  # weights below which NumPy does the work
_FEW = 2  # rows up to which each is multiplied alone
_ROW, _SHORT, _INT8, _INT32 = "float32[::1]", "int16[::1]", "int8[::1]", "int32[::1]"
_NONE = np.empty(0, F32)
_ROUNDING = np.float32(1.5 * 2**23)  # a sum with it has no digits after the point


@lru_cache(maxsize=1)
def numbers_loop():
    @shared(f"void({_SHORT}, {_INT8}, {_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 4), int64, int64)", product=True)
    def loop(x, w, factors, bias, out, sizes, first, last):
        """Computes out[m, n] = factors[n] Σₖ x[m, k] w[n, k] + bias[n] for blocks of COLUMNS rows n of the weights."""
        rows, columns, depth, steps = sizes
        pitch = steps * STEP
        for block in range(first, last):
            begin = block * _AT_A_TIME
            if rows <= _FEW:
                for m in range(rows):
                    for c in range(begin, min(begin + _AT_A_TIME, columns), COLUMNS):
                        n = min(c, columns - COLUMNS)  # the last block overlaps the one before it
                        row_numbers(x, m * pitch, pitch, 0, w, n * depth, depth, steps, factors, bias, bias.size, n,
                                    out, m * columns + n, columns)  # fmt: skip
            else:
                for m in range(0, rows, BLOCK[0]):
                    for c in range(begin, min(begin + _AT_A_TIME, columns), BLOCK[1]):
                        n = min(c, columns - BLOCK[1])
                        block_numbers(x, m * pitch, pitch, rows - 1 - m, w, n * depth, depth, steps, factors, bias,
                                      bias.size, n, out, m * columns + n, columns)  # fmt: skip

    return loop


@lru_cache(maxsize=1)
def sums_loop():
    @shared(f"void({_SHORT}, {_INT8}, {_ROW}, {_INT32}, UniTuple(int64, 4), int64, int64)", product=True)
    def loop(x, w, none, out, sizes, first, last):
        """The same with the sums as they are."""
        rows, columns, depth, steps = sizes
        pitch = steps * STEP
        for block in range(first, last):
            begin = block * _AT_A_TIME
            if rows <= _FEW:
                for m in range(rows):
                    for c in range(begin, min(begin + _AT_A_TIME, columns), COLUMNS):
                        n = min(c, columns - COLUMNS)
                        row_sums(x, m * pitch, pitch, 0, w, n * depth, depth, steps, none, none, 0, n, out,
                                 m * columns + n, columns)  # fmt: skip
            else:
                for m in range(0, rows, BLOCK[0]):
                    for c in range(begin, min(begin + _AT_A_TIME, columns), BLOCK[1]):
                        n = min(c, columns - BLOCK[1])
                        block_sums(x, m * pitch, pitch, rows - 1 - m, w, n * depth, depth, steps, none, none, 0, n, out,
                                   m * columns + n, columns)  # fmt: skip

    return loop


@inner
def _quantize(x, at, out, to, count, inverse, zero):
    """PyTorch multiplies and adds with one rounding; products of float32 are exact in float64."""
    at, to, shift = np.uint64(at), np.uint64(to), np.int32(zero)
    for i in range(np.uint64(count)):
        found = np.float32(np.float64(x[at + i]) * inverse + zero)
        found = np.float32(0) if found < np.float32(0) else found
        found = np.float32(255) if found > np.float32(255) else found
        found = (found + _ROUNDING) - _ROUNDING
        out[to + i] = np.int16(np.int32(found) - shift)


@lru_cache(maxsize=1)
def range_loop():
    @shared(f"void({_ROW}, {_ROW}, int64, int64)")
    def loop(x, out, first, last):
        """Finds the largest and the least number, all in one part."""
        extremes(x, x.size, out)

    return loop


@lru_cache(maxsize=1)
def quantizing_loop():
    @shared(f"void({_ROW}, {_SHORT}, {_ROW}, {_ROW}, UniTuple(int64, 2), float64, float64, float64, int64, int64)")
    def loop(x, out, scales, factors, sizes, inverse, zero, scale, first, last):
        """Quantizes rows to integers less the zero point; the first part multiplies `scales` with `scale`."""
        depth, steps = sizes
        rest = depth % STEP
        whole = depth - rest
        for m in range(first, last):
            _quantize(x, m * depth, out, m * steps * STEP, whole, inverse, zero)
            if rest:
                end = (m + 1) * steps * STEP
                for k in range(m * steps * STEP + whole, end - rest):
                    out[k] = np.int16(0)
                _quantize(x, m * depth + whole, out, end - rest, rest, inverse, zero)
        if first == 0:
            for n in range(factors.size):
                factors[n] = np.float32(scale) * (scales[n] if scales.size > 1 else scales[0])

    return loop


def _suits(weight, rows, columns, depth) -> bool:
    return (
        weight.__class__ is np.ndarray
        and weight.dtype == np.int8
        and weight.flags.c_contiguous
        and STEP <= depth <= _DEEPEST
        and columns >= COLUMNS
        and rows > 0
        and weight.size >= _SMALL
    )


def _units(columns: int) -> int:
    return -(-columns // int(_AT_A_TIME))


def _sums():
    loop = sums_loop()

    def kernel(x, weight, zero_point):
        """The sums of products of the integers x (rows, depth), less a zero point, and of weights (columns, depth)."""
        general.sums_shape(x, weight, zero_point)
        (rows, depth), columns = x.shape, len(weight)
        weight = in_rows(weight)
        if not _suits(weight, rows, columns, depth):
            return NotImplemented
        steps, rest = -(-depth // STEP), depth % STEP
        numbers = np.zeros((rows, steps * STEP), np.int16)
        whole, zero = depth - rest, np.int16(zero_point)
        np.subtract(x[:, :whole], zero, out=numbers[:, :whole], dtype=np.int16)
        if rest:
            np.subtract(x[:, whole:], zero, out=numbers[:, steps * STEP - rest :], dtype=np.int16)
        out = fresh(rows * columns, np.dtype(np.int32))
        given = numbers.reshape(-1), weight.reshape(-1), _NONE, out, (rows, columns, depth, steps)
        thread_pool.run(loop, _units(columns), given, weight.size * max(1, rows // 4))
        return out.reshape(rows, columns)

    return kernel


def _dynamic_linear():
    loop, range_of, quantize = numbers_loop(), range_loop(), quantizing_loop()

    def kernel(x, weight, scales, zero_points, bias, highest):
        """The float32 product of numbers that are quantized to integers up to `highest`, and quantized weights."""
        general.dynamic_shape(x, weight, scales, zero_points, bias, highest)
        columns, depth = weight.shape
        if zero_points.any() or not depth:
            return NotImplemented
        rows = x.size // depth
        if not suits(x) or not suits(scales) or (bias is not None and not suits(bias)) or x.size < LANES:
            return NotImplemented
        if not _suits(weight, rows, columns, depth):
            return NotImplemented
        numbers, ends = x.reshape(-1), np.empty(2, F32)
        thread_pool.run(range_of, 1, (numbers, ends), numbers.size)
        high, low = ends
        if high != high:
            return NotImplemented
        scale, zero_point = chosen_for_one(low, high, 0, highest)
        steps = -(-depth // STEP)
        ints, factors = fresh(rows * steps * STEP, np.dtype(np.int16)), np.empty(columns, F32)
        inverse = float(np.float32(1) / np.float32(scale))
        thread_pool.run(
            quantize, rows, (numbers, ints, scales, factors, (depth, steps), inverse, float(zero_point), scale), x.size
        )
        out = fresh(rows * columns, F32)
        given = ints, weight.reshape(-1), factors, _NONE if bias is None else bias, out, (rows, columns, depth, steps)
        thread_pool.run(loop, _units(columns), given, weight.size * max(1, rows // 4))
        return out.reshape(*x.shape[:-1], columns)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"sums": _sums, "dynamic_linear": _dynamic_linear}
