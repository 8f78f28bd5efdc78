"""Elementwise arithmetic: sums, products, powers, exponentials, trigonometry, rounding.

Limits (`maximum`, `clamp`) are in `limits`, comparisons and selection in `compare`, complex parts in `complex`,
special functions in `special`.

Gradients of complex functions follow PyTorch's convention: the gradient of a real loss with respect to z is
∂L/∂Re z + i ∂L/∂Im z, so a holomorphic function f contributes g · conj(f′(z)).
"""

from __future__ import annotations

import cmath
import math

import numpy as np

from tensorgrad import dtypes, return_types
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kernel_errors import raise_bool_subtraction, unsupported
from tensorgrad.dispatch.kinds import alias, composite, export, op, pointwise
from tensorgrad.dispatch.legacy_calls import number_first
from tensorgrad.dispatch.no_derivative import no_derivative
from tensorgrad.dispatch.out import check_sources, store_out
from tensorgrad.dispatch.promotion import is_number, plain_number
from tensorgrad.dtypes import COMPLEX_KINDS, scalar_type
from tensorgrad.errors import as_factor, check_is_number, check_number
from tensorgrad.kernels.array import pointwise as kernels
from tensorgrad.ops.create import tensor, zeros_like
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor

LN2, LN10 = math.log(2), math.log(10)


def conj(value):
    """Returns the complex conjugate of a tensor or number; a real one is returned unchanged."""
    if isinstance(value, Tensor):
        return value.conj() if value._array.dtype.kind in COMPLEX_KINDS else value
    return value.conjugate()


def category_of(value) -> int:
    """Returns the category (bool, integer, floating, complex) of a tensor or number."""
    return (value.dtype if isinstance(value, Tensor) else dtypes.of_number(value)).category


def zero(g):
    """Returns the gradient of a step function: 0 wherever it exists."""
    return zeros_like(g)


def _squared_reciprocal(x):
    inverse = reciprocal(x)
    return conj(inverse * inverse)


def _no_complex_factor(x, first, second, value):
    """Refuses a complex `value` where no operand is complex."""
    if value.__class__ is complex and "c" not in (x.dtype.kind, first.dtype.kind, second.dtype.kind):
        raise RuntimeError("value cannot be converted to type float without overflow")
    return x, first, second, value


# --- arithmetic ----------------------------------------------------------------------------------------------------

_add = pointwise("add(input, other)", "add", numbers="all", operator="add", where=(),
                 input=lambda g: g, other=lambda g: g)  # fmt: skip
_sub = pointwise("sub(input, other)", "subtract", numbers="all", operator="sub", where=(),
                 input=lambda g: g, other=lambda g: -g)  # fmt: skip
_rsub = pointwise("rsub(input, other)", "pointwise.subtract_from", operator="rsub", where=(), in_place=False,
                  backward_name="RsubBackward1", input=lambda g: -g, other=lambda g: g)  # fmt: skip
mul = pointwise("mul(input, other)", "multiply", numbers="all", operator="mul", doc="input · other.",
                on_arrays=True,
                input=lambda g, other: g * conj(other), other=lambda g, input: g * conj(input))  # fmt: skip
_div = pointwise("div(input, other)", "true_divide", numbers="all", rule="float", operator="truediv", where=(),
                 on_arrays=True, input=lambda g, other: g / conj(other),
                 other=lambda g, input, other: -g * conj(input / other / other))  # fmt: skip
_rdiv = pointwise("rdiv(input, other)", "pointwise.divide_into", rule="float", operator="rtruediv", where=(),
                  in_place=False, backward_name="MulBackward0",
                  input=lambda g, input, other: -(g * conj(other)) * _squared_reciprocal(input),
                  other=lambda g, input: g * conj(reciprocal(input)))  # fmt: skip
floor_divide = pointwise("floor_divide(input, other)", "pointwise.floor_divide", numbers="all", operator="floordiv",
                         input=no_derivative("floor_divide"), other=no_derivative("floor_divide"),
                         doc="⌊input / other⌋. Raises RuntimeError for integer division by zero.")  # fmt: skip
_div_floor = pointwise("div_floor(input, other)", "pointwise.floor_divide", numbers="all", where=(),
                       in_place=False, backward_name="DivBackward2", input=zero, other=zero)  # fmt: skip
_div_trunc = pointwise("div_trunc(input, other)", "pointwise.trunc_divide", numbers="all", where=(),
                       in_place=False, backward_name="DivBackward2", input=zero, other=zero)  # fmt: skip
