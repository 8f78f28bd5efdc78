"""Special functions: error functions, the gamma family, entropies.

`SPECIAL` is the content of `torch.special`; `bessel`, `orthogonal` and `nn.softmax` add to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorgrad import dtypes
from tensorgrad.dispatch.kernel_errors import unsupported
from tensorgrad.dispatch.kinds import composite, pointwise
from tensorgrad.dispatch.no_derivative import not_implemented
from tensorgrad.ops import pointwise as arithmetic
from tensorgrad.ops.create import arange
from tensorgrad.ops.pointwise import conj
from tensorgrad.ops.reduce import logsumexp
from tensorgrad.tensor import Tensor

SPECIAL: dict = {}

SQRT_PI = math.sqrt(math.pi)


def real_only(name: str, half: bool = True):
    """Makes a check that runs before the kernel: as in PyTorch, `name` does not support complex numbers nor, without
    `half`, 16-bit floats."""

    def prepare(*values):
        for x in values[:2]:
            kind = getattr(x, "dtype", None)
            if kind is not None and (kind.kind == "c" or (kind.itemsize == 2 and not half)):
                unsupported(name, x)
        return values

    return prepare


def _row(signature: str, kernel: str, *, where=("function", "method"), in_place=True, half=True, **row):
    """A real function of one argument, computed in floating point."""
    name = signature.partition("(")[0]
    return pointwise(signature, kernel, rule="float", where=where, in_place=in_place,
                     prepare=real_only(name.removeprefix("special_"), half), **row)  # fmt: skip


def _special(signature: str, kernel: str, **row):
    """A row that is public only in `torch.special`."""
    function = _row(f"special_{signature}", f"special.{kernel}", where=(), in_place=False, **row)
    SPECIAL[signature.partition("(")[0]] = function
    return function


# --- sigmoid and its inverse ---------------------------------------------------------------------------------------

sigmoid = pointwise("sigmoid(input)", "pointwise.sigmoid", rule="float", backward_kernel="pointwise.sigmoid_grad",
                    input=lambda g, out: g * conj(out * (1 - out)), doc="1 / (1 + exp(-input)).")  # fmt: skip
logit = _row("logit(input, eps: float = None)", "special.logit",
             input=lambda g, input, eps: _logit_slope(g, input, eps),
             doc="log(input / (1 - input)), the inverse of `sigmoid`; NaN outside [0, 1]. With `eps`, the input is "
             "first clamped to [eps, 1 - eps].")  # fmt: skip
sinc = pointwise("sinc(input)", "special.sinc", rule="float", input=lambda g, input: _sinc_slope(g, input),
                 doc="sin(π input) / (π input), 1 at 0.")  # fmt: skip


def _logit_slope(g, x, eps):
    low = 0.0 if eps is None else eps
    outside = ~((x >= low) & (x <= 1 - low))  # true for NaN
    return (g / (x * (1 - x))).masked_fill(outside, math.nan if eps is None else 0)


def _sinc_slope(g, x):
    if x.element_size() == 2:  # the difference below loses precision
        x = x.float()
    t = x * math.pi
    square = t * x  # underflows to 0 for tiny numbers, too
    return g * conj((t * t.cos() - t.sin()) / square).masked_fill(square == 0, 0)


# --- error functions -----------------------------------------------------------------------------------------------

erf = _row("erf(input)", "special.erf", input=lambda g, input: g * _gaussian(input) * (2 / SQRT_PI),
           doc="The error function 2/√π ∫₀ˣ exp(-t²) dt.")  # fmt: skip
erfc = _row("erfc(input)", "special.erfc", input=lambda g, input: g * _gaussian(input) * (-2 / SQRT_PI),
            doc="1 - erf(input), accurate where the result is small.")  # fmt: skip
erfinv = _row("erfinv(input)", "special.erfinv", input=lambda g, out: g * (out * out).exp() * (SQRT_PI / 2),
              doc="The inverse of erf; ±∞ at ±1, NaN beyond.")  # fmt: skip
erfcx = _special("erfcx(input)", "erfcx", half=False, input=lambda g, input, out: g * (input * out * 2 - 2 / SQRT_PI),
                 doc="exp(input²) erfc(input), accurate where erfc underflows.")  # fmt: skip
ndtr = _special("ndtr(input)", "ndtr",
                doc="The area under the standard normal density to the left of `input`: (1 + erf(input / √2)) / 2.",
                input=lambda g, input: g * (input * input * -0.5).exp() * (1 / math.sqrt(2 * math.pi)))  # fmt: skip
ndtri = _special("ndtri(input)", "ndtri", half=False,
                 doc="The inverse of ndtr: the quantile function of the standard normal distribution.",
                 input=lambda g, out: g * (out * out * 0.5).exp() * math.sqrt(2 * math.pi))  # fmt: skip
log_ndtr = _special("log_ndtr(input)", "log_ndtr", half=False, doc="log(ndtr(input)), computed without underflow.",
                    input=lambda g, input: g / erfcx(input * -math.sqrt(0.5)) * math.sqrt(2 / math.pi))  # fmt: skip
entr = _special("entr(input)", "entr", input=lambda g, input: g * (-input.log() - 1),
                doc="-input · log(input); 0 at 0, -∞ below.")  # fmt: skip


def _gaussian(x):
    return (-(x * x)).exp()


# --- the gamma family ----------------------------------------------------------------------------------------------

lgamma = _row("lgamma(input)", "special.lgamma", input=lambda g, input: g * input.digamma(),
              doc="log |Γ(input)|; ∞ at 0, -1, -2, ...")  # fmt: skip
digamma = _row("digamma(input)", "special.digamma", input=lambda g, input: g * _polygamma(input, 1),
               doc="ψ(input) = Γ'(input) / Γ(input), `lgamma`'s derivative; -∞ at 0, NaN at -1, -2, ...")  # fmt: skip
_polygamma: Callable = pointwise("polygamma(input, n: int)", "pointwise.polygamma", rule="float", where=(),
                       prepare=real_only("polygamma"),
                       input=lambda g, input, n: g * _polygamma(input, n + 1))  # fmt: skip
_zeta: Callable = pointwise("special_zeta(input, other)", "pointwise.zeta", numbers="all", rule="float", where=(),
                  in_place=False, prepare=real_only("zeta", half=False), input=not_implemented("zeta"),
                  other=lambda g, input, other: g * -input * _zeta(input + 1, other))  # fmt: skip


def _check_order(n: int) -> int:
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return n


@composite("function")
def polygamma(n: int, input: Tensor, *, out=None) -> Tensor:
    """Computes the n-th derivative of the digamma function.

    Raises:
        RuntimeError: If `n` is negative.

    >>> torch.polygamma(1, torch.tensor([1.0]))
    tensor([1.6449])
    """
    return _polygamma(input, _check_order(n), out=out)


@composite("method", name="polygamma")
def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """Computes the n-th derivative of the digamma function of this tensor.

    >>> torch.tensor([1.0, 2.0]).polygamma(1)
    tensor([1.6449, 0.6449])
    """
    return _polygamma(self, _check_order(n))


@composite(in_place=True)
def mvlgamma(input: Tensor, p: int, *, out=None) -> Tensor:
    """Computes the logarithm of the p-dimensional multivariate gamma function: Σⱼ lgamma(input - j/2) + p(p-1)/4 log π.

    Raises:
        RuntimeError: If `p` is less than 1.

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
    """Computes the Hurwitz zeta function Σ (k + other) ** -input over k >= 0; either may be a number.

    >>> torch.special.zeta(2.0, torch.tensor([1.0, 2.0]))
    tensor([1.6449, 0.6449])
    """
    return _zeta(input, other, out=out)


