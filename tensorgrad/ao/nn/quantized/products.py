"""Products of quantized tensors, which quantized modules and `FloatFunctional`'s counterpart share.

The sums of products of integers are exact: kernels compute with integers, everything else in floating point, in a dtype
that holds the sums. Then they are scaled and rounded once, as PyTorch's x86 engine does; its qnnpack differs from that
by a unit in places.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.kernels.array.integer_products import exact_kind
from tensorgrad.nn import functional as F
from tensorgrad.ops.pytorch.integer_products import dynamic_linear, integer_sums
from tensorgrad.ops.pytorch.quantized_tensors import from_integers
from tensorgrad.rows.kernel_tables import run_compiled
from tensorgrad.storage.quantized import limits
from tensorgrad.tensor import Tensor, wrap


def offsets(x: Tensor, terms: int) -> Tensor:
    """The integers less the zero point, in a dtype that holds the sums of so many products."""
    array = x._array
    kind = exact_kind(terms)
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
    x, w = input._array, weight._array
    if np.any(w.zero_point):
        sums = F.linear(offsets(input, terms), offsets(weight, terms))
    else:
        rows = wrap(x.ints.reshape(math.prod(x.shape[:-1]), terms))
        sums = integer_sums(rows, wrap(w.ints), x.zero_point).reshape(*x.shape[:-1], len(w))
    return rescaled(sums, input.q_scale(), weight, bias, scale, zero_point, relu, -1)


def conv(
    input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, padding_mode: str,
    scale: float, zero_point: int, relu: bool = False,
) -> Tensor:  # fmt: skip
    """The convolution of a quantized image and quantized weights, quantized."""
    if groups == 1 and padding_mode == "zeros":
        made = _conv_of_integers(input, weight, bias, (stride, padding, dilation), scale, zero_point, relu)
        if made is not NotImplemented:
            return made
    terms = math.prod(weight.shape[1:])
    x = offsets(input, terms)
    if padding_mode != "zeros":
        sides = [n for pad in reversed(padding) for n in (pad, pad)]
        x, padding = F.pad(x, sides, mode=padding_mode), [0] * len(padding)
    run = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[weight.ndim]
    sums = run(x, offsets(weight, terms), None, stride, padding, dilation, groups)
    return rescaled(sums, input.q_scale(), weight, bias, scale, zero_point, relu, 1 - weight.ndim)


def _conv_of_integers(
    input: Tensor, weight: Tensor, bias: Any, places: Any, scale: float, zero_point: int, relu: bool
) -> Any:
    """The same by a compiled kernel; NotImplemented if there is none for it."""
    x, w = input._array, weight._array
    if weight.ndim != 4 or any(isinstance(each, str | int) or len(each) != 2 for each in places):
        return NotImplemented
    if w.as_weights is None:
        w.as_weights = NotImplemented if np.any(w.zero_point) else np.ascontiguousarray(w.ints.transpose(0, 2, 3, 1))
    if w.as_weights is NotImplemented:
        return NotImplemented
    scales, count = np.float32(x.scale) * np.asarray(w.scale, np.float32), len(w)
    added = np.zeros(count, np.float32) if bias is None else bias.detach().numpy() / scales
    factors = np.array(np.broadcast_to(scales / np.float32(scale), count))
    low = max(limits(torch.quint8)[0], zero_point) if relu else limits(torch.quint8)[0]
    pairs = tuple(tuple(map(int, each)) for each in places)
    made = run_compiled("integer_convolution", x.size, x.ints, w.as_weights, np.ascontiguousarray(added), factors,
                        pairs, int(x.zero_point), low, int(zero_point))  # fmt: skip
    return made if made is NotImplemented else from_integers(made, float(scale), int(zero_point), torch.quint8)


def linear_dynamic(input: Tensor, weight: Tensor, bias: Any, reduce_range: bool) -> Tensor:
    """The product of a float tensor, which is quantized with the range that it has, and quantized weights; in float."""
    array = weight._array
    if array.as_weights is None:
        factors = (wrap(np.asarray(v, np.float32).reshape(-1)) for v in (array.scale, array.zero_point))
        array.as_weights = wrap(array.ints), *factors
    if bias is not None and bias.requires_grad:
        bias = bias.detach()
    if input.dtype is torch.float32:
        return dynamic_linear(input, *array.as_weights, bias, 127 if reduce_range else 255)
    made = dynamic_linear(input.float(), *array.as_weights, None, 127 if reduce_range else 255).to(input.dtype)
    return made if bias is None else made + bias


def reduced_range() -> bool:
    """Whether inputs are quantized to 7 bits, as PyTorch's engines do except qnnpack."""
    return torch.backends.quantized.engine != "qnnpack"
