"""Layer and root-mean-square normalization, forward and backward: each row is read twice, written once.

The parameters' gradients are summed in blocks of rows, which the shape determines and not the threads. Formulas:
kernels/array/norm.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.moments import row_dot, row_sum
from tensorgrad.kernels.compiled.norm import filled
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.totals import total

_ROW = "float32[::1]"
_LONG = 1 << 18  # elements of a row from which on a sum in float32 has too few digits: NumPy's kernel adds up pieces
_BLOCKS = 64  # of rows, in which the gradients of the parameters are summed

_squares = total(lambda x, mean: (x - mean) * (x - mean), numbers=1)  # Σ (x - mean)²
# Σ g w and Σ g w (x - mean) rstd of a row.
_centred_sums = total(
    lambda g, x, w, mean, rstd: (g * w, (g * w) * ((x - mean) * rstd)), arrays=3, numbers=2, results=2, blocks=3
)
_plain_sum = total(lambda g, x, w: (g * w) * x, arrays=3)  # Σ g w x of a row


def _flat(x, axes, *parameters):
    """Returns rows and numbers of a row, and the shape of a row's statistics; None if kernels do not take these."""
    width = x.shape[-1] if len(axes) == 1 else math.prod(x.shape[x.ndim - len(axes) :])
    if not 0 < width < _LONG or not suits(x) or not all([p is None or suits(p) for p in parameters]):
        return None
    return (x.size // width, width), (*x.shape[: x.ndim - len(axes)], *(1,) * len(axes))


def _in_row(parameter, width: int, number: float):
    return filled(width, number) if parameter is None else parameter.reshape(-1)


@lru_cache(maxsize=1)
def _add_up():
    @shared(f"void(float32[:,:,::1], int64, {_ROW}, int64, int64)")
    def loop(sums, parameter, out, first, last):
        """Adds up what the blocks have for one of the parameters, block by block."""
        to = out[first:last]
        to[:] = F(0.0)
        for block in range(sums.shape[0]):
            part = sums[block, parameter, first:last]
            for i in range(to.size):
                to[i] += part[i]

    return loop


def _total(sums, parameter: int, shape: tuple):
    """Returns the gradient of a parameter from what the blocks have for it."""
    made = np.empty(shape, F32)
    thread_pool.run(_add_up(), made.size, (sums, parameter, made.reshape(-1)), len(sums) * made.size)
    return made


# --- layer norm ------------------------------------------------------------------------------------------------------


def _layer_norm():
    @shared(f"void({MATRIX}, {_ROW}, {_ROW}, float32, {MATRIX}, {_ROW}, {_ROW}, int64, int64)")
    def loop(x, weight, bias, eps, out, means, rstds, first, last):
        for n in range(first, last):
            row, to = x[n], out[n]
            size = F(row.size)
            mean = row_sum(row) / size
            rstd = F(1.0) / F(math.sqrt(_squares(row, mean) / size + eps))
            means[n], rstds[n] = mean, rstd
            for i in range(row.size):
                to[i] = (row[i] - mean) * rstd * weight[i] + bias[i]

    def kernel(x, weight, bias, axes, eps):
        found = _flat(x, axes, weight, bias)
        if found is None:
            return NotImplemented
        form, lead = found
        given = _in_row(weight, form[1], 1.0), _in_row(bias, form[1], 0.0)
        out, means, rstds = np.empty(x.shape, F32), np.empty(lead, F32), np.empty(lead, F32)
        args = (x.reshape(form), *given, F(eps), out.reshape(form), means.reshape(-1), rstds.reshape(-1))
        thread_pool.run(loop, form[0], args, 3 * x.size)
        return out, means, rstds

    return kernel


def _layer_norm_grad():
    _add_up()

    @shared(
        f"void({MATRIX}, {MATRIX}, {_ROW}, {_ROW}, {_ROW}, {MATRIX}, float32[:,:,::1], int64, int64, int64)",
    )
    def loop(g, x, means, rstds, weight, gx, sums, part, first, last):
        for block in range(first, last):
            dw, db = sums[block, 0], sums[block, 1]
            dw[:], db[:] = F(0.0), F(0.0)
            for n in range(block * part, min((block + 1) * part, x.shape[0])):
                slopes, row, to = g[n], x[n], gx[n]
                mean, rstd = means[n], rstds[n]
                plain, along = _centred_sums(slopes, row, weight, mean, rstd)
                plain, along = plain / F(row.size), along / F(row.size)
                for i in range(row.size):
                    normal = (row[i] - mean) * rstd
                    to[i] = rstd * (slopes[i] * weight[i] - plain - normal * along)
                    dw[i] += slopes[i] * normal
                    db[i] += slopes[i]

    def kernel(g, x, weight, mean, rstd, axes, need):
        found = _flat(x, axes, g, weight, mean, rstd)
        if found is None or g.shape != x.shape:
            return NotImplemented
        form, part, sums = found[0], *_parts(found[0], 2)
        gx, scale = np.empty(x.shape, F32), _in_row(weight, form[1], 1.0)
        flat = (g.reshape(form), x.reshape(form), mean.reshape(-1), rstd.reshape(-1), scale)
        thread_pool.run(loop, len(sums), (*flat, gx.reshape(form), sums, part), 4 * x.size)
        shape = x.shape[x.ndim - len(axes) :]
        gw, gb = [_total(sums, n, shape) if need[n + 1] else None for n in range(2)]
        return gx if need[0] else None, gw, gb

    return kernel


def _parts(form: tuple[int, int], parameters: int) -> tuple[int, np.ndarray]:
    """Returns how many rows a block has, and memory for the sums of the parameters' gradients of each block."""
    rows, width = form
    blocks = max(1, min(_BLOCKS, rows // 16))
    return -(-rows // blocks), np.empty((blocks, parameters, width), F32)


# --- RMS norm --------------------------------------------------------------------------------------------------------


def _rms_norm():
    @shared(f"void({MATRIX}, {_ROW}, float32, {MATRIX}, {_ROW}, int64, int64)")
    def loop(x, weight, eps, out, rrms, first, last):
        for n in range(first, last):
            row, to = x[n], out[n]
            rrms[n] = factor = F(1.0) / F(math.sqrt(row_dot(row, row) / F(row.size) + eps))
            for i in range(row.size):
                to[i] = row[i] * factor * weight[i]

    def kernel(x, weight, axes, eps):
        found = _flat(x, axes, weight)
        if found is None:
            return NotImplemented
        form, lead = found
        out, rrms = np.empty(x.shape, F32), np.empty(lead, F32)
        args = (x.reshape(form), _in_row(weight, form[1], 1.0), F(eps), out.reshape(form), rrms.reshape(-1))
        thread_pool.run(loop, form[0], args, 3 * x.size)
        return out, rrms

    return kernel


def _rms_norm_grad():
    _add_up()

    @shared(f"void({MATRIX}, {MATRIX}, {_ROW}, {_ROW}, {MATRIX}, float32[:,:,::1], int64, int64, int64)")
    def loop(g, x, rrms, weight, gx, sums, part, first, last):
        for block in range(first, last):
            dw = sums[block, 0]
            dw[:] = F(0.0)
            for n in range(block * part, min((block + 1) * part, x.shape[0])):
                slopes, row, to, factor = g[n], x[n], gx[n], rrms[n]
                along = _plain_sum(slopes, row, weight) * factor / F(row.size)
                for i in range(row.size):
                    normal = row[i] * factor
                    to[i] = factor * (slopes[i] * weight[i] - normal * along)
                    dw[i] += slopes[i] * normal

    def kernel(g, x, weight, rrms, axes, need):
        found = _flat(x, axes, g, weight, rrms)
        if found is None or g.shape != x.shape:
            return NotImplemented
        form, part, sums = found[0], *_parts(found[0], 1)
        gx, scale = np.empty(x.shape, F32), _in_row(weight, form[1], 1.0)
        flat = (g.reshape(form), x.reshape(form), rrms.reshape(-1), scale)
        thread_pool.run(loop, len(sums), (*flat, gx.reshape(form), sums, part), 4 * x.size)
        gw = _total(sums, 0, x.shape[x.ndim - len(axes) :]) if need[1] else None
        return gx if need[0] else None, gw

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
    "rms_norm": _rms_norm,
    "rms_norm_grad": _rms_norm_grad,
}