remainder = pointwise("remainder(input, other)", "pointwise.remainder", numbers="all", operator="mod",
                      input=lambda g: g, other=lambda g, input, other: -g * _div_floor(input, other),
                      doc="input - other · ⌊input / other⌋, with the divisor's sign, like Python's %.")  # fmt: skip
fmod = pointwise("fmod(input, other)", "pointwise.fmod",
                 input=lambda g: g, other=lambda g, input, other: -g * _div_trunc(input, other),
                 doc="The remainder with the dividend's sign, like C's fmod.")  # fmt: skip
neg = pointwise("neg(input)", "negative", input=lambda g: -g, doc="-input.")
reciprocal = pointwise("reciprocal(input)", "reciprocal", rule="float", input=lambda g, out: -g * conj(out * out),
                       doc="1 / input; ±∞ at ±0.")  # fmt: skip
_add_scaled = pointwise("add_scaled(input, other, alpha: number)", "pointwise.add_scaled", numbers=(), where=(),
                        in_place=False, backward_name="AddBackward0", linear="input + other",
                        input=lambda g: g, other=lambda g, alpha: g * alpha)  # fmt: skip
addcmul = pointwise("addcmul(input, tensor1, tensor2, *, value: number = 1)", "pointwise.addcmul", numbers=(),
                    prepare=_no_complex_factor,
                    input=lambda g: g,
                    tensor1=lambda g, tensor2, value: g * conj(tensor2 * value),
                    tensor2=lambda g, tensor1, value: g * conj(tensor1 * value),
                    doc="input + value · tensor1 · tensor2.")  # fmt: skip
addcdiv = pointwise("addcdiv(input, tensor1, tensor2, *, value: number = 1)", "pointwise.addcdiv", numbers=(),
                    prepare=_no_complex_factor,
                    input=lambda g: g,
                    tensor1=lambda g, tensor2, value: g * conj(value / tensor2),
                    tensor2=lambda g, tensor1, tensor2, value: -g * conj(value * tensor1 / (tensor2 * tensor2)),
                    doc="input + value · tensor1 / tensor2. Raises RuntimeError for integers.")  # fmt: skip
_lerp = pointwise("lerp(input, end, weight)", "pointwise.lerp", where=(), numbers=("weight",),
                  input=lambda g, weight: g * conj(1 - weight), end=lambda g, weight: g * conj(weight),
                  weight=lambda g, input, end: g * conj(end - input))  # fmt: skip
_lerp_by_number = pointwise("lerp_by_number(input, end, weight: float)", "pointwise.lerp_by_number", where=(),
                            in_place=False, backward_name="LerpBackward0", numbers=(),
                            input=lambda g, weight: g * (1 - weight), end=lambda g, weight: g * weight)  # fmt: skip
gcd = pointwise("gcd(input, other)", "pointwise.gcd", numbers=(),
                doc="The greatest common divisor. Raises NotImplementedError unless both are integers.")  # fmt: skip
lcm = pointwise("lcm(input, other)", "pointwise.lcm", numbers=(),
                doc="The least common multiple. Raises NotImplementedError unless both are integers.")  # fmt: skip

_add_in_place, _sub_in_place, _div_in_place = Tensor.add_, Tensor.sub_, Tensor.div_


@composite()
def add(input: Tensor, other, *old, alpha=1, out=None) -> Tensor:
    """Computes `input + alpha · other`, elementwise with broadcasting.

    Args:
        other: a number, or a tensor that broadcasts with `input`.
        alpha: a number by which `other` is multiplied.

    >>> torch.add(torch.tensor([1, 2]), 10, alpha=2)
    tensor([21, 22])
    """
    if old:
        other, alpha = number_first("add", "alpha", other, old)
    scaled = alpha.__class__ is not int or alpha != 1
    if scaled and (half := _in_half_precision(input, other, alpha)):
        return _add_scaled(*half, alpha, out=out)
    return _add(input, other if not scaled else _scaled(input, other, alpha), out=out)


@composite()
def sub(input: Tensor, other, *old, alpha=1, out=None) -> Tensor:
    """Computes `input - alpha · other`, elementwise with broadcasting.

    >>> torch.sub(torch.tensor([1, 2]), 10, alpha=2)
    tensor([-19, -18])
    """
    if old:
        other, alpha = number_first("sub", "alpha", other, old)
    scaled = alpha.__class__ is not int or alpha != 1
    if scaled and (half := _in_half_precision(input, other, alpha)):
        return _add_scaled(*half, -alpha, out=out)
    return _sub(input, other if not scaled else _scaled(input, other, alpha, True), out=out)


