"""Elementwise kernels: one loop, compiled once for each scalar function of one or two arguments in the table below.

GELU: x Φ(x) with the normal distribution's Φ (Hendrycks & Gimpel, 2016), or its tanh approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import functions, functions_avx512, walk
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inlined
from tensorgrad.storage.fresh import fresh

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
    return x / functions.exp_and_one(-x)


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
    return x * functions.normal_cdf(x, functions.bell(x))


@inlined
def gelu_grad(g, x):
    """g (Φ(x) + x φ(x))."""
    density = functions.bell(x)
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


@inlined
def within(x, limits):
    """x limited to [low, high]; nan kept, and the upper limit takes precedence."""
    low, high = limits
    y = low if x < low else x
    return high if y > high else y


# --- the kernels -----------------------------------------------------------------------------------------------------


def _elementwise(function, operands: int, cost: float, each: Callable | None = None) -> Callable:
    """Makes an op's kernel: arrays in, a new array (or `out`) back. `cost` is relative to that of an addition.

    `each`: a faster way for adjacent elements (walk.loop_of_one).
    """
    if operands == 2:
        return walk.joint(function, cost)
    return partial(_apply, walk.loop_of_one(function, each=each), cost, ())


def _apply(loop, cost: float, options: tuple, x, out=None):
    """Runs `loop` on each element of x. (Arrays of a few thousand elements reach this: each NumPy call matters.)"""
    if x.__class__ is not np.ndarray or x.dtype is not F32:
        return NotImplemented
    n, back = x.size, None
    if x.flags.c_contiguous:
        numbers, shape = (n or 1, 1, 0, 0, 1), x.shape
    else:
        planned = walk.alone(x.shape, x.strides) if out is None else None
        if planned is None:
            return NotImplemented
        numbers, shape, back = planned
    if out is None:
        flat = fresh(n, F32)
        made = flat if len(shape) == 1 else flat.reshape(shape)
    elif not suits(out) or out.shape != x.shape or (out is not x and np.may_share_memory(x, out)):
        return NotImplemented
    else:
        flat, made = out.reshape(-1), out
    thread_pool.run(loop, n, (x, flat, numbers, options), int(n * cost))
    return made if back is None else made.transpose(back)


def _clamp() -> Callable:
    loop = walk.loop_of_one(within, 2)

    def kernel(x, low, high):
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        if low != low or high != high:  # then the result is nan, whatever x is
            return NotImplemented
        return _apply(loop, 0.5, (low, high), x)

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
    "exp": partial(_elementwise, functions.exp, 1, 4, functions_avx512.exp),
    "tanh": partial(_elementwise, functions.tanh, 1, 6),
    "sigmoid": partial(_elementwise, functions.sigmoid, 1, 4),
    "erf": partial(_elementwise, functions.erf, 1, 6),
    "relu": partial(_elementwise, relu, 1, 0.5),
    "clamp": _clamp,
    "silu": partial(_elementwise, silu, 1, 4),
    "relu_grad": partial(_elementwise, relu_grad, 2, 0.75),
    "silu_grad": partial(_elementwise, silu_grad, 2, 4),
    "sigmoid_grad": partial(_elementwise, sigmoid_grad, 2, 0.75),
    "tanh_grad": partial(_elementwise, tanh_grad, 2, 0.75),
    "gelu": partial(_gelu, gelu, gelu_tanh, 1),
    "gelu_grad": partial(_gelu, gelu_grad, gelu_tanh_grad, 2),
}
