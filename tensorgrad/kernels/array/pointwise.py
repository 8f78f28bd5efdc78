"""Pointwise kernels that take more than one function of the array module.

A dtype that an op does not support raises TypeError, which the dispatcher converts to PyTorch's message.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.dtypes import F32, from_numpy_dtype
from tensorgrad.kernels.array import activation, special
from tensorgrad.kernels.array.lanes import BLOCK, by_blocks
from tensorgrad.kernels.array.special import as_float32
from tensorgrad.system.float_errors import ignored

_SMALL = 1024  # elements up to which the number of calls dominates
_ZERO, _ONE = np.zeros((), np.float32), np.ones((), np.float32)  # NumPy takes an array faster than a Python number
_LARGE = 4096  # elements from which NumPy's clip beats maximum and minimum with a number


def _integers(x) -> bool:
    return x.dtype.kind in "iub"


def _refuse(x, kinds: str) -> None:
    if x.dtype.kind in kinds:
        raise TypeError(f"no meaning for {x.dtype}")


def _two_byte_float(x) -> bool:
    return x.dtype.itemsize == 2 and x.dtype.kind in "fV"


# --- division ------------------------------------------------------------------------------------------------------


def _check_divisor(xp, x, y) -> None:
    _refuse(x, "bc")
    if _integers(x) and x.size and xp.any(xp.equal(y, 0)):
        raise RuntimeError("ZeroDivisionError")


def floor_divide(xp, x, y):
    """Floor of the quotient. Raises: RuntimeError (with ZeroDivisionError's text) for integers divided by zero."""
    _check_divisor(xp, x, y)
    with ignored():
        return xp.floor_divide(x, y)


def trunc_divide(xp, x, y):
    """The quotient rounded towards zero. Raises: RuntimeError for integers divided by zero."""
    _check_divisor(xp, x, y)
    if _integers(x):
        quotient = xp.floor_divide(x, y)
        inexact = xp.logical_and(xp.less(xp.bitwise_xor(x, y), 0), xp.not_equal(xp.multiply(quotient, y), x))
        return xp.add(quotient, inexact.astype(quotient.dtype))
    if _two_byte_float(x) and y.dtype == F32:  # by a number
        return as_float32(trunc_divide, xp, x, y)
    with ignored():
        return xp.trunc(xp.true_divide(x, y))


def remainder(xp, x, y):
    """Python's modulus: the result has the divisor's sign, but a zero has the dividend's, as in PyTorch.

    Raises: RuntimeError for integers modulo zero.
    """
    _check_divisor(xp, x, y)
    with ignored():
        rest = xp.remainder(x, y)
        if _integers(rest) or (zero := rest == 0).sum() == 0:
            return rest
        return xp.where(zero, xp.copysign(rest, x), rest)


def fmod(xp, x, y):
    """C's modulus: the result has the dividend's sign. Raises: RuntimeError for integers modulo zero."""
    _check_divisor(xp, x, y)
    with ignored():
        return xp.fmod(x, y)


def subtract_from(xp, x, y):
    """y - x."""
    return xp.subtract(y, x)


def divide_into(xp, x, y):
    """y / x, as the product of y and 1 / x, which is rounded, as in PyTorch."""
    if x.dtype.kind == "c":  # 1 / 0 would be nan
        return xp.true_divide(y, x)
    with ignored():
        return xp.multiply(xp.reciprocal(x), y)


def add_scaled(xp, x, y, factor):
    """x + factor · y. Of half precision are the operands, the factor and the result."""
    if _two_byte_float(x):
        factor = np.float32(x.dtype.type(factor))
        return by_blocks(xp, lambda x, y: x + factor * y, lambda rounded, x, y: x + rounded(factor * y), x, y)
    return xp.add(x, xp.multiply(y, _number(x, factor)))


def gcd(xp, x, y):
    """The greatest common divisor of integers."""
    _refuse(x, "b")
    return xp.gcd(x, y)


def lcm(xp, x, y):
    """The least common multiple of integers."""
    _refuse(x, "b")
    found = xp.lcm(x, y)  # may have overflowed; the shorter ones PyTorch computes in int32
    return xp.abs(found) if x.dtype.kind == "i" and x.dtype.itemsize >= 4 else found


# --- powers --------------------------------------------------------------------------------------------------------


def power(xp, x, y):
    """x to the power y, with products for the small exponents that programs use most."""
    if y.__class__ is float or y.__class__ is int:  # a float array and a scalar
        if y == 2:
            return xp.multiply(x, x)
        if y == 0.5:
            return xp.sqrt(x)
        if y == 3:
            square = xp.multiply(x, x)
            return xp.multiply(square, x, out=square if square.ndim else None)
        if y == -1:
            return xp.reciprocal(x)
        if y == -0.5 and x.dtype.kind == "f" and x.dtype.itemsize > 2:
            with ignored():
                return xp.reciprocal(xp.sqrt(x))  # of a negative zero, unlike power, -inf
    elif _integers(x):
        _refuse(x, "b")
        return _integer_power(xp, x, y)
    if _two_byte_float(x):
        half = x.dtype.kind == "f" and abs(y) == 0.5 if not y.shape else True  # the roots that PyTorch computes by pow
        if x.dtype.kind == "V" and not y.shape and y in (3, -2):  # bfloat16 is rounded after each step
            square = xp.multiply(x, x)
            return xp.multiply(square, x) if y == 3 else xp.reciprocal(square)
        if x.dtype.kind == "V" and not y.shape and y == -0.5:
            return by_blocks(xp, _rsqrt, _rsqrt_by_steps, x, block=2 * BLOCK)
        if not half:  # a scalar; arrays of these dtypes can represent it only so
            return as_float32(lambda xp, x: power(xp, x, float(y)), xp, x)
        return as_float32(power, xp, x, y)
    with ignored():
        if xp is np and x.dtype.kind == "f" and y.__class__ is np.ndarray and _is_root(x, y):
            # Of many numbers with the exponent 0.5 NumPy takes the square root: -0 of -0 and nan of -inf, where a power
            # is 0 and inf. It does not when each has an exponent of its own in memory.
            shape = x.shape if y.size == 1 and y.ndim <= x.ndim else np.broadcast_shapes(x.shape, y.shape)
            own = np.empty(shape or (1,), y.dtype)
            own[...] = y
            return np.power(x, own).reshape(shape)
        return xp.power(x, y)


def _is_root(x, y) -> bool:
    """Whether one of the exponents is 0.5, and NumPy may use it for several numbers."""
    if y.size == 1:
        return y.item() == 0.5
    return (y.shape != x.shape or 0 in y.strides) and bool((y == 0.5).any())


def power_of(xp, x, y):
    """y to the power x."""
    return power(xp, y if y.__class__ is not float and y.__class__ is not int else x.dtype.type(y), x)


def _integer_power(xp, x, y):
    """Negative exponents of integers: 1 and -1 keep their value, everything else gives 0 (PyTorch's rule)."""
    if not xp.any(xp.less(y, 0)):
        return xp.power(x, y)
    result = xp.power(x, xp.maximum(y, xp.zeros_like(y)))
    odd = xp.bitwise_and(y, xp.ones_like(y)) == 1
    negative = xp.where(x == 1, x, xp.where(x == -1, xp.where(odd, x, -x), xp.zeros_like(x)))
    return xp.where(xp.less(y, 0), negative, result)


def left_shift(xp, x, y):
    """x · 2 ** y for integers. (NumPy would shift booleans too.)"""
    _refuse(x if hasattr(x, "dtype") else y, "b")
    return xp.left_shift(x, y)


def right_shift(xp, x, y):
    """x / 2 ** y for integers, rounded down."""
    _refuse(x if hasattr(x, "dtype") else y, "b")
    return xp.right_shift(x, y)


def rsqrt(xp, x):
    """1 / sqrt(x)."""
    if _two_byte_float(x):
        return by_blocks(xp, _rsqrt, _rsqrt_by_steps, x)
    with ignored():
        return xp.reciprocal(xp.sqrt(x))


def _rsqrt(x):
    return 1 / np.sqrt(x)


def _rsqrt_by_steps(rounded, x):
    return 1 / rounded(np.sqrt(x))


def scaled(xp, x, factor):
    """x · factor, a number."""
    if _two_byte_float(x):
        return as_float32(scaled, xp, x, factor=np.float32(factor))
    return xp.multiply(x, x.dtype.type(factor))


def addcmul(xp, x, y, z, value):
    """x + value · y · z."""
    _refuse(x, "b")
    if _two_byte_float(x):  # multiplied from the left, and the last product is added in one rounding
        return as_float32(lambda xp, x, y, z: _fused(x, y * np.float32(value), z), xp, x, y, z)
    product = xp.multiply(y, z)
    if value != 1 or product.dtype.kind == "b":
        product = xp.multiply(product, _number(x, value))
    return xp.add(x, product)


def addcdiv(xp, x, y, z, value):
    """x + value · y / z. Raises: RuntimeError for integers, whose division PyTorch used to round here."""
    if _integers(x):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a "
            "true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value "
            "* torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / "
            "tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: (input + value "
            "* tensor1 / tensor2), for all dtypes."
        )
    if _two_byte_float(x):
        return as_float32(lambda xp, x, y, z: x + y * np.float32(value) / z, xp, x, y, z)
    quotient = xp.true_divide(y, z)
    return xp.add(x, quotient if value == 1 else xp.multiply(quotient, _number(x, value)))


