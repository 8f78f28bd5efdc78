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
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.array.norm import kept_dtype
from tensorgrad.kernels.compiled import norm_of_points
from tensorgrad.kernels.compiled.casts import bits, code, is_half
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.moments import with_row
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.totals import total
from tensorgrad.kernels.compiled.simd.two_bytes import STORAGES, Storage, stored

_VECTOR = "float32[::1]"
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
    """Returns (N, C, length), or None if compiled kernels do not support the array and the parameters."""
    if code(x) is None or x.ndim < 2 or not x.size:
        return None
    if not all([p is None or code(p) is not None for p in parameters]):
        return None
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


@lru_cache(maxsize=128)
def filled(count: int, number: float):
    """An array that stands for a parameter which is not given. Nothing writes to it."""
    return np.full(count, number, F32)


def _given(parameter, count: int, number: float):
    return filled(count, number) if parameter is None else in_dtype(parameter, F32)


def _wide(*parameters):
    """The parameters in float32; an empty array for one that is not given."""
    return tuple([_EMPTY if p is None else in_dtype(p, F32) for p in parameters])


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
def _factors_loop():
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

    return factors


def _by_running_loops(form: Storage):
    """The loops of batch norm with running statistics: for long rows and for short ones."""
    scratch, read, place, write = form.of_rows

    @shared(f"void({form.maps}, UniTuple({_VECTOR}, 4), float64, {form.maps}, {MATRIX}, boolean, int64, int64)")
    def long_rows(x, given, eps, out, made, brain, first, last):
        """Processes rows of x, each a channel of an image; copies the means, and reciprocal deviations, into `made`."""
        mean, variance, weight, bias = given
        rows = (x.shape[0] * x.shape[1], x.shape[2] * x.shape[3])
        x, out = x.reshape(rows), out.reshape(rows)
        held, results = scratch(rows[1]), scratch(rows[1])
        for k in range(first, last):
            c = k % mean.size
            rstd = F(1.0) / math.sqrt(variance[c] + F(eps))
            scale = rstd * weight[c] if weight.size else rstd
            offset = -mean[c] * scale + bias[c] if bias.size else -mean[c] * scale
            if k < made.shape[1]:
                made[0, c], made[1, c] = mean[c], rstd
            to = place(out[k], results)
            _scale_and_shift(read(x[k], held, brain), scale, offset, to)
            write(to, out[k], brain)

    @shared(f"void({form.matrix}, {_VECTOR}, {_VECTOR}, {form.matrix}, boolean, int64, int64)")
    def short_rows(x, factors, shifts, out, brain, first, last):
        held, results = scratch(x.shape[1]), scratch(x.shape[1])
        for n in range(first, last):
            row, to = read(x[n], held, brain), place(out[n], results)
            for i in range(factors.size):
                to[i] = row[i] * factors[i] + shifts[i]
            write(to, out[n], brain)

    return long_rows, short_rows


@lru_cache(maxsize=1)
def _running_loops():
    return _factors_loop(), [_by_running_loops(form) for form in STORAGES]


def _by_running(x, weight, bias, mean, var, eps):
    """Batch norm of x with running statistics.

    Returns these, and for backward copies of the mean and reciprocal deviations.
    """
    if _per_channel(x, weight, bias, mean, var) is None:
        return NotImplemented
    factors, loops = _running_loops()
    (long_rows, short_rows), brain = loops[is_half(x)], x.dtype.char == "E"
    n, c = x.shape[:2]
    length = x.size // (n * c)
    out, made = np.empty(x.shape, x.dtype), np.empty((2, c), F32)
    mean, var, weight, bias = _wide(mean, var, weight, bias)
    given, x, into = (mean, var, weight, bias), bits(x), bits(out)
    if length >= _SHORTEST:
        maps = (x, into) if x.ndim == 4 else (x.reshape(n, c, 1, length), into.reshape(n, c, 1, length))
        thread_pool.run(long_rows, n * c, (maps[0], given, eps, maps[1], made, brain), x.size)
    else:
        factor, shift = np.empty((2, c * length), F32)
        thread_pool.run(factors, c, (given, eps, length, made, factor, shift), c * length)
        rows = (n, c * length)
        thread_pool.run(short_rows, n, (x.reshape(rows), factor, shift, into.reshape(rows), brain), x.size)
    return out, mean, var, *made


@inner
def _two_byte_statistics(squares, count, eps, brain):
    """The variance, and the reciprocal deviation if statistics are kept in two bytes (kernels/array/norm.py)."""
    squares, count = F(squares), F(count)
    variance = squares / count
    rounded = variance
    if brain:
        squares = stored(squares, brain)
        variance, rounded = squares / count, stored(squares / stored(count, brain), brain)
    return variance, stored(F(1.0) / F(math.sqrt(rounded + F(eps))), brain)


