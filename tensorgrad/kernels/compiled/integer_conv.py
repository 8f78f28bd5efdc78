"""Convolutions of quantized images: products of integers of 8 bits, whose sums are exact, and rounded once.

An image has its channels last, so that what a weight meets lies in long pieces. A thread takes some rows of the result:
it copies what each of their pixels sees, less the zero point, to integers of 16 bits, in rows that whole registers
divide, multiplies them with the weights (simd/integers.py), and makes integers of 8 bits of the sums while they are in
its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.integers import BLOCK, STEP, block_sums
from tensorgrad.storage.fresh import fresh

_DEEPEST = 1 << 16  # products of 255 and -128 whose sum has 32 bits
_AT_A_TIME = 1 << 17  # integers of 16 bits that a thread copies at a time: they stay in a second-level cache
_SMALL = 1 << 16  # products below which NumPy does the work
_SHARES = 4  # parts that a small image has at least, for threads to share
_BYTES, _INT8, _ROW = "uint8[::1]", "int8[::1]", "float32[::1]"
_ROUNDING = np.float32(1.5 * 2**23)  # a sum with it has no digits after the point


@inner
def _see(x, image, row, column, sizes, steps, patches, at):
    """Copies what one pixel of the result sees. The last STEP integers end with the last that it sees."""
    height, width, channels, kernel_height, kernel_width, zero, depth, gap_down, gap_across = sizes
    whole, shift, k = depth - depth % STEP, np.int16(zero), 0
    moved = at + steps * STEP - depth
    for i in range(kernel_height):
        y = row + i * gap_down
        for j in range(kernel_width):
            z = column + j * gap_across
            inside = 0 <= y < height and 0 <= z < width
            start = ((image * height + y) * width + z) * channels
            for part in range(2):  # the integers before the last STEP, and those in it
                begin = max(k, 0 if part == 0 else whole)
                end = min(k + channels, whole if part == 0 else depth)
                if begin < end:
                    to, first = np.uint64((at if part == 0 else moved) + begin), np.uint64(start + begin - k)
                    if inside:
                        for c in range(np.uint64(end - begin)):
                            patches[to + c] = np.int16(x[first + c]) - shift
                    else:
                        for c in range(np.uint64(end - begin)):
                            patches[to + c] = np.int16(0)
            k += channels


@inner
def _round(sums, at, added, factors, columns, low, high, zero, out, to):
    """Makes integers of 8 bits of the sums of a pixel."""
    at, to, middle = np.uint64(at), np.uint64(to), np.int32(zero)
    for c in range(np.uint64(columns)):
        found = (np.float32(sums[at + c]) + added[c]) * factors[c]
        found = low if found < low else found
        found = high if found > high else found
        found = (found + _ROUNDING) - _ROUNDING
        out[to + c] = np.uint8(np.int32(found) + middle)


@lru_cache(maxsize=1)
def convolution_loop():
    @shared(
        f"void({_BYTES}, {_INT8}, {_ROW}, {_ROW}, {_BYTES}, UniTuple(int64, 9), UniTuple(int64, 10), "
        "UniTuple(int64, 2), int64, int64)",
        product=True,
    )
    def loop(x, w, added, factors, out, sizes, result, limits, first, last):
        """Computes some rows of the result: clamp(round((Σ (x - zero) w + added) * factors)) + the zero point."""
        rows, columns, channels, depth, steps, down, across, top, left, lines = result
        low, zero = limits
        least, most = np.float32(low - zero), np.float32(255 - zero)
        pitch = steps * STEP
        patches = np.empty(lines * columns * pitch, np.int16)
        patches[:] = np.int16(0)  # and what is beyond the last that a pixel sees stays 0
        sums = np.empty(lines * columns * channels, np.int32)
        total = (out.size // (columns * channels)) if columns * channels else 0
        for part in range(first, last):
            begin = part * lines
            end = min(begin + lines, total)
            pixels = (end - begin) * columns
            for line in range(begin, end):
                image, row = line // rows, line % rows
                for column in range(columns):
                    place = ((line - begin) * columns + column) * pitch
                    _see(x, image, row * down - top, column * across - left, sizes, steps, patches, place)
            for c in range(0, channels, BLOCK[1]):
                n = min(c, channels - BLOCK[1])  # the last block overlaps the one before it
                for m in range(0, pixels, BLOCK[0]):
                    block_sums(patches, m * pitch, pitch, pixels - 1 - m, w, n * depth, depth, steps, added, added, 0,
                               n, sums, m * channels + n, channels)  # fmt: skip
            for m in range(pixels):
                _round(sums, m * channels, added, factors, channels, least, most, zero, out,
                       (begin * columns + m) * channels)  # fmt: skip

    return loop


def _convolution():
    loop = convolution_loop()

    def kernel(x, weight, added, factors, places, zero_point, low, result_zero_point):
        """The integers of a convolution of the image x (uint8), in channels-last memory.

        `weight`: int8, (outputs, height, width, inputs); `places`: stride, padding and dilation, pairs.
        """
        channels, *kernel_size, inputs = weight.shape
        depth = inputs * kernel_size[0] * kernel_size[1]
        (down, across), (top, left), dilation = places
        size = [
            (n + 2 * pad - step * (k - 1) - 1) // stride + 1
            for n, pad, step, k, stride in zip(x.shape[2:], places[1], dilation, kernel_size, places[0], strict=True)
        ]
        if x.dtype != np.uint8 or weight.dtype != np.int8 or channels < BLOCK[1] or min(size) < 1 or not x.size:
            return NotImplemented
        if not 0 < depth <= _DEEPEST or len(x) * size[0] * size[1] * channels * depth < _SMALL:
            return NotImplemented
        rows, columns = size
        image = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        weights = weight.reshape(channels, depth)
        if depth < STEP:
            weights = np.pad(weights, ((0, 0), (0, STEP - depth)))
        deep = max(depth, STEP)
        steps, total = -(-deep // STEP), len(x) * rows
        lines = max(1, min(_AT_A_TIME // (columns * steps * STEP), -(-total // _SHARES)))
        out = fresh(total * columns * channels, np.dtype(np.uint8))
        sizes = x.shape[2], x.shape[3], inputs, *kernel_size, zero_point, deep, *dilation
        result = rows, columns, channels, deep, steps, down, across, top, left, lines
        given = image.reshape(-1), weights.reshape(-1), added, factors, out, sizes, result, (low, result_zero_point)
        thread_pool.run(loop, -(-total // lines), given, len(x) * rows * columns * channels * depth // 8)
        return out.reshape(len(x), rows, columns, channels).transpose(0, 3, 1, 2)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"convolution": _convolution}
