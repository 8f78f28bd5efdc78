"""`torch.ops.quantized_decomposed`: quantization as operators on ordinary tensors of integers.

Scales, zero points and limits are arguments. Programs that rewrite graphs look for these operators, and add their own
to `quantized_decomposed_lib`.
"""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.library import Library
from tensorgrad.tensor import Tensor

__all__ = ["quantized_decomposed_lib"]

quantized_decomposed_lib = Library("quantized_decomposed", "DEF")

_INTEGERS = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32)
_EIGHT_BITS = (torch.float8_e5m2, torch.float8_e4m3fn)
_HALF = (torch.float16, torch.bfloat16)
_EPS = torch.finfo(torch.float32).eps


def _limits(dtype: Any) -> tuple[int, int]:
    """The least and the largest value of a dtype. Raises: ValueError for one that holds no quantized numbers."""
    if dtype not in (*_INTEGERS, *_EIGHT_BITS):
        raise ValueError(f"Unsupported dtype: {dtype}")
    info = torch.iinfo(dtype) if dtype in _INTEGERS else torch.finfo(dtype)
    return int(info.min), int(info.max)


def _check(low: int, high: int, dtype: Any) -> None:
    least, most = _limits(dtype)
    if low < least:
        raise AssertionError(f"quant_min out of bounds for dtype, quant_min_lower_bound: {least} quant_min: {low}")
    if high > most:
        raise AssertionError(f"quant_max out of bounds for dtype, quant_max_upper_bound: {most} quant_max: {high}")


def _in_float(input: Tensor) -> Tensor:
    input = input.to(torch.float32) if input.dtype in _HALF else input
    if input.dtype is not torch.float32:
        raise AssertionError(f"Expecting input to have dtype torch.float32, but got dtype: {input.dtype}")
    return input


def _number(name: str, value: Any) -> Any:
    """The only element of a tensor. Raises: AssertionError if it has several."""
    if value.numel() != 1:
        raise AssertionError(f"Expecting {name} tensor to be one element, but received : {value.numel()}")
    return value.item()


# --- one scale for all -----------------------------------------------------------------------------------------------


def quantize_per_tensor(input: Tensor, scale: float, zero_point: int, low: int, high: int, dtype: Any) -> Tensor:
    """round(input / scale) + zero_point, in the limits."""
    input = _in_float(input)
    _check(low, high, dtype)
    return torch.clamp(torch.round(input * (1.0 / scale)) + zero_point, low, high).to(dtype)


def _quantize_by_tensors(input: Tensor, scale: Tensor, zero_point: Tensor, low: Any, high: Any, dtype: Any) -> Tensor:
    """The same; scale and zero point are tensors of one element, and the limits may be."""
    zero_point, scale = _number("zero_point", zero_point), _number("scale", scale)
    low, high = (value.item() if isinstance(value, Tensor) else value for value in (low, high))
    return quantize_per_tensor(input, scale, zero_point, low, high, dtype)  # type: ignore[arg-type]


def dequantize_per_tensor(
    input: Tensor, scale: float, zero_point: int, low: int, high: int, dtype: Any, *, out_dtype: Any = None
) -> Tensor:
    """(input - zero_point) * scale."""
    if input.dtype is not dtype:
        raise AssertionError(f"Expecting input to have dtype: {dtype}, but got {input.dtype}")
    if dtype not in (*_INTEGERS, *_EIGHT_BITS):
        raise ValueError(f"Unsupported dtype in dequantize_per_tensor: {dtype}")
    return (input.to(out_dtype or torch.float32) - zero_point) * scale


def _dequantize_by_tensors(
    input: Tensor, scale: Tensor, zero_point: Tensor, low: Any, high: Any, dtype: Any, *, out_dtype: Any = None
) -> Tensor:
    """The same; scale and zero point are tensors of one element."""
    zero_point, scale = _number("zero_point", zero_point), _number("scale", scale)
    return dequantize_per_tensor(input, scale, zero_point, 0, 0, dtype, out_dtype=out_dtype)  # type: ignore[arg-type]


