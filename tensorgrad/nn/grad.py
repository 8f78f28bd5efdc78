"""`torch.nn.grad`: the gradients of convolutions as functions, for hand-written backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.tensor import Tensor


def _tracked(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _derivative(conv: Any, input: Tensor, weight: Tensor, operand: Tensor, grad_output: Tensor, how: tuple) -> Tensor:
    """Returns the derivative with respect to `operand`, whose values do not matter: a convolution is linear in it."""
    keep = _tracked(input, weight, grad_output)
    with torch.enable_grad():
        operand.requires_grad_()
        output = conv(input, weight, None, *how)
        return torch.autograd.grad(output, operand, grad_output, create_graph=keep)[0]


def _by_input(conv: Any, size: Sequence[int], weight: Tensor, grad_output: Tensor, how: tuple) -> Tensor:
    operand = torch.zeros(tuple(size), dtype=grad_output.dtype, device=grad_output.device)
    return _derivative(conv, operand, weight, operand, grad_output, how)


def _by_weight(conv: Any, input: Tensor, size: Sequence[int], grad_output: Tensor, how: tuple) -> Tensor:
    operand = torch.zeros(tuple(size), dtype=grad_output.dtype, device=grad_output.device)
    return _derivative(conv, input, operand, operand, grad_output, how)


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `F.conv1d` with respect to its input, of shape `input_size`. See `conv2d_input`.

    >>> torch.nn.grad.conv1d_input((1, 1, 4), torch.tensor([[[1.0, 10.0]]]), torch.ones(1, 1, 3))
    tensor([[[ 1., 11., 11., 10.]]])
    """
    return _by_input(F.conv1d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `F.conv1d` with respect to its weight, of shape `weight_size`. See `conv2d_weight`.

    >>> torch.nn.grad.conv1d_weight(torch.arange(4.0).reshape(1, 1, 4), (1, 1, 2), torch.ones(1, 1, 3))
    tensor([[[3., 6.]]])
    """
    return _by_weight(F.conv1d, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `F.conv2d` with respect to its input, from the gradient with respect to its result.

    Args:
        input_size: the input's shape.
        weight: (out channels, in channels / groups, height, width).
        grad_output: the gradient with respect to the result.
        stride, padding, dilation, groups: those of the convolution.

    >>> weight = torch.ones(1, 1, 2, 2)
    >>> torch.nn.grad.conv2d_input((1, 1, 3, 3), weight, torch.ones(1, 1, 2, 2))
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    return _by_input(F.conv2d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `F.conv2d` with respect to its weight, from the gradient with respect to its result.

    Args:
        input: (batch, in channels, height, width).
        weight_size: the weight's shape.
        others: as in `conv2d_input`.

    >>> image = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> torch.nn.grad.conv2d_weight(image, (1, 1, 2, 2), torch.ones(1, 1, 2, 2))
    tensor([[[[ 8., 12.],
              [20., 24.]]]])
    """
    return _by_weight(F.conv2d, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `F.conv3d` with respect to its input, of shape `input_size`. See `conv2d_input`.

    >>> torch.nn.grad.conv3d_input((1, 1, 3, 3, 3), torch.ones(1, 1, 2, 2, 2), torch.ones(1, 1, 2, 2, 2)).max()
    tensor(8.)
    """
    return _by_input(F.conv3d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `F.conv3d` with respect to its weight, of shape `weight_size`. See `conv2d_weight`.

    >>> torch.nn.grad.conv3d_weight(torch.ones(1, 1, 3, 3, 3), (1, 1, 2, 2, 2), torch.ones(1, 1, 2, 2, 2)).unique()
    tensor([8.])
    """
    return _by_weight(F.conv3d, input, weight_size, grad_output, (stride, padding, dilation, groups))
