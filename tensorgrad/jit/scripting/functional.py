"""Functions of `torch.nn.functional`, written in TorchScript: a program that calls one gets its source.

They are never run as Python. Those without an entry here are operators of the same name.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorgrad as torch
from tensorgrad.tensor import Tensor

# ruff: noqa: UP045
# mypy: ignore-errors

RENAMED = {"logsigmoid": "log_sigmoid", "unfold": "im2col", "fold": "col2im"}


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.relu_(input)
    return torch.relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.leaky_relu_(input, negative_slope)
    return torch.ops.aten.leaky_relu(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.elu_(input, alpha)
    return torch.ops.aten.elu(input, alpha)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardtanh_(input, min_val, max_val)
    return torch.ops.aten.hardtanh(input, min_val, max_val)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardtanh_(input, 0.0, 6.0)
    return torch.ops.aten.hardtanh(input, 0.0, 6.0)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.mish(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.hardsigmoid(input)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return torch.ops.aten.celu(input, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    return torch.ops.aten.gelu(input, approximate=approximate)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.dropout_(input, p, training)
    return torch.ops.aten.dropout(input, p, training)


def softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    assert dim is not None, "softmax needs a dim in TorchScript here"
    if dtype is None:
        return torch.ops.aten.softmax(input, dim)
    return torch.ops.aten.softmax(input, dim, dtype=dtype)


def log_softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    assert dim is not None, "log_softmax needs a dim in TorchScript here"
    if dtype is None:
        return torch.ops.aten.log_softmax(input, dim)
    return torch.ops.aten.log_softmax(input, dim, dtype=dtype)


def softmin(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    assert dim is not None, "softmin needs a dim in TorchScript here"
    return torch.ops.aten.softmax(-input, dim)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    size = torch.ops.aten.clamp_min(torch.ops.aten.norm(input, p, [dim], True), eps)
    return input / torch.ops.aten.expand_as(size, input)


def layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    eps: float = 1e-5,
) -> Tensor:
    return torch.ops.aten.layer_norm(input, normalized_shape, weight, bias, eps)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: Optional[int] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    assert max_norm is None, "embedding with max_norm is not in TorchScript here"
    place = -1
    if padding_idx is not None:
        place = padding_idx
        if place < 0:
            place = weight.size(0) + place
    return torch.ops.aten.embedding(weight, input, place, scale_grad_by_freq, sparse)


def batch_norm(
    input: Tensor,
    running_mean: Optional[Tensor],
    running_var: Optional[Tensor],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    return torch.ops.aten.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def reduction_number(reduction: str) -> int:
    if reduction == "none":
        return 0
    if reduction == "mean":
        return 1
    assert reduction == "sum", "reduction is none, mean or sum"
    return 2


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    return torch.ops.aten.cross_entropy_loss(
        input, target, weight, reduction_number(reduction), ignore_index, label_smoothing
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.nll_loss_nd(input, target, weight, reduction_number(reduction), ignore_index)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.mse_loss(input, target, reduction_number(reduction))


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.l1_loss(input, target, reduction_number(reduction))


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    return torch.ops.aten.smooth_l1_loss(input, target, reduction_number(reduction), beta)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    pos_weight: Optional[Tensor] = None,
) -> Tensor:
    return torch.ops.aten.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight, reduction_number(reduction)
    )


def interpolate(
    input: Tensor,
    size: Optional[list[int]] = None,
    scale_factor: Optional[list[float]] = None,
    mode: str = "nearest",
    align_corners: Optional[bool] = None,
) -> Tensor:
    assert input.dim() == 4, "interpolate takes images in TorchScript here"
    corners = False
    if align_corners is not None:
        corners = align_corners
    if mode == "nearest":
        return torch.ops.aten.upsample_nearest2d(input, size, scale_factor)
    if mode == "bilinear":
        return torch.ops.aten.upsample_bilinear2d(input, size, corners, scale_factor)
    assert mode == "bicubic", "interpolate is nearest, bilinear or bicubic in TorchScript here"
    return torch.ops.aten.upsample_bicubic2d(input, size, corners, scale_factor)


class no_grad:
    def __init__(self):
        self.before = False

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        torch.set_grad_enabled(self.before)


class enable_grad:
    def __init__(self):
        self.before = False

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        torch.set_grad_enabled(True)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        torch.set_grad_enabled(self.before)


FUNCTIONS = {
    f.__name__: f
    for f in (
        relu, leaky_relu, elu, hardtanh, relu6, silu, mish, hardswish, hardsigmoid, selu, celu, gelu, dropout, softmax,
        log_softmax, softmin, normalize, layer_norm, embedding, batch_norm, cross_entropy, nll_loss,
        mse_loss, l1_loss, smooth_l1_loss, binary_cross_entropy_with_logits, interpolate,
    )
}  # fmt: skip
