"""Products, convolutions, pooling and normalization."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.onnx.operators.table import bounded, operator, pads_of


@operator("Gemm")
def gemm(a: Any, b: Any, c: Any = None, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Any:
    made = (a.t() if transA else a) @ (b.t() if transB else b)
    made = made if alpha == 1 else made * alpha
    return made if c is None else made + (c if beta == 1 else c * beta)


def _pads(x: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str) -> list[int]:
    """The padding before and after each dimension, also where only a rule says it."""
    n = len(kernel)
    if auto_pad in ("NOTSET", "VALID"):
        return list(pads or [0] * 2 * n) if auto_pad == "NOTSET" else [0] * 2 * n
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise NotImplementedError(f"onnx: auto_pad={auto_pad!r}")
    before, after = [], []
    for size, k, stride, dilation in zip(x.shape[2:], kernel, strides or [1] * n, dilations or [1] * n, strict=True):
        total = max((-(-size // stride) - 1) * stride + dilation * (k - 1) + 1 - size, 0)
        less, more = total // 2, total - total // 2
        before.append(less if auto_pad == "SAME_UPPER" else more)
        after.append(more if auto_pad == "SAME_UPPER" else less)
    return before + after


def apart(x: Any, pads: list[int], value: float = 0.0, most: Any = None) -> tuple[Any, list[int]]:
    """The input and the padding that is left to do: what differs between two sides, or is more than `most`, is done
    here."""
    n = len(pads) // 2
    if pads[:n] == pads[n:] and (most is None or all(p <= m for p, m in zip(pads, most, strict=False))):
        return x, pads[:n]
    return F.pad(x, pads_of(pads, n), value=value), [0] * n


@operator("Conv")
def conv(
    x: Any, w: Any, b: Any = None, strides: Any = None, pads: Any = None, dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, auto_pad: str = "NOTSET",
) -> Any:  # fmt: skip
    x, padding = apart(x, _pads(x, w.shape[2:], strides, dilations, pads, auto_pad))
    function = (F.conv1d, F.conv2d, F.conv3d)[w.dim() - 3]
    return function(x, w, b, strides or 1, padding, dilations or 1, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Any, w: Any, b: Any = None, strides: Any = None, pads: Any = None, output_padding: Any = None,
    dilations: Any = None, group: int = 1, kernel_shape: Any = None, auto_pad: str = "NOTSET", output_shape: Any = None,
) -> Any:  # fmt: skip
    n = w.dim() - 2
    strides, dilations, extra = strides or [1] * n, dilations or [1] * n, output_padding or [0] * n
    full = [
        (x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 + extra[i] for i in range(n)
    ]  # fmt: skip
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = (output_shape or [x.shape[2 + i] * strides[i] for i in range(n)])[-n:]
        total = [max(size - end, 0) for size, end in zip(full, wanted, strict=True)]
        extra = [e + max(end - size, 0) for e, size, end in zip(extra, full, wanted, strict=True)]
        less = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
        pads = less + [t - p for t, p in zip(total, less, strict=True)]
    pads = pads or [0] * 2 * n
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    if pads[:n] == pads[n:] and all(e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        return function(x, w, b, strides, pads[:n], extra, group, dilations)
    made = function(x, w, None, strides, 0, 0, group, dilations)
    made = F.pad(made, [p for i in reversed(range(n)) for p in (-pads[i], extra[i] - pads[n + i])])
    return made if b is None else made + b.reshape(-1, *(1,) * n)


@operator("MaxPool", several=True)
def max_pool(
    x: Any, kernel_shape: Any, strides: Any = None, pads: Any = None, dilations: Any = None, ceil_mode: int = 0,
    auto_pad: str = "NOTSET", storage_order: int = 0, count: int = 1,
) -> Any:  # fmt: skip
    n = len(kernel_shape)
    before = _pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    wide, padding = apart(x, before, lowest, [k // 2 for k in kernel_shape])
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1]
    options = kernel_shape, strides or [1] * n, padding, dilations or 1, bool(ceil_mode)
    if count == 1:
        return (function(wide, *options),) if wide.is_floating_point() else (_whole(function, wide, options),)
    values, at = function(wide, *options, return_indices=True)
    places = []
    for i in reversed(range(n)):  # from the last dimension on
        size = wide.shape[2 + i]
        places.append(at % size - (before[i] if wide is not x else 0))
        at = at // size
    at, step = torch.zeros_like(at), 1
    for place, size in zip(places[::-1] if storage_order else places, x.shape[2:] if storage_order else x.shape[:1:-1]):
        at, step = at + place * step, step * size
    planes = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *(1,) * n)
    return values, at + planes * step


def _whole(function: Callable, x: Any, options: tuple) -> Any:
    """Pools integers, which PyTorch's functions do not."""
    return function(x.double(), *options).to(x.dtype)


