"""Cumulative sums along any dimension, in double precision like PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import layout
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, MEMORY, inner
from tensorgrad.kernels.compiled.runtime.launch import shared

_COLUMNS = 512  # sums that are carried along together: they stay in the first-level cache


@inner
def _place(row, per_plane, plane_step, row_step):
    """Returns where a row begins."""
    if row < per_plane:
        return row * row_step
    return row // per_plane * plane_step + row % per_plane * row_step


@lru_cache(maxsize=512)
def _walk(shape: tuple[int, ...], strides: tuple[int, ...], dim: int) -> tuple[int, int, int, int] | None:
    """Plans a walk along the rows of `dim`, after which only sizes of 1 follow; None if they must be copied first.

    Returns the rows of a plane, and the steps from plane to plane, from row to row, and within a row.
    """
    if any([s < 0 or s % 4 for s in strides]) or strides[dim] // 4 > layout.NEAR:
        return None
    outer: list[list[int]] = []  # size and step, the innermost first
    for size, stride in zip(reversed(shape[:dim]), reversed(strides[:dim]), strict=True):
        if size > 1 and outer and stride // 4 == outer[-1][0] * outer[-1][1]:
            outer[-1][0] *= size
        elif size > 1:
            outer.append([size, stride // 4])
    if len(outer) > 2:
        return None
    (per_plane, row_step), (_, plane_step) = (*outer, (1, 0), (1, 0))[:2]
    return per_plane, plane_step, row_step, strides[dim] // 4


def _cumsum(backwards: bool):
    way = -1 if backwards else 1

    @shared(f"void({MEMORY}, {MATRIX}, UniTuple(int64, 4), int64, int64)")
    def rows(x, out, numbers, first, last):
        per_plane, plane_step, row_step, step = numbers
        length = out.shape[1]
        start = length - 1 if backwards else 0
        four = first + (last - first) // 4 * 4
        for n in range(first, four, 4):  # four sums at a time, since each addition waits for the one before
            p0, p1 = _place(n, per_plane, plane_step, row_step), _place(n + 1, per_plane, plane_step, row_step)
            p2, p3 = _place(n + 2, per_plane, plane_step, row_step), _place(n + 3, per_plane, plane_step, row_step)
            t0, t1, t2, t3 = out[n], out[n + 1], out[n + 2], out[n + 3]
            a = b = c = d = 0.0
            for k in range(length):
                i = start + way * k
                at = i * step
                a += x[np.uint64(p0 + at)]
                b += x[np.uint64(p1 + at)]
                c += x[np.uint64(p2 + at)]
                d += x[np.uint64(p3 + at)]
                t0[i], t1[i], t2[i], t3[i] = a, b, c, d
        for n in range(four, last):
            p, to, a = _place(n, per_plane, plane_step, row_step), out[n], 0.0
            for k in range(length):
                i = start + way * k
                a += x[np.uint64(p + i * step)]
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
        if x.__class__ is not np.ndarray or x.dtype is not F32 or not x.ndim or not x.size:
            return NotImplemented
        length, after = x.shape[dim], math.prod(x.shape[dim + 1 :])
        if after == 1:
            numbers = _walk(x.shape, x.strides, dim % x.ndim)
            if numbers is None:
                return NotImplemented
            out = np.empty(x.shape, F32)
            thread_pool.run(rows, x.size // length, (x, out.reshape(-1, length), numbers), 2 * x.size)
        elif not suits(x):
            return NotImplemented
        else:
            out = np.empty(x.shape, F32)
            shape = x.size // (length * after), length, after
            thread_pool.run(
                columns, shape[0] * -(-after // _COLUMNS), (x.reshape(shape), out.reshape(shape)), 2 * x.size
            )
        return out

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "cumsum": lambda: _cumsum(False),
    "cumsum_reversed": lambda: _cumsum(True),
}
