"""Softmax and log-softmax over the last dimension, forward and backward, in one pass per row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.kernels.compiled import functions
from tensorgrad.kernels.compiled.casts import bits, code
from tensorgrad.kernels.compiled.functions import F, log
from tensorgrad.kernels.compiled.moments import row_dot, row_exps, row_sum
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.two_bytes import STORAGES, Storage
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


def _softmax_loop(logarithm: bool, stored: Storage):
    (scratch, read, place, write), once = stored.of_rows, stored.once

    @shared(f"void({stored.matrix}, {stored.matrix}, boolean, int64, int64)")
    def loop(x, out, brain, first, last):
        held, results = scratch(x.shape[1]), scratch(x.shape[1])
        for n in range(first, last):
            row, to = read(x[n], held, brain), place(out[n], results)
            if logarithm:
                top = row_largest(row)
                shift = once(log(once(row_exps(row, to, top), brain)), brain)  # as PyTorch does
                for i in range(row.size):
                    to[i] = (row[i] - top) - shift
            else:
                row_shares(row, to)
            write(to, out[n], brain)

    return loop


def _given(kind, *arrays):
    """Returns the arguments of a loop: each array as a matrix, and whether their numbers are bfloat16."""
    if arrays[0].ndim != 2:
        arrays = tuple([x.reshape(-1, x.shape[-1]) for x in arrays])
    return (*(map(bits, arrays) if kind else arrays), kind > 1)


def _softmax(logarithm: bool):
    loops = [_softmax_loop(logarithm, stored) for stored in STORAGES]

    def kernel(x, dim):
        kind, shape = code(x), x.shape
        if kind is None or dim != len(shape) - 1 or not shape[dim]:
            return NotImplemented
        out = np.empty(shape, x.dtype)
        thread_pool.run(loops[kind > 0], x.size // shape[dim], _given(kind, x, out), 5 * x.size)
        return out

    return kernel


def _softmax_grad_loop(logarithm: bool, stored: Storage):
    scratch, read, place, write = stored.of_rows

    @shared(f"void({stored.matrix}, {stored.matrix}, {stored.matrix}, boolean, int64, int64)")
    def loop(g, y, out, brain, first, last):
        width = g.shape[1]
        held, other, results = scratch(width), scratch(width), scratch(width)
        for n in range(first, last):
            a, b, to = read(g[n], held, brain), read(y[n], other, brain), place(out[n], results)
            if logarithm:
                total = row_sum(a)
                for i in range(a.size):
                    to[i] = a[i] - functions.exp(b[i]) * total
            else:
                total = row_dot(a, b)
                for i in range(a.size):
                    to[i] = b[i] * (a[i] - total)
            write(to, out[n], brain)

    return loop


def _softmax_grad(logarithm: bool):
    loops = [_softmax_grad_loop(logarithm, stored) for stored in STORAGES]

    def kernel(g, y, dim):
        kind, shape = code(g), y.shape
        if kind is None or kind != code(y) or dim != len(shape) - 1 or g.shape != shape or not shape[dim]:
            return NotImplemented
        out = np.empty(shape, y.dtype)
        thread_pool.run(loops[kind > 0], y.size // shape[dim], _given(kind, g, y, out), 3 * y.size)
        return out

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "softmax": lambda: _softmax(False),
    "log_softmax": lambda: _softmax(True),
    "softmax_grad": lambda: _softmax_grad(False),
    "log_softmax_grad": lambda: _softmax_grad(True),
}
