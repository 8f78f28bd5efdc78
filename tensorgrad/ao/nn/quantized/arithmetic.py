"""Sums and products of quantized tensors: each result is rounded once. PyTorch's operators of `torch.ops.quantized`."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.ops.pytorch.quantized_tensors import from_integers
from tensorgrad.storage.quantized import limits
from tensorgrad.tensor import Tensor


def _quantized(numbers: Tensor, like: Tensor, scale: Any, zero_point: Any) -> Tensor:
    return torch.quantize_per_tensor(numbers, float(scale), int(zero_point), like.dtype)


def _in_order(x: Any, y: Any) -> tuple[Tensor, Any]:
    """The tensor first, then the other tensor or the number."""
    return (x, y) if isinstance(x, Tensor) else (y, x)


def add(x: Any, y: Any, scale: Any = None, zero_point: Any = None) -> Tensor:
    """x + y of two quantized tensors; of one and a number, the integers stay, where the zero point can move so far.

    >>> from tensorgrad.ao.nn.quantized import arithmetic
    >>> x = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 10, torch.quint8)
    >>> arithmetic.add(x, x, 0.1, 0).dequantize(), arithmetic.add(x, 3).q_zero_point()
    (tensor([2., 4.]), 4)
    """
    x, y = _in_order(x, y)
    if isinstance(y, Tensor):
        return _quantized(x.dequantize() + y.dequantize(), x, scale, zero_point)
    low, high = limits(x.dtype)
    ints, before, zero = x._array.ints, x.q_scale(), x.q_zero_point() - round(y / x.q_scale())
    if low <= zero <= high:
        return from_integers(ints.copy(), before, zero, x.dtype)
    end = low if zero < low else high
    scale = (high - zero if zero < low else zero - low) / (high - low) * before
    factor = np.float32(before) * (np.float32(1) / np.float32(scale))
    made = np.rint((ints.astype(np.int32) - zero).astype(np.float32) * factor) + end
    return from_integers(np.clip(made, low, high).astype(ints.dtype), scale, end, x.dtype)


def add_relu(x: Any, y: Any, scale: Any = None, zero_point: Any = None) -> Tensor:
    """relu(x + y)."""
    x, y = _in_order(x, y)
    if isinstance(y, Tensor):
        return _quantized(torch.relu(x.dequantize() + y.dequantize()), x, scale, zero_point)
    return torch.relu(add(x, y))


def mul(x: Any, y: Any, scale: Any = None, zero_point: Any = None) -> Tensor:
    """x * y of two quantized tensors; of one and a number, only the scale changes, and if negative the order."""
    x, y = _in_order(x, y)
    if isinstance(y, Tensor):
        return _quantized(x.dequantize() * y.dequantize(), x, scale, zero_point)
    low, high = limits(x.dtype)
    ints, before, zero = x._array.ints, x.q_scale(), x.q_zero_point()
    if y > 0:
        return from_integers(ints.copy(), before * y, zero, x.dtype)
    if y == 0:
        return from_integers(ints * 0, 0.1, 0, x.dtype)
    turned = (low + high - ints.astype(np.int32)).astype(ints.dtype)
    return from_integers(turned, before * -y, high - (zero - low), x.dtype)


def mul_relu(x: Any, y: Any, scale: Any = None, zero_point: Any = None) -> Tensor:
    """relu(x * y)."""
    x, y = _in_order(x, y)
    if isinstance(y, Tensor):
        return _quantized(torch.relu(x.dequantize() * y.dequantize()), x, scale, zero_point)
    return torch.relu(mul(x, y))


def matmul(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """x @ y."""
    return _quantized(x.dequantize() @ y.dequantize(), x, scale, zero_point)