def _parameters(input: Tensor, low: int, high: int, eps: float, dtype: Any, symmetric: bool) -> tuple[Tensor, Tensor]:
    """A scale and a zero point for the values of a tensor."""
    if input.dtype not in (torch.float32, *_HALF):
        raise AssertionError(f"Expecting input to have dtype torch.float32/16/b16, but got dtype: {input.dtype}")
    if dtype not in (*_INTEGERS, *_EIGHT_BITS):
        raise AssertionError(f"Expecting target dtype to be one that holds quantized numbers, but got: {dtype}")
    if not low <= 0 <= high:
        raise AssertionError("Used-specified quantization range must include 0.")
    if low >= high:
        raise AssertionError("qmin must be strictly less than qmax for user-specified quantization range.")
    least, most = torch.aminmax(input)
    below, above, steps = least.clamp(max=0), most.clamp(min=0), float(high - low)
    smallest = torch.tensor([eps], dtype=torch.float32)
    if symmetric:
        scale = torch.maximum(torch.maximum(-below, above) / (steps / 2), smallest)
        zero = torch.full((1,), 128 if dtype is torch.uint8 else 0)
    else:
        scale = torch.maximum((above - below) / steps, smallest)
        zero = (low - torch.round(below / scale).to(torch.int32)).clamp(low, high)
    return scale.reshape(1).to(torch.float64), zero.reshape(1).to(torch.int64)


def choose_qparams(input: Tensor, low: int, high: int, eps: float, dtype: Any) -> tuple[Tensor, Tensor]:
    """A scale and a zero point that cover the values of a tensor, and zero."""
    return _parameters(input, low, high, eps, dtype, symmetric=False)


def choose_qparams_symmetric(input: Tensor, low: int, high: int, eps: float, dtype: Any) -> tuple[Tensor, Tensor]:
    """The same, of a range around zero."""
    return _parameters(input, low, high, eps, dtype, symmetric=True)


# --- one scale for each channel --------------------------------------------------------------------------------------


def _along(values: Tensor, dims: int, axis: int) -> Tensor:
    """A vector that meets a dimension. Raises: AssertionError if there is no such dimension."""
    if axis >= dims:
        raise AssertionError(f"Expecting axis to be < {dims}")
    return values.view([-1 if d == axis % dims else 1 for d in range(dims)])


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, low: int, high: int, dtype: Any
) -> Tensor:
    """`quantize_per_tensor` with a scale and a zero point for each index of a dimension."""
    input = _in_float(input)
    scales = _along(scales, input.ndim, axis)
    _check(low, high, dtype)
    zeros = _along(zero_points, input.ndim, axis)
    return torch.clamp(torch.round(input * (1.0 / scales)) + zeros, low, high).to(dtype)


def dequantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor | None, axis: int, low: int, high: int, dtype: Any, *,
    out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """`dequantize_per_tensor` with a scale and a zero point for each index of a dimension."""
    if input.dtype is not dtype:
        raise AssertionError(f"Expecting input to have dtype: {dtype}, but got dtype: {input.dtype}")
    scales = _along(scales, input.ndim, axis)
    _check(low, high, dtype)
    shifted = input if zero_points is None else input - _along(zero_points, input.ndim, axis)
    return (shifted * scales).to(out_dtype or torch.float32)


# --- one scale for each row ------------------------------------------------------------------------------------------


