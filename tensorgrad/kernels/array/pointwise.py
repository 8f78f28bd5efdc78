"""Pointwise kernels that are more than one function of the array module."""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.array.special import as_float32


def _integers(x) -> bool:
    return x.dtype.kind in "iub"


def div(xp, x, y):
    """True division; integers never reach it (the op turns them into floats first)."""
    with np.errstate(all="ignore"):
        return xp.true_divide(x, y)


def floor_divide(xp, x, y):
    """Floor of the quotient. Raises: RuntimeError (ZeroDivisionError's text) for integers divided by zero."""
    if _integers(x) and xp.any(xp.equal(y, 0)):
        raise RuntimeError("ZeroDivisionError")
    with np.errstate(all="ignore"):
        return xp.floor_divide(x, y)


def trunc_divide(xp, x, y):
    """The quotient rounded towards zero."""
    if _integers(x):
        if xp.any(xp.equal(y, 0)):
            raise RuntimeError("ZeroDivisionError")
        quotient = xp.floor_divide(x, y)
        inexact = xp.logical_and(xp.less(xp.bitwise_xor(x, y), 0), xp.not_equal(xp.multiply(quotient, y), x))
        return xp.add(quotient, inexact.astype(quotient.dtype))
    with np.errstate(all="ignore"):
        return xp.trunc(xp.true_divide(x, y))


def remainder(xp, x, y):
    """Python's modulus: the result has the divisor's sign."""
    if _integers(x) and xp.any(xp.equal(y, 0)):
        raise RuntimeError("ZeroDivisionError")
    with np.errstate(all="ignore"):
        return xp.remainder(x, y)


def fmod(xp, x, y):
    """C's modulus: the result has the dividend's sign."""
    if _integers(x) and xp.any(xp.equal(y, 0)):
        raise RuntimeError("ZeroDivisionError")
    with np.errstate(all="ignore"):
        return xp.fmod(x, y)


def power(xp, x, y):
    """x to the power y, with products for the small exponents that programs use most."""
    if y.__class__ is float or y.__class__ is int:  # a float32 array and a number
        if y == 2:
            return xp.multiply(x, x)
        if y == 0.5:
            return xp.sqrt(x)
        if y == 3:
            return xp.multiply(xp.multiply(x, x), x)
        if y == -1:
            return xp.reciprocal(x)
    elif x.dtype.kind in "iu":
        return _integer_power(xp, x, y)
    elif x.dtype.kind == "b":
        return xp.logical_or(x, xp.logical_not(y))
    if x.dtype.itemsize == 2:
        return as_float32(lambda xp, x, y: xp.power(x, y), xp, x, y)
    with np.errstate(all="ignore"):
        return xp.power(x, y)


def _integer_power(xp, x, y):
    """Negative exponents of integers: 1 and -1 keep their value, everything else is 0 (PyTorch's rule)."""
    if not xp.any(xp.less(y, 0)):
        return xp.power(x, y)
    result = xp.power(x, xp.maximum(y, xp.zeros_like(y)))
    odd = xp.bitwise_and(y, xp.ones_like(y)) == 1
    negative = xp.where(x == 1, x, xp.where(x == -1, xp.where(odd, x, -x), xp.zeros_like(x)))
    return xp.where(xp.less(y, 0), negative, result)


def sign(xp, x):
    """-1, 0 or 1; for a complex number its direction (sgn)."""
    if x.dtype.kind == "c":
        size = xp.abs(x)
        with np.errstate(all="ignore"):
            return xp.where(size == 0, xp.zeros_like(x), x / xp.where(size == 0, xp.ones_like(size), size))
    if x.dtype.kind == "b":
        return x.copy()
    return xp.where(xp.isnan(x), xp.zeros_like(x), xp.sign(x)) if x.dtype.kind == "f" else xp.sign(x)


def absolute(xp, x):
    """The size of a number; real for complex input."""
    return xp.absolute(x)


def reciprocal(xp, x):
    """1 / x."""
    with np.errstate(all="ignore"):
        return xp.true_divide(x.dtype.type(1), x)


def rsqrt(xp, x):
    """1 / sqrt(x)."""
    if x.dtype.itemsize == 2:
        return as_float32(rsqrt, xp, x)
    with np.errstate(all="ignore"):
        root = xp.sqrt(x)
        return xp.true_divide(x.dtype.type(1), root)


def round_decimals(xp, x, decimals):
    """Rounded half to even at a decimal place."""
    if decimals == 0 or _integers(x):
        return xp.rint(x) if not _integers(x) else x.copy()
    scale = x.dtype.type(10.0 ** abs(decimals))
    with np.errstate(all="ignore"):
        return xp.rint(x * scale) / scale if decimals > 0 else xp.rint(x / scale) * scale


def positive_copy(xp, x):
    """A copy: what floor, ceil, trunc and round are for integers."""
    return xp.array(x)


def whole(name):
    """`floor`, `ceil`, `trunc` or `rint`, leaving integers as they are."""

    def kernel(xp, x):
        return x.copy() if _integers(x) else getattr(xp, name)(x)

    return kernel


def frac(xp, x):
    """The part after the point, with the sign of x."""
    return xp.subtract(x, xp.trunc(x))


def clamp(xp, x, low, high):
    """x limited to [low, high] (either may be None); nan stays nan, and the upper limit wins."""
    if low is not None:
        x = xp.maximum(x, low)
    if high is not None:
        x = xp.minimum(x, high)
    return x


def where(xp, condition, x, y):
    """x where the condition holds, else y."""
    return xp.where(condition, x, y)


def signbit(xp, x):
    """Whether the sign is negative, minus zero included."""
    return xp.signbit(x) if x.dtype.kind == "f" else xp.less(x, 0)


def isnan(xp, x):
    """Whether an element is not a number."""
    return xp.zeros(x.shape, bool) if _integers(x) else xp.isnan(x)


def isinf(xp, x):
    """Whether an element is infinite."""
    return xp.zeros(x.shape, bool) if _integers(x) else xp.isinf(x)


def isfinite(xp, x):
    """Whether an element is neither infinite nor nan."""
    return xp.ones(x.shape, bool) if _integers(x) else xp.isfinite(x)


def nan_to_num(xp, x, nan, posinf, neginf):
    """nan and infinities replaced by numbers."""
    if _integers(x):
        return x.copy()
    return xp.nan_to_num(x, copy=True, nan=nan, posinf=posinf, neginf=neginf).astype(x.dtype, copy=False)


def neg(xp, x):
    """-x. Raises: RuntimeError for booleans."""
    if x.dtype.kind == "b":
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead."
        )
    return xp.negative(x)


def bitwise_not(xp, x):
    """Every bit inverted; logical not for booleans."""
    return xp.invert(x)


def logical(name):
    """`logical_and` and its like on any dtype."""

    def kernel(xp, x, y):
        return getattr(xp, name)(x != 0, y != 0)

    return kernel


def angle(xp, x):
    """The argument of a complex number; for real ones 0 or pi, nan for nan."""
    if x.dtype.kind == "c":
        return xp.arctan2(x.imag, x.real)
    return xp.where(xp.isnan(x), x, xp.where(x < 0, x.dtype.type(np.pi), x.dtype.type(0)))


def complex_log(name):
    """log2 and log10, which NumPy has for complex numbers only by dividing the logarithm."""
    base = {"log2": np.log(2), "log10": np.log(10)}[name]

    def kernel(xp, x):
        if x.dtype.kind == "c":
            return (xp.log(x) / base).astype(x.dtype)
        return getattr(xp, name)(x)

    return kernel
