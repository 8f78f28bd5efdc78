"""Products of quantized tensors, which quantized modules and `FloatFunctional`'s counterpart share.

The sums of products of integers are exact: they are computed in floating point, in a dtype that holds them. Then they
are scaled and rounded once, as PyTorch's x86 engine does; its qnnpack differs from that by a unit in places.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.ops.pytorch.quantized_tensors import from_integers
from tensorgrad.storage.quantized import limits
from tensorgrad.tensor import Tensor, wrap

_EXACT = 2**24 // (255 * 128)  # float32 holds the sums of so many products exactly


def offsets(x: Tensor, terms: int) -> Tensor:
    """The integers less the zero point, in a dtype that holds the sums of so many products."""
    array = x._array
    kind = np.float32 if terms < _EXACT else np.float64
    return wrap(array.ints.astype(kind) - array.along(array.zero_point, kind))


def rescaled(
    sums: Tensor,
    input_scale: float,
    weight: Tensor,
    bias: Tensor | None,
    scale: float,
    zero_point: int,
    relu: bool,
    axis: int,
) -> Tensor:
    """The quint8 tensor of sums of products; `axis` is that of the output channels."""
    scales = np.float32(input_scale) * np.asarray(weight._array.scale, np.float32)
    shape = [-1 if d == axis % sums.ndim else 1 for d in range(sums.ndim)]
    along = lambda values: values.reshape(shape) if values.ndim else values
    found = sums._array.astype(np.float32)
    if bias is not None:
        found = found + along(bias.detach().numpy() / scales)
    found = np.rint(found * along(scales / np.float32(scale))) + np.float32(zero_point)
    low, high = limits(torch.quint8)
    ints = np.clip(found, max(low, zero_point) if relu else low, high).astype(np.uint8)
    return from_integers(ints, float(scale), int(zero_point), torch.quint8)


def linear(input: Tensor, weight: Tensor, bias: Any, scale: float, zero_point: int, relu: bool = False) -> Tensor:
    """The product of a quantized tensor and quantized weights (out, in), quantized."""
    terms = weight.shape[1]
    sums = F.linear(offsets(input, terms), offsets(weight, terms))
    return rescaled(sums, input.q_scale(), weight, bias, scale, zero_point, relu, -1)


def conv(
    input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, padding_mode: str,
    scale: float, zero_point: int, relu: bool = False,
) -> Tensor:  # fmt: skip
    """The convolution of a quantized image and quantized weights, quantized."""
    terms = math.prod(weight.shape[1:])
    x = offsets(input, terms)
    if padding_mode != "zeros":
        sides = [n for pad in reversed(padding) for n in (pad, pad)]
        x, padding = F.pad(x, sides, mode=padding_mode), [0] * len(padding)
    run = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[weight.ndim]
    sums = run(x, offsets(weight, terms), None, stride, padding, dilation, groups)
    return rescaled(sums, input.q_scale(), weight, bias, scale, zero_point, relu, 1 - weight.ndim)


class _StraightThrough(torch.autograd.Function):
    """A product of quantized numbers, with the gradient of the product of those that they stand for."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, reduce_range: bool) -> Tensor:
        ctx.weight = weight
        return linear_dynamic(input.detach(), weight, None, reduce_range)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] @ ctx.weight.dequantize().to(grads[0].dtype), None, None


def linear_dynamic(input: Tensor, weight: Tensor, bias: Any, reduce_range: bool) -> Tensor:
    """The product of a float tensor, which is quantized with the range that it has, and quantized weights; in float."""
    if input.requires_grad and torch.is_grad_enabled():
        made = _StraightThrough.apply(input, weight, reduce_range)
        return made if bias is None else made + bias.detach()
    given = torch.quantize_per_tensor_dynamic(input.float(), torch.quint8, reduce_range)
    terms = weight.shape[1]
    sums = F.linear(offsets(given, terms), offsets(weight, terms))
    scales = np.float32(given.q_scale()) * np.asarray(weight._array.scale, np.float32)
    made = (sums.float() * torch.from_numpy(np.atleast_1d(scales))).to(input.dtype)
    return made if bias is None else made + bias.detach()


def reduced_range() -> bool:
    """Whether inputs are quantized to 7 bits, as PyTorch's engines do except qnnpack."""
    return torch.backends.quantized.engine != "qnnpack"