def _fused(x, y, z):
    """x + y · z of float32, rounded once."""
    return (x + y.astype(np.float64) * z).astype(np.float32)


def _lerp_of_half(xp, x, end, weight):
    span = end - x
    return xp.where(xp.abs(weight) < 0.5, _fused(x, span, weight), _fused(end, -span, np.float32(1) - weight))


def lerp(xp, x, end, weight):
    """x + weight · (end - x), from the nearer end, so that weight 1 gives `end` exactly."""
    _refuse(x, "iub")
    if _two_byte_float(x):
        return as_float32(_lerp_of_half, xp, x, end, weight)
    span = xp.subtract(end, x)
    return xp.where(xp.abs(weight) < 0.5, x + weight * span, end - span * (1 - weight))


def lerp_by_number(xp, x, end, weight):
    """`lerp` with a Python scalar as weight."""
    if _two_byte_float(x):
        return as_float32(_lerp_of_half, xp, x, end, weight=np.float32(weight))
    span = xp.subtract(end, x)
    if x.dtype.kind == "f":
        weight = x.dtype.type(weight)  # so that 1 - weight is rounded, too
    return xp.add(x, span * weight) if abs(weight) < 0.5 else xp.subtract(end, span * (1 - weight))


def _number(x, value):
    """Returns a scalar as an operand for `x`: NumPy itself keeps the dtype of floats and complex numbers only."""
    return value if x.dtype.kind in "fc" else x.dtype.type(value)


