"""Softmax and log-softmax, and their gradients, along any dimension: one launch each.

Bytes per element: each input and the result once, if a row fits in registers; otherwise inputs twice.
"""

from __future__ import annotations

import math
from functools import cache, partial

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.register_rows import MOST_BLOCKS, plan

THREADS = 256


@cache
def _function(name: str, dtype: str, rows):
    settings = {"COLUMNS": 1} if rows == "columns" else {} if rows is None else rows.settings
    return program.function("softmax", name, dtype, **settings)


def _rows(name: str, *arrays, dim: int):
    """Runs a function of the program on the rows along `dim`; all arrays have one shape and dtype."""
    first = arrays[0]
    if program.NAME[first.dtype] not in program.NUMBER or not first.size:
        return NotImplemented
    if any(a.shape != first.shape or a.dtype != first.dtype for a in arrays):
        return NotImplemented
    arrays = tuple(cupy.ascontiguousarray(a) for a in arrays)
    out = cupy.empty(first.shape, first.dtype)
    n = first.shape[dim] if first.ndim else 1
    inner, rows = math.prod(first.shape[dim:][1:]), first.size // n
    if inner > 1:
        launch = _function(name, program.NAME[first.dtype], "columns")
        grid = min(-(-rows // THREADS), MOST_BLOCKS)
        launch((grid,), (THREADS,), (*arrays, out, np.int64(rows), np.int64(n), np.int64(inner)))
        return out
    held = plan(n, [*arrays, out])
    launch = _function(name, program.NAME[first.dtype], held)
    if held is not None:
        launch((held.blocks(rows),), (held.threads,), (*arrays, out, np.int64(rows), np.int32(n)))
    else:
        launch((min(rows, MOST_BLOCKS),), (1024,), (*arrays, out, np.int64(rows), np.int64(n)))
    return out


def _forward(name, x, dim):
    return _rows(name, x, dim=dim)


def _backward(name, g, out, dim):
    return _rows(name, g, out, dim=dim)


softmax, log_softmax = partial(_forward, "softmax"), partial(_forward, "log_softmax")
softmax_grad, log_softmax_grad = partial(_backward, "softmax_grad"), partial(_backward, "log_softmax_grad")
