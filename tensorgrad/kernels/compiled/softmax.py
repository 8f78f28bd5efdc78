"""Kernels over the last dimensions: softmax, log-softmax and layer norm, forward and backward, in one pass per row."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.matmul import column_sum
from tensorgrad.kernels.compiled import functions
from tensorgrad.kernels.compiled.functions import F, log
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.vectors import LANES, largest

# Sums may be taken in any order (vectors add four or sixteen at a time), but nan and inf must be preserved.
ANY_ORDER = {"contract", "reassoc"}
MATRIX = "float32[:,::1]"


@inner
def row_largest(row):
    """Returns the largest element; any number if there is a nan, which makes the whole row nan anyway."""
    if row.size >= LANES:
        return largest(row, row.size)
    top = row[0]
    for i in range(1, row.size):
        top = max(top, row[i])
    return top


@inner(fastmath=ANY_ORDER)
def _total(row):
    total = F(0.0)
    for i in range(row.size):
        total += row[i]
    return total


@inner(fastmath=ANY_ORDER)
def row_dot(a, b):
    total = F(0.0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@inner(fastmath={"contract"})
def _power(x):
    """eˣ, as a separate function, because its steps must stay in order."""
    return functions.exp_below(x)


@inner(fastmath=ANY_ORDER)
def row_exps(row, top, out):
    """Writes the exponentials of each number minus `top`; returns their sum."""
    total = F(0.0)
    for i in range(row.size):
        power = _power(row[i] - top)
        out[i] = power
        total += power
    return total


@inner
def row_shares(row, out):
    """Writes the softmax of a row; returns its largest number and the sum of the exponentials."""
    top = row_largest(row)
    total = row_exps(row, top, out)
    scale = F(1.0) / total
    for i in range(row.size):
        out[i] *= scale
    return top, total


# --- softmax ---------------------------------------------------------------------------------------------------------


def _softmax(logarithm: bool):
    @shared(f"void({MATRIX}, {MATRIX}, int64, int64)")
    def loop(x, out, first, last):
        for n in range(first, last):
            row, to = x[n], out[n]
            if logarithm:
                top = row_largest(row)
                shift = log(row_exps(row, top, to))
                for i in range(row.size):
                    to[i] = (row[i] - top) - shift
            else:
                row_shares(row, to)

    def kernel(x, dim):
        if not suits(x) or dim != x.ndim - 1 or not x.shape[-1]:
            return NotImplemented
        width, size = x.shape[-1], x.size
        out = np.empty(x.shape, F32)
        rows = (x, out) if x.ndim == 2 else (x.reshape(-1, width), out.reshape(-1, width))
        thread_pool.run(loop, size // width, rows, 8 * size)
        return out

    return kernel


def _softmax_grad(logarithm: bool):
    @shared(f"void({MATRIX}, {MATRIX}, {MATRIX}, int64, int64)")
    def loop(g, y, out, first, last):
        for n in range(first, last):
            a, b, to = g[n], y[n], out[n]
            if logarithm:
                total = _total(a)
                for i in range(a.size):
                    to[i] = a[i] - functions.exp(b[i]) * total
            else:
                total = row_dot(a, b)
                for i in range(a.size):
                    to[i] = b[i] * (a[i] - total)

    def kernel(g, y, dim):
        if not (suits(g) and suits(y)) or dim != y.ndim - 1 or g.shape != y.shape or not y.shape[-1]:
            return NotImplemented
        out = np.empty(y.shape, F32)
        width = y.shape[-1]
        rows = (g.reshape(-1, width), y.reshape(-1, width), out.reshape(-1, width))
        thread_pool.run(loop, y.size // width, rows, 3 * y.size)
        return out

    return kernel


# --- layer norm ------------------------------------------------------------------------------------------------------


@inner(fastmath=ANY_ORDER)
def _squares(row, mean):
    total = F(0.0)
    for i in range(row.size):
        away = row[i] - mean
        total += away * away
    return total


@inner(fastmath=ANY_ORDER)
def _deviations(row, centre):
    """Σ (x - centre) and Σ (x - centre)²."""
    plain = squares = F(0.0)
    for i in range(row.size):
        away = row[i] - centre
        plain += away
        squares += away * away
    return np.float64(plain), np.float64(squares)


@inner(fastmath=ANY_ORDER)
def _wide_deviations(row):
    """Returns the mean and the same two sums in double precision."""
    centre = plain = squares = 0.0
    for i in range(row.size):
        centre += np.float64(row[i])
    centre /= row.size
    for i in range(row.size):
        away = np.float64(row[i]) - centre
        plain += away
        squares += away * away
    return centre, plain, squares


@inner
def together(count, mean, squares, size, other, more):
    """Combines count, mean and sum of squared deviations with those of `size` others (Chan, Golub, LeVeque, 1983)."""
    away, total = other - mean, count + size
    return total, mean + away * (size / total), squares + (more + away * away * (count * size / total))


@inner
def joined(count, mean, squares, row):
    """The same with a row of others added, whose sums are taken around its rounded mean and corrected."""
    size = np.float64(row.size)
    centre = np.float64(_total(row) / F(row.size))
    plain, own = _deviations(row, F(centre))  # (a nan in `own` outlasts the `max` below)
    if not (1e-25 < own < np.inf):  # squares that float32 cannot represent
        centre, plain, own = _wide_deviations(row)
    return together(count, mean, squares, size, centre + plain / size, max(own - plain * plain / size, 0.0))


_LONG = 1 << 18  # elements of a row from which on a sum in float32 has too few digits: NumPy's kernel adds up pieces


def _layer_norm():
    @shared(f"void({MATRIX}, float32[::1], float32[::1], float32, {MATRIX}, float32[::1], float32[::1], int64, int64)")
    def loop(x, weight, bias, eps, out, means, rstds, first, last):
        for n in range(first, last):
            row, to = x[n], out[n]
            size = F(row.size)
            mean = _total(row) / size
            rstd = F(1.0) / F(math.sqrt(_squares(row, mean) / size + eps))
            means[n], rstds[n] = mean, rstd
            for i in range(row.size):
                to[i] = (row[i] - mean) * rstd * weight[i] + bias[i]

    def kernel(x, weight, bias, axes, eps):
        width = x.shape[-1] if len(axes) == 1 else math.prod(x.shape[x.ndim - len(axes) :])
        if not 0 < width < _LONG or not (
            suits(x) and (weight is None or suits(weight)) and (bias is None or suits(bias))
        ):
            return NotImplemented
        scale = np.ones(width, F32) if weight is None else weight.reshape(-1)
        shift = np.zeros(width, F32) if bias is None else bias.reshape(-1)
        rows, lead = x.size // width, (*x.shape[: x.ndim - len(axes)], *(1,) * len(axes))
        out, means, rstds = np.empty(x.shape, F32), np.empty(lead, F32), np.empty(lead, F32)
        wide = (rows, width)
        args = (x.reshape(wide), scale, shift, F(eps), out.reshape(wide), means.reshape(-1), rstds.reshape(-1))
        thread_pool.run(loop, rows, args, 3 * x.size)
        return out, means, rstds

    return kernel


@inner(fastmath=ANY_ORDER)
def _layer_norm_sums(g, row, weight, mean, rstd):
    """Σ g w and Σ g w (x - mean) rstd of a row."""
    plain = along = F(0.0)
    for i in range(row.size):
        slope = g[i] * weight[i]
        plain += slope
        along += slope * ((row[i] - mean) * rstd)
    return plain, along


_BLOCKS = 64  # of rows, in which the gradients of the parameters are summed


def _layer_norm_grad():
    @shared(
        f"void({MATRIX}, {MATRIX}, float32[::1], float32[::1], float32[::1], {MATRIX}, float32[:,:,::1], int64, "
        "int64, int64)",
    )
    def loop(g, x, means, rstds, weight, gx, sums, part, first, last):
        # The parts of the parameters' gradients are blocks of rows, determined by the shape and not by the threads.
        for block in range(first, last):
            dw, db = sums[block, 0], sums[block, 1]
            for n in range(block * part, min((block + 1) * part, x.shape[0])):
                slopes, row, to = g[n], x[n], gx[n]
                mean, rstd = means[n], rstds[n]
                plain, along = _layer_norm_sums(slopes, row, weight, mean, rstd)
                plain, along = plain / F(row.size), along / F(row.size)
                for i in range(row.size):
                    normal = (row[i] - mean) * rstd
                    to[i] = rstd * (slopes[i] * weight[i] - plain - normal * along)
                    dw[i] += slopes[i] * normal
                    db[i] += slopes[i]

    def kernel(g, x, weight, mean, rstd, axes, need):
        width = math.prod(x.shape[x.ndim - len(axes) :])
        if not (suits(g) and suits(x) and suits(mean) and suits(rstd)) or not 0 < width < _LONG or g.shape != x.shape:
            return NotImplemented
        if weight is not None and not suits(weight):
            return NotImplemented
        rows = x.size // width
        blocks = max(1, min(_BLOCKS, rows // 16))
        part = -(-rows // blocks)
        gx = np.empty(x.shape, F32)
        sums = np.zeros((blocks, 2, width), F32)
        scale = np.ones(width, F32) if weight is None else weight.reshape(-1)
        flat = (g.reshape(rows, width), x.reshape(rows, width), mean.reshape(-1), rstd.reshape(-1), scale)
        thread_pool.run(loop, blocks, (*flat, gx.reshape(rows, width), sums, part), 4 * x.size)
        shape = x.shape[x.ndim - len(axes) :]
        gw, gb = [column_sum(np, sums[:, n]).reshape(shape) if need[n + 1] else None for n in range(2)]
        return gx if need[0] else None, gw, gb

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "softmax": lambda: _softmax(False),
    "log_softmax": lambda: _softmax(True),
    "softmax_grad": lambda: _softmax_grad(False),
    "log_softmax_grad": lambda: _softmax_grad(True),
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
}
