"""Softmax and log-softmax over the last dimension, forward and backward, in one pass per row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import functions
from tensorgrad.kernels.compiled.functions import F, log
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.moments import row_dot, row_exps, row_sum
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.vectors import LANES, largest


@inner
def row_largest(row):
    """Returns the largest element; any number if there is a nan, which makes the whole row nan anyway."""
    if row.size >= LANES:
        return largest(row, row.size)
    top = row[0]
    for i in range(1, row.size):
        top = max(top, row[i])
    return top


@inner
def row_shares(row, out):
    """Writes the softmax of a row; returns its largest number and the sum of the exponentials."""
    top = row_largest(row)
    total = row_exps(row, out, top)
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
                shift = log(row_exps(row, to, top))
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
                total = row_sum(a)
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


KERNELS: dict[str, Callable[[], Callable]] = {
    "softmax": lambda: _softmax(False),
    "log_softmax": lambda: _softmax(True),
    "softmax_grad": lambda: _softmax_grad(False),
    "log_softmax_grad": lambda: _softmax_grad(True),
}