# --- sign and absolute value -----------------------------------------------------------------------------------------


def sign(xp, x):
    """-1, 0 or 1; 0 for nan."""
    if x.dtype.kind == "c":
        raise NotImplementedError(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."
        )
    if x.dtype.kind == "b":
        return xp.array(x)
    return xp.subtract(xp.greater(x, 0), xp.less(x, 0), dtype=x.dtype)


def sgn(xp, x):
    """The direction of a complex number, 0 for 0; the sign of a real one."""
    if x.dtype.kind != "c":
        return sign(xp, x)
    size = xp.abs(x)
    with ignored():
        return xp.where(size == 0, xp.zeros_like(x), x / xp.where(size == 0, xp.ones_like(size), size))


def signbit(xp, x):
    """Whether the sign is negative, including for minus zero."""
    if x.dtype.kind == "c":
        raise NotImplementedError("signbit is not implemented for complex tensors.")
    return xp.less(x, 0) if _integers(x) else xp.signbit(x)


def heaviside(xp, x, values):
    """0 below 0, 1 above, `values` at 0."""
    _refuse(x, "c")
    return xp.where(x == 0, values, xp.greater(x, 0).astype(x.dtype))


# --- rounding ------------------------------------------------------------------------------------------------------


def _whole(name: str):
    """Makes a kernel that leaves integers unchanged."""

    def kernel(xp, x):
        _refuse(x, "bc")
        return xp.array(x) if _integers(x) else getattr(xp, name)(x)

    return kernel


