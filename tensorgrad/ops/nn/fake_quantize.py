"""Fake quantization: floating-point values rounded to those that integers with a scale and a zero point can stand for.

The gradient passes unchanged where the value was in range, and is zero elsewhere, as if there were no rounding (the
straight-through estimator). So a network learns to do well with the rounded values.

Source: Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons", 2013; Esser et al., "Learned
Step Size Quantization", 2020 (the gradients of scales and zero points).
"""

from __future__ import annotations

from typing import Any

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.ops.create import tensor
from tensorgrad.tensor import Tensor

_PARAMS = "(input, scale, zero_point, quant_min: int, quant_max: int, axis: int"


def _declared(name: str, kernel: str, more: str = "", **row: Any) -> Any:
    """A row of these parameters, and `more`."""

    def of_batch(input, scale, zero_point, quant_min, quant_max, axis, *rest, mapped):
        if mapped != {"input"}:
            return NotImplemented
        return made(input, scale, zero_point, quant_min, quant_max, axis + 1 if axis >= 0 else axis, *rest)

    def of_batch_and_factor(input, scale, zero_point, quant_min, quant_max, axis, grad_factor, mapped):
        return of_batch(input, scale, zero_point, quant_min, quant_max, axis, grad_factor, mapped=mapped)

    def of_batch_alone(input, scale, zero_point, quant_min, quant_max, axis, mapped):
        return of_batch(input, scale, zero_point, quant_min, quant_max, axis, mapped=mapped)

    made: Any = op(f"{name}{_PARAMS}{more})", kernel, where=(), batch=of_batch_and_factor if more else of_batch_alone,
                   shape=lambda input, *rest: (input.shape, input.dtype), **row)  # fmt: skip
    return made


_inside = _declared("fake_quantize_inside", "fake_quantize.inside")
_scale_terms = _declared("fake_quantize_scale_terms", "fake_quantize.scale_terms")


def _straight_through(g, input, scale, zero_point, quant_min, quant_max, axis):
    return g * _inside(input, scale, zero_point, quant_min, quant_max, axis)


def _row(name: str, backward_name: str) -> Any:
    return _declared(name, "fake_quantize.fake_quantize", input=_straight_through, jacobian="symmetric",
                     backward_name=f"{backward_name}Backward0")  # fmt: skip


def _summed(g: Tensor, like: Tensor, axis: int) -> Tensor:
    """Sums what belongs to each scale."""
    if axis < 0:
        return g.sum().expand(like.shape)
    others = [d for d in range(g.ndim) if d != axis]
    return (g.sum(others) if others else g).reshape(like.shape)


def _of_scale(g, input, scale, zero_point, quant_min, quant_max, axis, grad_factor):
    return _summed(g * _scale_terms(input, scale, zero_point, quant_min, quant_max, axis), scale, axis) * grad_factor


def _of_zero_point(g, input, scale, zero_point, quant_min, quant_max, axis, grad_factor):
    outside = 1 - _inside(input, scale, zero_point, quant_min, quant_max, axis)
    return _summed(g * outside * -_along(scale, g, axis), zero_point, axis) * grad_factor


def _along(values: Tensor, like: Tensor, axis: int) -> Tensor:
    if axis < 0:
        return values.reshape(())
    return values.reshape([-1 if d == axis else 1 for d in range(like.ndim)])


def _learnable_row(name: str, backward_name: str) -> Any:
    def of_input(g, input, scale, zero_point, quant_min, quant_max, axis):
        return _straight_through(g, input, scale, zero_point, quant_min, quant_max, axis)

    return _declared(name, "fake_quantize.learnable", ", grad_factor: float", input=of_input, scale=_of_scale,
                     zero_point=_of_zero_point, backward_name=f"{backward_name}Backward0")  # fmt: skip


_per_tensor = _row("fake_quantize_per_tensor_row", "FakeQuantizePerTensorAffineCachemask")
_per_tensor_of_tensors = _row(
    "fake_quantize_per_tensor_of_tensors", "FakeQuantizePerTensorAffineCachemaskTensorQparams"
)
_per_channel = _row("fake_quantize_per_channel_row", "FakeQuantizePerChannelAffineCachemask")
_as_observed = _row("fused_moving_avg_obs_fq_row", "FusedMovingAvgObsFqHelper")
_learnable = _learnable_row("fake_quantize_learnable_row", "FakeQuantizeLearnablePerTensorAffine")
_learnable_channels = _learnable_row("fake_quantize_learnable_channels", "FakeQuantizeLearnablePerChannelAffine")