def _batch_norm_loops(form: Storage):
    """The loops of batch norm in training: for long rows and for short ones.

    `kept`: the statistics are kept in two bytes, and so is what normalizes.
    """
    scratch, read, place, write = form.of_rows

    @shared(
        f"void({form.images}, {_VECTOR}, {_VECTOR}, float64, {form.images}, {_VECTOR}, {_VECTOR}, {_VECTOR}, boolean, "
        "boolean, int64, int64)"
    )
    def long_rows(x, weight, bias, eps, out, means, rstds, variances, brain, kept, first, last):
        held, results = scratch(x.shape[2]), scratch(x.shape[2])
        for c in range(first, last):
            count = mean = squares = 0.0
            for n in range(x.shape[0]):
                count, mean, squares = with_long_row(count, mean, squares, read(x[n, c], held, brain))
            variance, centre = F(squares / count), F(mean)
            rstd = F(1.0 / math.sqrt(squares / count + eps))
            if kept:
                variance, rstd = _two_byte_statistics(squares, count, eps, brain)
            means[c], rstds[c], variances[c] = centre, rstd, variance
            scale = rstd * weight[c]
            shift = -stored(centre, brain) * scale + bias[c]
            for n in range(x.shape[0]):
                row, to = read(x[n, c], held, brain), place(out[n, c], results)
                if kept:
                    _scale_and_shift(row, scale, shift, to)
                else:
                    normalise(row, centre, scale, bias[c], to)
                write(to, out[n, c], brain)

    @shared(
        f"void({form.matrix}, {_VECTOR}, {_VECTOR}, float64, {form.matrix}, {_VECTOR}, {_VECTOR}, {_VECTOR}, boolean, "
        "boolean, int64, int64)"
    )
    def short_rows(x, weight, bias, eps, out, means, rstds, variances, brain, kept, first, last):
        length = x.shape[1] // means.size
        count, step = np.float64(x.shape[0] * length), min(together(x.shape[0], length), last - first)
        held, results = scratch(step * length), scratch(step * length)
        for start in range(first, last, step):
            channels = min(step, last - start)
            left, right = start * length, (start + channels) * length
            totals = np.zeros(right - left)
            table = np.empty((3, right - left), np.float32)
            mean, scale, shift = table[0], table[1], table[2]  # (unpacked, they would not be known to be contiguous)
            for k in range(x.shape[0]):
                row = read(x[k, left:right], held, brain)
                for i in range(totals.size):
                    totals[i] += row[i]
            for c in range(channels):
                here = slice(c * length, (c + 1) * length)
                mean[here] = means[start + c] = totals[here].sum() / count
            totals[:] = 0.0
            for k in range(x.shape[0]):
                row = read(x[k, left:right], held, brain)
                for i in range(totals.size):
                    away = row[i] - mean[i]
                    totals[i] += away * away
            for c in range(channels):
                here, to = slice(c * length, (c + 1) * length), start + c
                squares = totals[here].sum()
                variance, rstd = F(squares / count), F(1.0 / math.sqrt(squares / count + eps))
                if kept:
                    variance, rstd = _two_byte_statistics(squares, count, eps, brain)
                variances[to], rstds[to] = variance, rstd
                scale[here], shift[here] = rstd * weight[to], bias[to]
                if kept:
                    shift[here] = -stored(means[to], brain) * (rstd * weight[to]) + bias[to]
                    mean[here] = F(0.0)
            for k in range(x.shape[0]):
                row, to = read(x[k, left:right], held, brain), place(out[k, left:right], results)
                for i in range(scale.size):
                    to[i] = (row[i] - mean[i]) * scale[i] + shift[i]
                write(to, out[k, left:right], brain)

    return long_rows, short_rows


def _batch_norm():
    _running_loops()
    norm_of_points.forward_loops()
    loops = [_batch_norm_loops(form) for form in STORAGES]

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
        half, kept = is_half(x), kept_dtype(x, weight, bias)
        out, mean, rstd, var = np.empty(x.shape, x.dtype), np.empty(c, F32), np.empty(c, F32), np.empty(c, F32)
        long_rows, short_rows = loops[half]
        loop, shape = (short_rows, (n, c * length)) if length < SHORT else (long_rows, shape)
        given = _given(weight, c, 1.0), _given(bias, c, 0.0), eps, bits(out).reshape(shape), mean, rstd, var
        thread_pool.run(loop, c, (bits(x).reshape(shape), *given, x.dtype.char == "E", kept is not F32), 3 * x.size)
        return out, mean, var, in_dtype(mean, kept), in_dtype(rstd, kept)

    return kernel


