"""Matrix products, convolutions, pooling, normalization, resizing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorgrad.onnx.builder import Builder, Value, bool, int64
from tensorgrad.onnx.sizes import Varying
from tensorgrad.onnx.translations.pointwise import number
from tensorgrad.onnx.translations.reduce import moments, reduced
from tensorgrad.onnx.translations.table import translates

# --- matrix products ------------------------------------------------------------------------------------------------


def turned(g: Builder, value: Value) -> Value:
    """A matrix, or a batch of them, transposed."""
    rank = value.rank
    return g.transpose(value, [*range(rank - 2), rank - 1, rank - 2])


@translates("linear")
def linear(g: Builder, input: Value, weight: Value, bias: Value | None) -> Value:
    if input.rank == 2 and weight.rank == 2:
        return g.op("Gemm", input, weight, bias, transB=1)
    made = g.op("MatMul", input, turned(g, weight) if weight.rank > 1 else weight)
    return made if bias is None else g.op("Add", made, bias)


@translates("matmul", "mm", "bmm", "mv", "dot")
def matmul(g: Builder, input: Value, *others: Any, **named: Any) -> Value:
    other = (*others, *named.values())[0]
    return g.op("MatMul", number(g, input), number(g, other))


@translates("matmul_nt")
def matmul_nt(g: Builder, input: Value, other: Value) -> Value:
    return g.op("MatMul", input, turned(g, other))


@translates("matmul_tn")
def matmul_tn(g: Builder, input: Value, other: Value) -> Value:
    return g.op("MatMul", turned(g, input), other)


@translates("outer")
def outer(g: Builder, input: Value, vec2: Value) -> Value:
    return g.op("Mul", g.unsqueeze(number(g, input), 1), number(g, vec2))


@translates("addmm")
def addmm(g: Builder, input: Value, mat1: Value, mat2: Value, beta: Any, alpha: Any) -> Value:
    if g.dtype.is_floating_point and beta:
        return g.op("Gemm", mat1, mat2, input, alpha=float(alpha), beta=float(beta))
    return _scaled_sum(g, input, g.op("MatMul", mat1, mat2), beta, alpha)


@translates("addmv", "baddbmm")
def product_added(g: Builder, input: Value, *given: Any, beta: Any, alpha: Any, **named: Any) -> Value:
    a, b = (*given, *named.values())
    return _scaled_sum(g, input, g.op("MatMul", a, b), beta, alpha)


@translates("addr")
def addr(g: Builder, input: Value, vec1: Value, vec2: Value, beta: Any, alpha: Any) -> Value:
    return _scaled_sum(g, input, g.op("Mul", g.unsqueeze(vec1, 1), vec2), beta, alpha)


@translates("addbmm")
def addbmm(g: Builder, input: Value, batch1: Value, batch2: Value, beta: Any, alpha: Any) -> Value:
    return _scaled_sum(g, input, reduced(g, "ReduceSum", g.op("MatMul", batch1, batch2), [0], False), beta, alpha)


def _scaled_sum(g: Builder, input: Value, made: Value, beta: Any, alpha: Any) -> Value:
    made = made if alpha == 1 else g.op("Mul", made, number(g, alpha))
    if not beta:
        return made
    return g.op("Add", input if beta == 1 else g.op("Mul", input, number(g, beta)), made)


# --- convolutions ---------------------------------------------------------------------------------------------------


def _pads(padding: Any) -> list[int]:
    pairs = [(p, p) if isinstance(p, int) else tuple(p) for p in padding]
    return [before for before, _ in pairs] + [after for _, after in pairs]


def _kernel(weight: Value) -> list[int]:
    return [int(d) for d in weight.shape[2:]]


@translates("conv")
def conv(
    g: Builder, input: Value, weight: Value, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Value:
    n = weight.rank - 2
    return g.op(
        "Conv", input, weight, bias, strides=_each(stride, n, 1), pads=_pads(_each(padding, n, 0)),
        dilations=_each(dilation, n, 1), group=groups, kernel_shape=_kernel(weight),
    )  # fmt: skip


def _each(values: Any, n: int, default: int) -> list:
    values = (values,) if isinstance(values, int) else tuple(values)
    return list(values * n if len(values) == 1 else values or (default,) * n)


@translates("conv_transpose")
def conv_transpose(
    g: Builder, input: Value, weight: Value, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any,
    groups: int,
) -> Value:  # fmt: skip
    n = weight.rank - 2
    if any(more >= step for more, step in zip(_each(output_padding, n, 0), _each(stride, n, 1), strict=True)):
        raise NotImplementedError(f"output_padding {output_padding} that is not below the stride {stride}")
    return g.op(
        "ConvTranspose", input, weight, bias, strides=_each(stride, n, 1), pads=_pads(_each(padding, n, 0)),
        output_padding=_each(output_padding, n, 0), dilations=_each(dilation, n, 1), group=groups,
        kernel_shape=_kernel(weight),
    )  # fmt: skip


@translates("im2col")
def im2col(g: Builder, input: Value, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    value = input
    if any(padding):
        value = g.op("Pad", value, [0, 0, *padding, 0, 0, *padding])
    for i, axis in enumerate((2, 4)):  # (N, C, H, W) -> (N, C, kh, oh, W) -> (N, C, kh, oh, kw, ow)
        size = int(input.shape[2 + i]) + 2 * padding[i]
        count = (size - dilation[i] * (kernel_size[i] - 1) - 1) // stride[i] + 1
        at = np.arange(kernel_size[i])[:, None] * dilation[i] + np.arange(count) * stride[i]
        value = g.op("Gather", value, at.astype(np.int64), axis=axis)
    return g.reshape(g.transpose(value, [0, 1, 2, 4, 3, 5]), g.shape)


@translates("col2im")
def col2im(
    g: Builder, input: Value, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Value:
    return g.op("Col2Im", input, list(output_size), list(kernel_size), dilations=list(dilation), pads=_pads(padding),
                strides=list(stride))  # fmt: skip


# --- pooling --------------------------------------------------------------------------------------------------------


def _window(kernel_size: Any, stride: Any, padding: Any, ceil_mode: Any) -> dict[str, Any]:
    return {"kernel_shape": list(kernel_size), "strides": list(stride), "pads": _pads(padding),
            "ceil_mode": int(ceil_mode)}  # fmt: skip


@translates("max_pool_values")
def max_pool_values(
    g: Builder, input: Value, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> Value:
    return g.op("MaxPool", input, dilations=list(dilation), **_window(kernel_size, stride, padding, ceil_mode))


@translates("max_pool")
def max_pool(
    g: Builder, input: Value, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> Any:
    if g.results[1][1] is None:
        return max_pool_values(g, input, kernel_size, stride, padding, dilation, ceil_mode), None
    values, at = g.op("MaxPool", input, outputs=2, dilations=list(dilation),
                      **_window(kernel_size, stride, padding, ceil_mode))  # fmt: skip
    at.dtype = int64
    return values, g.op("Mod", at, _plane(g, input))  # ONNX counts in the whole tensor, PyTorch in each plane


def _plane(g: Builder, input: Value) -> Value:
    size = g.size(input.shape[2])
    for d in input.shape[3:]:
        size = g.op("Mul", size, g.size(d))
    return size


@translates("avg_pool")
def avg_pool(
    g: Builder, input: Value, kernel_size: Any, stride: Any, padding: Any, ceil_mode: Any, include: Any, divisor: Any
) -> Value:
    if divisor is not None and ceil_mode:
        input, padding, ceil_mode = _filled_up(g, input, kernel_size, stride, padding), (0,) * len(kernel_size), False
    made = g.op("AveragePool", input, count_include_pad=int(include or divisor is not None),
                **_window(kernel_size, stride, padding, ceil_mode))  # fmt: skip
    if divisor is None:
        return made
    return g.op("Mul", made, number(g, math.prod(kernel_size) / divisor))


def _filled_up(g: Builder, input: Value, kernel_size: Any, stride: Any, padding: Any) -> Value:
    """An input with zeros around it, as many as whole windows need: parts of windows have sums of their own."""
    n = len(kernel_size)
    sizes, counts = input.shape[-n:], g.shape[-n:]
    if not all(isinstance(size, int) for size in (*sizes, *counts)):
        raise NotImplementedError("divisor_override with ceil_mode and sizes that vary")
    after = [max((count - 1) * step + window - size - before, 0) for count, step, window, size, before
             in zip(counts, stride, kernel_size, sizes, padding, strict=True)]  # fmt: skip
    rest = [0] * (input.rank - n)
    return g.op("Pad", input, [*rest, *padding, *rest, *after])


@translates("adaptive_avg_pool")
def adaptive_avg_pool(g: Builder, input: Value, output_size: Any) -> Value:
    if all(d == 1 for d in output_size):
        return g.op("GlobalAveragePool", input)
    sizes = [int(d) for d in input.shape[2:]]
    if all(size % out == 0 for size, out in zip(sizes, output_size, strict=True)):
        kernel = [size // out for size, out in zip(sizes, output_size, strict=True)]
        return g.op("AveragePool", input, kernel_shape=kernel, strides=kernel)
    value = input
    for i, (size, out) in enumerate(zip(sizes, output_size, strict=True)):  # a matrix of weights for each dimension
        weights = np.zeros((size, out))
        for o in range(out):
            window = slice(o * size // out, -(-(o + 1) * size // out))
            weights[window, o] = 1 / (window.stop - window.start)
        order = list(range(input.rank))
        order[2 + i], order[-1] = order[-1], order[2 + i]
        value = g.transpose(value, order)
        value = g.transpose(g.op("MatMul", value, g.constant(weights, g.dtype)), order)
    return value


@translates("adaptive_max_pool")
def adaptive_max_pool(g: Builder, input: Value, output_size: Any) -> Any:
    if g.results[1][1] is None and all(d == 1 for d in output_size):
        return g.op("GlobalMaxPool", input), None
    sizes = [int(d) for d in input.shape[2:]]
    if any(size % out for size, out in zip(sizes, output_size, strict=True)):
        if g.results[1][1] is not None:
            raise NotImplementedError(
                f"the indices for an output of {tuple(output_size)} and an input of {tuple(sizes)}"
            )
        for axis, (size, out) in enumerate(zip(sizes, output_size, strict=True), 2):  # windows, the last element again
            windows = [np.arange(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]
            longest = max(map(len, windows))
            at = np.stack([np.pad(w, (0, longest - len(w)), mode="edge") for w in windows])
            input = reduced(g, "ReduceMax", g.op("Gather", input, at, axis=axis), [axis + 1], False)
        return input, None
    kernel = [size // out for size, out in zip(sizes, output_size, strict=True)]
    n = len(kernel)
    return max_pool(g, input, kernel, kernel, [0] * n, [1] * n, False)


# --- normalization --------------------------------------------------------------------------------------------------


def _or_filled(g: Builder, value: Value | None, fill: float, shape: Any) -> Value:
    return value if value is not None else g.constant(np.full([int(d) for d in shape], fill), g.dtype)


@translates("layer_norm")
def layer_norm(g: Builder, input: Value, weight: Any, bias: Any, axes: Any, eps: float) -> Value:
    axis = min(axes)
    scale = _or_filled(g, weight, 1, input.shape[axis:])
    return g.op("LayerNormalization", input, scale, bias, axis=axis, epsilon=eps)


@translates("rms_norm")
def rms_norm(g: Builder, input: Value, weight: Any, axes: Any, eps: float) -> Value:
    if g.opset >= 23:
        scale = _or_filled(g, weight, 1, input.shape[min(axes) :])
        return g.op("RMSNormalization", input, scale, axis=min(axes), epsilon=eps)
    squares = reduced(g, "ReduceMean", g.op("Mul", input, input), sorted(axes), True)
    made = g.op("Div", input, g.op("Sqrt", g.op("Add", squares, number(g, eps))))
    return made if weight is None else g.op("Mul", made, weight)


@translates("batch_norm")
def batch_norm(
    g: Builder, input: Value, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: Any, eps: float
) -> Any:
    channels = input.shape[1]
    if not training:
        scale, shift = _or_filled(g, weight, 1, [channels]), _or_filled(g, bias, 0, [channels])
        made = g.op("BatchNormalization", input, scale, shift, running_mean, running_var, epsilon=eps)
        return made, running_mean, running_var  # which the next call of the same module takes
    statistics = all(dtype is None for dtype, _ in g.results[1:])
    if statistics and input.shape[0] == 1 and isinstance(channels, int) and input.rank > 2:
        scale, shift = _or_filled(g, weight, 1, [channels]), _or_filled(g, bias, 0, [channels])
        return g.op("InstanceNormalization", input, scale, shift, epsilon=eps), None, None
    axes = [d for d in range(input.rank) if d != 1]
    variance, mean = moments(g, input, axes, 0, True)
    made = g.op("Sub", input, mean)
    made = g.op("Div", made, g.op("Sqrt", g.op("Add", variance, number(g, eps))))
    shape = (-1, *(1,) * (input.rank - 2))
    made = made if weight is None else g.op("Mul", made, g.op("Reshape", weight, list(shape)))
    made = made if bias is None else g.op("Add", made, g.op("Reshape", bias, list(shape)))
    return made, None, None


@translates("group_norm")
def group_norm(g: Builder, input: Value, weight: Any, bias: Any, groups: int, eps: float) -> Value:
    channels = int(input.shape[1])
    if g.opset >= 21:
        scale, shift = _or_filled(g, weight, 1, [channels]), _or_filled(g, bias, 0, [channels])
        return g.op("GroupNormalization", input, scale, shift, num_groups=groups, epsilon=eps)
    value = g.op("Reshape", input, [0, groups, -1])
    ones, zeros = g.constant(np.ones(groups), g.dtype), g.constant(np.zeros(groups), g.dtype)
    made = g.reshape(g.op("InstanceNormalization", value, ones, zeros, epsilon=eps), input.shape)
    shape = [channels, *(1,) * (input.rank - 2)]
    made = made if weight is None else g.op("Mul", made, g.op("Reshape", weight, shape))
    return made if bias is None else g.op("Add", made, g.op("Reshape", bias, shape))


# --- resizing -------------------------------------------------------------------------------------------------------


def _resize(mode: str, nearest: str | None = None, antialias: int = 0) -> Any:
    def translate(g: Builder, input: Value, size: Any, align: Any, scales: Any) -> Value:
        coordinates = "align_corners" if align else "half_pixel"
        if nearest == "floor":
            coordinates = "asymmetric"
        attributes: dict[str, Any] = {
            "mode": mode,
            "coordinate_transformation_mode": coordinates,
            "nearest_mode": nearest,
            "cubic_coeff_a": -0.75 if mode == "cubic" else None,
            "antialias": antialias or None,
        }
        if scales is not None and None not in scales and not isinstance(scales, Varying):
            factors = np.array([1.0, 1.0, *scales], dtype=np.float32)
            return g.op("Resize", input, None, factors, **attributes)
        return g.op("Resize", input, None, None, g.ints([*input.shape[:2], *g.shape[2:]]), **attributes)

    return translate


for _n, _linear in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    translates(f"upsample_nearest{_n}d")(_resize("nearest", "floor"))
    translates(f"upsample_nearest_exact{_n}d")(_resize("nearest", "round_prefer_ceil"))
    translates(f"upsample_{_linear}")(_resize("linear"))
translates("upsample_bicubic2d")(_resize("cubic"))
translates("upsample_bilinear2d_aa")(_resize("linear", antialias=1))
translates("upsample_bicubic2d_aa")(_resize("cubic", antialias=1))


@translates("grid_sampler_2d")
def grid_sampler(
    g: Builder, input: Value, grid: Value, interpolation_mode: Any, padding_mode: Any, align_corners: Any
) -> Value:
    names = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    mode = {0: 0, 1: 1, 2: 2, "bilinear": 0, "nearest": 1, "bicubic": 2}[interpolation_mode]
    padding = {0: "zeros", 1: "border", 2: "reflection"}.get(padding_mode, padding_mode)
    return g.op("GridSample", input, grid, mode=names[mode], padding_mode=padding, align_corners=int(align_corners))


# --- losses ---------------------------------------------------------------------------------------------------------


@translates("nll")
def nll(g: Builder, input: Value, target: Value, weight: Any, ignore_index: int, reduction: str) -> Any:
    if input.rank == 1:
        raise NotImplementedError("one example without a dimension of examples")
    made = g.op("NegativeLogLikelihoodLoss", input, target, weight, ignore_index=ignore_index, reduction=reduction)
    if len(g.results) < 2 or g.results[1][1] is None:
        return made
    counted = g.op("Not", g.op("Equal", target, g.constant(ignore_index, target.dtype), dtype=bool))
    weights = g.cast(counted, g.dtype)
    if weight is not None:
        known = g.op("Where", counted, target, g.constant(0, target.dtype), dtype=target.dtype)
        weights = g.op("Mul", g.op("Gather", weight, known), weights)
    return made, weights if reduction == "none" else g.op("ReduceSum", weights, keepdims=0)


@translates("cross_entropy")
def cross_entropy(
    g: Builder, input: Value, target: Value, weight: Any, ignore_index: int, label_smoothing: float, reduction: str
) -> Value:
    if target.dtype.is_floating_point or label_smoothing:
        raise NotImplementedError("probabilities of classes, or label_smoothing")
    alone = input.rank == 1
    if alone:  # one example without a dimension of examples
        input, target = g.unsqueeze(input, 0), g.unsqueeze(target, 0)
    made = g.op("SoftmaxCrossEntropyLoss", input, target, weight, ignore_index=ignore_index, reduction=reduction)
    return g.squeeze(made, 0) if alone and reduction == "none" else made
