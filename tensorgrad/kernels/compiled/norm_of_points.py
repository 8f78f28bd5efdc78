"""Batch and group normalization of images whose channels lie together (channels_last), forward and backward.

Such images are lines of points: as many points as fill a few vectors, one after the other, form a line. Each column of
a line belongs to one channel, and all sums are taken down the columns: in single precision over a few thousand numbers,
beyond that in double. Batch norm is group norm of one long image with a group per channel.
Formulas: kernels/array/norm.py.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import in_rows, suits
from tensorgrad.kernels.compiled.moments import combined
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, MEMORY, inner
from tensorgrad.kernels.compiled.runtime.launch import Shared, shared

_WIDE, _NARROW = 512, 64  # numbers in a line: as many as are wanted, and fewer than are worthwhile
_PART = 8192  # numbers that are summed in single precision
_SOME = 4  # lines of a part whose mean the deviations are taken from
_VECTOR, _PARTS, _FACTORS = "float32[::1]", "float64[:,:,::1]", "float32[:,:,::1]"


class _Lines(NamedTuple):
    """How images are divided. A unit is what has statistics of its own: an image, or all of them for batch norm."""

    units: int
    lines: int  # of a unit
    times: int  # points in a line
    width: int  # numbers in a line
    part: int  # lines in a part
    parts: int  # of a unit


@lru_cache(maxsize=256)
def _lines(units: int, points: int, channels: int) -> _Lines | None:
    """Divides images into lines; None if the lines would be too short."""
    times = 1
    while channels * times < _WIDE and points % (2 * times) == 0:
        times *= 2
    width, lines = channels * times, points // times
    if width < _NARROW:
        return None
    part = max(1, _PART // width)
    return _Lines(units, lines, times, width, part, -(-lines // part))


# --- loops -----------------------------------------------------------------------------------------------------------


@inner(fastmath={"contract"})
def _add(total, line):
    for i in range(total.size):
        total[i] += line[i]


@inner
def _copy(line, to):
    for i in range(to.size):
        to[i] = line[i]


@inner
def _folded(line, channels):
    """Adds the points of a line, which are a power of two, onto the first one."""
    width = line.size
    while width > channels:
        width //= 2
        _add(line[:width], line[width : 2 * width])


@inner
def _repeated(line, channels):
    """Copies the first point of a line to all others."""
    width = channels
    while width < line.size:
        _copy(line[:width], line[width : 2 * width])
        width *= 2


@inner(fastmath={"contract"})
def _add_deviations(centre, plain, squares, a, b, c, d):
    for i in range(plain.size):
        p, q, r, s = a[i] - centre[i], b[i] - centre[i], c[i] - centre[i], d[i] - centre[i]
        plain[i] += (p + q) + (r + s)
        squares[i] += (p * p + q * q) + (r * r + s * s)


@inner(fastmath={"contract"})
def _add_slopes(centre, plain, along, g, h, a, b):
    for i in range(plain.size):
        plain[i] += g[i] + h[i]
        along[i] += g[i] * (a[i] - centre[i]) + h[i] * (b[i] - centre[i])


@inner(fastmath={"contract"})
def _normalised(row, centre, factor, shift, to):
    for i in range(to.size):
        to[i] = (row[i] - centre[i]) * factor[i] + shift[i]


@inner(fastmath={"contract"})
def _slopes(slope, row, centre, factor, along, plain, to):
    for i in range(to.size):
        to[i] = slope[i] * factor[i] - ((row[i] - centre[i]) * along[i] + plain[i])


@inner
def _line(x, at, width):
    return x[at : at + width]


@inner
def _exactly(x, at, step, count):
    """Returns the mean of numbers `step` apart, and the sums of deviations and their squares, in double precision."""
    centre = plain = squares = 0.0
    for i in range(count):
        centre += np.float64(x[at + i * step])
    centre /= count
    for i in range(count):
        away = np.float64(x[at + i * step]) - centre
        plain += away
        squares += away * away
    return centre, plain, squares


@lru_cache(maxsize=1)
def forward_loops() -> tuple[Shared, Shared, Shared]:
    """The loops of the forward pass: statistics of the parts, of the units, and the results."""

    @shared(f"void({MEMORY}, {_PARTS}, UniTuple(int64, 4), int64, int64)")
    def moments(x, made, numbers, first, last):
        """Computes mean and sum of squared deviations of each channel in each part."""
        lines, width, part, parts = numbers
        channels = made.shape[2]
        plain, centre = np.zeros(width, np.float32), np.zeros(width, np.float32)
        squares = np.zeros(width, np.float32)
        for k in range(first, last):
            begin = k % parts * part
            count, at = min(part, lines - begin), (k // parts * lines + begin) * width
            four, points = count - count % 4, count * (width // channels)
            plain[:] = 0
            squares[:] = 0
            # Deviations are those from the mean of some of the lines. As these are a good part of all, it differs from
            # the mean of all by so little, compared with the deviation, that the correction below loses no digits.
            some = min(_SOME, count)
            for i in range(at, at + some * width, width):
                _add(plain, _line(x, i, width))
            _folded(plain, channels)
            share = F(1.0 / (some * (width // channels)))
            for c in range(channels):
                centre[c] = plain[c] * share
            _repeated(centre, channels)
            plain[:] = 0
            for i in range(at, at + four * width, 4 * width):
                _add_deviations(centre, plain, squares, _line(x, i, width), _line(x, i + width, width),
                                _line(x, i + 2 * width, width), _line(x, i + 3 * width, width))  # fmt: skip
            for i in range(at + four * width, at + count * width, width):
                _add_deviations(centre, plain, squares, _line(x, i, width), centre, centre, centre)
            _folded(plain, channels)
            _folded(squares, channels)
            for c in range(channels):
                mean, more, own = np.float64(centre[c]), np.float64(plain[c]), np.float64(squares[c])
                if not (1e-25 < own < np.inf):  # squares that float32 cannot represent
                    mean, more, own = _exactly(x, at + c, channels, points)
                made[k, 0, c] = mean + more / points
                made[k, 1, c] = max(own - more * more / points, 0.0)

    @shared(
        f"void({_PARTS}, {_VECTOR}, {_VECTOR}, float64, {_FACTORS}, {MATRIX}, {MATRIX}, {MATRIX}, UniTuple(int64, 4), "
        "int64, int64)"
    )
    def statistics(made, weight, bias, eps, factors, means, rstds, variances, numbers, first, last):
        """Combines the parts of each unit, and lists its columns' means, factors and shifts."""
        lines, width, part, parts = numbers
        channels, groups = made.shape[2], means.shape[1]
        group = channels // groups
        for unit in range(first, last):
            for k in range(groups):
                count = mean = squares = 0.0
                for p in range(parts):
                    size = np.float64(min(part, lines - p * part) * (width // channels))
                    for c in range(k * group, (k + 1) * group):
                        here = unit * parts + p
                        count, mean, squares = combined(count, mean, squares, size, made[here, 0, c], made[here, 1, c])
                variance = squares / count
                rstd = F(1.0 / math.sqrt(variance + eps))
                means[unit, k], rstds[unit, k], variances[unit, k] = mean, rstd, variance
                for c in range(k * group, (k + 1) * group):
                    factors[unit, 0, c], factors[unit, 1, c], factors[unit, 2, c] = mean, rstd * weight[c], bias[c]
            for i in range(3):
                _repeated(factors[unit, i], channels)

    @shared(f"void({MEMORY}, {_FACTORS}, {_VECTOR}, int64, int64, int64)")
    def normalise(x, factors, out, lines, first, last):
        width = factors.shape[2]
        for k in range(first, last):
            f = factors[k // lines]
            _normalised(_line(x, k * width, width), f[0], f[1], f[2], _line(out, k * width, width))

    return moments, statistics, normalise


@lru_cache(maxsize=1)
def backward_loops() -> tuple[Shared, Shared, Shared]:
    """The loops of the backward pass: sums of the parts, of the units, and the gradient of the input."""

    @shared(f"void({MEMORY}, {MEMORY}, {MATRIX}, {_PARTS}, UniTuple(int64, 5), int64, int64)")
    def sums(g, x, means, made, numbers, first, last):
        """Computes Σ g and Σ g (x - mean) of each channel in each part."""
        lines, width, part, parts, g_step = numbers
        channels = made.shape[2]
        group = channels // means.shape[1]
        plain, along = np.zeros(width, np.float32), np.zeros(width, np.float32)
        centre, none = np.zeros(width, np.float32), np.zeros(width, np.float32)
        for k in range(first, last):
            unit, begin = k // parts, k % parts * part
            count, start = min(part, lines - begin), unit * lines + begin
            even, at, to = count - count % 2, start * width, start * g_step
            for c in range(channels):
                centre[c] = means[unit, c // group]
            _repeated(centre, channels)
            plain[:] = 0
            along[:] = 0
            for i in range(0, even, 2):
                a, b = at + i * width, to + i * g_step
                _add_slopes(centre, plain, along, _line(g, b, width), _line(g, b + g_step, width), _line(x, a, width),
                            _line(x, a + width, width))  # fmt: skip
            if even < count:
                a, b = at + even * width, to + even * g_step
                _add_slopes(centre, plain, along, _line(g, b, width), none, _line(x, a, width), centre)
            _folded(plain, channels)
            _folded(along, channels)
            for c in range(channels):
                made[k, 0, c], made[k, 1, c] = plain[c], along[c]

    @shared(
        f"void({_PARTS}, {MATRIX}, {MATRIX}, {_VECTOR}, {_FACTORS}, {MATRIX}, {MATRIX}, boolean, UniTuple(int64, 3), "
        "int64, int64)"
    )
    def factors_of(made, means, rstds, weight, factors, dots, totals, through, numbers, first, last):
        """Combines the parts of each unit, and lists its columns' means, factors, slopes and shifts."""
        lines, width, parts = numbers
        channels, groups = made.shape[2], means.shape[1]
        group = channels // groups
        for unit in range(first, last):
            for k in range(groups):
                mean, rstd = means[unit, k], np.float64(rstds[unit, k])
                plain = along = 0.0
                for c in range(k * group, (k + 1) * group):
                    total = product = 0.0
                    for p in range(unit * parts, (unit + 1) * parts):
                        total += made[p, 0, c]
                        product += made[p, 1, c]
                    totals[unit, c], dots[unit, c] = total, product * rstd
                    plain += total * weight[c]
                    along += product * weight[c]
                count = np.float64(lines * (width // channels) * group)
                plain = plain / count * rstd if through else 0.0
                along = along / count * rstd * rstd * rstd if through else 0.0
                for c in range(k * group, (k + 1) * group):
                    factors[unit, 0, c], factors[unit, 1, c] = mean, rstd * weight[c]
                    factors[unit, 2, c], factors[unit, 3, c] = along, plain
            for i in range(4):
                _repeated(factors[unit, i], channels)

    @shared(f"void({MEMORY}, {MEMORY}, {_FACTORS}, {_VECTOR}, UniTuple(int64, 2), int64, int64)")
    def slopes(g, x, factors, out, numbers, first, last):
        width, (lines, g_step) = factors.shape[2], numbers
        for k in range(first, last):
            f = factors[k // lines]
            slope, row, to = _line(g, k * g_step, width), _line(x, k * width, width), _line(out, k * width, width)
            _slopes(slope, row, f[0], f[1], f[2], f[3], to)

    return sums, factors_of, slopes


# --- kernels ---------------------------------------------------------------------------------------------------------


def _order(rank: int) -> tuple[int, ...]:
    return 0, *range(2, rank), 1


def points_of(x: Any, *parameters: Any) -> Any:
    """Views images (N, C, *S) as (N, *S, C), if the channels of a point lie together and kernels take the parameters.

    None otherwise.
    """
    if x.__class__ is not np.ndarray or x.dtype is not F32 or x.ndim not in (4, 5) or not x.size:
        return None
    for p in parameters:
        if p is not None and not suits(p):
            return None
    turned = x.transpose(_order(x.ndim))
    return turned if turned.flags.c_contiguous else None


def as_images(array: np.ndarray) -> np.ndarray:
    """Views points (N, *S, C) as images (N, C, *S)."""
    return array.transpose(0, array.ndim - 1, *range(1, array.ndim - 1))


def forward(points: np.ndarray, weight, bias, groups: int, eps: float, by_image: bool):
    """Normalizes `points` (N, *S, C) by groups of channels, of each image or (`by_image` false) of all.

    Returns the result (N, C, *S), and mean, reciprocal deviation and variance per unit and group; or NotImplemented.
    """
    n, channels = points.shape[0], points.shape[-1]
    length = points.size // (n * channels)
    form = _lines(n, length, channels) if by_image else _lines(1, n * length, channels)
    if form is None:
        return NotImplemented
    moments, statistics, normalise = forward_loops()
    units, lines, _, width, part, parts = form
    numbers = lines, width, part, parts
    made, factors = np.empty((units * parts, 2, channels)), np.empty((units, 3, width), F32)
    mean, rstd, variance = (np.empty((units, groups), F32) for _ in range(3))
    out = np.empty(points.shape, F32)
    thread_pool.run(moments, units * parts, (points, made, numbers), 2 * points.size)
    given = np.ones(channels, F32) if weight is None else weight, np.zeros(channels, F32) if bias is None else bias
    rest = (*given, eps, factors, mean, rstd, variance, numbers)
    thread_pool.run(statistics, units, (made, *rest), 16 * made.size)
    thread_pool.run(normalise, units * lines, (points, factors, out.reshape(-1), lines), points.size)
    return as_images(out), mean, rstd, variance


def backward(g, points: np.ndarray, weight, mean, rstd, through: bool, need, by_image: bool):
    """Gradients of `forward` for the input, the weight and the bias, from statistics (units, groups).

    `through`: the statistics are those of the input. Returns NotImplemented if compiled kernels do not support it.
    """
    n, channels = points.shape[0], points.shape[-1]
    length = points.size // (n * channels)
    form = _lines(n, length, channels) if by_image else _lines(1, n * length, channels)
    if form is None or g.__class__ is not np.ndarray or g.dtype is not F32:
        return NotImplemented
    sums, factors_of, slopes = backward_loops()
    units, lines, _, width, part, parts = form
    if any(g.strides):
        slope, step = in_rows(g.transpose(_order(g.ndim))), width
    else:  # one number, as the gradient of a sum is: one line serves as all of them
        slope, step = np.full(width, g.flat[0], F32), 0
    made, factors = np.empty((units * parts, 2, channels)), np.empty((units, 4, width), F32)
    dots, totals = np.empty((units, channels), F32), np.empty((units, channels), F32)
    numbers = lines, width, part, parts, step
    thread_pool.run(sums, units * parts, (slope, points, mean, made, numbers), 2 * points.size)
    given = mean, rstd, np.ones(channels, F32) if weight is None else weight
    rest = (factors, dots, totals, through, (lines, width, parts))
    thread_pool.run(factors_of, units, (made, *given, *rest), 16 * made.size)
    gx = None
    if need[0]:
        gx = np.empty(points.shape, F32)
        thread_pool.run(slopes, units * lines, (slope, points, factors, gx.reshape(-1), (lines, step)), 2 * points.size)
        gx = as_images(gx)
    dots, totals = (dots[0], totals[0]) if units == 1 else (dots.sum(0), totals.sum(0))
    return gx, dots if need[1] else None, totals if need[2] else None
