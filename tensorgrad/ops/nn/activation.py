"""Activations: the nonlinearities between layers, such as `torch.nn.functional.relu`.

Each has a fused kernel, and a fused one for its gradient. If the slope is piecewise constant, the gradient is an op
(`*_grad`) that is its own derivative; the others have a backward kernel.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

from tensorgrad import dtypes
from tensorgrad.dispatch import inplace, signatures
from tensorgrad.dispatch.kernel_errors import unsupported
from tensorgrad.dispatch.kinds import Place, composite, export, number, pointwise
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_number
from tensorgrad.ops import pointwise as arithmetic
from tensorgrad.ops.compare import where
from tensorgrad.ops.special import special
from tensorgrad.tensor import Tensor


def _floats(name: str):
    """Makes a check that runs before the kernel: the activation does not support integers and complex numbers."""

    def prepare(x, *params):
        if x.dtype.kind not in "fV":
            unsupported(name, x)
        return (x, *params)

    return prepare


def _row(signature: str, kernel: str, *, where=(), **row):
    """Declares an activation of floating-point tensors. Its in-place method is `_in_place(row)`."""
    name = signature.partition("(")[0]
    return pointwise(signature, f"activation.{kernel}", where=where, in_place=False, prepare=_floats(name), **row)


def _grad(signature: str, **row):
    """Declares the gradient of an activation as an op of `grad` and the activation's input (or result)."""
    name = signature.partition("(")[0]
    return pointwise(signature, f"activation.{name}", where=(), in_place=False, **row)


def _replaced(row, input: Tensor, *params) -> Tensor:
    return inplace.replace(input, row, params, {})


def _functional_(name: str, function, *where: Place) -> None:
    """Exposes `name_`, the in-place form of an activation that takes `inplace=`."""

    def method(input, *args, **kwargs):
        return function(input, *args, inplace=True, **kwargs)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"In-place version of `{name}`: writes the result into `input` and returns it."
    signatures.promise(method, lambda: signatures.in_place(inspect.signature(function), "input", without="inplace"))
    export(f"{name}_", method, *where)


# --- relu and other piecewise linear functions ----------------------------------------------------------------------


def _zero(g):
    """The derivative of a piecewise constant slope: zeros, not None, so that its input does not count as unused."""
    return g.new_zeros(g._array.shape)


threshold_grad: Callable = _grad("threshold_grad(grad, result, limit: float)",
                       grad=lambda g, result, limit: threshold_grad(g, result, limit), result=_zero)  # fmt: skip
_relu = pointwise("relu(input)", "pointwise.relu", doc="max(input, 0).",
                  backward_kernel="activation.relu_backward",
                  input=lambda g, out: threshold_grad(g, out, 0))  # fmt: skip
_threshold = pointwise("threshold(input, threshold: number, value: number)", "activation.threshold", where=(),
                       in_place=False,
                       input=lambda g, input, threshold: threshold_grad(g, input, threshold))  # fmt: skip
_leaky_relu = _row("leaky_relu(input, negative_slope: number)", "leaky_relu",
                   input=lambda g, input, negative_slope: leaky_relu_grad(g, input, negative_slope))  # fmt: skip
leaky_relu_grad: Callable = _grad("leaky_relu_grad(grad, input, negative_slope: number)",
                        grad=lambda g, input, negative_slope: leaky_relu_grad(g, input, negative_slope),
                        input=_zero)  # fmt: skip


def _prepare_hardtanh(x, low, high):
    if x.dtype.kind in "bc":
        unsupported("hardtanh", x)
    return (x, int(low), int(high)) if x.dtype.kind in "iu" else (x, low, high)


_hardtanh = pointwise("hardtanh(input, min_val: number, max_val: number)", "pointwise.clamp", where=(),
                      prepare=_prepare_hardtanh, in_place=False,
                      input=lambda g, input, min_val, max_val: hardtanh_grad(g, input, min_val, max_val))  # fmt: skip
