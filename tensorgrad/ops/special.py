"""Functions that have names of their own: error functions, the gamma family, Bessel functions, entropies.

`SPECIAL` is what `torch.special` holds of the pointwise ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensorgrad import dtypes
from tensorgrad.ops import pointwise as arithmetic
from tensorgrad.ops.create import arange
from tensorgrad.ops.errors import unsupported
from tensorgrad.ops.kinds import composite, pointwise
from tensorgrad.ops.pointwise import conj
from tensorgrad.tensor import Tensor

SPECIAL: dict = {}

SQRT_PI = math.sqrt(math.pi)


def real_only(name: str):
    """A check before the kernel: complex numbers have no `name` here, as in PyTorch."""

    def prepare(x, *params):
        if x.dtype.kind == "c":
            unsupported(name, x)
        return (x, *params)

    return prepare


def _row(signature: str, kernel: str, *, where="function method", in_place=True, **row):
    """A real function of one argument, computed in floating point."""
    name = signature.partition("(")[0]
    return pointwise(signature, kernel, rule="float", where=where, in_place=in_place,
                     prepare=real_only(name.removeprefix("special_")), **row)  # fmt: skip


def _special(signature: str, kernel: str, **row):
    """A row that users find only in `torch.special`."""
    function = _row(f"special_{signature}", f"special.{kernel}", where="", in_place=False, **row)
    SPECIAL[signature.partition("(")[0]] = function
    return function


# --- sigmoid and its inverse ---------------------------------------------------------------------------------------

sigmoid = pointwise("sigmoid(input)", "pointwise.sigmoid", rule="float", input=lambda g, out: sigmoid_grad(g, out),
                    doc="1 / (1 + exp(-input)).")  # fmt: skip
sigmoid_grad: Callable = pointwise("sigmoid_grad(grad, result)", "pointwise.sigmoid_grad", where="", in_place=False,
                         backward_name="SigmoidBackwardBackward0",
                         twin=lambda grad, result: grad * conj(result * (1 - result)))  # fmt: skip
logit = _row("logit(input, eps: float = None)", "special.logit",
             input=lambda g, input, eps: _logit_slope(g, input, eps),
             doc="log(input / (1 - input)), input first limited to [eps, 1 - eps] if eps is given.")  # fmt: skip
sinc = pointwise("sinc(input)", "special.sinc", rule="float", input=lambda g, input: _sinc_slope(g, input),
                 doc="sin(π input) / (π input), 1 at 0.")  # fmt: skip


def _logit_slope(g, x, eps):
    low = 0.0 if eps is None else eps
    outside = (x < low) | (x > 1 - low)
    return (g / (x * (1 - x))).masked_fill(outside, math.nan if eps is None else 0)


def _sinc_slope(g, x):
    if x.element_size() == 2:  # the difference below leaves few digits
        x = x.float()
    t = x * math.pi
    return g * conj((t * t.cos() - t.sin()) / (t * x)).masked_fill(x == 0, 0)


# --- error functions -----------------------------------------------------------------------------------------------

erf = _row("erf(input)", "special.erf", input=lambda g, input: g * _bell(input) * (2 / SQRT_PI),
           doc="The error function 2/√π ∫₀ˣ exp(-t²) dt.")  # fmt: skip
erfc = _row("erfc(input)", "special.erfc", input=lambda g, input: g * _bell(input) * (-2 / SQRT_PI),
            doc="1 - erf(input), accurate where that is small.")  # fmt: skip
erfinv = _row("erfinv(input)", "special.erfinv", input=lambda g, out: g * (out * out).exp() * (SQRT_PI / 2),
              doc="The inverse of erf.")  # fmt: skip
erfcx = _special("erfcx(input)", "erfcx", input=lambda g, input, out: g * (input * out * 2 - 2 / SQRT_PI),
                 doc="exp(input²) erfc(input).")  # fmt: skip
ndtr = _special("ndtr(input)", "ndtr", doc="The area under the standard normal density left of input.",
                input=lambda g, input: g * (input * input * -0.5).exp() * (1 / math.sqrt(2 * math.pi)))  # fmt: skip
ndtri = _special("ndtri(input)", "ndtri", doc="The inverse of ndtr: a quantile of the standard normal distribution.",
                 input=lambda g, out: g * (out * out * 0.5).exp() * math.sqrt(2 * math.pi))  # fmt: skip
log_ndtr = _special("log_ndtr(input)", "log_ndtr", doc="log(ndtr(input)), without underflow.",
                    input=lambda g, input: g / erfcx(input * -math.sqrt(0.5)) * math.sqrt(2 / math.pi))  # fmt: skip
entr = _special("entr(input)", "entr", input=lambda g, input: g * (-input.log() - 1),
                doc="-input · log(input); 0 at 0, -∞ below.")  # fmt: skip


def _bell(x):
    return (-(x * x)).exp()


# --- the gamma family ----------------------------------------------------------------------------------------------

lgamma = _row("lgamma(input)", "special.lgamma", input=lambda g, input: g * input.digamma(),
              doc="log |Γ(input)|.")  # fmt: skip
digamma = _row("digamma(input)", "special.digamma", input=lambda g, input: g * _polygamma(input, 1),
               doc="The derivative of lgamma.")  # fmt: skip
_polygamma: Callable = pointwise("polygamma(input, n: int)", "pointwise.polygamma", rule="float", where="",
                       prepare=real_only("polygamma"),
                       input=lambda g, input, n: g * _polygamma(input, n + 1))  # fmt: skip
_zeta: Callable = pointwise("special_zeta(input, other)", "pointwise.zeta", numbers="all", rule="float", where="",
                  in_place=False, input=arithmetic.no_derivative("special_zeta"),
                  other=lambda g, input, other: g * -input * _zeta(input + 1, other))  # fmt: skip


def _check_order(n: int) -> int:
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return n


@composite("function")
def polygamma(n: int, input: Tensor, *, out=None) -> Tensor:
    """The n-th derivative of digamma. Raises: RuntimeError for negative n.

    >>> import tensorgrad as torch
    >>> torch.polygamma(1, torch.tensor([1.0]))
    tensor([1.6449])
    """
    return _polygamma(input, _check_order(n), out=out)


@composite("method", name="polygamma")
def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma at this tensor."""
    return _polygamma(self, _check_order(n))


