"""Batch norm, ReLU and the maxima of 2x2 windows in one pass, forward and backward, with the bits of the three kernels.

What the three pass to each other is a row, which stays in a cache: it is never written to memory. Moments, and the
sums of gradients, are those of `norm.py`, in the same order; which of two equal numbers a window takes is decided by
the loop of `pool.py` on the same numbers. For the plans of compiled functions (capture/epilogues.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.norm import SHORT, along_row, normalise, slopes_of_row, together, with_long_row
from tensorgrad.kernels.compiled.pool import largest_of_planes
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.vectors import LANES
from tensorgrad.kernels.compiled.simd.windows import spread_to_four

_VECTOR, _IMAGES, _PLACES, _SIZES = "float32[::1]", "float32[:,:,::1]", "uint8[::1]", "UniTuple(int64, 4)"


@inner
def _rectify(row):
    for i in range(row.size):
        row[i] = F(0.0) if row[i] < F(0.0) else row[i]


@inner
def _spread(g, pooled, places, at, planes, sizes, to):
    """Writes the gradients of windows, which begin at `at`, to the places of their maxima, if these are positive.

    All other numbers of the windows become 0, and up to 2 LANES numbers after them. `to` has room for these, and is 0
    at first: so rows and columns that are in no window are 0.
    """
    height, width, points_y, points_x = sizes
    for n in range(planes):
        for y in range(points_y):
            begin, top = at + (n * points_y + y) * points_x, (n * height + 2 * y) * width
            # The last ones first: what they write after the end of a row is written again.
            for done in range((points_x - 1) // LANES * LANES, -1, -LANES):
                here, count = top + 2 * done, min(LANES, points_x - done)
                if begin + done + LANES <= g.size:
                    spread_to_four(g, pooled, places, begin + done, count, to, here, here + width)
                    continue
                for j in range(count):
                    left, window = here + 2 * j, begin + done + j
                    to[left] = to[left + 1] = to[left + width] = to[left + width + 1] = F(0.0)
                    place = np.int64(places[window])
                    slope = F(0.0) if pooled[window] <= F(0.0) else F(0.0) + g[window]
                    to[left + place // 2 * width + place % 2] = slope


def _forward():
    @shared(
        f"void({_IMAGES}, {_VECTOR}, {_VECTOR}, float64, {_VECTOR}, {_PLACES}, {_VECTOR}, {_VECTOR}, {_VECTOR}, "
        f"{_SIZES}, int64, int64)"
    )
    def long_rows(x, weight, bias, eps, out, places, means, rstds, variances, sizes, first, last):
        height, width, points_y, points_x = sizes
        row = np.empty(x.shape[2], np.float32)
        for c in range(first, last):
            count = mean = squares = 0.0
            for n in range(x.shape[0]):
                count, mean, squares = with_long_row(count, mean, squares, x[n, c])
            variance = squares / count
            rstd = F(1.0 / math.sqrt(variance + eps))
            means[c], rstds[c], variances[c] = mean, rstd, variance
            for n in range(x.shape[0]):
                normalise(x[n, c], F(mean), rstd * weight[c], bias[c], row)
                _rectify(row)
                to = (n * x.shape[1] + c) * points_y * points_x
                largest_of_planes(row, 0, 1, height, width, points_y, points_x, out, places, to)

    @shared(
        f"void({MATRIX}, {_VECTOR}, {_VECTOR}, float64, {_VECTOR}, {_PLACES}, {_VECTOR}, {_VECTOR}, {_VECTOR}, "
        f"{_SIZES}, int64, int64)"
    )
    def short_rows(x, weight, bias, eps, out, places, means, rstds, variances, sizes, first, last):
        height, width, points_y, points_x = sizes
        length = x.shape[1] // means.size
        count, step = np.float64(x.shape[0] * length), together(x.shape[0], length)
        for start in range(first, last, step):
            channels = min(step, last - start)
            left, right = start * length, (start + channels) * length
            totals = np.zeros(right - left)
            table = np.empty((4, right - left), np.float32)
            mean, scale, shift, to = table[0], table[1], table[2], table[3]
            for k in range(x.shape[0]):
                row = x[k, left:right]
                for i in range(totals.size):
                    totals[i] += row[i]
            for c in range(channels):
                here = slice(c * length, (c + 1) * length)
                mean[here] = means[start + c] = totals[here].sum() / count
            totals[:] = 0.0
            for k in range(x.shape[0]):
                row = x[k, left:right]
                for i in range(totals.size):
                    away = row[i] - mean[i]
                    totals[i] += away * away
            for c in range(channels):
                here, channel = slice(c * length, (c + 1) * length), start + c
                variances[channel] = variance = totals[here].sum() / count
                rstds[channel] = rstd = F(1.0 / math.sqrt(variance + eps))
                scale[here], shift[here] = rstd * weight[channel], bias[channel]
            for k in range(x.shape[0]):
                row = x[k, left:right]
                for i in range(scale.size):
                    to[i] = (row[i] - mean[i]) * scale[i] + shift[i]
                _rectify(to)
                at = (k * means.size + start) * points_y * points_x
                largest_of_planes(to, 0, channels, height, width, points_y, points_x, out, places, at)

    def kernel(x, weight, bias, eps):
        """Returns the maxima and their places, mean, variance and reciprocal deviation of each channel."""
        if not (suits(x) and suits(weight) and suits(bias)) or x.ndim != 4 or min(x.shape[2:]) < 2 or not x.size:
            return NotImplemented
        n, c, height, width = x.shape
        sizes = (height, width, height // 2, width // 2)
        out, places = np.empty((n, c, *sizes[2:]), F32), np.empty((n, c, *sizes[2:]), np.uint8)
        mean, rstd, var = np.empty(c, F32), np.empty(c, F32), np.empty(c, F32)
        length = height * width
        loop, shape = (short_rows, (n, c * length)) if length < SHORT else (long_rows, (n, c, length))
        given = (x.reshape(shape), weight, bias, eps, out.reshape(-1), places.reshape(-1), mean, rstd, var, sizes)
        thread_pool.run(loop, c, given, 3 * x.size)
        return out, places, mean, var, rstd

    return kernel


def _backward():
    @shared(
        f"void({_VECTOR}, {_VECTOR}, {_PLACES}, {_IMAGES}, {_VECTOR}, {_VECTOR}, {_VECTOR}, {_IMAGES}, {_VECTOR}, "
        f"{_VECTOR}, {_SIZES}, int64, int64)"
    )
    def long_rows(g, pooled, places, x, means, rstds, weight, gx, gw, gb, sizes, first, last):
        points = sizes[2] * sizes[3]
        room = np.zeros(x.shape[2] + 2 * LANES, np.float32)
        slopes = room[: x.shape[2]]
        for c in range(first, last):
            mean, rstd = means[c], rstds[c]
            scale = rstd * weight[c]
            plain = along = 0.0
            for n in range(x.shape[0]):
                _spread(g, pooled, places, (n * x.shape[1] + c) * points, 1, sizes, room)
                more, product = along_row(slopes, x[n, c], mean)
                plain += more
                along += product
            gb[c], gw[c] = plain, along * rstd
            count = np.float64(x.shape[0] * x.shape[2])
            plain, along = plain / count * scale, along / count * rstd * rstd * scale
            if gx.size:
                for n in range(x.shape[0]):
                    _spread(g, pooled, places, (n * x.shape[1] + c) * points, 1, sizes, room)
                    slopes_of_row(slopes, x[n, c], mean, scale, F(along), F(plain), gx[n, c])

    @shared(
        f"void({_VECTOR}, {_VECTOR}, {_PLACES}, {MATRIX}, {_VECTOR}, {_VECTOR}, {_VECTOR}, {MATRIX}, {_VECTOR}, "
        f"{_VECTOR}, {_SIZES}, int64, int64)"
    )
    def short_rows(g, pooled, places, x, means, rstds, weight, gx, gw, gb, sizes, first, last):
        points, length = sizes[2] * sizes[3], x.shape[1] // means.size
        count, step = np.float64(x.shape[0] * length), together(x.shape[0], length)
        for start in range(first, last, step):
            channels = min(step, last - start)
            left, right = start * length, (start + channels) * length
            plain, along = np.zeros(right - left), np.zeros(right - left)
            table, room = np.zeros((4, right - left), np.float32), np.zeros(right - left + 2 * LANES, np.float32)
            mean, scale, shift, tilt, slope = table[0], table[1], table[2], table[3], room[: right - left]
            for c in range(channels):
                mean[c * length : (c + 1) * length] = means[start + c]
            for k in range(x.shape[0]):
                row = x[k, left:right]
                _spread(g, pooled, places, (k * means.size + start) * points, channels, sizes, room)
                for i in range(plain.size):
                    plain[i] += slope[i]
                    along[i] += slope[i] * (row[i] - mean[i])
            for c in range(channels):
                here, to = slice(c * length, (c + 1) * length), start + c
                total, product, rstd = plain[here].sum(), along[here].sum(), np.float64(rstds[to])
                gb[to], gw[to] = total, product * rstd
                factor = rstd * weight[to]
                scale[here] = factor
                shift[here] = total / count * factor
                tilt[here] = product / count * rstd * rstd * factor
            if gx.size:
                for k in range(x.shape[0]):
                    row, to = x[k, left:right], gx[k, left:right]
                    _spread(g, pooled, places, (k * means.size + start) * points, channels, sizes, room)
                    for i in range(scale.size):
                        to[i] = slope[i] * scale[i] - ((row[i] - mean[i]) * tilt[i] + shift[i])

    def kernel(g, pooled, places, x, weight, mean, rstd, need):
        """Returns the gradients of x, weight and bias, as far as they are needed."""
        if not all([suits(a) for a in (g, pooled, x, weight, mean, rstd)]) or g.shape != pooled.shape:
            return NotImplemented
        if not places.flags.c_contiguous or places.shape != g.shape:
            return NotImplemented
        n, c, height, width = x.shape
        length, sizes = height * width, (height, width, *g.shape[2:])
        gx, gw, gb = np.empty(x.shape if need[0] else (0, *x.shape[1:]), F32), np.empty(c, F32), np.empty(c, F32)
        loop, shape = (short_rows, (n, c * length)) if length < SHORT else (long_rows, (n, c, length))
        flat = (g.reshape(-1), pooled.reshape(-1), places.reshape(-1), x.reshape(shape), mean, rstd, weight)
        thread_pool.run(loop, c, (*flat, gx.reshape(len(gx), *shape[1:]), gw, gb, sizes), 3 * x.size)
        return gx if need[0] else None, gw if need[1] else None, gb if need[2] else None

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"forward": _forward, "backward": _backward}
