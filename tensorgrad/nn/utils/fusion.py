"""Folding a batch norm into the preceding layer, for inference: both are affine then, and so is their composition."""

from __future__ import annotations

import copy
from typing import Any

import tensorgrad as torch
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


def _check(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Returns a copy of `conv` that computes `bn(conv(x))`.

    Args:
        conv: a convolution, in eval mode.
        bn: a batch norm with running statistics, in eval mode.
        transpose: `conv` is a transposed convolution.

    Raises:
        AssertionError: either is in training mode, or there are no running statistics.

    >>> from tensorgrad.nn.utils import fuse_conv_bn_eval
    >>> conv, norm = torch.nn.Conv2d(3, 8, 3).eval(), torch.nn.BatchNorm2d(8).eval()
    >>> x = torch.randn(1, 3, 6, 6)
    >>> torch.allclose(fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)), atol=1e-5)
    True
    """
    _check(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Returns weight and bias of a convolution that includes a batch norm.

    Args:
        conv_w, conv_b: weight and bias of the convolution.
        bn_rm, bn_rv, bn_eps, bn_w, bn_b: running mean and variance, eps, weight and bias of the batch norm.
        transpose: whether the convolution is transposed.

    >>> one, two = torch.ones(1), torch.tensor([2.0])
    >>> fused = torch.nn.utils.fuse_conv_bn_weights(torch.ones(1, 1, 1), one, one, one, 0.0, two, one)
    >>> [p.tolist() for p in fused]
    [[[[2.0]]], [1.0]]
    """
    if conv_b is None:
        conv_b = torch.zeros_like(bn_rm, dtype=conv_w.dtype)
    scale = torch.rsqrt(bn_rv + bn_eps) * (torch.ones_like(bn_rm) if bn_w is None else bn_w)
    shift = torch.zeros_like(bn_rm) if bn_b is None else bn_b
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    weight = (conv_w * scale.reshape(shape)).to(conv_w.dtype)
    bias = ((conv_b - bn_rm) * scale + shift).to(conv_b.dtype)
    return Parameter(weight.detach(), conv_w.requires_grad), Parameter(bias.detach(), conv_b.requires_grad)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Returns a copy of `linear` that computes `bn(linear(x))`.

    Args:
        linear: a `tensorgrad.nn.Linear`, in eval mode.
        bn: a batch norm of as many features, or of one, with running statistics, in eval mode.

    Raises:
        AssertionError: either is in training mode, the features do not match, or there are no running statistics.

    >>> linear, norm = torch.nn.Linear(3, 2).eval(), torch.nn.BatchNorm1d(2).eval()
    >>> fused, x = torch.nn.utils.fuse_linear_bn_eval(linear, norm), torch.randn(4, 3)
    >>> torch.allclose(fused(x), norm(linear(x)), atol=1e-6)
    True
    """
    _check(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """Returns weight and bias of a linear layer that includes a batch norm, like `fuse_conv_bn_weights`.

    >>> one, two = torch.ones(1), torch.tensor([2.0])
    >>> fused = torch.nn.utils.fuse_linear_bn_weights(torch.ones(1, 1), one, one, one, 0.0, two, one)
    >>> [p.tolist() for p in fused]
    [[[2.0]], [1.0]]
    """
    if linear_b is None:
        linear_b = torch.zeros_like(bn_rm, dtype=linear_w.dtype)
    scale = bn_w * torch.rsqrt(bn_rv + bn_eps)
    weight = linear_w * scale.unsqueeze(-1).to(linear_w.dtype)
    bias = ((linear_b - bn_rm) * scale + bn_b).to(linear_b.dtype)
    return Parameter(weight.detach(), linear_w.requires_grad), Parameter(bias.detach(), linear_b.requires_grad)
