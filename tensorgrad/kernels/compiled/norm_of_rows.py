"""Layer and root-mean-square normalization, forward and backward: each row is read twice, written once.

The parameters' gradients are summed in blocks of rows, which the shape determines and not the threads. Formulas:
kernels/array/norm.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.compiled.casts import bits, code, is_half
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.moments import row_dot, row_sum
from tensorgrad.kernels.compiled.norm import add_up, filled, total_of
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.totals import total
from tensorgrad.kernels.compiled.simd.two_bytes import STORAGES, Storage

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
    if not 0 < width < _LONG or code(x) is None or not all([p is None or code(p) is not None for p in parameters]):
        return None
    return (x.size // width, width), (*x.shape[: x.ndim - len(axes)], *(1,) * len(axes))


def _in_row(parameter, width: int, number: float):
    return filled(width, number) if parameter is None else in_dtype(parameter, F32).reshape(-1)


def _kept(x, *parameters):
    """Returns the dtype in which the statistics of layer norm are kept."""
    return next((p.dtype for p in parameters if p is not None), x.dtype)


# --- layer norm ------------------------------------------------------------------------------------------------------


def _layer_norm_loop(stored: Storage):
    scratch, read, place, write = stored.of_rows

    @shared(f"void({stored.matrix}, {_ROW}, {_ROW}, float32, {stored.matrix}, {_ROW}, {_ROW}, boolean, int64, int64)")
    def loop(x, weight, bias, eps, out, means, rstds, brain, first, last):
        held, results = scratch(x.shape[1]), scratch(x.shape[1])
        for n in range(first, last):
            row, to = read(x[n], held, brain), place(out[n], results)
            size = F(row.size)
            mean = row_sum(row) / size
            rstd = F(1.0) / F(math.sqrt(_squares(row, mean) / size + eps))
            means[n], rstds[n] = mean, rstd
            for i in range(row.size):
                to[i] = (row[i] - mean) * rstd * weight[i] + bias[i]
            write(to, out[n], brain)

    return loop


def _layer_norm():
    loops = [_layer_norm_loop(stored) for stored in STORAGES]

    def kernel(x, weight, bias, axes, eps):
        found = _flat(x, axes, weight, bias)
        if found is None:
            return NotImplemented
        (form, lead), half = found, is_half(x)
        given = _in_row(weight, form[1], 1.0), _in_row(bias, form[1], 0.0)
        out, means, rstds = np.empty(x.shape, x.dtype), np.empty(lead, F32), np.empty(lead, F32)
        args = (bits(x.reshape(form)), *given, F(eps), bits(out.reshape(form)), means.reshape(-1), rstds.reshape(-1))
        thread_pool.run(loops[half], form[0], (*args, x.dtype.char == "E"), 3 * x.size)
        if half:
            kept = _kept(x, weight, bias)
            means, rstds = in_dtype(means, kept), in_dtype(rstds, kept)
        return out, means, rstds

    return kernel


def _layer_norm_grad_loop(stored: Storage):
    scratch, read, place, write = stored.of_rows

    @shared(
        f"void({stored.matrix}, {stored.matrix}, {_ROW}, {_ROW}, {_ROW}, {stored.matrix}, float32[:,:,::1], int64, "
        "boolean, int64, int64)",
    )
    def loop(g, x, means, rstds, weight, gx, sums, part, brain, first, last):
        width = x.shape[1]
        held, other, results = scratch(width), scratch(width), scratch(width)
        for block in range(first, last):
            dw, db = sums[block, 0], sums[block, 1]
            dw[:], db[:] = F(0.0), F(0.0)
            for n in range(block * part, min((block + 1) * part, x.shape[0])):
                slopes, row, to = read(g[n], held, brain), read(x[n], other, brain), place(gx[n], results)
                mean, rstd = means[n], rstds[n]
                plain, along = _centred_sums(slopes, row, weight, mean, rstd)
                plain, along = plain / F(row.size), along / F(row.size)
                for i in range(row.size):
                    normal = (row[i] - mean) * rstd
                    to[i] = rstd * (slopes[i] * weight[i] - plain - normal * along)
                    dw[i] += slopes[i] * normal
                    db[i] += slopes[i]
                write(to, gx[n], brain)

    return loop


def _layer_norm_grad():
    add_up()
    loops = [_layer_norm_grad_loop(stored) for stored in STORAGES]

    def kernel(g, x, weight, mean, rstd, axes, need):
        found = _flat(x, axes, g, weight, mean, rstd)
        if found is None or g.shape != x.shape or code(g) != code(x):
            return NotImplemented
        form, part, sums = found[0], *_parts(found[0], 2)
        gx, scale, half = np.empty(x.shape, x.dtype), _in_row(weight, form[1], 1.0), is_half(x)
        statistics = [in_dtype(a, F32).reshape(-1) for a in (mean, rstd)]
        flat = (*map(bits, (g.reshape(form), x.reshape(form))), *statistics, scale)
        given = (*flat, bits(gx.reshape(form)), sums, part, x.dtype.char == "E")
        thread_pool.run(loops[half], len(sums), given, 4 * x.size)
        gw, gb = [_of_parameter(sums, n, x, axes, weight) if need[n + 1] else None for n in range(2)]
        return gx if need[0] else None, gw, gb

    return kernel


def _parts(form: tuple[int, int], parameters: int) -> tuple[int, np.ndarray]:
    """Returns how many rows a block has, and memory for the sums of the parameters' gradients of each block."""
    rows, width = form
    blocks = max(1, min(_BLOCKS, rows // 16))
    return -(-rows // blocks), np.empty((blocks, parameters, width), F32)


def _of_parameter(sums, parameter: int, x, axes, weight):
    """Returns the gradient of a parameter from what the blocks have for it."""
    width = sums.shape[2]
    total = total_of(sums.reshape(len(sums), -1), parameter * width, width)
    return in_dtype(total.reshape(x.shape[x.ndim - len(axes) :]), x.dtype if weight is None else weight.dtype)


# --- RMS norm --------------------------------------------------------------------------------------------------------


def _rms_norm_loop(stored: Storage):
    scratch, read, place, write = stored.of_rows

    @shared(f"void({stored.matrix}, {_ROW}, float32, {stored.matrix}, {_ROW}, boolean, int64, int64)")
    def loop(x, weight, eps, out, rrms, brain, first, last):
        held, results = scratch(x.shape[1]), scratch(x.shape[1])
        for n in range(first, last):
            row, to = read(x[n], held, brain), place(out[n], results)
            rrms[n] = factor = F(1.0) / F(math.sqrt(row_dot(row, row) / F(row.size) + eps))
            for i in range(row.size):
                to[i] = row[i] * factor * weight[i]
            write(to, out[n], brain)

    return loop


def _rms_norm():
    loops = [_rms_norm_loop(stored) for stored in STORAGES]

    def kernel(x, weight, axes, eps):
        found = _flat(x, axes, weight)
        if found is None:
            return NotImplemented
        (form, lead), half = found, is_half(x)
        out, rrms = np.empty(x.shape, x.dtype), np.empty(lead, F32)
        given = bits(x.reshape(form)), _in_row(weight, form[1], 1.0), F(eps), bits(out.reshape(form)), rrms.reshape(-1)
        thread_pool.run(loops[half], form[0], (*given, x.dtype.char == "E"), 3 * x.size)
        return out, rrms

    return kernel


def _rms_norm_grad_loop(stored: Storage):
    scratch, read, place, write = stored.of_rows

    @shared(
        f"void({stored.matrix}, {stored.matrix}, {_ROW}, {_ROW}, {stored.matrix}, float32[:,:,::1], int64, boolean, "
        "int64, int64)"
    )
    def loop(g, x, rrms, weight, gx, sums, part, brain, first, last):
        width = x.shape[1]
        held, other, results = scratch(width), scratch(width), scratch(width)
        for block in range(first, last):
            dw = sums[block, 0]
            dw[:] = F(0.0)
            for n in range(block * part, min((block + 1) * part, x.shape[0])):
                slopes, row, to = read(g[n], held, brain), read(x[n], other, brain), place(gx[n], results)
                factor = rrms[n]
                along = _plain_sum(slopes, row, weight) * factor / F(row.size)
                for i in range(row.size):
                    normal = row[i] * factor
                    to[i] = factor * (slopes[i] * weight[i] - normal * along)
                    dw[i] += slopes[i] * normal
                write(to, gx[n], brain)

    return loop


def _rms_norm_grad():
    add_up()
    loops = [_rms_norm_grad_loop(stored) for stored in STORAGES]

    def kernel(g, x, weight, rrms, axes, need):
        found = _flat(x, axes, g, weight, rrms)
        if found is None or g.shape != x.shape or code(g) != code(x):
            return NotImplemented
        form, part, sums = found[0], *_parts(found[0], 1)
        gx, scale, half = np.empty(x.shape, x.dtype), _in_row(weight, form[1], 1.0), is_half(x)
        flat = (*map(bits, (g.reshape(form), x.reshape(form))), in_dtype(rrms, F32).reshape(-1), scale)
        given = (*flat, bits(gx.reshape(form)), sums, part, x.dtype.char == "E")
        thread_pool.run(loops[half], len(sums), given, 4 * x.size)
        return gx if need[0] else None, _of_parameter(sums, 0, x, axes, weight) if need[1] else None

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
    "rms_norm": _rms_norm,
    "rms_norm_grad": _rms_norm_grad,
}
