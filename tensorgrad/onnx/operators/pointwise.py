"""Operators of each element, and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.onnx.operators.table import bounded, dtype_of, operator, plain

plain(
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
    Tile=lambda x, repeats: x.repeat(bounded(repeats.tolist())),
    Range=lambda a, b, step: torch.arange(a.item(), b.item(), step.item(), dtype=a.dtype),
    Sum=lambda *x: _folded(torch.add, x), Max=lambda *x: _folded(torch.maximum, x),
    Min=lambda *x: _folded(torch.minimum, x), Mean=lambda *x: _folded(torch.add, x) / len(x),
    Pow=lambda a, b: torch.pow(a, b).to(a.dtype),
    Softsign=lambda x: x / (1 + x.abs()), Det=lambda x: torch.linalg.det(x),
)  # fmt: skip


def _folded(function: Callable, values: tuple) -> Any:
    made = values[0]
    for value in values[1:]:
        made = function(made, value)
    return made


@operator("Dropout", several=True)
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
        return torch.zeros(bounded(shape.tolist()))
    return value.reshape(()).expand(bounded(shape.tolist())).clone()


@operator("Div")
def div(a: Any, b: Any) -> Any:
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@operator("Mod")
def mod(a: Any, b: Any, fmod: int = 0) -> Any:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


def converted(x: Any, dtype: Any, saturate: int) -> Any:
    """Another dtype; numbers beyond the largest of eight bits become it, or what is not finite."""
    if dtype.itemsize > 1 or not dtype.is_floating_point:
        return x.to(dtype)
    limit = torch.finfo(dtype).max
    if saturate:
        return x.to(torch.promote_types(x.dtype, torch.float32)).clamp(-limit, limit).to(dtype)
    if dtype is torch.float8_e4m3fn:  # which has no infinity
        x = torch.where(x.abs() > limit + 16, math.nan, x.to(torch.promote_types(x.dtype, torch.float32)))
    return x.to(dtype)


@operator("Cast")
def cast(x: Any, to: int, saturate: int = 1) -> Any:
    return converted(x, dtype_of(to), saturate)


@operator("CastLike")
def cast_like(x: Any, like: Any, saturate: int = 1) -> Any:
    return converted(x, like.dtype, saturate)


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


@operator("BitShift")
def bit_shift(x: Any, by: Any, direction: str) -> Any:
    return (torch.bitwise_left_shift if direction == "LEFT" else torch.bitwise_right_shift)(x, by)


@operator("BitCast")
def bit_cast(x: Any, to: int) -> Any:
    dtype = dtype_of(to)
    if dtype.itemsize != x.dtype.itemsize:
        raise ValueError(f"onnx: the bits of {x.dtype} as {dtype}")
    return x.view(dtype)


@operator("SwiGLU")
def swiglu(a: Any, b: Any, alpha: float = 1.0) -> Any:
    return a * torch.sigmoid(alpha * a) * b