def check_range(quant_min: int, quant_max: int) -> None:
    """Raises: RuntimeError if the range of integers is empty."""
    if quant_min > quant_max:
        raise RuntimeError("`quant_min` should be less than or         equal to `quant_max`.")


def _check_zero_points(lowest: float, highest: float, quant_min: int, quant_max: int) -> None:
    if not quant_min <= lowest <= highest <= quant_max:
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")


@composite("function")
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Tensor | float, zero_point: Tensor | int, quant_min: int, quant_max: int
) -> Tensor:
    """Rounds to the values that integers from `quant_min` to `quant_max` stand for.

    Returns (clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale. The gradient is
    passed on where nothing was clamped.

    Args:
        input: floating-point values.
        scale: the distance of neighbouring values.
        zero_point: the integer that stands for zero.
        quant_min, quant_max: the range of the integers.

    Raises:
        RuntimeError: If the zero point is out of range, or the range empty.

    >>> torch.fake_quantize_per_tensor_affine(torch.tensor([0.2, 0.26, 9.0]), 0.5, 0, -8, 7)
    tensor([0.0000, 0.5000, 3.5000])
    """
    check_range(quant_min, quant_max)
    if isinstance(scale, Tensor) and isinstance(zero_point, Tensor):
        return _per_tensor_of_tensors(input, scale.detach(), zero_point.detach(), quant_min, quant_max, -1)
    scale, zero_point = float(scale), int(zero_point)
    _check_zero_points(zero_point, zero_point, quant_min, quant_max)
    where = input.device
    given = tensor(scale, dtype=dtypes.float64, device=where), tensor(zero_point, dtype=dtypes.int64, device=where)
    return _per_tensor(input, *given, quant_min, quant_max, -1)


@composite("function")
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each index of the dimension `axis`.

    >>> x, scales = torch.tensor([[0.3, 0.8], [0.3, 0.8]]), torch.tensor([1.0, 0.5])
    >>> torch.fake_quantize_per_channel_affine(x, scales, torch.zeros(2, dtype=torch.int32), 0, -8, 7)
    tensor([[0.0000, 1.0000],
            [0.5000, 1.0000]])
    """
    axis = _check_channels(input, scale, zero_point, axis)
    check_range(quant_min, quant_max)
    if zero_point.dtype not in (dtypes.int32, dtypes.float32, dtypes.float16):
        raise RuntimeError(f"Zero-point must be Int32, Float or Half, found {dtypes.scalar_type(zero_point)}")
    if zero_point.dtype is dtypes.int32 and zero_point.numel():
        _check_zero_points(int(zero_point.min()), int(zero_point.max()), quant_min, quant_max)
    return _per_channel(input, scale.detach(), zero_point.detach(), quant_min, quant_max, axis)


def _check_channels(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> int:
    if scale.ndim != 1 or zero_point.ndim != 1:
        raise RuntimeError("scale and zero-point need to be 1-D tensors")
    if not 0 <= axis <= input.ndim:
        raise RuntimeError("`axis` must be between 0 and number of dimensions of input")
    if scale.shape != zero_point.shape or axis == input.ndim or scale.shape[0] != input.shape[axis]:
        raise RuntimeError("dimensions of scale and zero-point are not consistent with input tensor")
    return axis


def rounded_as_observed(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, axis: int
) -> Tensor:
    """The same for the scale and the zero point of an observer; `axis`: -1 if there is one for all.

    An observer that steps of a graph share changes both again before the backward pass, which needs these.
    """
    return _as_observed(input, scale.detach().clone(), zero_point.detach().clone(), quant_min, quant_max, axis)


@composite("function")
def _fake_quantize_learnable_per_tensor_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """`fake_quantize_per_tensor_affine` with gradients for the scale and the zero point, too, times `grad_factor`.

    >>> scale = torch.tensor([0.5], requires_grad=True)
    >>> y = torch._fake_quantize_learnable_per_tensor_affine(torch.tensor([9.0]), scale, torch.zeros(1), -8, 7)
    >>> y.backward()
    >>> scale.grad
    tensor([7.])
    """
    return _learnable(input, scale, zero_point, quant_min, quant_max, -1, grad_factor)


@composite("function")
def _fake_quantize_learnable_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:  # fmt: skip
    """The same with a scale and a zero point for each index of the dimension `axis`.

    >>> x, ones = torch.tensor([[0.3], [9.0]]), torch.ones(2)
    >>> torch._fake_quantize_learnable_per_channel_affine(x, ones, torch.zeros(2), 0, -8, 7)
    tensor([[0.],
            [7.]])
    """
    axis = _check_channels(input, scale, zero_point, axis)
    return _learnable_channels(input, scale, zero_point, quant_min, quant_max, axis, grad_factor)