def _floats_only(name: str):
    """Makes a check run before the kernel: as in PyTorch, `name` supports neither integers nor complex numbers."""

    def prepare(x, other):
        if x.dtype.kind in "biuc":
            unsupported(name, x)
        return x, other

    return prepare


igamma = pointwise("igamma(input, other)", "gamma.igamma", numbers=(), prepare=_floats_only("igamma"),
                   input=not_implemented("igamma: input"),
                   other=lambda g, input, other: g * _gamma_density(input, other),
                   doc="The regularized lower incomplete gamma function P(input, other): 1/Γ(a) ∫₀ˣ exp(-t) t^(a-1) dt "
                       "with a = input, x = other. NaN where one is negative; not differentiable in `input`."
                       "\n\n>>> torch.igamma(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))"
                       "\ntensor([0.6321, 0.5940])")  # fmt: skip
igammac = pointwise("igammac(input, other)", "gamma.igammac", numbers=(), prepare=_floats_only("igammac"),
                    input=not_implemented("igammac: input"),
                    other=lambda g, input, other: -g * _gamma_density(input, other),
                    doc="1 - igamma(input, other), accurate where the result is small."
                        "\n\n>>> torch.igammac(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))"
                        "\ntensor([0.3679, 0.4060])")  # fmt: skip


