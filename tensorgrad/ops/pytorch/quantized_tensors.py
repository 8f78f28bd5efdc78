"""Quantized tensors: made by `quantize_per_tensor` and `quantize_per_channel`, and what may be asked of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorgrad.kernels.quantized.table  # noqa: F401  registers the kernels
from tensorgrad import dtypes, layouts
from tensorgrad.autograd.modes import no_grad
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.ops.compare import where
from tensorgrad.ops.create import from_numpy
from tensorgrad.ops.nn.fake_quantize import check_range, rounded_as_observed
from tensorgrad.storage.quantized import QuantizedArray, limits
from tensorgrad.storage.scales import chosen, chosen_for_one
from tensorgrad.tensor import Tensor, wrap

_quantized = op("quantized(input, scale, zero_point, axis: int, dtype: any)", "quantized_tensors.quantized", where=())
_dequantized = op("dequantized(input)", where=())
_int_repr = op("int_repr(input)", where=())


def _check(input: Tensor, dtype: dtypes.dtype, zero_points: Any) -> None:
    if dtype not in dtypes.QUANTIZED:
        raise RuntimeError(f"ScalarType {dtypes.scalar_type(dtype)} is not supported in new_qtensor.")
    if input.dtype is not dtypes.float32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {dtypes.scalar_type(input)}")
    low, high = limits(dtype)
    for zero_point in zero_points:
        if zero_point > high:
            raise RuntimeError(f"quantize_tensor_per_tensor_affine zero_point {zero_point} is above upper bound.")
        if zero_point < low:
            raise RuntimeError(f"quantize_tensor_per_tensor_affine zero_point {zero_point} is below lower bound.")


@composite("function")
def quantize_per_tensor(input: Tensor, scale: Tensor | float, zero_point: Tensor | int, dtype: dtypes.dtype) -> Tensor:
    """Returns a quantized tensor: integers that stand for (integer - zero_point) * scale.

    Args:
        input: float32.
        scale: the distance of neighbouring values.
        zero_point: the integer that stands for zero.
        dtype: qint8, quint8 or qint32.

    Raises:
        RuntimeError: For other dtypes, or a zero point that is out of range.

    >>> torch.quantize_per_tensor(torch.tensor([-1.0, 0.26, 9.0]), 0.1, 10, torch.quint8).int_repr()
    tensor([  0,  13, 100], dtype=torch.uint8)
    """
    scale, zero_point = float(scale), int(zero_point)
    _check(input, dtype, [zero_point])
    given = wrap(np.array(scale)), wrap(np.array(zero_point))
    return _quantized(input.detach(), *given, -1, dtype.name)


@composite("function")
def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: dtypes.dtype) -> Tensor:
    """Returns a quantized tensor with a scale and a zero point for each index of the dimension `axis`.

    >>> x = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    >>> torch.quantize_per_channel(x, torch.tensor([0.1, 0.5]), torch.tensor([0, 1]), 0, torch.qint8).int_repr()
    tensor([[10, 20],
            [ 3,  5]], dtype=torch.int8)
    """
    if scales.ndim != 1 or zero_points.ndim != 1:
        raise RuntimeError("scale and zero-point need to be 1-D tensors")
    if not 0 <= axis < input.ndim:
        raise RuntimeError("Channel axis out of range in per channel affine quantization.")
    if len(scales) != input.shape[axis] or len(zero_points) != len(scales):
        raise RuntimeError(f"length of scales must equal to channel, expected {input.shape[axis]} got, {len(scales)}")
    _check(input, dtype, zero_points.tolist())
    return _quantized(input.detach(), scales.detach(), zero_points.detach(), axis, dtype.name)


@composite("function")
def quantize_per_tensor_dynamic(input: Tensor, dtype: dtypes.dtype, reduce_range: bool) -> Tensor:
    """`quantize_per_tensor` with the scale and zero point at which all values are in range.

    Args:
        input: float32.
        dtype: qint8 or quint8.
        reduce_range: whether only 7 of the 8 bits are used.

    >>> torch.quantize_per_tensor_dynamic(torch.tensor([0.0, 255.0]), torch.quint8, False).q_scale()
    1.0
    """
    low, high = limits(dtype) if dtype in dtypes.QUANTIZED else (0, 0)
    if dtype not in (dtypes.qint8, dtypes.quint8):
        raise RuntimeError(f"quantize_per_tensor_dynamic: expected qint8 or quint8, got {dtype}")
    if reduce_range:
        low, high = low // 2, high // 2
    array = input.detach()._array
    lowest, highest = (array.min(), array.max()) if array.size else (0, 0)
    scale, zero_point = chosen_for_one(lowest, highest, low, high)
    return quantize_per_tensor(input, scale, zero_point, dtype)


@composite("function")
def fused_moving_avg_obs_fake_quant(
    input: Tensor, observer_on: Tensor, fake_quant_on: Tensor, running_min: Tensor, running_max: Tensor, scale: Tensor,
    zero_point: Tensor, averaging_const: float, quant_min: int, quant_max: int, ch_axis: int,
    per_row_fake_quant: bool = False, symmetric_quant: bool = False,
) -> Tensor:  # fmt: skip
    """Averages the ranges of the values that pass, and rounds them to what integers with such a range stand for.

    The gradient is passed on where nothing was clamped.

    Args:
        input: float32.
        observer_on: whether the range of `input` counts.
        fake_quant_on: whether values are rounded, and the scale and zero point adapted.
        running_min, running_max: the range, overwritten.
        scale, zero_point: overwritten.
        averaging_const: the weight of the range of `input`.
        quant_min, quant_max: the range of the integers.
        ch_axis: the dimension of the channels, 0.
        per_row_fake_quant: whether each channel has a range of its own.
        symmetric_quant: whether zero is in the middle of the integers.

    >>> low, high = torch.tensor([float("inf")]), torch.tensor([float("-inf")])
    >>> scale, zero, on = torch.ones(1), torch.zeros(1, dtype=torch.int32), torch.tensor([1])
    >>> x = torch.tensor([-1.0, 0.3, 2.0])
    >>> torch.fused_moving_avg_obs_fake_quant(x, on, on, low, high, scale, zero, 0.01, 0, 3, 0)
    tensor([-1.,  0.,  2.])
    >>> low, high, scale, zero
    (tensor([-1.]), tensor([2.]), tensor([1.]), tensor([1], dtype=torch.int32))
    """
    if input.dtype is not dtypes.float32:
        raise RuntimeError(f"expected scalar type Float but found {dtypes.scalar_type(input)}")
    if ch_axis >= input.ndim:
        raise RuntimeError("Error in fused_moving_avg_obs_fake_quant_cpu: ch_axis must be < self.dim()")
    if per_row_fake_quant and ch_axis != 0:
        raise RuntimeError("Per-channel FakeQuant in fused_moving_avg_obs_fake_quant is only supported on axis == 0")
    check_range(quant_min, quant_max)
    if not input.numel():
        return input
    observing, rounding = bool(observer_on), bool(fake_quant_on)
    values = input.detach()
    rows = values.flatten(1) if per_row_fake_quant else values.reshape(1, -1)
    state = running_min, running_max, scale, zero_point
    with no_grad():
        if not running_min.numel():  # the first call: now it is known how many channels there are
            for adapted, start in zip(state, (np.inf, -np.inf, 1, 0), strict=True):
                adapted.resize_(len(rows)).fill_(start)
        if (observing or rounding) and any(adapted.numel() != len(rows) for adapted in state):
            raise RuntimeError("dimensions of scale and zero-point are not consistent with input tensor")
        if observing:
            for running, found in (running_min, rows.amin(1)), (running_max, rows.amax(1)):
                known = running.reshape(-1)
                moved = known + averaging_const * (found - known)
                running.copy_(where(known.isinf(), found, moved).reshape(running.shape))
        if rounding:
            ends = running_min.reshape(-1).numpy(), running_max.reshape(-1).numpy()
            made = chosen(*ends, quant_min, quant_max, symmetric_quant, trained=True)
            for adapted, array in zip((scale, zero_point), made, strict=True):
                adapted.copy_(from_numpy(array).reshape(adapted.shape))
    if not rounding:
        return input.clone()
    return rounded_as_observed(input, scale, zero_point, quant_min, quant_max, 0 if per_row_fake_quant else -1)


@composite()
def dequantize(input: Tensor) -> Tensor:
    """Returns the numbers that a quantized tensor stands for, in float32; other tensors as they are.

    >>> torch.quantize_per_tensor(torch.tensor([0.26]), 0.1, 0, torch.qint8).dequantize()
    tensor([0.3000])
    """
    return _dequantized(input) if input.is_quantized else input.float()


@composite()
def int_repr(input: Tensor) -> Tensor:
    """Returns a copy of the integers of a quantized tensor.

    >>> torch.quantize_per_tensor(torch.tensor([0.26]), 0.1, 0, torch.qint8).int_repr()
    tensor([3], dtype=torch.int8)
    """
    _array(input, "int_repr")
    return _int_repr(input)


def _array(input: Tensor, name: str) -> QuantizedArray:
    if not input.is_quantized:
        raise NotImplementedError(f"Could not run 'aten::{name}' with a tensor that is not quantized")
    return input._array


def _uniform(input: Tensor, name: str) -> QuantizedArray:
    array = _array(input, name)
    if array.axis is not None:
        raise RuntimeError(f"{name}: expected qscheme per_tensor_affine, got per_channel_affine")
    return array


def _of_channels(input: Tensor, name: str) -> QuantizedArray:
    array = _array(input, name)
    if array.axis is None:
        raise RuntimeError(f"{name}: expected qscheme per_channel_affine, got per_tensor_affine")
    return array


@composite()
def q_scale(input: Tensor) -> float:
    """Returns the scale of a quantized tensor that has one.

    >>> torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8).q_scale()
    0.5
    """
    return _uniform(input, "q_scale").scale


@composite()
def q_zero_point(input: Tensor) -> int:
    """Returns the zero point of a quantized tensor that has one.

    >>> torch.quantize_per_tensor(torch.ones(2), 0.5, 3, torch.qint8).q_zero_point()
    3
    """
    return _uniform(input, "q_zero_point").zero_point


@composite()
def q_per_channel_scales(input: Tensor) -> Tensor:
    """Returns the scales of a quantized tensor that has one for each channel.

    >>> x = torch.quantize_per_channel(torch.ones(2), torch.tensor([0.5, 1.0]), torch.tensor([0, 0]), 0, torch.qint8)
    >>> x.q_per_channel_scales()
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    return wrap(_of_channels(input, "q_per_channel_scales").scale.copy())