@composite("function")
def rsub(input: Tensor, other, *, alpha=1) -> Tensor:
    """Computes `other - alpha · input`, elementwise with broadcasting.

    >>> torch.rsub(torch.tensor([1, 2]), 10)
    tensor([9, 8])
    """
    if alpha.__class__ is int and alpha == 1:
        return _rsub(input, other)
    if half := _in_half_precision(other, input, alpha):
        return _add_scaled(*half, -alpha)
    return _rsub(_scaled(other, input, alpha), other)


def _in_half_precision(input, other, alpha) -> tuple[Tensor, Tensor] | None:
    """Both operands of a sum in the dtype of half precision that it has: it is rounded once. None if it has another."""
    if alpha.__class__ is not float and alpha.__class__ is not int:
        return None
    kind = dtypes.result_type_of([v._array if isinstance(v, Tensor) else v for v in (input, other)])
    if kind not in dtypes.HALF:
        return None
    if not isinstance(input, Tensor):
        input = tensor(input, dtype=kind, device=other.device)
    elif not isinstance(other, Tensor):
        other = tensor(other, dtype=kind, device=input.device)
    return input.to(kind), other.to(kind)


def _scaled(input, other, alpha, subtracted=False):
    """Returns `alpha · other`. Raises: RuntimeError if alpha's category is above that of both operands."""
    if isinstance(other, Tensor) and isinstance(input, Tensor) and other._array.dtype is not input._array.dtype:
        other = other.to(dtypes.result_type_of([input._array, other._array]))  # the product has this dtype, too
    if alpha.__class__ is float and isinstance(other, Tensor) and other._array.dtype.kind == "f":
        return other * alpha
    alpha = as_factor(alpha, "alpha")
    category = max(category_of(v) for v in (input, other))
    if isinstance(other, bool) and subtracted:
        raise_bool_subtraction(False)
    if isinstance(alpha, bool) and category != dtypes.bool.category:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float | complex) and category < dtypes.FLOATING:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and category < dtypes.COMPLEX:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if category == dtypes.BOOL:
        return other and bool(alpha) if isinstance(other, bool) else other * bool(alpha)
    if isinstance(other, Tensor) and other.dtype is dtypes.bool and isinstance(input, Tensor):
        other = other.to(input.dtype)
    return other * alpha


@composite("method")
def add_(self: Tensor, other, *old, alpha=1) -> Tensor:
    """Adds `alpha · other` in place.

    Args:
        other: a number, or a tensor that broadcasts to this one's shape.
        alpha: a number by which `other` is multiplied.
    """
    if old:
        other, alpha = number_first("add_", "alpha", other, old)
    if alpha.__class__ is not int or alpha != 1:
        if half := _in_half_precision(self, other, alpha):
            return inplace.replace(self, _add_scaled, (half[1], alpha), {})
        check_sources(self, (other,))
        other = _scaled(self, other, alpha)
    return _add_in_place(self, other)


@composite("method")
def sub_(self: Tensor, other, *old, alpha=1) -> Tensor:
    """Subtracts `alpha · other` in place."""
    if old:
        other, alpha = number_first("sub_", "alpha", other, old)
    if alpha.__class__ is not int or alpha != 1:
        if half := _in_half_precision(self, other, alpha):
            return inplace.replace(self, _add_scaled, (half[1], -alpha), {})
        check_sources(self, (other,))
        other = _scaled(self, other, alpha)
    return _sub_in_place(self, other)


@composite()
def div(input: Tensor, other, *, rounding_mode: str | None = None, out=None) -> Tensor:
    """Divides elementwise; `rounding_mode` "floor" or "trunc" rounds the quotient and keeps integer dtypes.

    Args:
        other: the divisor: a number, or a tensor that broadcasts with `input`.
        rounding_mode: None for the true quotient, in floating point; "floor" rounds it down, "trunc" towards 0.

    Raises:
        RuntimeError: If the rounding mode is unknown, or integers are divided by zero with rounding.

    >>> torch.div(torch.tensor([-7, 7]), 2, rounding_mode="trunc")
    tensor([-3,  3])
    """
    if rounding_mode is None:
        return _div(input, other, out=out)
    return _rounded_division(rounding_mode)(input, other, out=out)


