"""Products with weights of 8 and 4 bits (kernels/array/quantized.py says how they are stored).

A few rows, such as a decoder's token, are multiplied with the weights as they are read, which become float32 in
registers, once for up to four rows: a pass over the weights is what such a product takes, so fewer bytes are less time.
For more rows, blocks of the weights become float32 and stay in a cache for the float32 product. Threads share the rows
of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array import quantized as general
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.small_weights import (
    INT4_ROWS,
    PARTS,
    ROWS,
    int4_few,
    int4_few_with_zeros,
    int8_few,
)
from tensorgrad.rows.kernel_tables import run_kernel
from tensorgrad.storage.fresh import fresh

_FEW = 32  # rows up to which reading weights of 8 or 4 bits again costs less than making them float32
_SMALL = 4096  # weights below which NumPy does the work
_AT_A_TIME = 1 << 18  # weights that become float32 at a time
_INT8, _UINT8, _ROW = "int8[::1]", "uint8[::1]", "float32[::1]"
_NONE = np.empty(0, F32)


@inner
def _int8_dot(x, at, w, start, first, depth, begun):
    """Adds the last few terms of an inner product."""
    for k in range(first, depth):
        begun += x[at + k] * np.float32(w[start + k])
    return begun


@lru_cache(maxsize=1)
def int8_loop():
    @shared(f"void({_ROW}, {_INT8}, {_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 3), int64, int64)", product=True)
    def loop(x, w, scales, bias, out, sizes, first, last):
        """Computes out[m, n] = bias[n] + scales[n] Σₖ x[m, k] w[n, k] for blocks of ROWS rows n of the weights."""
        rows, columns, depth = sizes
        sums = np.zeros(rows * ROWS, np.float32)
        count = depth // PARTS
        for block in range(first, last):
            start = min(block * ROWS, columns - ROWS)  # the last block overlaps the one before it
            if count:
                int8_few(x, rows, depth, w, start * depth, count, sums)
            for m in range(rows):
                for r in range(ROWS):
                    n = start + r
                    total = sums[m * ROWS + r]
                    if count * PARTS < depth:
                        total = _int8_dot(x, m * depth, w, n * depth, count * PARTS, depth, total)
                    total *= scales[n]
                    out[m * columns + n] = total + bias[n] if bias.size else total

    return loop


@lru_cache(maxsize=1)
def int4_loop():
    @shared(
        f"void({_ROW}, {_UINT8}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 5), int64, int64)",
        product=True,
    )
    def loop(x, packed, scales, zeros, of_groups, bias, out, sizes, first, last):
        """The same with weights of 4 bits, in `groups` groups of `blocks` blocks in each row."""
        rows, columns, depth, groups, blocks = sizes
        sums = np.empty(rows * INT4_ROWS, np.float32)
        for block in range(first, last):
            start = min(block * INT4_ROWS, columns - INT4_ROWS)  # the last block overlaps the one before it
            if zeros.size:
                int4_few_with_zeros(
                    x, rows, depth, packed, start, groups, blocks, scales, zeros, of_groups, sums
                )  # fmt: skip
            else:
                int4_few(x, rows, depth, packed, start, groups, blocks, scales, zeros, of_groups, sums)
            for m in range(rows):
                for r in range(INT4_ROWS):
                    n, total = start + r, sums[m * INT4_ROWS + r]
                    out[m * columns + n] = total + bias[n] if bias.size else total

    return loop


@lru_cache(maxsize=1)
def int8_wide_loop():
    @shared(f"void({_INT8}, {_ROW}, {_ROW}, int64, int64, int64)")
    def loop(w, scales, out, depth, first, last):
        """Makes rows of weights of 8 bits float32."""
        for n in range(first, last):
            scale, at = scales[n], np.uint64(n * depth)
            for k in range(np.uint64(depth)):
                out[at + k] = np.float32(w[at + k]) * scale

    return loop


@inner
def _wide_block(packed, at, out, to, scale, zero):
    for i in range(np.uint64(PARTS)):
        both = np.int32(packed[at + i])
        out[to + i] = np.float32((both & np.int32(15)) - np.int32(8)) * scale + zero
        out[to + np.uint64(PARTS) + i] = np.float32((both >> np.int32(4)) - np.int32(8)) * scale + zero


@lru_cache(maxsize=1)
def int4_wide_loop():
    @shared(f"void({_UINT8}, {_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 3), int64, int64)")
    def loop(packed, scales, zeros, out, sizes, first, last):
        """Makes rows of weights of 4 bits float32."""
        depth, groups, blocks = sizes
        for n in range(first, last):
            for g in range(groups):
                scale = scales[n * groups + g]
                zero = zeros[n * groups + g] if zeros.size else np.float32(0)
                for b in range(blocks):
                    at = n * depth // 2 + (g * blocks + b) * PARTS
                    _wide_block(packed, np.uint64(at), out, np.uint64(at * 2), scale, zero)

    return loop


def _of_bytes(array, dtype) -> bool:
    return array.__class__ is np.ndarray and array.dtype == dtype and array.flags.c_contiguous and array.ndim == 2


def _vectors(*arrays) -> bool:
    return all(array is None or suits(array) for array in arrays)


def _int8_weights():
    wide = int8_wide_loop()

    def kernel(weight, scales):
        if not _of_bytes(weight, np.int8) or not _vectors(scales) or weight.size < _SMALL:
            return NotImplemented
        out = fresh(weight.size, F32)
        thread_pool.run(wide, len(weight), (weight.reshape(-1), scales, out, weight.shape[1]), weight.size)
        return out.reshape(weight.shape)

    return kernel


def _int4_weights():
    wide = int4_wide_loop()

    def kernel(packed, scales, zeros):
        if not _of_bytes(packed, np.uint8) or not _vectors(scales, zeros) or packed.size * 2 < _SMALL:
            return NotImplemented
        rows, depth, groups = len(packed), packed.shape[1] * 2, scales.shape[1]
        out = fresh(rows * depth, F32)
        sizes = depth, groups, depth // groups // general.BLOCK
        thread_pool.run(wide, rows, (packed.reshape(-1), scales.reshape(-1), _flat(zeros), out, sizes), out.size)
        return out.reshape(rows, depth)

    return kernel


def _flat(array):
    return _NONE if array is None else array.reshape(-1)


def _by_blocks(x, columns, depth, bias, weights_of):
    """The product of many rows: the float32 product of block after block."""
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = fresh(len(rows) * columns, F32).reshape(len(rows), columns)
    step = max(ROWS, _AT_A_TIME // depth)
    for first in range(0, columns, step):
        last = min(first + step, columns)
        weights = weights_of(first, last)
        if weights.shape[1] != rows.shape[1]:
            weights = np.ascontiguousarray(weights[:, : rows.shape[1]])
        out[:, first:last] = run_kernel("linear", rows, weights, None if bias is None else bias[first:last])
    return out.reshape(*x.shape[:-1], columns)


def _int8_linear():
    few = int8_loop()

    def kernel(x, weight, scales, bias):
        if not _vectors(x, scales, bias) or not _of_bytes(weight, np.int8) or weight.size < _SMALL or not x.size:
            return NotImplemented
        general.int8_shape(x, weight, scales, bias)
        columns, depth = weight.shape
        rows = x.size // depth
        if rows > _FEW:
            return _by_blocks(
                x, columns, depth, bias, lambda a, b: run_kernel("int8_weights", weight[a:b], scales[a:b])
            )
        if columns < ROWS:
            return NotImplemented
        out = fresh(rows * columns, F32)
        given = x.reshape(-1), weight.reshape(-1), scales, _flat(bias), out, (rows, columns, depth)
        thread_pool.run(few, -(-columns // ROWS), given, weight.size * max(1, rows // 2))
        return out.reshape(*x.shape[:-1], columns)

    return kernel


def _int4_linear():
    few = int4_loop()

    def kernel(x, packed, scales, zeros, bias):
        if not _vectors(x, scales, zeros, bias) or not _of_bytes(packed, np.uint8) or not x.size:
            return NotImplemented
        if packed.size * 2 < _SMALL:
            return NotImplemented
        general.int4_shape(x, packed, scales, zeros, bias)
        columns, depth = len(packed), packed.shape[1] * 2
        rows, groups = x.size // x.shape[-1], scales.shape[1]
        if rows > _FEW:

            def weights_of(a, b):
                return run_kernel("int4_weights", packed[a:b], scales[a:b], None if zeros is None else zeros[a:b])

            return _by_blocks(x, columns, depth, bias, weights_of)
        if columns < INT4_ROWS:
            return NotImplemented
        lines = x.reshape(rows, x.shape[-1])
        if x.shape[-1] < depth:
            lines = np.zeros((rows, depth), F32)
            lines[:, : x.shape[-1]] = x.reshape(rows, x.shape[-1])
        of_groups = _NONE
        if zeros is not None:
            of_groups = lines.reshape(rows, groups, depth // groups // PARTS, PARTS).sum(2).reshape(-1)
        out = fresh(rows * columns, F32)
        sizes = rows, columns, depth, groups, depth // groups // general.BLOCK
        given = (
            lines.reshape(-1),
            packed.reshape(-1),
            scales.reshape(-1),
            _flat(zeros),
            of_groups,
            _flat(bias),
            out,
            sizes,
        )
        thread_pool.run(few, -(-columns // INT4_ROWS), given, packed.size * 2 * max(1, rows // 2))
        return out.reshape(*x.shape[:-1], columns)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "int8_weights": _int8_weights, "int4_weights": _int4_weights,
    "int8_linear": _int8_linear, "int4_linear": _int4_linear,
}  # fmt: skip