floor, ceil, trunc = _whole("floor"), _whole("ceil"), _whole("trunc")


def round_decimals(xp, x, decimals):
    """Rounds half to even at a decimal place."""
    _refuse(x, "bc" if decimals == 0 else "biuc")
    if _integers(x):
        return xp.array(x)
    if decimals == 0:
        return xp.rint(x)
    if _two_byte_float(x):
        return as_float32(lambda xp, x: round_decimals(xp, x, decimals), xp, x)
    scale = x.dtype.type(10.0 ** abs(decimals))
    with ignored():
        return xp.rint(x * scale) / scale if decimals > 0 else xp.rint(x / scale) * scale


def frac(xp, x):
    """The fractional part, with the sign of x."""
    _refuse(x, "biuc")
    return xp.subtract(x, xp.trunc(x))


# --- limits --------------------------------------------------------------------------------------------------------


def maximum(xp, x, y):
    """The larger of two numbers; nan if either is."""
    if x.dtype.kind == "c":
        raise RuntimeError("maximum not implemented for complex tensors.")
    return xp.maximum(x, y)


def minimum(xp, x, y):
    """The smaller of two numbers; nan if either is."""
    if x.dtype.kind == "c":
        raise RuntimeError("minimum not implemented for complex tensors.")
    return xp.minimum(x, y)


def fmax(xp, x, y):
    """The larger of two numbers; the other one if one is nan."""
    _refuse(x, "c")
    return xp.fmax(y, x)  # of a zero and a negative zero PyTorch takes the first, the processor's max the second


def fmin(xp, x, y):
    """The smaller of two numbers; the other one if one is nan."""
    _refuse(x, "c")
    return xp.fmin(y, x)


def clamp(xp, x, low, high):
    """x limited to [low, high] (scalars; either may be None); nan is kept, and the upper limit takes precedence."""
    if (x.size < _LARGE and x.dtype.itemsize > 2) or x.dtype.kind != "f":
        if x.dtype.kind == "V":  # bfloat16 does not support Python scalars
            low, high = (None if v is None else x.dtype.type(v) for v in (low, high))
        if low is not None:  # the limit first: of equal zeros the second is taken, which must be that of x
            x = xp.maximum(low, x)
        return x if high is None else xp.minimum(high, x)
    return xp.clip(x, -np.inf if low is None else low, np.inf if high is None else high)


def clamp_between(xp, x, low, high):
    """x limited to [low, high], arrays that broadcast; the upper limit takes precedence."""
    _refuse(x, "bc")
    return xp.minimum(xp.maximum(x, low), high)


def clamp_grad(xp, g, x, low, high):
    """Gradient of `clamp`: `g` within the limits, 0 outside and at nan."""
    if low is None:
        inside = xp.less_equal(x, high)
    elif high is None:
        inside = xp.greater_equal(x, low)
    else:
        inside = xp.logical_and(xp.greater_equal(x, low), xp.less_equal(x, high))
    return activation.clear_where(xp, xp.logical_not(inside), g)