hardtanh_grad: Callable = _grad("hardtanh_grad(grad, input, min_val: number, max_val: number)",
                      grad=lambda g, input, min_val, max_val: hardtanh_grad(g, input, min_val, max_val),
                      input=_zero)  # fmt: skip
_hardsigmoid = _row("hardsigmoid(input)", "hardsigmoid", input=lambda g, input: hardsigmoid_grad(g, input))
hardsigmoid_grad: Callable = _grad(
    "hardsigmoid_grad(grad, input)", grad=lambda g, input: hardsigmoid_grad(g, input), input=_zero
)
_hardswish = _row("hardswish(input)", "hardswish", backward_kernel="activation.hardswish_grad",
                  input=lambda g, input: g * where(
                      input <= -3, 0.0, where(input < 3, input / 3 + 0.5, 1.0)))  # fmt: skip


def _shrink_grad(xp, g, x, limit):
    return xp.where((x < -limit) | (x > limit), g, g.dtype.type(0))  # NaN counts as within the limits


_hardshrink = pointwise("hardshrink(input, lambd: number)", "pointwise.hardshrink", where=(), in_place=False,
                        prepare=_floats("hardshrink"),
                        input=lambda g, input, lambd: shrink_grad(g, input, lambd))  # fmt: skip
_softshrink = pointwise("softshrink(input, lambd: number)", "pointwise.softshrink", where=(), in_place=False,
                        prepare=_floats("softshrink"),
                        input=lambda g, input, lambd: shrink_grad(g, input, lambd))  # fmt: skip
shrink_grad: Callable = pointwise("shrink_grad(grad, input, lambd: number)", _shrink_grad, where=(), in_place=False,
                        grad=lambda g, input, lambd: shrink_grad(g, input, lambd), input=_zero)  # fmt: skip


def _slope_of_gate(g, input, gate):
    share, dtype = gate.sigmoid(), input.dtype
    if dtype in dtypes.HALF:  # only the share and the product are rounded
        share, input, g = share.float(), input.float(), g.float()
    return ((1 - share) * share * input * g).to(dtype)


_gated = pointwise("gated(input, gate)", "activation.gated", where=(), in_place=False, numbers=(), rule="float",
                   backward_name="GluBackward0",
                   input=lambda g, gate: g * gate.sigmoid(), gate=_slope_of_gate)  # fmt: skip