def _batch_norm_grad_loops(form: Storage):
    scratch, read, place, write = form.of_rows

    @shared(
        f"void({form.images}, {form.images}, {_VECTOR}, {_VECTOR}, {_VECTOR}, {form.images}, {_VECTOR}, {_VECTOR}, "
        "boolean, boolean, boolean, boolean, int64, int64)"
    )
    def long_rows(g, x, means, rstds, weight, gx, gw, gb, sums, slopes, through, brain, first, last):
        held, other, results = scratch(x.shape[2]), scratch(x.shape[2]), scratch(x.shape[2])
        for c in range(first, last):
            mean, rstd = means[c], rstds[c]
            scale = rstd * weight[c]
            plain = along = 0.0
            if sums:
                for n in range(x.shape[0]):
                    more, product = along_row(read(g[n, c], held, brain), read(x[n, c], other, brain), mean)
                    plain += more
                    along += product
            gb[c], gw[c] = plain, along * rstd
            count = np.float64(x.shape[0] * x.shape[2])
            plain, along = plain / count * scale, along / count * rstd * rstd * scale
            if slopes:
                for n in range(x.shape[0]):
                    slope, to = read(g[n, c], held, brain), place(gx[n, c], results)
                    if through:
                        slopes_of_row(slope, read(x[n, c], other, brain), mean, scale, F(along), F(plain), to)
                    else:
                        _scaled(slope, scale, to)
                    write(to, gx[n, c], brain)

    @shared(
        f"void({form.matrix}, {form.matrix}, {_VECTOR}, {_VECTOR}, {_VECTOR}, {form.matrix}, {_VECTOR}, {_VECTOR}, "
        "boolean, boolean, boolean, boolean, int64, int64)"
    )
    def short_rows(g, x, means, rstds, weight, gx, gw, gb, sums, slopes, through, brain, first, last):
        length = x.shape[1] // means.size
        count, step = np.float64(x.shape[0] * length), min(together(x.shape[0], length), last - first)
        held, other, results = scratch(step * length), scratch(step * length), scratch(step * length)
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
                    row, slope = read(x[k, left:right], held, brain), read(g[k, left:right], other, brain)
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
                    row, slope = read(x[k, left:right], held, brain), read(g[k, left:right], other, brain)
                    to = place(gx[k, left:right], results)
                    if through:
                        for i in range(scale.size):
                            to[i] = slope[i] * scale[i] - ((row[i] - mean[i]) * tilt[i] + shift[i])
                    else:
                        for i in range(scale.size):
                            to[i] = slope[i] * scale[i]
                    write(to, gx[k, left:right], brain)

    return long_rows, short_rows


def _batch_norm_grad():
    norm_of_points.backward_loops()
    loops = [_batch_norm_grad_loops(form) for form in STORAGES]

    def kernel(g, x, weight, mean, rstd, training, need):
        points = None if x.flags.c_contiguous else norm_of_points.points_of(x, weight, mean, rstd)
        if points is not None and g.shape == x.shape:
            statistics = mean.reshape(1, -1), rstd.reshape(1, -1)
            return norm_of_points.backward(g, points, weight, *statistics, bool(need[0] and training), need, False)
        shape = _per_channel(x, g, weight, mean, rstd)
        if shape is None or g.shape != x.shape or g.dtype != x.dtype:
            return NotImplemented
        n, c, length = shape
        gx = np.empty(x.shape if need[0] else (0, *x.shape[1:]), x.dtype)
        gw, gb = np.empty(c, F32), np.empty(c, F32)
        through = bool(need[0] and training)
        long_rows, short_rows = loops[is_half(x)]
        loop, shape = (short_rows, (n, c * length)) if length < SHORT else (long_rows, shape)
        flat = (bits(g).reshape(shape), bits(x).reshape(shape), *_wide(mean, rstd), _given(weight, c, 1.0))
        flags = bool(through or need[1] or need[2]), bool(need[0]), through, x.dtype.char == "E"
        thread_pool.run(loop, c, (*flat, bits(gx).reshape(len(gx), *shape[1:]), gw, gb, *flags), 3 * x.size)
        return (gx if need[0] else None, *_of_parameters(gw, gb, g, weight, need))

    return kernel


def _of_parameters(gw, gb, g, weight, need):
    """The gradients of the weight and the bias, in the dtype of the weight or, without one, of `g`."""
    kind = g.dtype if weight is None else weight.dtype
    return in_dtype(gw, kind) if need[1] else None, in_dtype(gb, kind) if need[2] else None


