"""Softmax and log-softmax, and their gradients: one block per row. Other dimensions than the last are copied."""

from __future__ import annotations

from functools import partial

import cupy
import numpy as np

from tensorgrad.kernels.cuda import program

DTYPES = ("float32", "float64", "float16", "bfloat16")


def _threads(n: int) -> int:
    """A warp for short rows, and up to 1,024 threads for long ones."""
    return min(1024, max(32, 1 << (n - 1).bit_length()))


def _rows(name: str, *arrays, dim: int):
    """Launches a function of the program on the rows along `dim`; all arrays have one shape and dtype."""
    first = arrays[0]
    if first.dtype.name not in DTYPES or not first.size:
        return NotImplemented
    if any(a.shape != first.shape or a.dtype != first.dtype for a in arrays):
        return NotImplemented
    rows = [cupy.ascontiguousarray(cupy.moveaxis(a, dim, -1)) for a in arrays] if first.ndim else list(arrays)
    out = cupy.empty_like(rows[0])
    n = out.shape[-1] if out.ndim else 1
    launch = program.function("softmax", name, first.dtype.name)
    launch((out.size // n,), (_threads(n),), (*rows, out, np.int64(n)))
    return cupy.moveaxis(out, -1, dim) if out.ndim else out


def _forward(name, x, dim):
    return _rows(name, x, dim=dim)


def _backward(name, g, out, dim):
    return _rows(name, g, out, dim=dim)


softmax, log_softmax = partial(_forward, "softmax"), partial(_forward, "log_softmax")
softmax_grad, log_softmax_grad = partial(_backward, "softmax_grad"), partial(_backward, "log_softmax_grad")
