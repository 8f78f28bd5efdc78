"""Ops on corresponding elements: arithmetic, powers, exponentials, trigonometry, comparisons, `where`.

Gradients of complex functions follow PyTorch's convention: the gradient of a real loss with respect to z is
∂L/∂Re z + i ∂L/∂Im z, so a holomorphic function f contributes g · conj(f′(z)).
"""

from __future__ import annotations

import math

from tensorgrad import dtypes
from tensorgrad.kernels.array import pointwise as kernels
from tensorgrad.ops.kinds import alias, composite, pointwise
from tensorgrad.tensor import Tensor


def conj(value):
    """The complex conjugate of a tensor or number; a real one itself."""
    if isinstance(value, Tensor):
        return value.conj() if value._array.dtype.kind == "c" else value
    return value.conjugate()


# --- arithmetic ----------------------------------------------------------------------------------------------------

_add = pointwise("add(input, other)", "add", operator="add", where="", input=lambda g: g, other=lambda g: g)
_sub = pointwise("sub(input, other)", "subtract", operator="sub", where="",
                 input=lambda g: g, other=lambda g: -g)  # fmt: skip
mul = pointwise("mul(input, other)", "multiply", operator="mul",
                input=lambda g, other: g * conj(other), other=lambda g, input: g * conj(input))  # fmt: skip
_div = pointwise("div(input, other)", "true_divide", rule="float", operator="truediv", where="",
                 input=lambda g, other: g / conj(other),
                 other=lambda g, input, other: -g * conj(input / (other * other)))  # fmt: skip
floor_divide = pointwise("floor_divide(input, other)", "pointwise.floor_divide", operator="floordiv",
                         doc="The quotient rounded down.")  # fmt: skip
_trunc_divide = pointwise("trunc_divide(input, other)", "pointwise.trunc_divide", where="", in_place=False)
remainder = pointwise("remainder(input, other)", "pointwise.remainder", operator="mod",
                      input=lambda g: g,
                      other=lambda g, input, other: -g * floor_divide(input, other))  # fmt: skip
fmod = pointwise("fmod(input, other)", "pointwise.fmod", input=lambda g: g,
                 other=lambda g, input, other: -g * _trunc_divide(input, other))  # fmt: skip
neg = pointwise("neg(input)", "pointwise.neg", input=lambda g: -g)
_pow = pointwise("pow(input, exponent)", "pointwise.power", operator="pow", where="",
                 input=lambda g, input, exponent: g * conj(_power_slope(input, exponent)),
                 exponent=lambda g, input, out: g * conj(_exponent_slope(input, out)))  # fmt: skip
maximum = pointwise("maximum(input, other)", "maximum", in_place=False,
                    input=lambda g, input, other: g * _share(input, other, input > other),
                    other=lambda g, input, other: g * _share(input, other, other > input))  # fmt: skip
minimum = pointwise("minimum(input, other)", "minimum", in_place=False,
                    input=lambda g, input, other: g * _share(input, other, input < other),
                    other=lambda g, input, other: g * _share(input, other, other < input))  # fmt: skip
fmax = pointwise("fmax(input, other)", "fmax", in_place=False,
                 input=lambda g, input, other: g.masked_fill((input >= other).logical_or_(other.isnan()).logical_not_(), 0),
                 other=lambda g, input, other: g.masked_fill((input >= other).logical_or_(other.isnan()), 0))  # fmt: skip
fmin = pointwise("fmin(input, other)", "fmin", in_place=False,
                 input=lambda g, input, other: g.masked_fill((input <= other).logical_or_(other.isnan()).logical_not_(), 0),
                 other=lambda g, input, other: g.masked_fill((input <= other).logical_or_(other.isnan()), 0))  # fmt: skip


def _share(a, b, wins):
    """1 where an operand wins, 1/2 where both are equal: how PyTorch splits the gradient of a tie."""
    return wins.to(a.dtype) + (a == b).to(a.dtype) / 2


def _power_slope(x, n):
    """The derivative of x**n by x; 0 where n is 0, also at x = 0."""
    if isinstance(n, Tensor):
        return (n * _pow(x, n - 1)).masked_fill(n == 0, 0)
    return 0 * x if n == 0 else n * _pow(x, n - 1)


def _exponent_slope(x, power):
    """The derivative of x**n by n: x**n · log x, and 0 where x = 0."""
    if not isinstance(x, Tensor):
        import cmath

        return power * (cmath.log(x) if isinstance(x, complex) or x < 0 else math.log(x)) if x else power * 0
    return power * x.log().masked_fill(x == 0, 0)


@composite(in_place=_add)
def add(input: Tensor, other, *, alpha=1, out=None) -> Tensor:
    """`input + alpha · other`, elementwise with broadcasting.

    >>> import tensorgrad as torch
    >>> torch.add(torch.tensor([1, 2]), 10, alpha=2)
    tensor([21, 22])
    """
    return _add(input, other if alpha.__class__ is int and alpha == 1 else _scaled("add", input, other, alpha), out=out)


@composite(in_place=_sub)
def sub(input: Tensor, other, *, alpha=1, out=None) -> Tensor:
    """`input - alpha · other`, elementwise with broadcasting."""
    return _sub(input, other if alpha.__class__ is int and alpha == 1 else _scaled("sub", input, other, alpha), out=out)


def _scaled(name: str, input, other, alpha):
    if isinstance(alpha, float) and all(
        (v.dtype.category if isinstance(v, Tensor) else dtypes.of_number(v).category) < dtypes.FLOATING
        for v in (input, other)
    ):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    return other * alpha


@composite(in_place=True)
def rsub(input: Tensor, other, *, alpha=1) -> Tensor:
    """`other - alpha · input`."""
    return sub(other, input, alpha=alpha) if isinstance(other, Tensor) else _sub(other, input * alpha if alpha != 1 else input)


@composite(in_place=_div)
def div(input: Tensor, other, *, rounding_mode: str | None = None, out=None) -> Tensor:
    """The quotient; `rounding_mode` "floor" or "trunc" rounds it and keeps integers integers.

    Raises: RuntimeError for another rounding mode, or for an integer division by zero.
    """
    if rounding_mode is None:
        return _div(input, other, out=out)
    if rounding_mode == "floor":
        return floor_divide(input, other, out=out)
    if rounding_mode == "trunc":
        return _trunc_divide(input, other, out=out)
    raise RuntimeError(
        f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
    )


@composite(in_place=_pow)
def pow(input, exponent, *, out=None) -> Tensor:
    """`input` to the power `exponent`, elementwise.

    Raises: RuntimeError for an integer tensor with a negative integer exponent.
    """
    if exponent.__class__ is int and exponent < 0 and isinstance(input, Tensor) and input.dtype.category < dtypes.FLOATING:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return _pow(input, exponent, out=out)


def _reflected(name: str, function):
    def method(self, other):
        if not isinstance(other, bool | int | float | complex):
            return _reflect_array(function, self, other)
        return function(other, self)

    setattr(Tensor, f"__{name}__", method)


def _reflect_array(function, self, other):
    import numpy as np

    from tensorgrad.ops.create import tensor

    return function(tensor(other), self) if isinstance(other, np.ndarray | np.generic) else NotImplemented


Tensor.__radd__, Tensor.__rmul__ = Tensor.__add__, Tensor.__mul__
for _name, _function in (("rsub", _sub), ("rtruediv", _div), ("rfloordiv", floor_divide), ("rmod", remainder), ("rpow", _pow)):
    _reflected(_name, _function)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _long = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}.get(_name, _name)
    setattr(Tensor, f"__i{_name}__", getattr(Tensor, f"{_long}_"))