# --- group norm ------------------------------------------------------------------------------------------------------


def _group_norm_loops(form: Storage):
    scratch, read, place, write = form.of_rows

    @shared(
        f"void({form.images}, {MATRIX}, {MATRIX}, float64, {form.images}, {MATRIX}, {MATRIX}, boolean, int64, int64)"
    )
    def short_rows(x, weight, bias, eps, out, means, rstds, brain, first, last):
        groups = means.shape[1]
        held, results = scratch(x.shape[2]), scratch(x.shape[2])
        for k in range(first, last):
            n, group = k // groups, k % groups
            row, to = read(x[n, group], held, brain), place(out[n, group], results)
            scale, shift = weight[group], bias[group]
            _, mean, squares = with_long_row(0.0, 0.0, 0.0, row)
            means[n, group], rstds[n, group] = mean, 1.0 / math.sqrt(squares / row.size + eps)
            centre, rstd = means[n, group], rstds[n, group]
            for i in range(row.size):
                to[i] = (row[i] - centre) * rstd * scale[i] + shift[i]
            write(to, out[n, group], brain)

    @shared(
        f"void({form.images}, {MATRIX}, {MATRIX}, float64, {form.images}, {MATRIX}, {MATRIX}, boolean, int64, int64)"
    )
    def long_rows(x, weight, bias, eps, out, means, rstds, brain, first, last):
        groups, width = weight.shape
        held, results = scratch(x.shape[2]), scratch(x.shape[2])
        for k in range(first, last):
            n, group = k // groups, k % groups
            count = mean = squares = 0.0
            for c in range(width):
                row = read(x[n, group * width + c], held, brain)
                count, mean, squares = with_long_row(count, mean, squares, row)
            rstd = F(1.0 / math.sqrt(squares / count + eps))
            means[n, group], rstds[n, group] = mean, rstd
            for c in range(width):
                at = group * width + c
                row, to = read(x[n, at], held, brain), place(out[n, at], results)
                normalise(row, F(mean), rstd * weight[group, c], bias[group, c], to)
                write(to, out[n, at], brain)

    return long_rows, short_rows