def _rounded_division(mode: str):
    if mode == "floor":
        return _div_floor
    if mode == "trunc":
        return _div_trunc
    raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{mode}'")


@composite("method")
def div_(self: Tensor, other, *, rounding_mode: str | None = None) -> Tensor:
    """Divides this tensor in place."""
    if rounding_mode is None:
        return _div_in_place(self, other)
    return inplace.replace(self, _rounded_division(rounding_mode), (other,), {})


@composite()
def true_divide(input: Tensor, other, *, out=None) -> Tensor:
    """Divides elementwise; the quotient is always floating-point or complex.

    >>> torch.true_divide(torch.tensor([3, 4]), 2)
    tensor([1.5000, 2.0000])
    """
    return _div(input, other, out=out)


@composite()
def lerp(input: Tensor, end: Tensor, weight, *, out=None) -> Tensor:
    """Interpolates linearly: `input + weight · (end - input)`, where `weight` is a number or tensor.

    Raises:
        RuntimeError: If the dtypes differ.

    >>> torch.lerp(torch.zeros(2), torch.ones(2), 0.25)
    tensor([0.2500, 0.2500])
    """
    if input.dtype.category < dtypes.FLOATING:
        unsupported("lerp", input._array)
    if isinstance(weight, Tensor) and not weight._array.ndim and weight.dtype.category <= input.dtype.category:
        weight = weight.to(input.dtype)  # a 0-dimensional weight may have any dtype
    for name, value in (("end", end), ("weight", weight)):
        if isinstance(value, Tensor) and value.dtype is not input.dtype:
            raise RuntimeError(f"expected dtype {short_name(input)} for `{name}` but got dtype {short_name(value)}")
    if weight.__class__ is complex and not input.dtype.is_complex:
        check_number(weight, input.dtype)
    if weight.__class__ is float and input.dtype.is_floating_point:
        return _lerp_by_number(input, end, weight, out=out)
    return _lerp(input, end, weight, out=out)


@composite("method")
def lerp_(self: Tensor, end: Tensor, weight) -> Tensor:
    """Moves this tensor towards `end` by linear interpolation, in place."""
    return inplace.replace(self, lerp, (end, weight), {})


def short_name(tensor: Tensor) -> str:
    """Returns the dtype's C++ name, for those messages that say `double` and `long`."""
    names = {"float32": "float", "float64": "double", "float16": "c10::Half", "int64": "long", "int32": "int"}
    return names.get(tensor.dtype.name, tensor.dtype.name)


@composite()
def positive(input: Tensor) -> Tensor:
    """Returns `input` itself.

    Raises:
        RuntimeError: If the tensor is boolean.

    >>> torch.positive(torch.tensor([-1.0, 2.0]))
    tensor([-1.,  2.])
    """
    if input._array.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


# --- powers and exponentials ---------------------------------------------------------------------------------------

_pow = pointwise("pow(input, exponent)", "pointwise.power", numbers="all", operator="pow", where=(),
                 input=lambda g, input, exponent: g * conj(_power_slope(input, exponent)),
                 exponent=lambda g, input, exponent, out: g * conj(_exponent_slope(input, exponent, out)))  # fmt: skip
_rpow = pointwise("rpow(exponent, input)", "pointwise.power_of", operator="rpow", where=(), in_place=False,
                  backward_name="PowBackward2",
                  input=lambda g, input, exponent: g * conj(_power_slope(input, exponent)),
                  exponent=lambda g, input, exponent, out: g * conj(_exponent_slope(input, exponent, out)))  # fmt: skip
square = pointwise("square(input)", lambda xp, x: xp.multiply(x, x), backward_name="PowBackward0",
                   prepare=lambda x: (x.astype(np.int64) if x.dtype.kind == "b" else x,),
                   input=lambda g, input: g * conj(input * 2), doc="input².")  # fmt: skip
sqrt = pointwise("sqrt(input)", "sqrt", rule="float", on_arrays=True, input=lambda g, out: g / conj(out * 2),
                 doc="The square root; NaN below 0.")  # fmt: skip
rsqrt = pointwise("rsqrt(input)", "pointwise.rsqrt", rule="float",
                  input=lambda g, out: g * conj(out * out * out) * -0.5,
                  doc="The reciprocal square root 1 / √input; ∞ at 0, NaN below.")  # fmt: skip
