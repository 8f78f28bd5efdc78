"""Elementwise kernels: one loop, compiled once for each function of a number (or of two) in the table below.

GELU: x Φ(x) with the normal distribution's Φ (Hendrycks & Gimpel, 2016), or its approximation by tanh.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba import functions, pool
from tensorgrad.kernels.numba.functions import F, compiled

_DENSITY = F(0.3989422804014327)  # 1/√(2π)
_SQRT_2_PI, _CUBIC = F(0.7978845608028654), F(0.044715)


@njit(inline="always", error_model="numpy")
def relu(x):
    """max(x, 0), nan kept."""
    return F(0.0) if x < F(0.0) else x


@njit(inline="always", error_model="numpy")
def relu_grad(g, y):
    """g where y > 0 (or nan), else 0."""
    return F(0.0) if y <= F(0.0) else g


@njit(inline="always", error_model="numpy")
def silu(x):
    """x σ(x)."""
    return x / (F(1.0) + functions.exp(-x))


@njit(inline="always", error_model="numpy")
def silu_grad(g, x):
    """g σ(x) (1 + x (1 - σ(x)))."""
    s = functions.sigmoid(x)
    return g * s * (F(1.0) + x * (F(1.0) - s))


@njit(inline="always", error_model="numpy")
def sigmoid_grad(g, y):
    """g y (1 - y)."""
    return g * (F(1.0) - y) * y


@njit(inline="always", error_model="numpy")
def tanh_grad(g, y):
    """g (1 - y²)."""
    return g * (F(1.0) - y * y)


@njit(inline="always", error_model="numpy")
def gelu(x):
    """x Φ(x)."""
    return x * functions.normal_cdf(x)


@njit(inline="always", error_model="numpy")
def gelu_grad(g, x):
    """g (Φ(x) + x φ(x))."""
    return g * (functions.normal_cdf(x) + x * _DENSITY * functions.exp(F(-0.5) * x * x))


@njit(inline="always", error_model="numpy")
def gelu_tanh(x):
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    return F(0.5) * x * (F(1.0) + functions.tanh(_SQRT_2_PI * (x + _CUBIC * x * x * x)))


@njit(inline="always", error_model="numpy")
def gelu_tanh_grad(g, x):
    """The derivative of `gelu_tanh`, times g."""
    t = functions.tanh(_SQRT_2_PI * (x + _CUBIC * x * x * x))
    slope = (F(1.0) - t * t) * _SQRT_2_PI * (F(1.0) + F(3.0) * _CUBIC * x * x)
    return g * (F(0.5) * (F(1.0) + t) + F(0.5) * x * slope)


# --- the loops -------------------------------------------------------------------------------------------------------


def _loop(function, operands: int):
    """The compiled loop over a range, for a function of one or of two numbers."""
    if operands == 1:

        @compiled("void(float32[::1], float32[::1], int64, int64)")
        def unary(x, out, first, last):
            a, b = x[first:last], out[first:last]  # from 0 on: an index that could be negative makes no vectors
            for i in range(a.size):
                b[i] = function(a[i])

        return unary

    @compiled("void(float32[::1], float32[::1], float32[::1], int64, int64)")
    def binary(x, y, out, first, last):
        a, b, c = x[first:last], y[first:last], out[first:last]
        for i in range(a.size):
            c[i] = function(a[i], b[i])

    return binary


def suits(array: Any) -> bool:
    """Whether a compiled kernel takes this array."""
    return array.__class__ is np.ndarray and array.dtype is F32 and array.flags.c_contiguous


def _elementwise(function, operands: int, cost: int) -> Callable:
    """The kernel of an op: arrays in, a new array (or `out`) back. `cost` is relative to that of an addition."""
    loop = _loop(function, operands)

    def kernel(*arrays, out=None):
        shape = arrays[0].shape
        for array in arrays:
            if not suits(array) or array.shape != shape:
                return NotImplemented
        if out is None:
            out = np.empty(shape, F32)
        elif not suits(out):
            return NotImplemented
        flat = [a.reshape(-1) for a in (*arrays, out)]
        pool.run(loop, out.size, tuple(flat), out.size * cost)
        return out

    return kernel


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
    "relu": partial(_elementwise, relu, 1, 1),
    "silu": partial(_elementwise, silu, 1, 4),
    "relu_grad": partial(_elementwise, relu_grad, 2, 1),
    "silu_grad": partial(_elementwise, silu_grad, 2, 4),
    "sigmoid_grad": partial(_elementwise, sigmoid_grad, 2, 1),
    "tanh_grad": partial(_elementwise, tanh_grad, 2, 1),
    "gelu": partial(_gelu, gelu, gelu_tanh, 1),
    "gelu_grad": partial(_gelu, gelu_grad, gelu_tanh_grad, 2),
}