def choose_qparams_per_token(input: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """A scale for each row, of a range around zero, and zero points of zero."""
    if dtype is not torch.int8:
        raise Exception(f"unsupported dtype in choose_qparams_per_token: {dtype}")
    most = input.abs().amax(dim=-1, keepdim=True)
    most = most.float() if most.dtype is torch.float16 else most  # whose range is short
    scales = most.clamp(min=1e-5).div(127)
    return scales, torch.zeros_like(scales)


def choose_qparams_per_token_asymmetric(input: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """A scale and a zero point for each row, for integers of eight bits."""
    low, high = -128, 127
    below = torch.amin(input, dim=-1, keepdim=True).clamp(max=0)
    above = torch.amax(input, dim=-1, keepdim=True).clamp(min=0)
    scale = ((above - below) / float(high - low)).clamp(min=_EPS)
    from_below, from_above = below / scale, above / scale
    zero = torch.where(low + from_below + high + from_above > 0, low - from_below, high - from_above)
    return scale.to(torch.float64), torch.clamp(zero, low, high).round().to(torch.int64)


def _check_rows(input: Tensor, scales: Tensor, zero_points: Tensor) -> None:
    rows = math.prod(input.shape[:-1])
    if rows != scales.numel():
        raise AssertionError(f"num_tokens: {rows} scales: {scales.size()}")
    if rows != zero_points.numel():
        raise AssertionError(f"num_tokens: {rows} zero_points: {zero_points.size()}")


def quantize_per_token(input: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: Any) -> Tensor:
    """`quantize_per_tensor` with a scale and a zero point for each row."""
    _check(low, high, dtype)
    _check_rows(input, scales, zero_points)
    return input.mul(1.0 / scales).add(zero_points).round().clamp(low, high).to(dtype)


def dequantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: Any, output_dtype: Any
) -> Tensor:
    """`dequantize_per_tensor` with a scale and a zero point for each row."""
    return ((input - zero_points) * scales).to(output_dtype)


_LIMITS = "int quant_min, int quant_max, ScalarType dtype"
_BY_TENSORS = "Tensor input, Tensor scale, Tensor zero_point"
_ROWS = "Tensor input, Tensor scales, Tensor zero_points"
_OUT = "*, ScalarType? out_dtype=None"

for _schema, _kernel in (
    (f"quantize_per_tensor(Tensor input, float scale, int zero_point, {_LIMITS}) -> Tensor", quantize_per_tensor),
    (f"quantize_per_tensor.tensor({_BY_TENSORS}, {_LIMITS}) -> Tensor", _quantize_by_tensors),
    (f"quantize_per_tensor.tensor2({_BY_TENSORS}, {_LIMITS.replace('int ', 'Tensor ')}) -> Tensor",
     _quantize_by_tensors),
    (f"dequantize_per_tensor(Tensor input, float scale, int zero_point, {_LIMITS}, {_OUT}) -> Tensor",
     dequantize_per_tensor),
    (f"dequantize_per_tensor.tensor({_BY_TENSORS}, {_LIMITS}, {_OUT}) -> Tensor", _dequantize_by_tensors),
    (f"dequantize_per_tensor.tensor2({_BY_TENSORS}, {_LIMITS.replace('int ', 'Tensor ')}, {_OUT}) -> Tensor",
     _dequantize_by_tensors),
    ("choose_qparams.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) "
     "-> (Tensor, Tensor)", choose_qparams),
    ("choose_qparams_symmetric.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) "
     "-> (Tensor, Tensor)", choose_qparams_symmetric),
    (f"quantize_per_channel({_ROWS}, int axis, {_LIMITS}) -> Tensor", quantize_per_channel),
    (f"dequantize_per_channel({_ROWS.replace('Tensor zero', 'Tensor? zero')}, int axis, {_LIMITS}, {_OUT}) -> Tensor",
     dequantize_per_channel),
    ("choose_qparams_per_token(Tensor input, ScalarType dtype) -> (Tensor, Tensor)", choose_qparams_per_token),
    ("choose_qparams_per_token_asymmetric(Tensor input, ScalarType dtype) -> (Tensor, Tensor)",
     choose_qparams_per_token_asymmetric),
    (f"quantize_per_token({_ROWS}, {_LIMITS}) -> Tensor", quantize_per_token),
    (f"dequantize_per_token({_ROWS}, {_LIMITS}, ScalarType output_dtype) -> Tensor", dequantize_per_token),
):  # fmt: skip
    quantized_decomposed_lib.impl(quantized_decomposed_lib.define(_schema), _kernel, "CompositeExplicitAutograd")
