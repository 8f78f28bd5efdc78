"""The `forward` of modules of `torch.nn`, written in TorchScript, where the module's own is not.

They are never run as Python.
"""

from __future__ import annotations

from typing import Optional

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.nn import functional as F
from tensorgrad.tensor import Tensor

# ruff: noqa: UP045
# mypy: ignore-errors


def sequential(self, input):
    for module in self:
        input = module(input)
    return input


def batch_norm(self, input: Tensor) -> Tensor:
    factor = 0.0
    if self.momentum is not None:
        factor = self.momentum
    if self.training and self.track_running_stats:  # noqa: SIM102
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
    if self.running_mean is None:
        return torch.ops.aten.batch_norm(input, self.weight, self.bias, None, None, True, factor, self.eps, True)
    training = self.training
    return torch.ops.aten.batch_norm(
        input, self.weight, self.bias, self.running_mean, self.running_var, training, factor, self.eps, True
    )


def conv1d(self, input: Tensor) -> Tensor:
    assert self.padding_mode == "zeros", "padding of this mode is not in TorchScript here"
    return torch.conv1d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def conv2d(self, input: Tensor) -> Tensor:
    assert self.padding_mode == "zeros", "padding of this mode is not in TorchScript here"
    return torch.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def conv3d(self, input: Tensor) -> Tensor:
    assert self.padding_mode == "zeros", "padding of this mode is not in TorchScript here"
    return torch.conv3d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def max_pool2d(self, input: Tensor) -> Tensor:
    return torch.ops.aten.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


def avg_pool2d(self, input: Tensor) -> Tensor:
    return torch.ops.aten.avg_pool2d(
        input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
    )


def adaptive_avg_pool2d(self, input: Tensor) -> Tensor:
    return torch.ops.aten.adaptive_avg_pool2d(input, self.output_size)


def flatten(self, input: Tensor) -> Tensor:
    return torch.flatten(input, self.start_dim, self.end_dim)


def layer_norm(self, input: Tensor) -> Tensor:
    return torch.ops.aten.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


def embedding(self, input: Tensor) -> Tensor:
    return F.embedding(input, self.weight, self.padding_idx)


def lstm(self, input: Tensor, hx: Optional[tuple[Tensor, Tensor]] = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    assert input.dim() == 3, "an LSTM takes batches in TorchScript here"
    size = input.size(0) if self.batch_first else input.size(1)
    count = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        zeros = torch.zeros(count, size, self.hidden_size, dtype=input.dtype, device=input.device)
        hx = (zeros, zeros)
    h, c = hx
    result = torch.ops.aten.lstm(
        input, [h, c], self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    return result[0], (result[1], result[2])


def gru(self, input: Tensor, hx: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
    assert input.dim() == 3, "a GRU takes batches in TorchScript here"
    size = input.size(0) if self.batch_first else input.size(1)
    count = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        hx = torch.zeros(count, size, self.hidden_size, dtype=input.dtype, device=input.device)
    return torch.ops.aten.gru(
        input, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip


FORWARDS = {
    nn.Sequential: sequential, nn.BatchNorm1d: batch_norm, nn.BatchNorm2d: batch_norm, nn.BatchNorm3d: batch_norm,
    nn.Conv1d: conv1d, nn.Conv2d: conv2d, nn.Conv3d: conv3d, nn.MaxPool2d: max_pool2d, nn.AvgPool2d: avg_pool2d,
    nn.AdaptiveAvgPool2d: adaptive_avg_pool2d, nn.Flatten: flatten, nn.LayerNorm: layer_norm, nn.LSTM: lstm,
    nn.GRU: gru, nn.Embedding: embedding,
}  # fmt: skip
