"""ONNX's operators as functions of tensors: what a loaded model computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.dtypes import BY_NAME
from tensorgrad.nn import functional as F
from tensorgrad.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
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
    Add=torch.add, Sub=torch.sub, Mul=torch.mul, Neg=torch.neg, Reciprocal=torch.reciprocal,
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
    Min=lambda *x: _folded(torch.minimum, x), Mean=lambda *x: _folded(torch.add, x) / len(x),
    Pow=lambda a, b: torch.pow(a, b).to(a.dtype), CastLike=lambda x, like: x.to(like.dtype),
    Softsign=lambda x: x / (1 + x.abs()), Det=lambda x: torch.linalg.det(x),
)  # fmt: skip


def _folded(function: Callable, values: tuple) -> Any:
    made = values[0]
    for value in values[1:]:
        made = function(made, value)
    return made


@operator("Dropout")
def dropout(x: Any, ratio: Any = None, training: Any = None, seed: int = 0, count: int = 1) -> Any:
    if training is None or not training.item():
        return x, torch.ones_like(x, dtype=torch.bool)
    share = 0.5 if ratio is None else ratio.item()
    kept = torch.rand(x.shape) >= share
    return torch.where(kept, x / (1 - share) if share < 1 else x, 0.0), kept


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


@operator("ThresholdedRelu")
def thresholded_relu(x: Any, alpha: float = 1.0) -> Any:
    return torch.where(x > alpha, x, torch.zeros_like(x))


@operator("Swish")
def swish(x: Any, alpha: float = 1.0) -> Any:
    return x * torch.sigmoid(alpha * x)


@operator("Hardmax")
def hardmax(x: Any, axis: int = -1) -> Any:
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1.0)


@operator("Softmax")
def softmax(x: Any, axis: int = -1) -> Any:
    return x.softmax(axis)


@operator("LogSoftmax")
def log_softmax(x: Any, axis: int = -1) -> Any:
    return x.log_softmax(axis)


def _rows(function: Callable) -> Callable:
    """Softmax before version 13: over all dimensions from `axis` on, together."""

    def of_rows(x: Any, axis: int = 1) -> Any:
        return function(flatten(x, axis), -1).reshape(x.shape)

    return of_rows


OLDER: dict[str, tuple[int, Callable]] = {  # operator -> the version in which it changed, and what it was before
    "Softmax": (13, _rows(softmax)),
    "LogSoftmax": (13, _rows(log_softmax)),
}


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


def _apart(x: Any, pads: list[int], value: float = 0.0, most: Any = None) -> tuple[Any, list[int]]:
    """The input and the padding that is left to do: what differs between two sides, or is more than `most`, is done
    here."""
    n = len(pads) // 2
    if pads[:n] == pads[n:] and (most is None or all(p <= m for p, m in zip(pads, most, strict=False))):
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


@operator("MaxPool")
def max_pool(
    x: Any, kernel_shape: Any, strides: Any = None, pads: Any = None, dilations: Any = None, ceil_mode: int = 0,
    auto_pad: str = "NOTSET", storage_order: int = 0, count: int = 1,
) -> Any:  # fmt: skip
    n = len(kernel_shape)
    before = _pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    wide, padding = _apart(x, before, lowest, [k // 2 for k in kernel_shape])
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
    wide, padding = _apart(x, pads, 0.0, [k // 2 for k in kernel_shape])
    if wide is x and set(dilations) == {1}:
        pool: Callable = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
        return pool(x, kernel_shape, strides, padding, bool(ceil_mode), bool(count_include_pad))
    sides = [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])]
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


@operator("BatchNormalization")
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


@operator("LayerNormalization")
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


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduction(name: str, function: Callable) -> None:
    def reduce(x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        axes = _integers(axes)
        if noop_with_empty_axes and not axes:
            return x
        dims = tuple(axes or range(x.dim()))
        return function(x, dims, bool(keepdims)) if dims else function(x.reshape(1), (0,), False)

    reduce.__name__ = reduce.__qualname__ = name.lower()
    OPERATORS[name] = reduce


def _integers(value: Any) -> Any:
    """A list of integers, which is an input in newer versions, and was an attribute."""
    return value if value is None or isinstance(value, list) else value.reshape(-1).tolist()


def _extreme(function: Callable, largest: bool) -> Callable:
    """The largest or smallest elements, also of none: then it is the smallest or largest number."""

    def reduce(x: Any, dims: tuple, keepdim: bool) -> Any:
        if all(x.shape[d] for d in dims):
            return function(x, dims, keepdim=keepdim)
        if x.dtype is torch.bool:
            value: Any = not largest
        elif x.is_floating_point():
            value = -math.inf if largest else math.inf
        else:
            value = torch.iinfo(x.dtype).min if largest else torch.iinfo(x.dtype).max
        gone = {d % x.dim() for d in dims}
        shape = [1 if i in gone else n for i, n in enumerate(x.shape) if keepdim or i not in gone]
        return torch.full(shape, value, dtype=x.dtype)

    return reduce


def _product(x: Any, dims: tuple, keepdim: bool) -> Any:
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = x.prod(d, keepdim=keepdim)
    return x


_reduction("ReduceSum", lambda x, dims, keep: x.sum(dims, keepdim=keep, dtype=x.dtype))
_reduction("ReduceMean", lambda x, dims, keep: x.mean(dims, keepdim=keep))
_reduction("ReduceProd", _product)
_reduction("ReduceMax", _extreme(torch.amax, True))
_reduction("ReduceMin", _extreme(torch.amin, False))
_reduction("ReduceL1", lambda x, dims, keep: x.abs().sum(dims, keepdim=keep, dtype=x.dtype))
_reduction("ReduceL2", lambda x, dims, keep: torch.linalg.vector_norm(x, 2, dims, keepdim=keep))
_reduction("ReduceSumSquare", lambda x, dims, keep: (x * x).sum(dims, keepdim=keep, dtype=x.dtype))
_reduction("ReduceLogSum", lambda x, dims, keep: x.sum(dims, keepdim=keep).log())
_reduction("ReduceLogSumExp", lambda x, dims, keep: x.logsumexp(dims, keepdim=keep))


def _arg(name: str, function: Callable) -> None:
    def place(x: Any, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        if select_last_index:
            return x.shape[axis] - 1 - function(x.flip(axis), axis, keepdim=bool(keepdims))
        return function(x, axis, keepdim=bool(keepdims))

    place.__name__ = place.__qualname__ = name.lower()
    OPERATORS[name] = place


_arg("ArgMax", torch.argmax)
_arg("ArgMin", torch.argmin)


def _running(name: str, function: Callable, first: int) -> None:
    def run(x: Any, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
        d = int(axis.item()) % x.dim()
        x = x.flip(d) if reverse else x
        if exclusive:
            x = torch.cat([torch.full_like(x.narrow(d, 0, 1), first), x.narrow(d, 0, x.shape[d] - 1)], d)
        made = function(x, d, dtype=x.dtype)
        return made.flip(d) if reverse else made

    run.__name__ = run.__qualname__ = name.lower()
    OPERATORS[name] = run


_running("CumSum", torch.cumsum, 0)
_running("CumProd", torch.cumprod, 1)


@operator("TopK")
def topk(x: Any, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return tuple(x.topk(int(k.item()), axis, bool(largest)))


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
    axes = _integers(axes)
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


@operator("Squeeze")
def squeeze(x: Any, axes: Any = None) -> Any:
    return x.squeeze() if axes is None else x.squeeze(tuple(_integers(axes)))


@operator("Concat")
def concat(*values: Any, axis: int) -> Any:
    return torch.cat(values, axis)


@operator("Split")
def split(x: Any, sizes: Any = None, axis: int = 0, num_outputs: int = 0, split: Any = None, count: int = 1) -> Any:
    sizes = split if sizes is None else sizes.tolist()
    if sizes is None:
        part = -(-x.shape[axis] // count)
        sizes = [max(min(part, x.shape[axis] - i * part), 0) for i in range(count)]
    return x.split(sizes, axis)


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
def gather_nd(x: Any, indices: Any, batch_dims: int = 0) -> Any:
    n = batch_dims
    batch = [torch.arange(x.shape[i]).reshape(-1, *(1,) * (indices.dim() - 2 - i)) for i in range(n)]
    return x[(*batch, *indices.unbind(-1))]


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
    if reduction in ("none", "add"):
        return x.index_put(tuple(indices.unbind(-1)), updates, accumulate=reduction == "add")
    count = indices.shape[-1]
    at = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for place, size in zip(indices.unbind(-1), x.shape, strict=False):
        at = at * size + torch.where(place < 0, place + size, place)
    flat, rows = x.reshape(math.prod(x.shape[:count]), -1), updates.reshape(at.numel(), -1)
    at = at.reshape(-1, 1).expand(rows.shape)
    return flat.scatter_reduce(0, at, rows, {"mul": "prod", "max": "amax", "min": "amin"}[reduction]).reshape(x.shape)


@operator("NonZero")
def nonzero(x: Any) -> Any:
    return x.nonzero().t()


@operator("OneHot")
def one_hot(indices: Any, depth: Any, values: Any, axis: int = -1) -> Any:
    depth = int(depth.item())
    indices = torch.where(indices < 0, indices + depth, indices)
    chosen = indices.unsqueeze(-1) == torch.arange(depth)
    return torch.where(chosen, values[1], values[0]).movedim(-1, axis)


@operator("Pad")
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, mode: str = "constant") -> Any:
    sizes, n = pads.tolist(), pads.numel() // 2
    dims = range(n) if axes is None else [a % x.dim() for a in axes.tolist()]
    pairs = [(0, 0)] * x.dim()
    for i, d in enumerate(dims):
        pairs[d] = sizes[i], sizes[n + i]
    if mode == "constant":
        return F.pad(x, [p for pair in reversed(pairs) for p in pair], value=0 if value is None else value.item())
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        at = torch.arange(-before, size + after)
        if mode == "edge":
            at = at.clamp(0, size - 1)
        else:
            at = at % size if mode == "wrap" else (size - 1) - ((size - 1) - at.abs()).abs()
        x = x.index_select(axis, at)
    return x


# --- recurrent networks -----------------------------------------------------------------------------------------------


def _gates(value: Any, order: tuple[int, ...]) -> Any:
    parts = value.chunk(len(order), 0)
    return torch.cat([parts[i] for i in order])


# The functions of the gates that are read, by operator.
_ACTIVATIONS = {"LSTM": (["Sigmoid", "Tanh", "Tanh"],), "GRU": (["Sigmoid", "Tanh"],), "RNN": (["Tanh"], ["Relu"])}


def _layer(name: str, order: tuple[int, ...], run: Callable) -> Callable:
    """A recurrent layer. Results are (time, directions, batch, features)."""

    def layer(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, p: Any = None,
              hidden_size: int = 0, direction: str = "forward", linear_before_reset: int = 0, activations: Any = None,
              layout: int = 0) -> Any:  # fmt: skip
        directions = w.shape[0]
        if p is not None or direction not in ("forward", "reverse", "bidirectional"):
            raise NotImplementedError(f"onnx: {name} with peepholes, or of the direction {direction!r}")
        allowed = [kind * directions for kind in _ACTIVATIONS[name]]
        if activations is not None and activations not in allowed:
            raise NotImplementedError(f"onnx: {name} with the functions {activations}")
        if name == "GRU" and not linear_before_reset:
            function: Callable = _gru_reset_first
        else:
            function = torch.rnn_relu if activations == allowed[-1] and name == "RNN" and activations else run
        if layout:
            x, h, c = (t if t is None else t.transpose(0, 1) for t in (x, h, c))
        zeros = torch.zeros(directions, x.shape[1], r.shape[-1], dtype=x.dtype)
        start = [zeros if t is None else t for t in ((h, c) if name == "LSTM" else (h,))]
        made = []
        for i in range(directions):
            weights = [_gates(w[i], order), _gates(r[i], order)]
            weights += [] if b is None else [_gates(part, order) for part in b[i].chunk(2)]
            state = [t[i : i + 1] for t in start]
            given = _backward(x, lengths) if direction == "reverse" or i else x
            out, *last = _run(function, given, lengths, state, weights, b is not None)
            made.append((_backward(out, lengths) if direction == "reverse" or i else out, *last))
        out = torch.stack([m[0] for m in made], 1)
        last = [torch.cat([m[k] for m in made]) for k in range(1, len(made[0]))]
        if layout:
            return (out.permute(2, 0, 1, 3), *(t.transpose(0, 1) for t in last))
        return (out, *last)

    return layer


def _backward(x: Any, lengths: Any) -> Any:
    """Each sequence, from its end on."""
    if lengths is None:
        return x.flip(0)
    at = torch.arange(x.shape[0])[:, None]
    at = torch.where(at < lengths, lengths - 1 - at, at).long()
    return x.gather(0, at[:, :, None].expand(x.shape))


def _run(function: Callable, x: Any, lengths: Any, state: list, weights: list, biased: bool) -> Any:
    start = tuple(state) if function is torch.lstm else state[0]
    if lengths is None:
        return function(x, start, weights, biased, 1, 0.0, False, False, False)
    if function is _gru_reset_first:
        raise NotImplementedError("onnx: GRU with lengths, that resets before the product")
    packed = pack_padded_sequence(x, lengths.long(), enforce_sorted=False)
    start = tuple(s.index_select(1, packed.sorted_indices) for s in state)
    made, *last = function(
        packed.data, packed.batch_sizes, start if function is torch.lstm else start[0], weights, biased, 1, 0.0,
        False, False,
    )  # fmt: skip
    made = PackedSequence(made, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    out, _ = pad_packed_sequence(made, total_length=x.shape[0])
    return (out, *(t.index_select(1, packed.unsorted_indices) for t in last))


def _gru_reset_first(x: Any, h: Any, weights: list, biased: bool, *options: Any) -> Any:
    """A GRU that resets the state before the product, as ONNX does unless it is told otherwise."""
    w, r, *biases = weights
    state, (rr, rz, rn) = h[0], r.chunk(3)
    parts = F.linear(x, w, sum(biases) if biases else None).chunk(3, -1)
    made = []
    for i, n, new in zip(*(part.unbind(0) for part in parts), strict=True):
        reset, keep = torch.sigmoid(i + state @ rr.t()), torch.sigmoid(n + state @ rz.t())
        state = (1 - keep) * torch.tanh(new + (reset * state) @ rn.t()) + keep * state
        made.append(state)
    return torch.stack(made), state[None]


OPERATORS["LSTM"] = _layer("LSTM", (0, 2, 3, 1), torch.lstm)  # i o f c -> i f g o
OPERATORS["GRU"] = _layer("GRU", (1, 0, 2), torch.gru)  # z r h -> r z n
OPERATORS["RNN"] = _layer("RNN", (0,), torch.rnn_tanh)


# --- images, losses ---------------------------------------------------------------------------------------------------


@operator("GridSample")
def grid_sample(x: Any, grid: Any, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@operator("Col2Im")
def col2im(x: Any, image: Any, block: Any, dilations: Any = None, pads: Any = None, strides: Any = None) -> Any:
    n = image.numel()
    if n != 2:
        raise NotImplementedError(f"onnx: Col2Im of {n} dimensions")
    return F.fold(x, image.tolist(), block.tolist(), dilations or 1, _same_on_both_sides(pads, n), strides or 1)


@operator("DepthToSpace")
def depth_to_space(x: Any, blocksize: int, mode: str = "DCR") -> Any:
    n, c, height, width = x.shape
    inner = c // blocksize**2
    if mode == "DCR":
        x = x.reshape(n, blocksize, blocksize, inner, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, inner, blocksize, blocksize, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, inner, height * blocksize, width * blocksize)


@operator("SpaceToDepth")
def space_to_depth(x: Any, blocksize: int) -> Any:
    n, c, height, width = x.shape
    x = x.reshape(n, c, height // blocksize, blocksize, width // blocksize, blocksize).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * blocksize**2, height // blocksize, width // blocksize)


@operator("Einsum")
def einsum(*operands: Any, equation: str) -> Any:
    return torch.einsum(equation, *operands)


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    return F.nll_loss(x, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", count: int = 1
) -> Any:
    loss = F.cross_entropy(x, target.long(), weight, ignore_index=ignore_index, reduction=reduction)
    return (loss, x.log_softmax(1)) if count > 1 else (loss,)


# Operators whose functions return a tuple.
SEVERAL = frozenset((
    "BatchNormalization", "Dropout", "GRU", "LSTM", "LayerNormalization", "MaxPool", "RNN", "SoftmaxCrossEntropyLoss",
    "Split", "TopK",
))  # fmt: skip
