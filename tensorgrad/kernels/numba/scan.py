"""Cumulative sums along any dimension, in double precision like PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba.layout import suits
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.launch import shared
from tensorgrad.kernels.numba.softmax import MATRIX

_COLUMNS = 512  # sums that are carried along together: they stay in the first-level cache


def _cumsum(backwards: bool):
    step = -1 if backwards else 1

    @shared(f"void({MATRIX}, {MATRIX}, int64, int64)")
    def rows(x, out, first, last):
        start = x.shape[1] - 1 if backwards else 0
        four = first + (last - first) // 4 * 4
        for n in range(first, four, 4):  # four sums at a time, since each addition waits for the one before
            r0, r1, r2, r3, t0, t1, t2, t3 = (
                x[n],
                x[n + 1],
                x[n + 2],
                x[n + 3],
                out[n],
                out[n + 1],
                out[n + 2],
                out[n + 3],
            )
            a = b = c = d = 0.0
            for k in range(x.shape[1]):
                i = start + step * k
                a += r0[i]
                b += r1[i]
                c += r2[i]
                d += r3[i]
                t0[i], t1[i], t2[i], t3[i] = a, b, c, d
        for n in range(four, last):
            row, to, a = x[n], out[n], 0.0
            for k in range(x.shape[1]):
                i = start + step * k
                a += row[i]
                to[i] = a

    @shared("void(float32[:,:,::1], float32[:,:,::1], int64, int64)")
    def columns(x, out, first, last):
        blocks, length = -(-x.shape[2] // _COLUMNS), x.shape[1]
        sums = np.empty(_COLUMNS)
        for k in range(first, last):
            start = k % blocks * _COLUMNS
            end = min(start + _COLUMNS, x.shape[2])
            here = sums[: end - start]
            here[:] = 0.0
            for j in range(length):
                i = length - 1 - j if backwards else j
                row, to = x[k // blocks, i, start:end], out[k // blocks, i, start:end]
                for c in range(row.size):
                    here[c] += row[c]
                    to[c] = here[c]

    def kernel(x, dim, dtype=None):
        if not suits(x) or not x.ndim or not x.size:
            return NotImplemented
        out = np.empty(x.shape, F32)
        length, after = x.shape[dim], math.prod(x.shape[dim + 1 :])
        if after == 1:
            shape: tuple[int, ...] = (x.size // length, length)
            thread_pool.run(rows, shape[0], (x.reshape(shape), out.reshape(shape)), 2 * x.size)
        else:
            shape = (x.size // (length * after), length, after)
            thread_pool.run(
                columns, shape[0] * -(-after // _COLUMNS), (x.reshape(shape), out.reshape(shape)), 2 * x.size
            )
        return out

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "cumsum": lambda: _cumsum(False),
    "cumsum_reversed": lambda: _cumsum(True),
}
