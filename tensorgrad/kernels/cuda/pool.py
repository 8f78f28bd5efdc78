"""Pooling on GPUs (`sources/pool.cu`): the counterpart of `kernels/array/pool.py`, with the same shapes and rules.

Channels-last arrays stay channels-last.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import cupy
import numpy as np

from tensorgrad.kernels.array.pool import pool_shape
from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.cudnn import empty, laid, lies_last
from tensorgrad.kernels.cuda.runtime.launch import ARRAY

FLOATING = ("float32", "float64", "float16", "bfloat16")
ORDERED = (*FLOATING, "int64", "int32", "int16", "int8", "uint8")
BLOCK = 256
WIDE = 64  # elements of a window from which on a warp shares it


def _three(values, fill):
    return (fill,) * (3 - len(values)) + tuple(values)


@lru_cache(maxsize=4096)
def _prepared(name, dtype, last, even, arrays: int, numbers: tuple, shape, size, points, windows, threads):
    """Prepares a function of pool.cu with one thread (or several) per element of a result of this shape."""
    kernel, stride, padding, dilation = windows or ((), (), (), ())
    filled = (size, 1), (points, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1)
    geometry = [np.int32(n) for values, fill in filled for n in _three(values, fill)]
    elements = prod(shape)
    count = max(elements, prod(size) * shape[0] * shape[1])
    function = program.function(
        "pool", name, program.NAME[dtype], LAST=int(last), EVEN=int(even), INDEX=program.index_type(count)
    )
    given = *[ARRAY] * arrays, np.int64(elements), np.int32(shape[1]), *numbers, *geometry
    return function.prepared((-(-elements * threads // BLOCK),), (BLOCK,), given)


def _launch(name, dtype, last, even, out, arrays, size, points, windows, numbers=(), threads=1):
    """Runs a function of pool.cu with one thread (or several) per element of `out`.

    `windows` is (kernel, stride, padding, dilation), or None if they evenly cover the input.
    """
    if windows is not None:
        windows = tuple([tuple(each) for each in windows])
    how = _prepared(
        name, dtype, last, even, len(arrays), numbers, out.shape, tuple(size), tuple(points), windows, threads
    )
    how(*arrays)
    return out


def _maxima(x, points, windows):
    """Returns the maximum of each window and its index, both (N, C, *points)."""
    last = lies_last(x)
    x, shape = laid(x, last), (*x.shape[:2], *points)
    values, places = empty(shape, x.dtype, last), empty(shape, np.dtype(np.int64), last)
    if values.size:
        arrays = x, values, places
        _launch("max_pool", x.dtype, last, windows is None, values, arrays, x.shape[2:], points, windows)
    return values, places


def max_pool(x, kernel, stride, padding, dilation, ceil_mode):
    """Returns the maximum of each window of `x` (N, C, *S), and its index, flat within an image plane."""
    if program.NAME[x.dtype] not in ORDERED:
        return NotImplemented
    shape = pool_shape(x.shape, kernel, stride, padding, dilation, ceil_mode)
    return _maxima(x, shape[2:], (kernel, stride, padding, dilation))


def max_pool_values(*given):
    """Returns the maximum of each window."""
    found = max_pool(*given)
    return found if found is NotImplemented else found[0]


def max_pool_grad(g, indices, x_shape, windows=None):
    """Adds up the gradients `g` (N, C, *P) at `indices`, into shape `x_shape`.

    Declines if the windows over an element are unknown, or if windows may miss the input entirely.
    """
    if program.NAME[g.dtype] not in FLOATING or windows is None or g.ndim < 3:
        return NotImplemented
    if any(d > 1 and p for d, p in zip(windows[3], windows[2], strict=True)):
        return NotImplemented
    last = lies_last(g)
    g, indices, out = laid(g, last), laid(indices, last), empty(tuple(x_shape), g.dtype, last)
    if not out.size:
        return out
    arrays = g, indices, out
    return _launch("max_pool_grad", g.dtype, last, False, out, arrays, x_shape[2:], g.shape[2:], windows)


def adaptive_max_pool(x, output_size):
    """Returns the maxima of `output_size` windows that evenly cover `x` (N, C, *S), and their indices."""
    if program.NAME[x.dtype] not in ORDERED:
        return NotImplemented
    return _maxima(x, output_size, None)


def _means(x, points, windows, padded, divisor):
    last = lies_last(x)
    x, out = laid(x, last), empty((*x.shape[:2], *points), x.dtype, last)
    if not out.size:
        return out
    count = prod(windows[0]) if windows else prod(-(-n // p) for n, p in zip(x.shape[2:], points, strict=True))
    wide = not last and count >= WIDE
    return _launch(
        "avg_pool_wide" if wide else "avg_pool", x.dtype, last, windows is None, out, (x, out), x.shape[2:], points,
        windows, (np.int32(padded), np.int64(divisor or 0)), 32 if wide else 1,
    )  # fmt: skip


def avg_pool(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Computes the mean of each window of `x` (N, C, *S); the divisor is as in `kernels/array/pool.py`."""
    if program.NAME[x.dtype] not in FLOATING:
        return NotImplemented
    once = (1,) * len(kernel)
    shape = pool_shape(x.shape, kernel, stride, padding, once, ceil_mode)
    return _means(x, shape[2:], (kernel, stride, padding, once), count_include_pad, divisor_override)


def avg_pool_grad(g, x_shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Computes the gradient of `avg_pool` for its input, of shape `x_shape`."""
    if program.NAME[g.dtype] not in FLOATING:
        return NotImplemented
    return _spread(g, x_shape, (kernel, stride, padding, (1,) * len(kernel)), count_include_pad, divisor_override)


def _spread(g, x_shape, windows, padded, divisor):
    last = lies_last(g)
    g, out = laid(g, last), empty(tuple(x_shape), g.dtype, last)
    if not g.size or not out.size:
        return cupy.zeros(x_shape, g.dtype)
    numbers = np.int32(padded), np.int64(divisor or 0)
    sizes = x_shape[2:], g.shape[2:]
    return _launch("avg_pool_grad", g.dtype, last, windows is None, out, (g, out), *sizes, windows, numbers)


def adaptive_avg_pool(x, output_size):
    """Computes the means of `output_size` windows that evenly cover `x` (N, C, *S)."""
    if program.NAME[x.dtype] not in FLOATING:
        return NotImplemented
    return _means(x, output_size, None, False, None)


def adaptive_avg_pool_grad(g, x_shape):
    """Computes the gradient of `adaptive_avg_pool` for its input, of shape `x_shape`."""
    if program.NAME[g.dtype] not in FLOATING:
        return NotImplemented
    return _spread(g, x_shape, None, False, None)