exp = pointwise("exp(input)", "exp", rule="float", on_arrays=True, input=lambda g, out: g * conj(out),
                doc="The exponential: e to the power `input`.")  # fmt: skip
exp2 = pointwise("exp2(input)", "exp2", rule="float", input=lambda g, out: g * conj(out) * LN2,
                 doc="2 to the power `input`.")  # fmt: skip
expm1 = pointwise("expm1(input)", "expm1", rule="float", input=lambda g, out: g * conj(out + 1),
                  doc="exp(input) - 1, accurate near 0.")  # fmt: skip
log = pointwise("log(input)", "log", rule="float", on_arrays=True, input=lambda g, input: g / conj(input),
                doc="The natural logarithm; -∞ at 0, NaN below.")  # fmt: skip
log2 = pointwise("log2(input)", "log2", rule="float", input=lambda g, input: g / conj(input * LN2),
                 doc="The logarithm in base 2; -∞ at 0, NaN below.")  # fmt: skip
log10 = pointwise("log10(input)", "log10", rule="float", input=lambda g, input: g / conj(input * LN10),
                  doc="The logarithm in base 10; -∞ at 0, NaN below.")  # fmt: skip
log1p = pointwise("log1p(input)", "log1p", rule="float", input=lambda g, input: g / conj(input + 1),
                  doc="log(1 + input), accurate near 0.")  # fmt: skip
logaddexp = pointwise("logaddexp(input, other)", "pointwise.logaddexp", numbers=(), in_place=False,
                      input=lambda g, input, other: g / conj((other - input).exp() + 1),
                      other=lambda g, input, other: g / conj((input - other).exp() + 1),
                      doc="log(exp(input) + exp(other)), computed without overflow.")  # fmt: skip
logaddexp2 = pointwise("logaddexp2(input, other)", lambda xp, x, y: kernels.logaddexp(xp, x, y, 2), numbers=(),
                       in_place=False,
                       input=lambda g, input, other: g / ((other - input).exp2() + 1),
                       other=lambda g, input, other: g / ((input - other).exp2() + 1),
                       doc="log2(2 ** input + 2 ** other), computed without overflow.")  # fmt: skip


def _power_slope(x, n):
    """The derivative of x**n with respect to x; 0 where n is 0, also at x = 0."""
    if isinstance(n, Tensor):
        return (n * _pow(x, n - 1)).masked_fill(n == 0, 0)
    if n == 2:  # the usual power: not by another one
        return x * n
    return zeros_like(x) if n == 0 else _pow(x, n - 1) * n


def _exponent_slope(x, n, power):
    """The derivative of x**n with respect to n: x**n · log x (complex if n is), and 0 where x = 0 and n >= 0."""
    flat = n.real >= 0
    if n.is_complex():
        flat = flat & (n.imag == 0)
    if isinstance(x, Tensor):
        x = x.to(power.dtype) if n.is_complex() else x
        return (power * x.log()).masked_fill((x == 0) & flat, 0)
    if x == 0:
        return (power * -math.inf).masked_fill(flat, 0)
    return power * (cmath.log(x) if power.is_complex() else math.log(x) if x > 0 else math.nan)


@composite()
def pow(input, exponent, *, out=None) -> Tensor:
    """Raises `input` to the power `exponent`, elementwise with broadcasting; either may be a number.

    Args:
        input: the base.
        exponent: the power.

    Raises:
        RuntimeError: If `input` is an integer tensor and `exponent` a negative integer.

    >>> torch.pow(2, torch.arange(4))
    tensor([1, 2, 4, 8])
    """
    if exponent.__class__ is int and exponent < 0:
        _check_integer_power(input)
    return _pow(input, exponent, out=out)


def _check_integer_power(input) -> None:
    if category_of(input) < dtypes.FLOATING:
        raise RuntimeError("Integers to negative integer powers are not allowed.")


_pow_in_place, _pow_operator = Tensor.pow_, Tensor.__pow__


@composite("method")
def pow_(self: Tensor, exponent) -> Tensor:
    """Raises this tensor to the power `exponent` in place."""
    if exponent.__class__ is int and exponent < 0:
        _check_integer_power(self)
    return _pow_in_place(self, exponent)


def _pow_checked(self, exponent):
    if exponent.__class__ is int and exponent < 0:
        _check_integer_power(self)
    return _pow_operator(self, exponent)


