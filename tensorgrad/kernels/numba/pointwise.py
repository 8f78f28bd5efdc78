"""Elementwise kernels: one loop, compiled once for each scalar function of one or two arguments in the table below.

GELU: x Φ(x) with the normal distribution's Φ (Hendrycks & Gimpel, 2016), or its tanh approximation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba import functions, layout
from tensorgrad.kernels.numba.functions import F
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.language import inlined, inner
from tensorgrad.kernels.numba.runtime.launch import shared

_DENSITY = F(0.3989422804014327)  # 1/√(2π)
_SQRT_2_PI, _CUBIC = F(0.7978845608028654), F(0.044715)


@inlined
def relu(x):
    """max(x, 0), nan kept."""
    return F(0.0) if x < F(0.0) else x


@inlined
def relu_grad(g, y):
    """g where y > 0 (or nan), else 0."""
    return F(0.0) if y <= F(0.0) else g


@inlined
def silu(x):
    """x σ(x)."""
    return x / (F(1.0) + functions.exp_to_add(-x))


@inlined
def silu_grad(g, x):
    """g σ(x) (1 + x (1 - σ(x)))."""
    s = functions.sigmoid(x)
    return g * s * (F(1.0) + x * (F(1.0) - s))


@inlined
def sigmoid_grad(g, y):
    """g y (1 - y)."""
    return g * (F(1.0) - y) * y


@inlined
def tanh_grad(g, y):
    """g (1 - y²)."""
    return g * (F(1.0) - y * y)


@inlined
def gelu(x):
    """x Φ(x)."""
    return x * functions.normal_cdf(x, functions.exp_below(F(-0.5) * x * x))


@inlined
def gelu_grad(g, x):
    """g (Φ(x) + x φ(x))."""
    density = functions.exp_below(F(-0.5) * x * x)
    return g * (functions.normal_cdf(x, density) + x * _DENSITY * density)


@inlined
def gelu_tanh(x):
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    return F(0.5) * x * (F(1.0) + functions.tanh(_SQRT_2_PI * (x + _CUBIC * x * x * x)))


@inlined
def gelu_tanh_grad(g, x):
    """The derivative of `gelu_tanh`, times g."""
    t = functions.tanh(_SQRT_2_PI * (x + _CUBIC * x * x * x))
    slope = (F(1.0) - t * t) * _SQRT_2_PI * (F(1.0) + F(3.0) * _CUBIC * x * x)
    return g * (F(0.5) * (F(1.0) + t) + F(0.5) * x * slope)


# --- the loops -------------------------------------------------------------------------------------------------------


def _loop(function, operands: int):
    """Makes the compiled loop over a range, for a scalar function of one or two arguments.

    Each array consists of rows of `length` elements, with its own step from row to row (0 if all are one row).
    """
    if operands == 1:

        @inner(fastmath={"contract"})
        def from_to(a, b):
            for i in range(a.size):
                b[i] = function(a[i])

        @inner(fastmath={"contract"})
        def in_place(b):
            for i in range(b.size):
                b[i] = function(b[i])

        @shared("void(float32[::1], float32[::1], int64, int64, int64, int64)")
        def unary(x, out, length, step, first, last):
            # Slices that count from 0: an index that could be negative is not vectorized, nor are arrays that may be
            # the same.
            if x.ctypes.data == out.ctypes.data:
                in_place(out[first:last])
                return
            at, column = first, first % length
            p = first // length * step + column
            while at < last:
                n = min(length - column, last - at)
                from_to(x[p : p + n], out[at : at + n])
                at, p, column = at + n, p - column + step, 0

        return unary

    @inner(fastmath={"contract"})
    def from_two(a, b, c):
        for i in range(a.size):
            c[i] = function(a[i], b[i])

    @shared("void(float32[::1], float32[::1], float32[::1], int64, int64, int64, int64, int64)")
    def binary(x, y, out, length, x_step, y_step, first, last):
        at, column = first, first % length
        p, q = first // length * x_step + column, first // length * y_step + column
        while at < last:
            n = min(length - column, last - at)
            from_two(x[p : p + n], y[q : q + n], out[at : at + n])
            at, p, q, column = at + n, p - column + x_step, q - column + y_step, 0

    return binary


def suits(array: Any) -> bool:
    """Returns whether a compiled kernel supports this array."""
    return array.__class__ is np.ndarray and array.dtype is F32 and array.flags.c_contiguous


def _elementwise(function, operands: int, cost: float) -> Callable:
    """Makes an op's kernel: arrays in, a new array (or `out`) back. `cost` is relative to that of an addition."""
    loop = _loop(function, operands)
    if operands == 1:
        return partial(_apply, loop, cost)

    def kernel(x, y):
        shape = x.shape
        if y.__class__ is not np.ndarray or y.shape != shape or x.dtype is not F32 or y.dtype is not F32:
            return NotImplemented
        if x.flags.c_contiguous and y.flags.c_contiguous:
            a, b, length, a_step, b_step = x.reshape(-1), y.reshape(-1), x.size or 1, 0, 0
        else:
            spaced = layout.spaced((x, y))
            if spaced is None:
                return NotImplemented
            (a, b), length, (a_step, b_step) = spaced
        out = np.empty(x.size, F32)
        thread_pool.run(loop, out.size, (a, b, out, length, a_step, b_step), int(out.size * cost))
        return out.reshape(shape)

    return kernel


def _apply(loop, cost: float, x, out=None):
    """Runs `loop` on each element of x. (Arrays of a few thousand elements reach this: each NumPy call matters.)"""
    if x.__class__ is not np.ndarray or x.dtype is not F32:
        return NotImplemented
    n = x.size
    if x.flags.c_contiguous:
        given, length, step = x if x.ndim == 1 else x.reshape(-1), n or 1, 0
    else:
        spaced = layout.spaced((x,)) if out is None else None
        if spaced is None:
            return NotImplemented
        (given,), length, (step,) = spaced
    if out is None:
        flat = np.empty(n, F32)
        made = flat if x.ndim == 1 else flat.reshape(x.shape)
    elif not suits(out) or out.shape != x.shape or (out is not x and np.may_share_memory(x, out)):
        return NotImplemented
    else:
        flat, made = out.reshape(-1), out
    thread_pool.run(loop, n, (given, flat, length, step), int(n * cost))
    return made


def _gelu(exact, approximate, operands: int) -> Callable:
    kernels = {
        "none": _elementwise(exact, operands, 8),
        "tanh": _elementwise(approximate, operands, 8),
    }

    def kernel(*given):
        *arrays, form = given
        return kernels[form](*arrays) if form in kernels else NotImplemented

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "exp": partial(_elementwise, functions.exp, 1, 4),
    "tanh": partial(_elementwise, functions.tanh, 1, 6),
    "sigmoid": partial(_elementwise, functions.sigmoid, 1, 4),
    "erf": partial(_elementwise, functions.erf, 1, 6),
    "relu": partial(_elementwise, relu, 1, 0.5),
    "silu": partial(_elementwise, silu, 1, 4),
    "relu_grad": partial(_elementwise, relu_grad, 2, 0.75),
    "silu_grad": partial(_elementwise, silu_grad, 2, 4),
    "sigmoid_grad": partial(_elementwise, sigmoid_grad, 2, 0.75),
    "tanh_grad": partial(_elementwise, tanh_grad, 2, 0.75),
    "gelu": partial(_gelu, gelu, gelu_tanh, 1),
    "gelu_grad": partial(_gelu, gelu_grad, gelu_tanh_grad, 2),
}