def _gamma_density(a, x):
    """x^(a-1) exp(-x) / Γ(a)."""
    return ((a - 1).xlogy(x) - x - a.lgamma()).exp()


# --- products with logarithms --------------------------------------------------------------------------------------

xlogy = pointwise("xlogy(input, other)", "pointwise.xlogy", numbers="all", rule="float",
                  input=lambda g, input, other: _times_log_slope(g, input, other, 0),
                  other=lambda g, input, other: g * (input / other),
                  doc="input · log(other), 0 where input is 0 (unless other is NaN).")  # fmt: skip
xlog1py = pointwise("special_xlog1py(input, other)", "pointwise.xlog1py", numbers="all", rule="float",
                    where=(), in_place=False,
                    input=lambda g, input, other: _times_log_slope(g, input, other, 1),
                    other=lambda g, input, other: g * (input / (other + 1)),
                    doc="input · log(1 + other), 0 where input is 0 (unless other is NaN).")  # fmt: skip


def _times_log_slope(g, x, y, shift):
    """Computes g log y, but 0 where x is 0 and the logarithm is not a number, and where g is 0."""
    product = xlog1py(g, y) if shift else xlogy(g, y)
    return product.masked_fill((x == 0) & (y <= -shift), 0)


# --- modified Bessel functions -------------------------------------------------------------------------------------

i0 = _row("i0(input)", "special.i0", input=lambda g, input: g * i1(input),
          doc="The modified Bessel function of the first kind, of order 0: Σₖ (input² / 4)ᵏ / (k!)².")  # fmt: skip
i0e = _special("i0e(input)", "i0e", input=lambda g, input, out: g * (i1e(input) - input.sgn() * out),
               doc="exp(-|input|) i0(input), computed without overflow.")  # fmt: skip
i1: Callable = _special("i1(input)", "i1",
              doc="The modified Bessel function of the first kind, of order 1: the derivative of `i0`.",
              input=lambda g, input, out: g * _off_zero(i0(input), out, input, 0))  # fmt: skip
i1e: Callable = _special("i1e(input)", "i1e", doc="exp(-|input|) i1(input), computed without overflow.",
               input=lambda g, input, out: g * _off_zero(i0e(input), out, input, 1))  # fmt: skip


def _off_zero(even, odd, x, scaled):
    """The derivative of the function of order 1 from those of order 0 and 1; 1/2 at 0."""
    near = ~(x.abs() > dtypes.finfo(x.dtype).eps)
    away = x.masked_fill(near, 1)
    slope = even - odd * (away.reciprocal() + away.sgn()) if scaled else even - odd / away
    return slope.masked_fill(near, 0.5)


# --- names ---------------------------------------------------------------------------------------------------------

SPECIAL.update(
    digamma=digamma, erf=erf, erfc=erfc, erfinv=erfinv, exp2=arithmetic.exp2, expit=sigmoid, expm1=arithmetic.expm1,
    gammainc=igamma, gammaincc=igammac, gammaln=lgamma, i0=i0, log1p=arithmetic.log1p,
    logit=logit, logsumexp=logsumexp, multigammaln=mvlgamma, polygamma=polygamma, psi=digamma, round=arithmetic.round_,
    sinc=sinc, xlog1py=xlog1py, xlogy=xlogy, zeta=zeta,
)  # fmt: skip