Tensor.__pow__ = _pow_checked


@composite()
def float_power(input, exponent, *, out=None) -> Tensor:
    """Raises `input` to the power `exponent` in float64, or in complex128 if either is complex.

    >>> torch.float_power(torch.tensor([2, 3]), -1)
    tensor([0.5000, 0.3333], dtype=torch.float64)
    """
    if isinstance(exponent, Tensor) and not isinstance(input, Tensor):
        check_is_number(input, "input")
    category = max(category_of(input), category_of(exponent))
    dtype = dtypes.complex128 if category == dtypes.COMPLEX else dtypes.float64
    input, exponent = (v.to(dtype) if isinstance(v, Tensor) else v for v in (input, exponent))
    if not isinstance(input, Tensor):
        input = tensor(input, dtype=dtype, device=exponent.device)
    return store_out("float_power", out, _pow(input, exponent))


@composite("method")
def float_power_(self: Tensor, exponent) -> Tensor:
    """Raises this tensor to the power `exponent` in place.

    Raises:
        RuntimeError: If this tensor's dtype is not that of the result (float64 or complex128).
    """
    complex_result = dtypes.COMPLEX in (category_of(self), category_of(exponent))
    needed = dtypes.complex128 if complex_result else dtypes.float64
    if self.dtype is not needed:
        if not isinstance(exponent, Tensor):
            check_is_number(exponent, "exponent")
        raise RuntimeError(
            f"the base given to float_power_ has dtype {scalar_type(self)} but the operation's result "
            f"requires dtype {scalar_type(needed)}"
        )
    return _pow_in_place(self, exponent.to(needed) if isinstance(exponent, Tensor) else exponent)


@composite(in_place=True)
def ldexp(input: Tensor, other: Tensor, *, out=None) -> Tensor:
    """Computes `input · 2 ** other`.

    >>> torch.ldexp(torch.tensor([1.0]), torch.arange(3))
    tensor([1., 2., 4.])
    """
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        wrong = other if isinstance(input, Tensor) else input
        raise TypeError(f"ldexp(): both arguments must be Tensor, not {type(wrong).__name__}")
    if other.dtype.category >= dtypes.FLOATING or input.dtype.category < dtypes.FLOATING:
        return store_out("ldexp", out, mul(input, _pow(2.0, other.contiguous())), (input, other), pointwise=True)
    if other.dtype is dtypes.bool and not input.is_complex():
        raise NotImplementedError("\"ldexp_cpu_exp\" not implemented for 'Bool'")
    power = _pow(2.0, other.contiguous().to(dtypes.float64 if input.dtype.itemsize >= 8 else dtypes.float32))
    result = mul(input if input.is_complex() else input.to(power.dtype), power).to(input.dtype)
    return store_out("ldexp", out, result)


_frexp = op("frexp(input)", lambda xp, x: xp.frexp(x), batch="leading", where=(), outputs=("mantissa", "exponent"),
            shape=lambda x: [(x.shape, x.dtype), (x.shape, np.dtype("int32"))],
            input=lambda g, exponent: g / exponent.exp2(), jacobian="symmetric")  # fmt: skip
FrexpResult = return_type("frexp")


@composite()
def frexp(input: Tensor, *, out=None) -> return_types.frexp:
    """Decomposes `input` into mantissas in ±[0.5, 1) and int32 exponents: `input = mantissa · 2 ** exponent`.

    Raises:
        RuntimeError: If `input` is not floating-point.

    >>> torch.frexp(torch.tensor([9.0]))
    torch.return_types.frexp(
    mantissa=tensor([0.5625]),
    exponent=tensor([4], dtype=torch.int32))
    """
    if not input.is_floating_point():
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return FrexpResult(_frexp(input, out=out))


# --- trigonometry --------------------------------------------------------------------------------------------------

sin = pointwise("sin(input)", "sin", rule="float", input=lambda g, input: g * conj(input.cos()),
                doc="The sine of an angle in radians.")  # fmt: skip
cos = pointwise("cos(input)", "cos", rule="float", input=lambda g, input: -g * conj(input.sin()),
                doc="The cosine of an angle in radians.")  # fmt: skip
tan = pointwise("tan(input)", "tan", rule="float", input=lambda g, out: g * conj(out * out + 1),
                doc="The tangent of an angle in radians.")  # fmt: skip
