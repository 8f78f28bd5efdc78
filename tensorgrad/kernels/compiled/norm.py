"""Batch and group normalization, forward and backward: each channel or group is read twice, written once.

Moments of channels and groups are computed row by row, of long rows piece by piece, and combined in double precision
(moments.py), so they do not depend on how threads share the channels. Formulas: kernels/array/norm.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import norm_of_points
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.moments import with_row
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.totals import total

_VECTOR = "float32[::1]"
_IMAGES, _MAPS = "float32[:,:,::1]", "float32[:,:,:,::1]"
_EMPTY = np.empty(0, F32)


# Elements of a row that are added up in float32: sums of more lose digits. They stay in a cache until they are read
# the second time.
_PIECE = 1 << 15


@inner
def with_long_row(count, mean, squares, row):
    """Does what `with_row` does, piece by piece."""
    for at in range(0, row.size, _PIECE):
        count, mean, squares = with_row(count, mean, squares, row[at : at + _PIECE])
    return count, mean, squares


# Σ g and Σ g (x - mean) of a piece.
_along_piece = total(lambda g, x, mean: (g, g * (x - mean)), arrays=2, numbers=1, results=2, blocks=3)


@inner
def along_row(g, row, mean):
    """Σ g and Σ g (x - mean) of a row."""
    plain = along = 0.0
    for at in range(0, row.size, _PIECE):
        here = slice(at, at + _PIECE)
        more, product = _along_piece(g[here], row[here], mean)
        plain += more
        along += product
    return F(plain), F(along)


@inner(fastmath={"contract"})
def normalise(row, mean, factor, shift, to):
    for i in range(row.size):
        to[i] = (row[i] - mean) * factor + shift


@inner(fastmath={"contract"})
def slopes_of_row(g, row, mean, factor, along, plain, to):
    for i in range(row.size):
        to[i] = g[i] * factor - ((row[i] - mean) * along + plain)


@inner(fastmath={"contract"})
def _scale_and_shift(row, factor, shift, to):
    for i in range(row.size):
        to[i] = row[i] * factor + shift


@inner
def _scaled(g, factor, to):
    for i in range(g.size):
        to[i] = g[i] * factor


def _per_channel(x, *parameters):
    """Returns (N, C, length) and the parameters, or None if compiled kernels do not support them."""
    if not suits(x) or x.ndim < 2 or not x.size:
        return None
    for p in parameters:
        if p is not None and not suits(p):
            return None
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


@lru_cache(maxsize=128)
def filled(count: int, number: float):
    """An array that stands for a parameter which is not given. Nothing writes to it."""
    return np.full(count, number, F32)


def _given(parameter, count: int, number: float):
    return filled(count, number) if parameter is None else parameter


@lru_cache(maxsize=1)
def add_up():
    @shared(f"void({MATRIX}, int64, {_VECTOR}, int64, int64)")
    def loop(parts, at, out, first, last):
        """Adds up columns, the first of which is column `at`, row by row."""
        to = out[first:last]
        to[:] = F(0.0)
        for n in range(parts.shape[0]):
            part = parts[n, at + first : at + last]
            for i in range(to.size):
                to[i] += part[i]

    return loop


def total_of(parts, at: int, count: int):
    """The sum of the rows of a matrix, of `count` columns from `at` on."""
    made = np.empty(count, F32)
    thread_pool.run(add_up(), count, (parts, at, made), count * len(parts))
    return made


# --- batch norm ------------------------------------------------------------------------------------------------------


SHORT = 100  # positions per channel below which threads process rows of many channels instead of single channels
_SHORTEST = 16  # the same if the statistics are known
_BLOCK = 1 << 16  # elements that are read three times before the next ones


@inner
def together(images, length):
    """Returns how many short channels are processed together."""
    return max(SHORT // length + 1, _BLOCK // (images * length))


@lru_cache(maxsize=1)
def _running_loops():
    """The loops of batch norm with running statistics."""

    @shared(f"void(UniTuple({_VECTOR}, 4), float64, int64, {MATRIX}, {_VECTOR}, {_VECTOR}, int64, int64)")
    def factors(given, eps, length, made, factor, shift, first, last):
        """Computes a factor and a shift for each position; copies the means, and reciprocal deviations, into `made`."""
        mean, variance, weight, bias = given
        for c in range(first, last):
            rstd = F(1.0) / math.sqrt(variance[c] + F(eps))
            made[0, c], made[1, c] = mean[c], rstd
            scale = rstd * weight[c] if weight.size else rstd
            offset = -mean[c] * scale + bias[c] if bias.size else -mean[c] * scale
            factor[c * length : (c + 1) * length] = scale
            shift[c * length : (c + 1) * length] = offset

    @shared(f"void({_MAPS}, UniTuple({_VECTOR}, 4), float64, {_MAPS}, {MATRIX}, int64, int64)")
    def by_running(x, given, eps, out, made, first, last):
        """Processes rows of x, each a channel of an image; copies the means, and reciprocal deviations, into `made`."""
        mean, variance, weight, bias = given
        rows = (x.shape[0] * x.shape[1], x.shape[2] * x.shape[3])
        x, out = x.reshape(rows), out.reshape(rows)
        for k in range(first, last):
            c = k % mean.size
            rstd = F(1.0) / math.sqrt(variance[c] + F(eps))
            scale = rstd * weight[c] if weight.size else rstd
            offset = -mean[c] * scale + bias[c] if bias.size else -mean[c] * scale
            if k < made.shape[1]:
                made[0, c], made[1, c] = mean[c], rstd
            _scale_and_shift(x[k], scale, offset, out[k])

    @shared(f"void({MATRIX}, {_VECTOR}, {_VECTOR}, {MATRIX}, int64, int64)")
    def short_by_running(x, factors, shifts, out, first, last):
        for n in range(first, last):
            row, to = x[n], out[n]
            for i in range(factors.size):
                to[i] = row[i] * factors[i] + shifts[i]

    return factors, by_running, short_by_running


def _by_running(x, weight, bias, mean, var, eps):
    """Batch norm of x with running statistics.

    Returns these, and for backward copies of the mean and reciprocal deviations.
    """
    if not suits(x) or x.ndim < 2 or not x.size:
        return NotImplemented
    factors, by_running, short_by_running = _running_loops()
    n, c = x.shape[:2]
    length = x.size // (n * c)
    out, made = np.empty(x.shape, F32), np.empty((2, c), F32)
    given = (mean, var, _EMPTY if weight is None else weight, _EMPTY if bias is None else bias)
    if length >= _SHORTEST:
        maps = (x, out) if x.ndim == 4 else (x.reshape(n, c, 1, length), out.reshape(n, c, 1, length))
        thread_pool.run(by_running, n * c, (maps[0], given, eps, maps[1], made), x.size)
    else:
        factor, shift = np.empty((2, c * length), F32)
        thread_pool.run(factors, c, (given, eps, length, made, factor, shift), c * length)
        rows = (n, c * length)
        thread_pool.run(short_by_running, n, (x.reshape(rows), factor, shift, out.reshape(rows)), x.size)
    return out, mean, var, *made


def _batch_norm():
    _running_loops()
    norm_of_points.forward_loops()

    @shared(f"void({_IMAGES}, {_VECTOR}, {_VECTOR}, float64, {_IMAGES}, {_VECTOR}, {_VECTOR}, {_VECTOR}, int64, int64)")
    def long_rows(x, weight, bias, eps, out, means, rstds, variances, first, last):
        for c in range(first, last):
            count = mean = squares = 0.0
            for n in range(x.shape[0]):
                count, mean, squares = with_long_row(count, mean, squares, x[n, c])
            variance = squares / count
            rstd = F(1.0 / math.sqrt(variance + eps))
            means[c], rstds[c], variances[c] = mean, rstd, variance
            for n in range(x.shape[0]):
                normalise(x[n, c], F(mean), rstd * weight[c], bias[c], out[n, c])

    @shared(f"void({MATRIX}, {_VECTOR}, {_VECTOR}, float64, {MATRIX}, {_VECTOR}, {_VECTOR}, {_VECTOR}, int64, int64)")
    def short_rows(x, weight, bias, eps, out, means, rstds, variances, first, last):
        length = x.shape[1] // means.size
        count, step = np.float64(x.shape[0] * length), together(x.shape[0], length)
        for start in range(first, last, step):
            channels = min(step, last - start)
            left, right = start * length, (start + channels) * length
            totals = np.zeros(right - left)
            table = np.empty((3, right - left), np.float32)
            mean, scale, shift = table[0], table[1], table[2]  # (unpacked, they would not be known to be contiguous)
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
                here, to = slice(c * length, (c + 1) * length), start + c
                variances[to] = variance = totals[here].sum() / count
                rstds[to] = rstd = F(1.0 / math.sqrt(variance + eps))
                scale[here], shift[here] = rstd * weight[to], bias[to]
            for k in range(x.shape[0]):
                row, to = x[k, left:right], out[k, left:right]
                for i in range(scale.size):
                    to[i] = (row[i] - mean[i]) * scale[i] + shift[i]

    def kernel(x, weight, bias, running_mean, running_var, training, eps):
        points = None if x.flags.c_contiguous else norm_of_points.points_of(x, weight, bias, running_mean, running_var)
        if points is not None:
            if training:
                made = norm_of_points.forward(points, weight, bias, points.shape[-1], eps, False)
                if made is NotImplemented:
                    return made
                out, mean, rstd, var = made
                return out, mean[0], var[0], mean[0], rstd[0]
            rows = points.reshape(-1, points.shape[-1])
            out, *rest = _by_running(rows, weight, bias, running_mean, running_var, eps)
            return norm_of_points.as_images(out.reshape(points.shape)), *rest
        if not training:
            return _by_running(x, weight, bias, running_mean, running_var, eps)
        shape = _per_channel(x, weight, bias, running_mean, running_var)
        if shape is None:
            return NotImplemented
        n, c, length = shape
        out, mean, rstd, var = np.empty(x.shape, F32), np.empty(c, F32), np.empty(c, F32), np.empty(c, F32)
        loop, shape = (short_rows, (n, c * length)) if length < SHORT else (long_rows, shape)
        given = (_given(weight, c, 1.0), _given(bias, c, 0.0))
        thread_pool.run(loop, c, (x.reshape(shape), *given, eps, out.reshape(shape), mean, rstd, var), 3 * x.size)
        return out, mean, var, mean, rstd

    return kernel


def _batch_norm_grad():
    norm_of_points.backward_loops()

    @shared(
        f"void({_IMAGES}, {_IMAGES}, {_VECTOR}, {_VECTOR}, {_VECTOR}, {_IMAGES}, {_VECTOR}, {_VECTOR}, boolean, "
        "boolean, boolean, int64, int64)"
    )
    def long_rows(g, x, means, rstds, weight, gx, gw, gb, sums, slopes, through, first, last):
        for c in range(first, last):
            mean, rstd = means[c], rstds[c]
            scale = rstd * weight[c]
            plain = along = 0.0
            if sums:
                for n in range(x.shape[0]):
                    more, product = along_row(g[n, c], x[n, c], mean)
                    plain += more
                    along += product
            gb[c], gw[c] = plain, along * rstd
            count = np.float64(x.shape[0] * x.shape[2])
            plain, along = plain / count * scale, along / count * rstd * rstd * scale
            if slopes:
                for n in range(x.shape[0]):
                    if through:
                        slopes_of_row(g[n, c], x[n, c], mean, scale, F(along), F(plain), gx[n, c])
                    else:
                        _scaled(g[n, c], scale, gx[n, c])

    @shared(
        f"void({MATRIX}, {MATRIX}, {_VECTOR}, {_VECTOR}, {_VECTOR}, {MATRIX}, {_VECTOR}, {_VECTOR}, boolean, "
        "boolean, boolean, int64, int64)"
    )
    def short_rows(g, x, means, rstds, weight, gx, gw, gb, sums, slopes, through, first, last):
        length = x.shape[1] // means.size
        count, step = np.float64(x.shape[0] * length), together(x.shape[0], length)
        for start in range(first, last, step):
            channels = min(step, last - start)
            left, right = start * length, (start + channels) * length
            plain, along = np.zeros(right - left), np.zeros(right - left)
            table = np.zeros((4, right - left), np.float32)
            mean, scale, shift, tilt = table[0], table[1], table[2], table[3]
            for c in range(channels):
                mean[c * length : (c + 1) * length] = means[start + c]
            if sums:
                for k in range(x.shape[0]):
                    row, slope = x[k, left:right], g[k, left:right]
                    for i in range(plain.size):
                        plain[i] += slope[i]
                        along[i] += slope[i] * (row[i] - mean[i])
            for c in range(channels):
                here, to = slice(c * length, (c + 1) * length), start + c
                total, product, rstd = plain[here].sum(), along[here].sum(), np.float64(rstds[to])
                gb[to], gw[to] = total, product * rstd
                factor = rstd * weight[to]
                scale[here] = factor
                if through:
                    shift[here] = total / count * factor
                    tilt[here] = product / count * rstd * rstd * factor
            if slopes:
                for k in range(x.shape[0]):
                    row, slope, to = x[k, left:right], g[k, left:right], gx[k, left:right]
                    if through:
                        for i in range(scale.size):
                            to[i] = slope[i] * scale[i] - ((row[i] - mean[i]) * tilt[i] + shift[i])
                    else:
                        for i in range(scale.size):
                            to[i] = slope[i] * scale[i]

    def kernel(g, x, weight, mean, rstd, training, need):
        points = None if x.flags.c_contiguous else norm_of_points.points_of(x, weight, mean, rstd)
        if points is not None and g.shape == x.shape:
            statistics = mean.reshape(1, -1), rstd.reshape(1, -1)
            return norm_of_points.backward(g, points, weight, *statistics, bool(need[0] and training), need, False)
        shape = _per_channel(x, g, weight, mean, rstd)
        if shape is None or g.shape != x.shape:
            return NotImplemented
        n, c, length = shape
        gx = np.empty(x.shape if need[0] else (0, *x.shape[1:]), F32)
        gw, gb = np.empty(c, F32), np.empty(c, F32)
        through = bool(need[0] and training)
        loop, shape = (short_rows, (n, c * length)) if length < SHORT else (long_rows, shape)
        flat = (g.reshape(shape), x.reshape(shape), mean, rstd, _given(weight, c, 1.0))
        flags = (bool(through or need[1] or need[2]), bool(need[0]), through)
        thread_pool.run(loop, c, (*flat, gx.reshape(len(gx), *shape[1:]), gw, gb, *flags), 3 * x.size)
        return gx if need[0] else None, gw if need[1] else None, gb if need[2] else None

    return kernel


# --- group norm ------------------------------------------------------------------------------------------------------


def _group_norm():
    norm_of_points.forward_loops()

    @shared(f"void({_IMAGES}, {MATRIX}, {MATRIX}, float64, {_IMAGES}, {MATRIX}, {MATRIX}, int64, int64)")
    def short_rows(x, weight, bias, eps, out, means, rstds, first, last):
        groups = means.shape[1]
        for k in range(first, last):
            n, group = k // groups, k % groups
            row, to, scale, shift = x[n, group], out[n, group], weight[group], bias[group]
            _, mean, squares = with_long_row(0.0, 0.0, 0.0, row)
            means[n, group], rstds[n, group] = mean, 1.0 / math.sqrt(squares / row.size + eps)
            centre, rstd = means[n, group], rstds[n, group]
            for i in range(row.size):
                to[i] = (row[i] - centre) * rstd * scale[i] + shift[i]

    @shared(f"void({_IMAGES}, {MATRIX}, {MATRIX}, float64, {_IMAGES}, {MATRIX}, {MATRIX}, int64, int64)")
    def long_rows(x, weight, bias, eps, out, means, rstds, first, last):
        groups, width = weight.shape
        for k in range(first, last):
            n, group = k // groups, k % groups
            count = mean = squares = 0.0
            for c in range(width):
                count, mean, squares = with_long_row(count, mean, squares, x[n, group * width + c])
            rstd = F(1.0 / math.sqrt(squares / count + eps))
            means[n, group], rstds[n, group] = mean, rstd
            for c in range(width):
                at = group * width + c
                normalise(x[n, at], F(mean), rstd * weight[group, c], bias[group, c], out[n, at])

    def kernel(x, weight, bias, groups, eps):
        points = None if x.flags.c_contiguous else norm_of_points.points_of(x, weight, bias)
        if points is not None and groups:
            made = norm_of_points.forward(points, weight, bias, groups, eps, True)
            return made if made is NotImplemented else made[:3]
        shape = _per_channel(x, weight, bias)
        if shape is None or not groups:
            return NotImplemented
        n, c, length = shape
        scale, shift, loop = _given(weight, c, 1.0), _given(bias, c, 0.0), long_rows
        if length < SHORT:
            shape, loop = (n, groups, c // groups * length), short_rows
            scale, shift = scale.repeat(length), shift.repeat(length)
        out, mean, rstd = np.empty(x.shape, F32), np.empty((n, groups), F32), np.empty((n, groups), F32)
        args = (x.reshape(shape), scale.reshape(groups, -1), shift.reshape(groups, -1), eps, out.reshape(shape))
        thread_pool.run(loop, n * groups, (*args, mean, rstd), 3 * x.size)
        return out, mean, rstd

    return kernel


# Σ g w and Σ g w (x - mean) of a piece.
_weighted_piece = total(lambda g, x, w, mean: (g * w, (g * w) * (x - mean)), arrays=3, numbers=1, results=2, blocks=3)


@inner
def _weighted(g, row, weight, mean):
    """Σ g w and Σ g w (x - mean) of a row."""
    plain = along = 0.0
    for at in range(0, row.size, _PIECE):
        here = slice(at, at + _PIECE)
        more, product = _weighted_piece(g[here], row[here], weight[here], mean)
        plain += more
        along += product
    return F(plain), F(along)


def _group_norm_grad():
    norm_of_points.backward_loops()
    add_up()

    @shared(
        f"void({_IMAGES}, {_IMAGES}, {MATRIX}, {MATRIX}, {MATRIX}, {_IMAGES}, {_IMAGES}, {_IMAGES}, boolean, int64, "
        "int64, int64)"
    )
    def short_rows(g, x, means, rstds, weight, gx, dots, sums, slopes, part, first, last):
        # As in layer norm, the parts of the parameters' gradients are blocks of images, determined by the shape alone.
        groups = means.shape[1]
        for k in range(first, last):
            block, group = k // groups, k % groups
            dw, db, scale = dots[block, group], sums[block, group], weight[group]
            for n in range(block * part, min((block + 1) * part, x.shape[0])):
                slope, row = g[n, group], x[n, group]
                mean, rstd = means[n, group], rstds[n, group]
                for i in range(row.size):
                    dw[i] += slope[i] * ((row[i] - mean) * rstd)
                    db[i] += slope[i]
                if slopes:
                    plain, along = _weighted(slope, row, scale, mean)
                    plain, along = plain / F(row.size) * rstd, along / F(row.size) * rstd * rstd * rstd
                    to = gx[n, group]
                    for i in range(row.size):
                        to[i] = slope[i] * scale[i] * rstd - ((row[i] - mean) * along + plain)

    @shared(
        f"void({_IMAGES}, {_IMAGES}, {MATRIX}, {MATRIX}, {MATRIX}, {_IMAGES}, {MATRIX}, {MATRIX}, boolean, int64, "
        "int64)"
    )
    def long_rows(g, x, means, rstds, weight, gx, dots, sums, slopes, first, last):
        groups, width = weight.shape
        for k in range(first, last):
            n, group = k // groups, k % groups
            mean, rstd = means[n, group], rstds[n, group]
            plain = along = 0.0
            for c in range(width):
                at = group * width + c
                more, product = along_row(g[n, at], x[n, at], mean)
                sums[n, at], dots[n, at] = more, product * rstd
                plain += more * weight[group, c]
                along += product * weight[group, c]
            count = np.float64(width * x.shape[2])
            plain, along = plain / count * rstd, along / count * rstd * rstd * rstd
            if slopes:
                for c in range(width):
                    at = group * width + c
                    slopes_of_row(g[n, at], x[n, at], mean, rstd * weight[group, c], F(along), F(plain), gx[n, at])

    def kernel(g, x, weight, mean, rstd, groups, need):
        points = None if x.flags.c_contiguous else norm_of_points.points_of(x, weight, mean, rstd)
        if points is not None and g.shape == x.shape and groups:
            statistics = mean.reshape(len(x), groups), rstd.reshape(len(x), groups)
            return norm_of_points.backward(g, points, weight, *statistics, bool(need[0]), need, True)
        shape = _per_channel(x, g, weight, mean, rstd)
        if shape is None or g.shape != x.shape or not groups:
            return NotImplemented
        n, c, length = shape
        gx = np.empty(x.shape if need[0] else (0, *x.shape[1:]), F32)
        scale, statistics = _given(weight, c, 1.0), (mean.reshape(n, groups), rstd.reshape(n, groups))
        if length < SHORT:
            shape, blocks = (n, groups, c // groups * length), max(1, min(16, n // 4))
            dots, sums = np.zeros((blocks, *shape[1:]), F32), np.zeros((blocks, *shape[1:]), F32)
            flat = (g.reshape(shape), x.reshape(shape), *statistics, scale.repeat(length).reshape(groups, -1))
            args = (*flat, gx.reshape(len(gx), *shape[1:]), dots, sums, bool(need[0]), -(-n // blocks))
            thread_pool.run(short_rows, blocks * groups, args, 4 * x.size)
            dots, sums = (a.sum(0).reshape(c, length) for a in (dots, sums))
            dots, sums = dots.sum(1), sums.sum(1)
        else:
            dots, sums = np.empty((n, c), F32), np.empty((n, c), F32)
            flat = (g.reshape(shape), x.reshape(shape), *statistics, scale.reshape(groups, -1))
            thread_pool.run(
                long_rows, n * groups, (*flat, gx.reshape(len(gx), *shape[1:]), dots, sums, bool(need[0])), 3 * x.size
            )
            dots, sums = total_of(dots, 0, c), total_of(sums, 0, c)
        return gx if need[0] else None, dots if need[1] else None, sums if need[2] else None

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "batch_norm": _batch_norm,
    "batch_norm_grad": _batch_norm_grad,
    "group_norm": _group_norm,
    "group_norm_grad": _group_norm_grad,
}