def nan_to_num(xp, x, nan, posinf, neginf):
    """Replaces nan and infinities by numbers (in either part of complex numbers)."""
    if _integers(x):
        return xp.array(x)
    if x.dtype.kind == "c":
        parts = [nan_to_num(xp, part, nan, posinf, neginf) for part in (x.real, x.imag)]
        return join_parts(xp, *parts)
    number = x.dtype.type
    x = xp.where(xp.isnan(x), number(nan), x)
    x = xp.where(x == np.inf, number(posinf), x)
    return xp.where(x == -np.inf, number(neginf), x)


# --- comparisons and selection ---------------------------------------------------------------------------------------


def lt(xp, x, y):
    """x < y."""
    if x.dtype.kind == "c":
        raise TypeError("complex numbers have no order")
    return xp.less(x, y)


def le(xp, x, y):
    """x <= y."""
    if x.dtype.kind == "c":
        raise TypeError("complex numbers have no order")
    return xp.less_equal(x, y)


def gt(xp, x, y):
    """x > y."""
    if x.dtype.kind == "c":
        raise TypeError("complex numbers have no order")
    return xp.greater(x, y)


def ge(xp, x, y):
    """x >= y."""
    if x.dtype.kind == "c":
        raise TypeError("complex numbers have no order")
    return xp.greater_equal(x, y)


def isnan(xp, x):
    """Whether an element is not a number."""
    return xp.zeros(x.shape, bool) if _integers(x) else xp.isnan(x)


def isinf(xp, x):
    """Whether an element is infinite."""
    return xp.zeros(x.shape, bool) if _integers(x) else xp.isinf(x)


def isfinite(xp, x):
    """Whether an element is neither infinite nor nan."""
    return xp.ones(x.shape, bool) if _integers(x) else xp.isfinite(x)


def where(xp, condition, x, y):
    """x where the condition is true, else y."""
    return xp.where(condition, x, y)


def masked_fill(xp, x, mask, value):
    """x with a scalar where the mask is true."""
    if value == 0 and x.dtype.kind == "f" and mask.shape == x.shape and math.copysign(1, value) > 0:
        return activation.clear_where(xp, mask, x)
    with ignored():
        return xp.where(mask, np.asarray(value).astype(x.dtype) if xp is np else x.dtype.type(value), x)


# --- complex numbers -----------------------------------------------------------------------------------------------


def angle(xp, x):
    """The argument of a complex number; for real ones 0 or pi, nan for nan."""
    if x.dtype.kind == "c":
        return xp.arctan2(x.imag, x.real)
    number = x.dtype.type
    return xp.where(xp.isnan(x), x, xp.where(x < 0, number(np.pi), number(0)))


def join_parts(xp, real, imag):
    """real + i imag, exact for infinities and nan, unlike a product with i."""
    shape = np.broadcast_shapes(real.shape, imag.shape)
    kind = from_numpy_dtype(real.dtype).to_complex().numpy
    out = xp.empty(shape, kind)
    pairs = as_real(xp, out)
    pairs[..., 0], pairs[..., 1] = real, imag
    return out


def real_part(xp, x):
    """A view of the real parts."""
    return as_real(xp, x)[..., 0] if x.dtype.kind == "W" else x.real


def imaginary_part(xp, x):
    """A view of the imaginary parts."""
    return as_real(xp, x)[..., 1] if x.dtype.kind == "W" else x.imag


def as_real(xp, x):
    """Views complex numbers as pairs in an additional last dimension."""
    return x[..., None].view(from_numpy_dtype(x.dtype).to_real().numpy)


def as_complex(xp, x):
    """Views the pairs in the last dimension as complex numbers."""
    return x.view(from_numpy_dtype(x.dtype).to_complex().numpy)[..., 0]


# --- sigmoid and tanh, which also take complex arguments -------------------------------------------------------------


def sigmoid(xp, x):
    """1 / (1 + exp(-x))."""
    if x.dtype is F32 and x.size < _SMALL and xp is np:
        return xp.reciprocal(xp.add(xp.exp(xp.negative(x)), _ONE))
    if x.dtype.kind == "c":
        with ignored():
            return xp.reciprocal(xp.exp(-x) + 1)
    return special.expit(xp, x)