@composite()
def q_per_channel_zero_points(input: Tensor) -> Tensor:
    """Returns the zero points of a quantized tensor that has one for each channel.

    >>> x = torch.quantize_per_channel(torch.ones(2), torch.tensor([0.5, 1.0]), torch.tensor([0, 7]), 0, torch.qint8)
    >>> x.q_per_channel_zero_points()
    tensor([0, 7])
    """
    return wrap(_of_channels(input, "q_per_channel_zero_points").zero_point.copy())


@composite()
def q_per_channel_axis(input: Tensor) -> int | None:
    """Returns the dimension of the channels.

    >>> x = torch.quantize_per_channel(torch.ones(2), torch.ones(2), torch.tensor([0, 0]), 0, torch.qint8)
    >>> x.q_per_channel_axis()
    0
    """
    return _of_channels(input, "q_per_channel_axis").axis


@composite("method")
def qscheme(self: Tensor) -> layouts.qscheme:
    """Returns how the integers stand for numbers: `per_tensor_affine` or `per_channel_affine`.

    >>> torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8).qscheme()
    torch.per_tensor_affine
    """
    array = _array(self, "qscheme")
    if array.axis is None:
        return layouts.per_tensor_affine
    exact = array.zero_point.dtype.kind == "i"
    return layouts.per_channel_affine if exact else layouts.per_channel_affine_float_qparams


def _is_quantized(self: Tensor) -> bool:
    """Whether the tensor is quantized.

    >>> torch.ones(1).is_quantized
    False
    """
    return self._array.__class__ is QuantizedArray


setattr(Tensor, "is_quantized", property(_is_quantized, doc=_is_quantized.__doc__))  # noqa: B010


def from_integers(
    ints: np.ndarray, scale: Any, zero_point: Any, dtype: dtypes.dtype, axis: int | None = None
) -> Tensor:
    """Returns a quantized tensor of integers that are there already."""
    return wrap(QuantizedArray(ints, scale, zero_point, axis, dtype))