def _group_norm():
    norm_of_points.forward_loops()
    loops = [_group_norm_loops(form) for form in STORAGES]

    def kernel(x, weight, bias, groups, eps):
        points = None if x.flags.c_contiguous else norm_of_points.points_of(x, weight, bias)
        if points is not None and groups:
            made = norm_of_points.forward(points, weight, bias, groups, eps, True)
            return made if made is NotImplemented else made[:3]
        shape = _per_channel(x, weight, bias)
        if shape is None or not groups:
            return NotImplemented
        n, c, length = shape
        loop, short_rows = loops[is_half(x)]
        scale, shift = _given(weight, c, 1.0), _given(bias, c, 0.0)
        if length < SHORT:
            shape, loop = (n, groups, c // groups * length), short_rows
            scale, shift = scale.repeat(length), shift.repeat(length)
        out, mean, rstd = np.empty(x.shape, x.dtype), np.empty((n, groups), F32), np.empty((n, groups), F32)
        args = bits(x).reshape(shape), scale.reshape(groups, -1), shift.reshape(groups, -1), eps
        given = *args, bits(out).reshape(shape), mean, rstd, x.dtype.char == "E"
        thread_pool.run(loop, n * groups, given, 3 * x.size)
        kept = kept_dtype(x, weight, bias)
        return out, in_dtype(mean, kept), in_dtype(rstd, kept)

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


def _group_norm_grad_loops(form: Storage):
    scratch, read, place, write = form.of_rows

    @shared(
        f"void({form.images}, {form.images}, {MATRIX}, {MATRIX}, {MATRIX}, {form.images}, float32[:,:,::1], "
        "float32[:,:,::1], boolean, int64, boolean, int64, int64)"
    )
    def short_rows(g, x, means, rstds, weight, gx, dots, sums, slopes, part, brain, first, last):
        # As in layer norm, the parts of the parameters' gradients are blocks of images, determined by the shape alone.
        groups = means.shape[1]
        held, other, results = scratch(x.shape[2]), scratch(x.shape[2]), scratch(x.shape[2])
        for k in range(first, last):
            block, group = k // groups, k % groups
            dw, db, scale = dots[block, group], sums[block, group], weight[group]
            for n in range(block * part, min((block + 1) * part, x.shape[0])):
                slope, row = read(g[n, group], held, brain), read(x[n, group], other, brain)
                mean, rstd = means[n, group], rstds[n, group]
                for i in range(row.size):
                    dw[i] += slope[i] * ((row[i] - mean) * rstd)
                    db[i] += slope[i]
                if slopes:
                    plain, along = _weighted(slope, row, scale, mean)
                    plain, along = plain / F(row.size) * rstd, along / F(row.size) * rstd * rstd * rstd
                    to = place(gx[n, group], results)
                    for i in range(row.size):
                        to[i] = slope[i] * scale[i] * rstd - ((row[i] - mean) * along + plain)
                    write(to, gx[n, group], brain)

    @shared(
        f"void({form.images}, {form.images}, {MATRIX}, {MATRIX}, {MATRIX}, {form.images}, {MATRIX}, {MATRIX}, "
        "boolean, boolean, int64, int64)"
    )
    def long_rows(g, x, means, rstds, weight, gx, dots, sums, slopes, brain, first, last):
        groups, width = weight.shape
        held, other, results = scratch(x.shape[2]), scratch(x.shape[2]), scratch(x.shape[2])
        for k in range(first, last):
            n, group = k // groups, k % groups
            mean, rstd = means[n, group], rstds[n, group]
            plain = along = 0.0
            for c in range(width):
                at = group * width + c
                more, product = along_row(read(g[n, at], held, brain), read(x[n, at], other, brain), mean)
                sums[n, at], dots[n, at] = more, product * rstd
                plain += more * weight[group, c]
                along += product * weight[group, c]
            count = np.float64(width * x.shape[2])
            plain, along = plain / count * rstd, along / count * rstd * rstd * rstd
            if slopes:
                for c in range(width):
                    at = group * width + c
                    slope, row, to = (
                        read(g[n, at], held, brain),
                        read(x[n, at], other, brain),
                        place(gx[n, at], results),
                    )
                    slopes_of_row(slope, row, mean, rstd * weight[group, c], F(along), F(plain), to)
                    write(to, gx[n, at], brain)

    return long_rows, short_rows


def _group_norm_grad():
    norm_of_points.backward_loops()
    add_up()
    loops = [_group_norm_grad_loops(form) for form in STORAGES]

    def kernel(g, x, weight, mean, rstd, groups, need):
        points = None if x.flags.c_contiguous else norm_of_points.points_of(x, weight, mean, rstd)
        if points is not None and g.shape == x.shape and groups:
            per_group = mean.reshape(len(x), groups), rstd.reshape(len(x), groups)
            return norm_of_points.backward(g, points, weight, *per_group, bool(need[0]), need, True)
        shape = _per_channel(x, g, weight, mean, rstd)
        if shape is None or g.shape != x.shape or g.dtype != x.dtype or not groups:
            return NotImplemented
        n, c, length = shape
        gx = np.empty(x.shape if need[0] else (0, *x.shape[1:]), x.dtype)
        scale, statistics = _given(weight, c, 1.0), [a.reshape(n, groups) for a in _wide(mean, rstd)]
        (long_rows, short_rows), brain = loops[is_half(x)], x.dtype.char == "E"
        if length < SHORT:
            shape, blocks = (n, groups, c // groups * length), max(1, min(16, n // 4))
            dots, sums = np.zeros((blocks, *shape[1:]), F32), np.zeros((blocks, *shape[1:]), F32)
            flat = bits(g).reshape(shape), bits(x).reshape(shape), *statistics, scale.repeat(length).reshape(groups, -1)
            into = bits(gx).reshape(len(gx), *shape[1:])
            blocked = (*flat, into, dots, sums, bool(need[0]), -(-n // blocks), brain)
            thread_pool.run(short_rows, blocks * groups, blocked, 4 * x.size)
            dots, sums = (a.sum(0).reshape(c, length) for a in (dots, sums))
            dots, sums = dots.sum(1), sums.sum(1)
        else:
            dots, sums = np.empty((n, c), F32), np.empty((n, c), F32)
            flat = bits(g).reshape(shape), bits(x).reshape(shape), *statistics, scale.reshape(groups, -1)
            args = (*flat, bits(gx).reshape(len(gx), *shape[1:]), dots, sums, bool(need[0]), brain)
            thread_pool.run(long_rows, n * groups, args, 3 * x.size)
            dots, sums = total_of(dots, 0, c), total_of(sums, 0, c)
        return (gx if need[0] else None, *_of_parameters(dots, sums, g, weight, need))

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "batch_norm": _batch_norm,
    "batch_norm_grad": _batch_norm_grad,
    "group_norm": _group_norm,
    "group_norm_grad": _group_norm_grad,
}