def relu(xp, x):
    """max(x, 0); nan is kept. Raises: RuntimeError for booleans."""
    if x.dtype is F32 and x.size < 4 * _LARGE and xp is np:
        return xp.maximum(_ZERO, x)  # x second: of equal zeros the second is taken, as in PyTorch
    if x.dtype.kind == "b":
        raise RuntimeError("Boolean inputs not supported for relu")
    _refuse(x, "c")
    return activation.relu(xp, x)


def sigmoid_grad(xp, g, out):
    """Gradient of `sigmoid` from its output: g · conj(y (1 - y))."""
    if out.dtype.kind == "c":
        return g * xp.conj(out * (1 - out))
    return activation.sigmoid_grad(xp, g, out)


def tanh_grad(xp, g, out):
    """Gradient of `tanh` from its output: g · conj(1 - y²)."""
    if out.dtype.kind == "c":
        return g * xp.conj(1 - out * out)
    return activation.tanh_grad(xp, g, out)


# --- shrinking -----------------------------------------------------------------------------------------------------


def hardshrink(xp, x, limit):
    """x, but 0 within [-limit, limit]."""
    return activation.clear_where(xp, _within(xp, x, limit), x)


def softshrink(xp, x, limit):
    """x moved towards 0 by the limit; 0 within it."""
    if _two_byte_float(x):
        return as_float32(softshrink, xp, x, limit=limit)
    moved = xp.subtract(x, xp.copysign(x.dtype.type(limit), x))
    return activation.clear_where(xp, _within(xp, x, limit), moved)


def _within(xp, x, limit):
    return xp.logical_and(xp.greater_equal(x, -limit), xp.less_equal(x, limit))


# --- functions of floats that NumPy would also apply to integers, in float64 -----------------------------------------


def _floats_only(name: str):
    """Makes a kernel of two arrays that does not support integers."""

    def kernel(xp, x, y):
        _refuse(x, "biu")
        return getattr(xp, name)(x, y)

    return kernel


hypot, nextafter = _floats_only("hypot"), _floats_only("nextafter")


def logaddexp(xp, x, y, base=math.e):
    """log(exp x + exp y) without overflow, in base e or 2."""
    _refuse(x, "biu")
    if x.dtype.kind != "c":
        return xp.logaddexp(x, y) if base == math.e else xp.logaddexp2(x, y)
    with ignored():  # factors out the exponential of the one with the larger real part
        swap = xp.logical_or(x.real < y.real, xp.isnan(y.real))
        big, small = xp.where(swap, y, x), xp.where(swap, x, y)
        result = big + xp.log1p(xp.exp(small - big))
        same = xp.logical_and(big == small, xp.isinf(big.real))
        return xp.where(xp.logical_and(same, big.real < 0), big, result).astype(x.dtype)


def xlogy(xp, x, y):
    """x log y, 0 where x is 0 (unless y is nan)."""
    return special.xlogy(xp, *_two_arrays(xp, x, y))


def xlog1py(xp, x, y):
    """x log(1 + y), 0 where x is 0 (unless y is nan)."""
    return special.xlog1py(xp, *_two_arrays(xp, x, y))


def zeta(xp, x, q):
    """Hurwitz zeta function."""
    return special.zeta(xp, *_two_arrays(xp, x, q))


def _two_arrays(xp, x, y):
    """Returns both operands as arrays: one may be a Python scalar, which NumPy functions would take as float64."""
    dtype = (x if hasattr(x, "dtype") else y).dtype
    if dtype.kind == "c":
        raise TypeError("only for real numbers")
    return (v if hasattr(v, "dtype") else xp.asarray(v, dtype) for v in (x, y))


def polygamma(xp, x, n):
    """The n-th derivative of digamma."""
    return special.polygamma(xp, n, x)