@composite("functional")
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Computes max(input, 0).

    Args:
        inplace: whether the result is written into `input`.

    >>> torch.nn.functional.relu(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return input.relu_() if inplace else _relu(input)


@composite("function", "functional")
def threshold(input: Tensor, threshold: number, value: number, inplace: bool = False) -> Tensor:
    """Returns `input` where it exceeds `threshold`, else `value`.

    >>> torch.nn.functional.threshold(torch.tensor([0.5, 2.0]), 1, -1)
    tensor([-1.,  2.])
    """
    if threshold.__class__ is complex:
        check_number(threshold, input.dtype)
    return _replaced(_threshold, input, threshold, value) if inplace else _threshold(input, threshold, value)


@composite("functional")
def leaky_relu(input: Tensor, negative_slope: number = 0.01, inplace: bool = False) -> Tensor:
    """Returns `input` where it is positive, else `negative_slope · input`.

    >>> torch.nn.functional.leaky_relu(torch.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    return _replaced(_leaky_relu, input, negative_slope) if inplace else _leaky_relu(input, negative_slope)


@composite("functional")
def hardtanh(input: Tensor, min_val: number = -1.0, max_val: number = 1.0, inplace: bool = False) -> Tensor:
    """Clamps `input` to [min_val, max_val].

    Raises:
        ValueError: If `min_val` is greater than `max_val`.

    >>> torch.nn.functional.hardtanh(torch.tensor([-2.0, 0.5]))
    tensor([-1.0000,  0.5000])
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if min_val < 0 and input._array.dtype.kind == "u":
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return _replaced(_hardtanh, input, min_val, max_val) if inplace else _hardtanh(input, min_val, max_val)


@composite("functional")
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Clamps `input` to [0, 6].

    >>> torch.nn.functional.relu6(torch.tensor([-1.0, 2.0, 8.0]))
    tensor([0., 2., 6.])
    """
    return hardtanh(input, 0, 6, inplace)


@composite("functional")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Computes `relu6(input + 3) / 6`.

    >>> torch.nn.functional.hardsigmoid(torch.tensor([-4.0, 0.0, 4.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    return _replaced(_hardsigmoid, input) if inplace else _hardsigmoid(input)


@composite("functional")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Computes `input · relu6(input + 3) / 6` (A. Howard et al., arXiv:1905.02244).

    >>> torch.nn.functional.hardswish(torch.tensor([-4.0, 1.0, 4.0]))
    tensor([-0.0000, 0.6667, 4.0000])
    """
    return _replaced(_hardswish, input) if inplace else _hardswish(input)


@composite("function", "functional", "method")
def hardshrink(input: Tensor, lambd: number = 0.5, *, out=None) -> Tensor:
    """Returns `input`, but 0 where it is within [-lambd, lambd].

    >>> torch.nn.functional.hardshrink(torch.tensor([0.2, 2.0]))
    tensor([0., 2.])
    """
    if lambd.__class__ is complex:
        check_number(lambd, input.dtype)
    return _hardshrink(input, lambd, out=out)


@composite("functional")
def softshrink(input: Tensor, lambd: number = 0.5, *, out=None) -> Tensor:
    """Moves `input` towards 0 by `lambd`; values within [-lambd, lambd] become 0.

    Raises:
        RuntimeError: If `lambd` is negative.

    >>> torch.nn.functional.softshrink(torch.tensor([0.2, 2.0]))
    tensor([0.0000, 1.5000])
    """
    if not input.dtype.is_floating_point:
        unsupported("softshrink", input._array)
    limit = dtypes.finfo(input.dtype).max
    if not 0 <= lambd <= limit:
        raise RuntimeError(
            f"lambda must be in range [0, {limit:g}] for input dtype {scalar_type(input)}, but found {lambd:g}"
        )
    return _softshrink(input, lambd, out=out)


# --- based on exponentials -----------------------------------------------------------------------------------------

_gelu = _row("gelu(input, approximate: str)", "gelu", backward_kernel="activation.gelu_grad",
             input=lambda g, input, approximate: g * _gelu_slope(input, approximate))  # fmt: skip
_silu = pointwise("silu(input)", "activation.silu", where=(), in_place=False, backward_kernel="activation.silu_grad",
                  input=lambda g, input: g * _silu_slope(input))  # fmt: skip
_mish = _row("mish(input)", "mish", backward_kernel="activation.mish_grad",
             input=lambda g, input: g * _mish_slope(input))  # fmt: skip
_softplus = _row("softplus(input, beta: number, threshold: number)", "softplus",
                 backward_kernel="activation.softplus_grad",
                 input=lambda g, input, beta, threshold: where(
                     input * beta > threshold, g, g * (input * beta).sigmoid()))  # fmt: skip
_log_sigmoid = _row("log_sigmoid(input)", "log_sigmoid", backward_kernel="activation.log_sigmoid_grad",
                    input=lambda g, input: g * (-input).sigmoid())  # fmt: skip
_elu = _row("elu(input, alpha: number, scale: number, input_scale: number)", "elu",
            backward_kernel="activation.elu_grad",
            input=lambda g, input, alpha, scale, input_scale: where(
                input > 0, g * scale,
                g * (where(input < 0, input, 0) * input_scale).exp() * (alpha * scale * input_scale)))  # fmt: skip

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def _gelu_slope(x, approximate):
    if approximate == "none":
        density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        return ((x * math.sqrt(0.5)).erf() + 1) * 0.5 + x * density
    slope, cubic = math.sqrt(2 / math.pi), 0.044715
    t = ((x + x * x * x * cubic) * slope).tanh()
    return (t + 1) * 0.5 + x * 0.5 * (1 - t * t) * (x * x * (3 * cubic) + 1) * slope


def _silu_slope(x):
    s = x.sigmoid()
    return arithmetic.conj(s * (x * (1 - s) + 1))


def _mish_slope(x):
    t = softplus(x).tanh()
    return t + x * x.sigmoid() * (1 - t * t)


@composite("functional")
def gelu(input: Tensor, *, approximate: str = "none", out=None) -> Tensor:
    """Computes `input · Φ(input)`, where Φ is the standard normal distribution function, or its "tanh" approximation.

    Source: D. Hendrycks, K. Gimpel, arXiv:1606.08415.

    Raises:
        RuntimeError: If `approximate` is neither "none" nor "tanh".

    >>> torch.nn.functional.gelu(torch.tensor([-1.0, 2.0]))
    tensor([-0.1587,  1.9545])
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return _gelu(input, approximate, out=out)


@composite("functional")
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Computes `input · sigmoid(input)`, also called swish (S. Elfwing et al., arXiv:1702.03118).

    >>> torch.nn.functional.silu(torch.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """
    return _replaced(_silu, input) if inplace else _silu(input)


@composite("functional")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Computes `input · tanh(softplus(input))` (D. Misra, arXiv:1908.08681).

    >>> torch.nn.functional.mish(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8651])
    """
    return _replaced(_mish, input) if inplace else _mish(input)


@composite("functional")
def softplus(input: Tensor, beta: number = 1.0, threshold: number = 20.0, *, out=None) -> Tensor:
    """Computes `log(1 + exp(beta · input)) / beta`; returns `input` where `beta · input > threshold`.

    Args:
        beta: the slope of the argument, not 0.
        threshold: from where on, for `beta · input`, the function is taken as linear.

    >>> torch.nn.functional.softplus(torch.tensor([0.0, 30.0]))
    tensor([ 0.6931, 30.0000])
    """
    return _softplus(input, beta, threshold, out=out)


@composite("functional")
def logsigmoid(input: Tensor, *, out=None) -> Tensor:
    """Computes `log(sigmoid(input))` without underflow.

    >>> torch.nn.functional.logsigmoid(torch.tensor([0.0]))
    tensor([-0.6931])
    """
    return _log_sigmoid(input, out=out)


@composite("functional")
def elu(input: Tensor, alpha: number = 1.0, inplace: bool = False) -> Tensor:
    """Returns `input` where it is positive, else `alpha · (exp(input) - 1)` (D.-A. Clevert et al., arXiv:1511.07289).

    Args:
        alpha: minus the limit towards -∞.
        inplace: whether the result is written into `input`.

    >>> torch.nn.functional.elu(torch.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    return _replaced(_elu, input, alpha, 1.0, 1.0) if inplace else _elu(input, alpha, 1.0, 1.0)


@composite("function", "functional")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The self-normalizing `elu` with fixed alpha and scale (G. Klambauer et al., arXiv:1706.02515).

    >>> torch.nn.functional.selu(torch.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """
    return _replaced(_elu, input, SELU_ALPHA, SELU_SCALE, 1.0) if inplace else _elu(input, SELU_ALPHA, SELU_SCALE, 1.0)


@composite("function", "functional")
def celu(input: Tensor, alpha: number = 1.0, inplace: bool = False) -> Tensor:
    """Returns `input` where it is positive, else `alpha · (exp(input / alpha) - 1)` (J. T. Barron, arXiv:1704.07483).

    Raises:
        RuntimeError: If `alpha` is 0.

    >>> torch.nn.functional.celu(torch.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _replaced(_elu, input, alpha, 1.0, 1.0 / alpha) if inplace else _elu(input, alpha, 1.0, 1.0 / alpha)


@composite("functional")
def softsign(input: Tensor) -> Tensor:
    """Computes `input / (1 + |input|)`.

    >>> torch.nn.functional.softsign(torch.tensor([-1.0, 3.0]))
    tensor([-0.5000,  0.7500])
    """
    return input / (input.abs() + 1)


@composite("functional")
def tanhshrink(input: Tensor) -> Tensor:
    """Computes `input - tanh(input)`.

    >>> torch.nn.functional.tanhshrink(torch.tensor([-1.0, 1.0]))
    tensor([-0.2384,  0.2384])
    """
    return input - input.tanh()


# --- with parameters or randomness ---------------------------------------------------------------------------------

_prelu = pointwise("prelu(input, weight)", lambda xp, x, weight: xp.where(x > 0, x, x * weight), where=(),
                   in_place=False, backward_name="PreluKernelBackward0",
                   input=lambda g, input, weight: where(input > 0, g, g * weight),
                   weight=lambda g, input: (g * input).masked_fill(input > 0, 0))  # fmt: skip


@composite("function", "functional", "method")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Returns `input` where it is positive, else `weight · input`, with one weight or one per channel (dimension 1).

    Raises:
        RuntimeError: If the number of weights is neither one nor the number of channels.

    >>> torch.nn.functional.prelu(torch.tensor([-1.0, 2.0]), torch.tensor([0.5]))
    tensor([-0.5000,  2.0000])
    """
    if input.dtype is not weight.dtype:
        raise RuntimeError(
            "prelu: Type promoting not supported. Got "
            f"{arithmetic.short_name(input)} and {arithmetic.short_name(weight)}"
        )
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    count = weight.numel()
    if count != 1:
        if not input.ndim:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.ndim > 1 else 1
        if channels != count:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {count} and channel "
                f"size = {channels}."
            )
        weight = weight.reshape((count,) + (1,) * (input.ndim - 2))
    elif weight.ndim:
        weight = weight.reshape(())
    return _prelu(input, weight)


@composite("functional")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Multiplies one half of dimension `dim` by the sigmoid of the other half (Y. Dauphin et al., arXiv:1612.08083).

    Raises:
        RuntimeError: If the size of `dim` is odd.

    >>> torch.nn.functional.glu(torch.tensor([1.0, 0.0]))
    tensor([0.5000])
    """
    if not input.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    size = input.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim % input.ndim} is size {size}")
    value, gate = input.narrow(dim, 0, size // 2), input.narrow(dim, size // 2, size // 2)
    return _gated(value, gate)


@composite("function", "functional")
def rrelu(
    input: Tensor, lower: number = 1.0 / 8, upper: number = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Applies `leaky_relu` with a random slope from [lower, upper] per non-positive element; the mean if not training.

    Source: B. Xu et al., arXiv:1505.00853.

    >>> torch.nn.functional.rrelu(torch.tensor([-2.0, 3.0]), lower=0.1, upper=0.3)
    tensor([-0.4000,  3.0000])
    """
    check_number(lower, dtypes.float64)
    check_number(upper, dtypes.float64)
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    return _replaced(_random_slopes, input, lower, upper) if inplace else _random_slopes(input, lower, upper)


def _random_slopes(input: Tensor, lower: float, upper: float) -> Tensor:
    if input.is_meta:
        return leaky_relu(input, lower)
    below = input.detach() <= 0
    drawn = input.new_empty(int(below.sum()), dtype=dtypes.float64).uniform_(lower, upper)
    slopes = input.new_ones(input.shape)
    slopes[below] = drawn.to(input.dtype)
    return slopes * input  # in this order the result is stored row by row


for _name, _function in (("leaky_relu", leaky_relu), ("hardtanh", hardtanh), ("elu", elu)):
    _functional_(_name, _function, "functional")
for _name, _function in (("threshold", threshold), ("selu", selu), ("celu", celu), ("rrelu", rrelu)):
    _functional_(_name, _function, "functional", "function")
export("relu_", Tensor.relu_, "functional")
export("sigmoid", special.sigmoid, "functional")
export("tanh", arithmetic.tanh, "functional")