asin = pointwise("asin(input)", "arcsin", rule="float",
                 input=lambda g, input: g * conj((1 - input * input).rsqrt()),
                 doc="The arcsine in radians, in [-π/2, π/2]; NaN outside [-1, 1].")  # fmt: skip
acos = pointwise("acos(input)", "arccos", rule="float",
                 input=lambda g, input: -g * conj((1 - input * input).rsqrt()),
                 doc="The arccosine in radians, in [0, π]; NaN outside [-1, 1].")  # fmt: skip
atan = pointwise("atan(input)", "arctan", rule="float",
                 input=lambda g, input: g / conj(input * input + 1),
                 doc="The arctangent in radians, in [-π/2, π/2].")  # fmt: skip
atan2 = pointwise("atan2(input, other)", "arctan2", numbers=(), rule="float",
                  input=lambda g, input, other: g * other * _inverse_square(input, other),
                  other=lambda g, input, other: -g * input * _inverse_square(input, other),
                  doc="The angle in radians, in [-π, π], of the point x = other, y = input.")  # fmt: skip
sinh = pointwise("sinh(input)", "sinh", rule="float", input=lambda g, input: g * conj(input.cosh()),
                 doc="The hyperbolic sine (eˣ - e⁻ˣ) / 2.")  # fmt: skip
cosh = pointwise("cosh(input)", "cosh", rule="float", input=lambda g, input: g * conj(input.sinh()),
                 doc="The hyperbolic cosine (eˣ + e⁻ˣ) / 2.")  # fmt: skip
tanh = pointwise("tanh(input)", "tanh", rule="float", backward_kernel="pointwise.tanh_grad",
                 input=lambda g, out: g * conj(1 - out * out),
                 doc="The hyperbolic tangent (eˣ - e⁻ˣ) / (eˣ + e⁻ˣ).")  # fmt: skip
asinh = pointwise("asinh(input)", "arcsinh", rule="float", input=lambda g, input: g * conj((input * input + 1).rsqrt()),
                  doc="The inverse hyperbolic sine log(x + √(x² + 1)).")  # fmt: skip
acosh = pointwise("acosh(input)", "arccosh", rule="float", input=lambda g, input: g * conj((input * input - 1).rsqrt()),
                  doc="The inverse hyperbolic cosine log(x + √(x² - 1)); NaN below 1.")  # fmt: skip
atanh = pointwise("atanh(input)", "arctanh", rule="float", input=lambda g, input: g / conj(1 - input * input),
                  doc="The inverse hyperbolic tangent ½ log((1 + x) / (1 - x)); ±∞ at ±1, NaN beyond.")  # fmt: skip
hypot = pointwise("hypot(input, other)", "pointwise.hypot", numbers=(),
                  input=lambda g, input, out: g * (input / out), other=lambda g, other, out: g * (other / out),
                  doc="The hypotenuse √(input² + other²), computed without overflow.")  # fmt: skip
deg2rad = pointwise("deg2rad(input)", lambda xp, x: kernels.scaled(xp, x, math.pi / 180), rule="float",
                    input=lambda g: g * (math.pi / 180), doc="Converts degrees to radians.")  # fmt: skip
rad2deg = pointwise("rad2deg(input)", lambda xp, x: kernels.scaled(xp, x, 180 / math.pi), rule="float",
                    input=lambda g: g * (180 / math.pi), doc="Converts radians to degrees.")  # fmt: skip


def _inverse_square(x, y):
    """1 / (x² + y²), but 0 at the origin."""
    square = x * x + y * y
    return square.reciprocal().masked_fill(square == 0, 0)


# --- sign and rounding ---------------------------------------------------------------------------------------------

abs_ = pointwise("abs(input)", "absolute", input=lambda g, input: g * input.sgn(),
                 doc="The absolute value; complex input gives a real result.")  # fmt: skip
sign = pointwise("sign(input)", "pointwise.sign", input=zero,
                 doc="The sign: -1, 0 or 1. Raises NotImplementedError for complex tensors.")  # fmt: skip
sgn = pointwise("sgn(input)", "pointwise.sgn", input=lambda g, input, out: _sgn_slope(g, input, out),
                jacobian="symmetric",
                doc="The sign input / |input|, 0 at 0; for complex numbers, the direction.")  # fmt: skip
copysign = pointwise("copysign(input, other)", "copysign", rule="float", other=zero,
                     input=lambda g, input, out: (g * (out / input)).masked_fill(input == 0, 0),
                     doc="The magnitude of `input` with the sign of `other`.")  # fmt: skip
