"""Integers that mean numbers by a scale and a zero point."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.onnx.operators.layers import conv
from tensorgrad.onnx.operators.pointwise import converted
from tensorgrad.onnx.operators.table import dtype_of, operator


def _along(value: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point for all elements, one for each index along a dimension, or one for each block of them."""
    if value.numel() == 1:
        return value.reshape(())
    axis %= x.dim()
    if value.dim() == 1:
        return value.reshape(-1, *(1,) * (x.dim() - 1 - axis))
    if block <= 0:
        raise ValueError(f"onnx: a scale of shape {list(value.shape)} for blocks of {block} elements")
    return value.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


def _rounded(x: Any, zero: Any, dtype: Any) -> Any:
    """The integers next to numbers, moved by the zero point, within the bounds of their type."""
    bounds = torch.iinfo(dtype)
    made = x.round() if zero is None else x.round() + zero.to(x.dtype)
    return made.clamp(bounds.min, bounds.max).to(dtype)


def _offset(x: Any, zero: Any, axis: int | None = None) -> Any:
    """Integers without their zero point, as float64, in which sums of products are exact."""
    x = x.double()
    if zero is None:
        return x
    if axis is not None and zero.dim() == 1:
        zero = zero.reshape(-1, *(1,) * (x.dim() - 1 - axis % x.dim()))
    return x - zero.double()


@operator("QuantizeLinear")
def quantize_linear(
    x: Any, scale: Any, zero: Any = None, axis: int = 1, saturate: int = 1, block_size: int = 0, output_dtype: int = 0,
    precision: int = 0,
) -> Any:  # fmt: skip
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype or 2)
    x, scale = (t.to(dtype_of(precision)) if precision else t for t in (x, scale))
    x = x / _along(scale, x, axis, block_size)
    if dtype.is_floating_point:
        return converted(x, dtype, saturate)
    return _rounded(x.float(), None if zero is None else _along(zero, x, axis, block_size), dtype)


@operator("DequantizeLinear")
def dequantize_linear(
    x: Any, scale: Any, zero: Any = None, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    made = x.float()
    if zero is not None:
        made = made - _along(zero.float(), x, axis, block_size)
    made = made * _along(scale.float(), x, axis, block_size)
    return made.to(dtype_of(output_dtype) if output_dtype else scale.dtype)


@operator("DynamicQuantizeLinear", several=True)
def dynamic_quantize_linear(x: Any) -> Any:
    lowest, highest = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = torch.where(highest == lowest, torch.ones_like(highest), highest - lowest) / 255
    zero = (-lowest / scale).clamp(0, 255).round()
    return ((x / scale).round() + zero).clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


@operator("MatMulInteger")
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return (_offset(a, a_zero, -2) @ _offset(b, b_zero)).to(torch.int32)


@operator("ConvInteger")
def conv_integer(
    x: Any, w: Any, x_zero: Any = None, w_zero: Any = None,
    strides: Any = None, pads: Any = None, dilations: Any = None, group: int = 1, kernel_shape: Any = None,
    auto_pad: str = "NOTSET",
) -> Any:  # fmt: skip
    made = conv(_offset(x, x_zero), _offset(w, w_zero, 0), None, strides, pads, dilations, group, None, auto_pad)
    return made.to(torch.int32)


@operator("QLinearMatMul")
def qlinear_matmul(a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any) -> Any:
    made = _offset(a, a_zero, -2) @ _offset(b, b_zero)
    a_scale = a_scale.reshape(-1, 1) if a_scale.dim() == 1 and a_scale.numel() > 1 else a_scale
    return _rounded(made * (a_scale * b_scale / scale).double(), zero, a.dtype if zero is None else zero.dtype)


@operator("QLinearConv")
def qlinear_conv(
    x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, scale: Any, zero: Any, b: Any = None,
    strides: Any = None, pads: Any = None, dilations: Any = None, group: int = 1, kernel_shape: Any = None,
    auto_pad: str = "NOTSET",
) -> Any:  # fmt: skip
    b = None if b is None else b.double()
    made = conv(_offset(x, x_zero), _offset(w, w_zero, 0), b, strides, pads, dilations, group, None, auto_pad)
    w_scale = w_scale.reshape(-1, *(1,) * (x.dim() - 2)) if w_scale.dim() == 1 else w_scale
    return _rounded(made * (x_scale * w_scale / scale).double(), zero, x.dtype if zero is None else zero.dtype)
