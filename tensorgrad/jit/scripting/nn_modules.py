"""The `forward` of modules of `torch.nn`, written in TorchScript, where the module's own is not.

They are never run as Python.
"""

from __future__ import annotations

from typing import Optional

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.jit.scripting import nn_recurrent, nn_transformers
from tensorgrad.jit.scripting.functional import transposed_padding
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


def instance_norm(self, input: Tensor) -> Tensor:
    statistics = self.training or not self.track_running_stats
    return torch.ops.aten.instance_norm(
        input, self.weight, self.bias, self.running_mean, self.running_var, statistics, self.momentum, self.eps, True
    )


def conv1d(self, input: Tensor) -> Tensor:
    if self.padding_mode != "zeros":
        input = torch.ops.aten.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.conv1d(input, self.weight, self.bias, self.stride, [0], self.dilation, self.groups)
    return torch.conv1d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def conv2d(self, input: Tensor) -> Tensor:
    if self.padding_mode != "zeros":
        input = torch.ops.aten.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.conv2d(input, self.weight, self.bias, self.stride, [0, 0], self.dilation, self.groups)
    return torch.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def conv3d(self, input: Tensor) -> Tensor:
    if self.padding_mode != "zeros":
        input = torch.ops.aten.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.conv3d(input, self.weight, self.bias, self.stride, [0, 0, 0], self.dilation, self.groups)
    return torch.conv3d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def conv_transpose1d(self, input: Tensor, output_size: Optional[list[int]] = None) -> Tensor:
    more = list(self.output_padding)
    if output_size is not None:
        more = transposed_padding(output_size, input, self.kernel_size, self.stride, self.padding, self.dilation)
    return torch.ops.aten.conv_transpose1d(
        input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
    )


def conv_transpose2d(self, input: Tensor, output_size: Optional[list[int]] = None) -> Tensor:
    more = list(self.output_padding)
    if output_size is not None:
        more = transposed_padding(output_size, input, self.kernel_size, self.stride, self.padding, self.dilation)
    return torch.ops.aten.conv_transpose2d(
        input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
    )


def conv_transpose3d(self, input: Tensor, output_size: Optional[list[int]] = None) -> Tensor:
    more = list(self.output_padding)
    if output_size is not None:
        more = transposed_padding(output_size, input, self.kernel_size, self.stride, self.padding, self.dilation)
    return torch.ops.aten.conv_transpose3d(
        input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
    )


def max_pool1d(self, input: Tensor):
    if self.return_indices:
        return torch.ops.aten.max_pool1d_with_indices(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )
    return torch.ops.aten.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


def max_pool2d(self, input: Tensor):
    if self.return_indices:
        return torch.ops.aten.max_pool2d_with_indices(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )
    return torch.ops.aten.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


def max_pool3d(self, input: Tensor):
    if self.return_indices:
        return torch.ops.aten.max_pool3d_with_indices(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )
    return torch.ops.aten.max_pool3d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


def adaptive_max_pool1d(self, input: Tensor):
    return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


def adaptive_max_pool2d(self, input: Tensor):
    return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


def adaptive_max_pool3d(self, input: Tensor):
    return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


def fractional_max_pool2d(self, input: Tensor):
    return F.fractional_max_pool2d(
        input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
    )


def fractional_max_pool3d(self, input: Tensor):
    return F.fractional_max_pool3d(
        input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
    )


def max_unpool1d(self, input: Tensor, indices: Tensor, output_size: Optional[list[int]] = None) -> Tensor:
    return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


def max_unpool2d(self, input: Tensor, indices: Tensor, output_size: Optional[list[int]] = None) -> Tensor:
    return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


def max_unpool3d(self, input: Tensor, indices: Tensor, output_size: Optional[list[int]] = None) -> Tensor:
    return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


def avg_pool2d(self, input: Tensor) -> Tensor:
    return torch.ops.aten.avg_pool2d(
        input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
    )


def adaptive_avg_pool2d(self, input: Tensor) -> Tensor:
    return torch.ops.aten.adaptive_avg_pool2d(input, self.output_size)


def pixel_shuffle(self, input: Tensor) -> Tensor:
    return torch.ops.aten.pixel_shuffle(input, self.upscale_factor)


def pixel_unshuffle(self, input: Tensor) -> Tensor:
    return torch.ops.aten.pixel_unshuffle(input, self.downscale_factor)


def channel_shuffle(self, input: Tensor) -> Tensor:
    return torch.ops.aten.channel_shuffle(input, self.groups)


def flatten(self, input: Tensor) -> Tensor:
    return torch.flatten(input, self.start_dim, self.end_dim)


def ctc_loss(
    self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor
) -> Tensor:  # fmt: skip
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)


def layer_norm(self, input: Tensor) -> Tensor:
    return torch.ops.aten.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


def embedding(self, input: Tensor) -> Tensor:
    return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type)


FORWARDS = {
    nn.Sequential: sequential, nn.BatchNorm1d: batch_norm, nn.BatchNorm2d: batch_norm, nn.BatchNorm3d: batch_norm,
    nn.InstanceNorm1d: instance_norm, nn.InstanceNorm2d: instance_norm, nn.InstanceNorm3d: instance_norm,
    nn.Conv1d: conv1d, nn.Conv2d: conv2d, nn.Conv3d: conv3d, nn.ConvTranspose1d: conv_transpose1d,
    nn.ConvTranspose2d: conv_transpose2d, nn.ConvTranspose3d: conv_transpose3d, nn.MaxPool1d: max_pool1d,
    nn.MaxPool2d: max_pool2d, nn.MaxPool3d: max_pool3d, nn.AdaptiveMaxPool1d: adaptive_max_pool1d,
    nn.AdaptiveMaxPool2d: adaptive_max_pool2d, nn.AdaptiveMaxPool3d: adaptive_max_pool3d,
    nn.FractionalMaxPool2d: fractional_max_pool2d, nn.FractionalMaxPool3d: fractional_max_pool3d,
    nn.MaxUnpool1d: max_unpool1d, nn.MaxUnpool2d: max_unpool2d, nn.MaxUnpool3d: max_unpool3d, nn.AvgPool2d: avg_pool2d,
    nn.PixelShuffle: pixel_shuffle, nn.PixelUnshuffle: pixel_unshuffle, nn.AdaptiveAvgPool2d: adaptive_avg_pool2d,
    nn.ChannelShuffle: channel_shuffle, nn.Flatten: flatten, nn.LayerNorm: layer_norm, nn.Embedding: embedding,
    nn.CTCLoss: ctc_loss,
    **nn_recurrent.FORWARDS,
    **nn_transformers.FORWARDS,
}  # fmt: skip

# Layers that PyTorch refuses, too, and why.
REFUSED = {
    nn.AdaptiveLogSoftmaxWithLoss: "it chooses among its layers by a number that is computed",
    nn.LinearCrossEntropyLoss: "its options are an object of Python",
    nn.SyncBatchNorm: "it asks other processes",
    nn.TripletMarginWithDistanceLoss: "its distance may be any function",
}