nextafter = pointwise("nextafter(input, other)", "pointwise.nextafter", numbers=(),
                      input=lambda g, input, other: g.masked_fill(input == other, 0), other=zero,
                      doc="The next representable floating-point number after `input` towards `other`.")  # fmt: skip
_heaviside = pointwise("heaviside(input, values)", "pointwise.heaviside", numbers=(), where=(),
                       input=no_derivative("heaviside"), values=no_derivative("heaviside"))  # fmt: skip
floor = pointwise("floor(input)", "pointwise.floor", input=zero, doc="The floor: the largest integer <= input.")
ceil = pointwise("ceil(input)", "pointwise.ceil", input=zero, doc="The ceiling: the smallest integer >= input.")
trunc = pointwise("trunc(input)", "pointwise.trunc", input=zero, doc="The integer part: rounds towards zero.")
round_ = pointwise("round(input, *, decimals: int = 0)", "pointwise.round_decimals", input=zero,
                   doc="Rounds to `decimals` decimal places, which may be negative; halves go to even.")  # fmt: skip
frac = pointwise("frac(input)", "pointwise.frac", input=lambda g: g, doc="input - trunc(input).")


def _sgn_slope(g, x, direction):
    """Only the component of g perpendicular to the direction rotates it, by 1 / |x|. Zero for real x."""
    if x._array.dtype.kind not in COMPLEX_KINDS:
        return zeros_like(g)
    along = (direction.conj() * g).real * direction
    return ((g - along) / x.abs()).masked_fill(x == 0, 0)


_abs_in_place = Tensor.abs_


def _abs_(self):
    """Takes the absolute value in place.

    Raises:
        RuntimeError: If the tensor is complex.
    """
    if self._array.dtype.kind in COMPLEX_KINDS:
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return _abs_in_place(self)


composite("method", "function", name="abs_")(_abs_)


@composite(in_place=True)
def heaviside(input: Tensor, values: Tensor, *, out=None) -> Tensor:
    """Computes the Heaviside step function: 0 below 0, 1 above, `values` at 0.

    Raises:
        RuntimeError: If the dtypes differ.

    >>> torch.heaviside(torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([0.5]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return _heaviside(input, values, out=out)


# --- aliases -------------------------------------------------------------------------------------------------------

for _new, _function, _row in (
    ("absolute", abs_, "abs"), ("arccos", acos, "acos"), ("arccosh", acosh, "acosh"), ("arcsin", asin, "asin"),
    ("arcsinh", asinh, "asinh"), ("arctan", atan, "atan"), ("arctan2", atan2, "atan2"), ("arctanh", atanh, "atanh"),
    ("divide", div, "div"), ("fix", trunc, "trunc"), ("multiply", mul, "mul"),
    ("negative", neg, "neg"), ("subtract", sub, "sub"),
):  # fmt: skip
    alias(_new, _function, in_place_of=_row)
for _name in ("negative", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "fix", "ldexp"):
    export(f"{_name}_", getattr(Tensor, f"{_name}_"), "function")
Tensor.true_divide_ = _div_in_place
# --- operators -----------------------------------------------------------------------------------------------------

Tensor.__radd__, Tensor.__rmul__ = Tensor.__add__, Tensor.__mul__
Tensor.__div__, Tensor.__rdiv__ = Tensor.__truediv__, Tensor.__rtruediv__  # type: ignore[assignment]
Tensor.__neg__, Tensor.__pos__, Tensor.__abs__ = neg, positive, abs_
for _name, _row_function in (("iadd", _add), ("isub", _sub), ("imul", mul), ("itruediv", _div), ("idiv", _div),
                             ("ifloordiv", floor_divide), ("imod", remainder), ("ipow", _pow)):  # fmt: skip
    setattr(Tensor, f"__{_name}__", inplace.make(_row_function.op, operator=True))


def reflected(name: str, function):
    """Adds the operator `__name__` for a number on the left: `function(number, tensor)`."""

    def method(self, other):
        if other.__class__ in dtypes.NUMBERS or isinstance(other, Tensor) or is_number(other):
            return function(plain_number(other), self)
        return NotImplemented

    method.__name__ = method.__qualname__ = f"__{name}__"
    setattr(Tensor, f"__{name}__", method)


reflected("rfloordiv", floor_divide)
reflected("rmod", remainder)