@composite(in_place=True)
def mvlgamma(input: Tensor, p: int, *, out=None) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p: Σⱼ lgamma(input - j/2) + p(p-1)/4 log π.

    Raises: RuntimeError if p is below 1.

    >>> import tensorgrad as torch
    >>> torch.mvlgamma(torch.tensor([2.0]), 2)
    tensor([0.4516])
    """
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input.dtype.category < dtypes.FLOATING:
        input = input.to(dtypes.get_default_dtype())
    steps = arange(p, dtype=input.dtype, device=input.device) * -0.5
    return arithmetic.add((input.unsqueeze(-1) + steps).lgamma().sum(-1), p * (p - 1) / 4 * math.log(math.pi), out=out)


def zeta(input, other, *, out=None) -> Tensor:
    """Hurwitz's zeta function Σ (k + other) ** -input over k >= 0; either may be a number."""
    return _zeta(input, other, out=out)


# --- products with logarithms --------------------------------------------------------------------------------------

xlogy = pointwise("xlogy(input, other)", "pointwise.xlogy", numbers="all", rule="float",
                  input=lambda g, input, other: _times_log_slope(g, input, other, 0),
                  other=lambda g, input, other: g * (input / other),
                  doc="input · log(other), 0 where input is 0 (unless other is nan).")  # fmt: skip
xlog1py = pointwise("special_xlog1py(input, other)", "pointwise.xlog1py", numbers="all", rule="float",
                    where="", in_place=False,
                    input=lambda g, input, other: _times_log_slope(g, input, other, 1),
                    other=lambda g, input, other: g * (input / (other + 1)),
                    doc="input · log(1 + other), 0 where input is 0 (unless other is nan).")  # fmt: skip


def _times_log_slope(g, x, y, shift):
    """log y, but 0 where both x is 0 and the logarithm is no number."""
    if isinstance(y, Tensor):
        logarithm: Any = y.log1p() if shift else y.log()
    else:
        logarithm = math.log(y + shift) if y + shift > 0 else -math.inf if y + shift == 0 else math.nan
    return (g * logarithm).masked_fill((x == 0) & (y <= -shift), 0)


# --- modified Bessel functions -------------------------------------------------------------------------------------

i0 = _row("i0(input)", "special.i0", input=lambda g, input: g * i1(input),
          doc="The modified Bessel function of the first kind, of order 0.")  # fmt: skip
i0e = _special("i0e(input)", "i0e", input=lambda g, input, out: g * (i1e(input) - input.sgn() * out),
               doc="exp(-|input|) i0(input).")  # fmt: skip
i1: Callable = _special("i1(input)", "i1", doc="The modified Bessel function of the first kind, of order 1.",
              input=lambda g, input, out: g * _off_zero(i0(input), out, input, 0))  # fmt: skip
i1e: Callable = _special("i1e(input)", "i1e", doc="exp(-|input|) i1(input).",
               input=lambda g, input, out: g * _off_zero(i0e(input), out, input, 1))  # fmt: skip


def _off_zero(even, odd, x, scaled):
    """The derivative of the function of order 1, from those of order 0 and 1: 1/2 at 0."""
    near = x == 0
    away = x.masked_fill(near, 1)
    slope = even - odd * (away.reciprocal() + away.sgn()) if scaled else even - odd / away
    return slope.masked_fill(near, 0.5)


# --- names ---------------------------------------------------------------------------------------------------------

SPECIAL.update(
    digamma=digamma, erf=erf, erfc=erfc, erfinv=erfinv, exp2=arithmetic.exp2, expit=sigmoid, expm1=arithmetic.expm1,
    gammaln=lgamma, i0=i0, log1p=arithmetic.log1p, logit=logit, multigammaln=mvlgamma, polygamma=polygamma, psi=digamma,
    round=arithmetic.round_, sinc=sinc, xlog1py=xlog1py, xlogy=xlogy, zeta=zeta,
)  # fmt: skip
