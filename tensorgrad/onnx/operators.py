"""ONNX's operators as functions of tensors: what a loaded model computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.dtypes import BY_NAME
from tensorgrad.nn import functional as F
from tensorgrad.onnx.model import NAMES

OPERATORS: dict[str, Callable] = {}


def operator(*names: str) -> Callable[[Callable], Callable]:
    """Enters a function into the table."""

    def enter(function: Callable) -> Callable:
        for name in names:
            OPERATORS[name] = function
        return function

    return enter


def _plain(**names: Any) -> None:
    """Operators that are one function without attributes."""
    for name, function in names.items():

        def call(*inputs: Any, _function: Callable = function) -> Any:
            return _function(*inputs)

        call.__name__ = call.__qualname__ = name.lower()
        OPERATORS[name] = call


_plain(
    Add=torch.add, Sub=torch.sub, Mul=torch.mul, Pow=torch.pow, Neg=torch.neg, Reciprocal=torch.reciprocal,
    Sqrt=torch.sqrt, Exp=torch.exp, Log=torch.log, Sin=torch.sin, Cos=torch.cos, Tan=torch.tan, Asin=torch.asin,
    Acos=torch.acos, Atan=torch.atan, Sinh=torch.sinh, Cosh=torch.cosh, Tanh=torch.tanh, Asinh=torch.asinh,
    Acosh=torch.acosh, Atanh=torch.atanh, Abs=torch.abs, Sign=torch.sign, Sigmoid=torch.sigmoid, Erf=torch.erf,
    Relu=torch.relu, Mish=F.mish, HardSwish=F.hardswish, Floor=torch.floor, Ceil=torch.ceil, Round=torch.round,
    Softplus=F.softplus, And=torch.logical_and, Or=torch.logical_or, Xor=torch.logical_xor, Not=torch.logical_not,
    Equal=torch.eq, Less=torch.lt, LessOrEqual=torch.le, Greater=torch.gt, GreaterOrEqual=torch.ge,
    BitwiseAnd=torch.bitwise_and, BitwiseOr=torch.bitwise_or, BitwiseXor=torch.bitwise_xor,
    BitwiseNot=torch.bitwise_not, IsNaN=torch.isnan, Where=torch.where, MatMul=torch.matmul,
    Identity=lambda x: x, Size=lambda x: torch.tensor(x.numel()), PRelu=lambda x, w: torch.where(x < 0, x * w, x),
    GlobalAveragePool=lambda x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    GlobalMaxPool=lambda x: x.amax(tuple(range(2, x.dim())), keepdim=True),
    Expand=lambda x, shape: x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(shape.tolist()))),
    Tile=lambda x, repeats: x.repeat(repeats.tolist()),
    Range=lambda a, b, step: torch.arange(a.item(), b.item(), step.item(), dtype=a.dtype),
    Sum=lambda *x: _folded(torch.add, x), Max=lambda *x: _folded(torch.maximum, x),
    Min=lambda *x: _folded(torch.minimum, x),
)  # fmt: skip


def _folded(function: Callable, values: tuple) -> Any:
    made = values[0]
    for value in values[1:]:
        made = function(made, value)
    return made


@operator("Dropout")
def dropout(x: Any, *options: Any, seed: int = 0) -> Any:
    return x


@operator("Flatten")
def flatten(x: Any, axis: int = 1) -> Any:
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), -1) if axis else x.reshape(1, -1)


@operator("ConstantOfShape")
def constant_of_shape(shape: Any, value: Any = None) -> Any:
    if value is None:
        return torch.zeros(shape.tolist())
    return value.reshape(()).expand(shape.tolist()).clone()


@operator("Div")
def div(a: Any, b: Any) -> Any:
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@operator("Mod")
def mod(a: Any, b: Any, fmod: int = 0) -> Any:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@operator("Cast")
def cast(x: Any, to: int, saturate: int = 1) -> Any:
    return x.to(BY_NAME[NAMES[to]])


@operator("Clip")
def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@operator("IsInf")
def isinf(x: Any, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    return torch.isinf(x) & ((x > 0) if not detect_negative else (x < 0) if not detect_positive else True)


@operator("Gelu")
def gelu(x: Any, approximate: str = "none") -> Any:
    return F.gelu(x, approximate=approximate)


@operator("LeakyRelu")
def leaky_relu(x: Any, alpha: float = 0.01) -> Any:
    return F.leaky_relu(x, alpha)


@operator("Elu")
def elu(x: Any, alpha: float = 1.0) -> Any:
    return F.elu(x, alpha)


@operator("Celu")
def celu(x: Any, alpha: float = 1.0) -> Any:
    return F.celu(x, alpha)


@operator("Selu")
def selu(x: Any, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Any:
    return gamma * F.elu(x, alpha)


@operator("HardSigmoid")
def hard_sigmoid(x: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return (alpha * x + beta).clamp(0, 1)


@operator("Shrink")
def shrink(x: Any, lambd: float = 0.5, bias: float = 0.0) -> Any:
    return torch.where(x > lambd, x - bias, torch.where(x < -lambd, x + bias, torch.zeros_like(x)))


@operator("Softmax")
def softmax(x: Any, axis: int = -1) -> Any:
    return x.softmax(axis)


@operator("LogSoftmax")
def log_softmax(x: Any, axis: int = -1) -> Any:
    return x.log_softmax(axis)


# --- products, convolutions, pooling, normalization -------------------------------------------------------------------


@operator("Gemm")
def gemm(a: Any, b: Any, c: Any = None, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Any:
    made = (a.t() if transA else a) @ (b.t() if transB else b)
    made = made if alpha == 1 else made * alpha
    return made if c is None else made + (c if beta == 1 else c * beta)


def _same_on_both_sides(pads: Any, n: int) -> list[int]:
    pads = pads or [0] * 2 * n
    if pads[:n] != pads[n:]:
        raise NotImplementedError("onnx: padding that differs between the two sides")
    return pads[:n]


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


def _apart(x: Any, pads: list[int], value: float = 0.0) -> tuple[Any, list[int]]:
    """The input and the padding that is left to do: what differs between two sides is done here."""
    n = len(pads) // 2
    if pads[:n] == pads[n:]:
        return x, pads[:n]
    return F.pad(x, [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])], value=value), [0] * n


@operator("Conv")
def conv(
    x: Any, w: Any, b: Any = None, strides: Any = None, pads: Any = None, dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, auto_pad: str = "NOTSET",
) -> Any:  # fmt: skip
    x, padding = _apart(x, _pads(x, w.shape[2:], strides, dilations, pads, auto_pad))
    function = (F.conv1d, F.conv2d, F.conv3d)[w.dim() - 3]
    return function(x, w, b, strides or 1, padding, dilations or 1, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Any, w: Any, b: Any = None, strides: Any = None, pads: Any = None, output_padding: Any = None,
    dilations: Any = None, group: int = 1, kernel_shape: Any = None,
) -> Any:  # fmt: skip
    n = w.dim() - 2
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    return function(x, w, b, strides or 1, _same_on_both_sides(pads, n), output_padding or 0, group, dilations or 1)


@operator("MaxPool")
def max_pool(
    x: Any, kernel_shape: Any, strides: Any = None, pads: Any = None, dilations: Any = None, ceil_mode: int = 0,
    auto_pad: str = "NOTSET", storage_order: int = 0,
) -> Any:  # fmt: skip
    n = len(kernel_shape)
    wide, padding = _apart(x, _pads(x, kernel_shape, strides, dilations, pads, auto_pad), -math.inf)
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1]
    values, at = function(wide, kernel_shape, strides or [1] * n, padding, dilations or 1, bool(ceil_mode),
                          return_indices=True)  # fmt: skip
    planes = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *(1,) * n)
    return values, at + planes * x[0, 0].numel()


@operator("AveragePool")
def average_pool(
    x: Any, kernel_shape: Any, strides: Any = None, pads: Any = None, ceil_mode: int = 0, count_include_pad: int = 0
) -> Any:
    n = len(kernel_shape)
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
    padding = _same_on_both_sides(pads, n)
    return function(x, kernel_shape, strides or [1] * n, padding, bool(ceil_mode), bool(count_include_pad))


@operator("BatchNormalization")
def batch_normalization(
    x: Any, scale: Any, b: Any, mean: Any, var: Any, epsilon: float = 1e-5, momentum: float = 0.9
) -> Any:
    return F.batch_norm(x, mean.detach(), var.detach(), scale, b, False, 0.0, epsilon)


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, b: Any, epsilon: float = 1e-5) -> Any:
    return F.instance_norm(x, weight=scale, bias=b, eps=epsilon)


@operator("GroupNormalization")
def group_normalization(x: Any, scale: Any, b: Any, num_groups: int, epsilon: float = 1e-5) -> Any:
    return F.group_norm(x, num_groups, scale, b, epsilon)


@operator("LayerNormalization")
def layer_normalization(x: Any, scale: Any, b: Any = None, axis: int = -1, epsilon: float = 1e-5) -> Any:
    return F.layer_norm(x, x.shape[axis:], scale, b, epsilon)


@operator("RMSNormalization")
def rms_normalization(x: Any, scale: Any, axis: int = -1, epsilon: float = 1e-5) -> Any:
    return F.rms_norm(x, x.shape[axis:], scale, epsilon)


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduction(name: str, function: Callable) -> None:
    def reduce(x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        if noop_with_empty_axes and (axes is None or not axes.numel()):
            return x
        dims = tuple(range(x.dim())) if axes is None else tuple(axes.tolist())
        return function(x, dims, bool(keepdims)) if dims else x

    reduce.__name__ = reduce.__qualname__ = name.lower()
    OPERATORS[name] = reduce


def _product(x: Any, dims: tuple, keepdim: bool) -> Any:
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = x.prod(d, keepdim=keepdim)
    return x


_reduction("ReduceSum", lambda x, dims, keep: x.sum(dims, keepdim=keep, dtype=x.dtype))
_reduction("ReduceMean", lambda x, dims, keep: x.mean(dims, keepdim=keep))
_reduction("ReduceProd", _product)
_reduction("ReduceMax", lambda x, dims, keep: x.amax(dims, keepdim=keep))
_reduction("ReduceMin", lambda x, dims, keep: x.amin(dims, keepdim=keep))
_reduction("ReduceL1", lambda x, dims, keep: x.abs().sum(dims, keepdim=keep))
_reduction("ReduceL2", lambda x, dims, keep: torch.linalg.vector_norm(x, 2, dims, keepdim=keep))
_reduction("ReduceLogSumExp", lambda x, dims, keep: x.logsumexp(dims, keepdim=keep))


@operator("ArgMax")
def argmax(x: Any, axis: int = 0, keepdims: int = 1) -> Any:
    return x.argmax(axis, keepdim=bool(keepdims))


@operator("ArgMin")
def argmin(x: Any, axis: int = 0, keepdims: int = 1) -> Any:
    return x.argmin(axis, keepdim=bool(keepdims))


@operator("CumSum")
def cumsum(x: Any, axis: Any) -> Any:
    return x.cumsum(axis.item())


@operator("TopK")
def topk(x: Any, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return tuple(x.topk(k.item(), axis, bool(largest)))


@operator("Trilu")
def trilu(x: Any, k: Any = None, upper: int = 1) -> Any:
    return (torch.triu if upper else torch.tril)(x, 0 if k is None else k.item())


# --- shapes and indices -----------------------------------------------------------------------------------------------


@operator("Shape")
def shape(x: Any, start: int = 0, end: int | None = None) -> Any:
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


@operator("Reshape")
def reshape(x: Any, shape: Any, allowzero: int = 0) -> Any:
    sizes = shape.tolist()
    return x.reshape([x.shape[i] if s == 0 and not allowzero else s for i, s in enumerate(sizes)])


@operator("Transpose")
def transpose(x: Any, perm: Any = None) -> Any:
    return x.permute(perm or tuple(range(x.dim()))[::-1])


@operator("Unsqueeze")
def unsqueeze(x: Any, axes: Any) -> Any:
    rank = x.dim() + axes.numel()
    for axis in sorted(a % rank for a in axes.tolist()):
        x = x.unsqueeze(axis)
    return x


@operator("Squeeze")
def squeeze(x: Any, axes: Any = None) -> Any:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes.tolist()))


@operator("Concat")
def concat(*values: Any, axis: int) -> Any:
    return torch.cat(values, axis)


@operator("Split")
def split(x: Any, sizes: Any = None, axis: int = 0, num_outputs: int = 0, count: int = 1) -> Any:
    return x.split(-(-x.shape[axis] // count) if sizes is None else sizes.tolist(), axis)


@operator("Slice")
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    starts, ends = starts.tolist(), ends.tolist()
    axes = range(len(starts)) if axes is None else axes.tolist()
    for start, end, axis, step in zip(starts, ends, axes, steps.tolist() if steps is not None else [1] * len(starts)):
        at = range(x.shape[axis])[start:end:step]
        if step > 0:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(at.start, at.stop, step),)]
        else:
            x = x.index_select(axis, torch.tensor(list(at), dtype=torch.int64))
    return x


@operator("Gather")
def gather(x: Any, indices: Any, axis: int = 0) -> Any:
    return x[(slice(None),) * (axis % x.dim()) + (indices,)]


@operator("GatherElements")
def gather_elements(x: Any, indices: Any, axis: int = 0) -> Any:
    return x.gather(axis, torch.where(indices < 0, indices + x.shape[axis], indices))


@operator("GatherND")
def gather_nd(x: Any, indices: Any) -> Any:
    return x[tuple(indices.unbind(-1))]


@operator("ScatterElements")
def scatter_elements(x: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "none") -> Any:
    indices = torch.where(indices < 0, indices + x.shape[axis], indices)
    if reduction == "none":
        return x.scatter(axis, indices, updates)
    return x.scatter_reduce(
        axis, indices, updates, {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    )


@operator("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, reduction: str = "none") -> Any:
    if reduction not in ("none", "add"):
        raise NotImplementedError(f"onnx: ScatterND with reduction={reduction!r}")
    return x.index_put(tuple(indices.unbind(-1)), updates, accumulate=reduction == "add")


@operator("NonZero")
def nonzero(x: Any) -> Any:
    return x.nonzero().t()


@operator("OneHot")
def one_hot(indices: Any, depth: Any, values: Any, axis: int = -1) -> Any:
    chosen = indices.unsqueeze(-1) == torch.arange(depth.item())
    return torch.where(chosen, values[1], values[0]).movedim(-1, axis)


@operator("Pad")
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, mode: str = "constant") -> Any:
    sizes, n = pads.tolist(), pads.numel() // 2
    if axes is not None:
        raise NotImplementedError("onnx: Pad with axes")
    pairs = [(sizes[i], sizes[n + i]) for i in range(n)]
    if mode == "constant":
        return F.pad(x, [p for pair in reversed(pairs) for p in pair], value=0 if value is None else value.item())
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        at = torch.arange(-before, size + after)
        at = at.clamp(0, size - 1) if mode == "edge" else (size - 1) - ((size - 1) - at.abs()).abs()
        x = x.index_select(axis, at)
    return x


# --- recurrent networks -----------------------------------------------------------------------------------------------


def _gates(value: Any, order: tuple[int, ...]) -> Any:
    parts = value.chunk(len(order), 0)
    return torch.cat([parts[i] for i in order])


def _layer(order: tuple[int, ...], run: Callable) -> Callable:
    def layer(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, *states: Any, hidden_size: int = 0,
              direction: str = "forward", linear_before_reset: int = 0, activations: Any = None) -> Any:  # fmt: skip
        if lengths is not None or direction not in ("forward", "reverse") or w.shape[0] != 1:
            raise NotImplementedError("onnx: a recurrent layer of several directions, or with lengths")
        weights = [_gates(w[0], order), _gates(r[0], order)]
        if b is not None:
            weights += [_gates(part, order) for part in b[0].chunk(2)]
        zeros = torch.zeros(1, x.shape[1], r.shape[-1], dtype=x.dtype)
        given = [s if s is not None else zeros for s in states] or [zeros] * (2 if run is torch.lstm else 1)
        x = x.flip(0) if direction == "reverse" else x
        function = torch.rnn_relu if activations == ["Relu"] else run
        start = tuple(given[:2]) if run is torch.lstm else given[0]
        out, *last = function(x, start, weights, b is not None, 1, 0.0, False, False, False)
        return ((out.flip(0) if direction == "reverse" else out).unsqueeze(1), *last)

    return layer


OPERATORS["LSTM"] = _layer((0, 2, 3, 1), torch.lstm)  # i o f c -> i f g o
OPERATORS["GRU"] = _layer((1, 0, 2), torch.gru)  # z r h -> r z n
OPERATORS["RNN"] = _layer((0,), torch.rnn_tanh)