@operator("AveragePool")
def average_pool(
    x: Any, kernel_shape: Any, strides: Any = None, pads: Any = None, ceil_mode: int = 0, count_include_pad: int = 0,
    auto_pad: str = "NOTSET", dilations: Any = None,
) -> Any:  # fmt: skip
    n = len(kernel_shape)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pads = _pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    wide, padding = apart(x, pads, 0.0, [k // 2 for k in kernel_shape])
    if wide is x and set(dilations) == {1}:
        pool: Callable = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
        return pool(x, kernel_shape, strides, padding, bool(ceil_mode), bool(count_include_pad))
    sides = pads_of(pads, n)
    counted = F.pad(torch.ones_like(x), sides, value=float(bool(count_include_pad)))
    more = [0] * 2 * n
    for i in range(n) if ceil_mode else ():  # windows that begin within, and reach beyond the end
        length, reach = x.shape[2 + i] + pads[i] + pads[n + i], dilations[i] * (kernel_shape[i] - 1) + 1
        steps = -(-(length - reach) // strides[i])
        steps -= steps * strides[i] >= x.shape[2 + i] + pads[i]
        more[2 * (n - 1 - i) + 1] = max(steps * strides[i] + reach - length, 0)
    wide, counted = F.pad(F.pad(x, sides), more), F.pad(counted, more)
    channels = x.shape[1]
    window = torch.ones(channels, 1, *kernel_shape, dtype=x.dtype)
    sums: Callable = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    total, count = (sums(t, window, None, strides, 0, dilations, channels) for t in (wide, counted))
    return total / count


@operator("BatchNormalization", several=True)
def batch_normalization(
    x: Any, scale: Any, b: Any, mean: Any, var: Any, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0, count: int = 1,
) -> Any:  # fmt: skip
    mean, var = mean.detach(), var.detach()
    if not training_mode:
        return (F.batch_norm(x, mean, var, scale, b, False, 0.0, epsilon),)
    dims = (0, *range(2, x.dim()))
    means = x.mean(dims).detach() * (1 - momentum) + mean * momentum
    variances = x.var(dims, correction=0).detach() * (1 - momentum) + var * momentum
    return F.batch_norm(x, None, None, scale, b, True, 0.0, epsilon), means, variances


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, b: Any, epsilon: float = 1e-5) -> Any:
    return F.instance_norm(x, weight=scale, bias=b, eps=epsilon)


@operator("GroupNormalization")
def group_normalization(x: Any, scale: Any, b: Any, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    if scale.numel() == num_groups != x.shape[1]:  # before version 21
        scale, b = (w.repeat_interleave(x.shape[1] // num_groups) for w in (scale, b))
    return F.group_norm(x, num_groups, scale, b, epsilon)


@operator("LayerNormalization", several=True)
def layer_normalization(
    x: Any, scale: Any, b: Any = None, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, count: int = 1
) -> Any:
    made = F.layer_norm(x, x.shape[axis:], scale, b, epsilon)
    if count == 1:
        return (made,)
    dims = tuple(range(axis % x.dim(), x.dim()))
    return made, x.mean(dims, keepdim=True), (x.var(dims, correction=0, keepdim=True) + epsilon).rsqrt()


@operator("RMSNormalization")
def rms_normalization(x: Any, scale: Any, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    return F.rms_norm(x, x.shape[axis:], scale, epsilon)


@operator("LpNormalization")
def lp_normalization(x: Any, axis: int = -1, p: int = 2) -> Any:
    size = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return torch.where(size == 0, 0.0, x / size)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Any, axes: Any = None) -> Any:
    dims = tuple(axes or (0, 2, 3))
    centered = x - x.mean(dims, keepdim=True)
    return centered / ((centered * centered).mean(dims, keepdim=True).sqrt() + 1e-9)


@operator("LRN")
def local_response_normalization(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    before = (size - 1) // 2
    squares = F.pad((x * x).movedim(1, -1), (before, size - 1 - before)).unfold(-1, size, 1).sum(-1)
    return x / (bias + alpha / size * squares.movedim(-1, 1)) ** beta


@operator("LpPool")
def lp_pool(
    x: Any, kernel_shape: Any, p: int = 2, strides: Any = None, pads: Any = None, ceil_mode: int = 0,
    auto_pad: str = "NOTSET", dilations: Any = None,
) -> Any:  # fmt: skip
    means = average_pool(x.abs() ** p, kernel_shape, strides, pads, ceil_mode, 1, auto_pad, dilations)
    return (means * math.prod(kernel_shape)) ** (1 / p)


@operator("GlobalLpPool")
def global_lp_pool(x: Any, p: int = 2) -> Any:
    return torch.linalg.vector_norm(x, p, tuple(range(2, x.dim())), keepdim=True)


@operator("MaxUnpool")
def max_unpool(
    x: Any, indices: Any, output_shape: Any = None, kernel_shape: Any = None, pads: Any = None, strides: Any = None
) -> Any:
    n = len(kernel_shape)
    pads, strides = pads or [0] * 2 * n, strides or [1] * n
    sizes = [
        (size - 1) * stride - before - after + kernel
        for size, stride, before, after, kernel in zip(x.shape[2:], strides, pads[:n], pads[n:], kernel_shape)
    ]
    shape = bounded([*x.shape[:2], *sizes])
    flat = torch.zeros(math.prod(shape), dtype=x.dtype)
    made = flat.scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(shape)
    if output_shape is None:
        return made
    wanted = bounded(output_shape.tolist())
    return F.pad(made, [p for a, b in zip(wanted[::-1], shape[::-1], strict=True) for p in (0, a - b)])
