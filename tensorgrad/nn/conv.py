"""Convolutions in one, two and three dimensions, and their transposes."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.errors import as_integer
from tensorgrad.nn import functional as F
from tensorgrad.nn import init
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor

_MODES = {"zeros", "reflect", "replicate", "circular"}


def per_dimension(value: Any, n: int) -> tuple:
    """Returns `value` as a tuple of `n`: iterables are converted, anything else is repeated."""
    return tuple(value) if hasattr(value, "__iter__") else (value,) * n


class _ConvNd(Module):
    """Base of all convolutions: their settings, parameters, initial values and repr."""

    dimensions: int
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            if value.__class__ is not int:
                as_integer(value, name)
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        n = self.dimensions
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_dimension(kernel_size, n)
        self.stride = per_dimension(stride, n)
        self.padding: Any = padding if isinstance(padding, str) else per_dimension(padding, n)
        self.dilation = per_dimension(dilation, n)
        self.output_padding = per_dimension(output_padding, n)
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {_MODES}, but got padding_mode='{padding_mode}'")
        self.padding_mode = padding_mode
        self.transposed = type(self).transposed
        self._reversed_padding_repeated_twice = self._reversed_padding()
        channels = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(torch.empty((*channels, *self.kernel_size), device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def _reversed_padding(self) -> list[int]:
        """Returns the padding in the order of `F.pad`: last dimension first, before and after."""
        if self.padding == "valid":
            return [0] * (2 * self.dimensions)
        amounts: list[int] = []
        for i in reversed(range(self.dimensions)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                amounts += [total // 2, total - total // 2]
            else:
                amounts += [self.padding[i]] * 2
        return amounts

    def reset_parameters(self) -> None:
        """Draws new initial values, uniformly from ±1/√fan_in."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        n = self.dimensions
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * n:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode, device,
            dtype,
        )  # fmt: skip

    def _conv(self, conv: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return conv(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """Convolution (cross-correlation) over sequences: (N, C, L) or (C, L).

    out[n, j] = bias[j] + Σᵢ weight[j, i] ⋆ input[n, i], where (w ⋆ x)[l] = Σ w[a] x[l + a].

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the result, each with its filter.
        kernel_size: the length of the filters.
        stride: the step of the filter from one output to the next.
        padding: how much is added on each side; also `"valid"` (nothing) or `"same"` (keeps the size).
        dilation: the distance between the filter's elements.
        groups: the number of groups that the channels are divided into; each is convolved separately.
        bias: whether a learned bias per channel is added.
        padding_mode: `zeros`, `reflect`, `replicate` or `circular`.

    `weight` is (out_channels, in_channels / groups, kernel_size), `bias` (out_channels).
    L becomes ⌊(L + 2·padding - dilation·(kernel_size - 1) - 1) / stride⌋ + 1.

    Raises:
        ValueError: `groups` does not divide the channels, or the padding is unknown.

    >>> torch.nn.Conv1d(16, 33, 3, stride=2)(torch.zeros(20, 16, 50)).shape
    torch.Size([20, 33, 24])
    """

    dimensions = 1

    def forward(self, input: Tensor) -> Tensor:
        return self._conv(F.conv1d, input, self.weight, self.bias)


class Conv2d(_Conv):
    """Convolution (cross-correlation) over images: (N, C, H, W) or (C, H, W).

    out[n, j] = bias[j] + Σᵢ weight[j, i] ⋆ input[n, i], where (w ⋆ x)[h, v] = Σ w[a, b] x[h + a, v + b].

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the result, each with its filter.
        kernel_size: the size of the filters; an int or one per dimension, as are the next three.
        stride: the step of the filter from one output to the next.
        padding: how much is added on each side; also `"valid"` (nothing) or `"same"` (keeps the size).
        dilation: the distance between the filter's elements.
        groups: the number of groups that the channels are divided into; each is convolved separately.
        bias: whether a learned bias per channel is added.
        padding_mode: `zeros`, `reflect`, `replicate` or `circular`.

    `weight` is (out_channels, in_channels / groups, *kernel_size), `bias` (out_channels).
    H becomes ⌊(H + 2·padding - dilation·(kernel_size - 1) - 1) / stride⌋ + 1, and W likewise.

    Raises:
        ValueError: `groups` does not divide the channels, or the padding is unknown.

    >>> torch.nn.Conv2d(3, 8, 3, padding=1)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 8, 32, 32])
    """

    dimensions = 2

    def forward(self, input: Tensor) -> Tensor:
        if self.padding_mode == "zeros":
            return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return self._conv(F.conv2d, input, self.weight, self.bias)


class Conv3d(_Conv):
    """Convolution (cross-correlation) over volumes: (N, C, D, H, W) or (C, D, H, W).

    The arguments, and the size of the result along each dimension, are those of `Conv2d`.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the result, each with its filter.
        kernel_size: the size of the filters; an int or one per dimension, as are the next three.
        stride: the step of the filter from one output to the next.
        padding: how much is added on each side; also `"valid"` (nothing) or `"same"` (keeps the size).
        dilation: the distance between the filter's elements.
        groups: the number of groups that the channels are divided into; each is convolved separately.
        bias: whether a learned bias per channel is added.
        padding_mode: `zeros`, `reflect`, `replicate` or `circular`.

    >>> torch.nn.Conv3d(3, 8, (1, 3, 3), stride=(1, 2, 2))(torch.zeros(2, 3, 4, 9, 9)).shape
    torch.Size([2, 8, 4, 4, 4])
    """

    dimensions = 3

    def forward(self, input: Tensor) -> Tensor:
        return self._conv(F.conv3d, input, self.weight, self.bias)


class _ConvTransposeNd(_ConvNd):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple:
        """Returns the output padding that gives `output_size`; with a stride, several sizes are possible."""
        if output_size is None:
            return self.output_padding
        n = self.dimensions
        spatial = input.dim() - n
        if len(output_size) == input.dim():
            output_size = output_size[spatial:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {input.dim()} elements "
                f"(got {len(output_size)})"
            )
        low = [
            (input.size(i + spatial) - 1) * self.stride[i]
            - 2 * self.padding[i]
            + self.dilation[i] * (self.kernel_size[i] - 1)
            + 1
            for i in range(n)
        ]
        high = [size + stride - 1 for size, stride in zip(low, self.stride, strict=True)]
        for size, least, most in zip(output_size, low, high, strict=True):
            if not least <= size <= most:
                raise ValueError(
                    f"requested an output size of {output_size}, but valid sizes range from {low} to {high} "
                    f"(for an input of {input.size()[2:]})"
                )
        return tuple(size - least for size, least in zip(output_size, low, strict=True))

    def _transpose(self, conv: Any, input: Tensor, output_size: Any) -> Tensor:
        extra = self._output_padding(input, output_size)
        return conv(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of `Conv1d`: spreads each input of (N, C, L) or (C, L) over a window.

    The arguments, and the size of the result, are those of `ConvTranspose2d`.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the result.
        kernel_size: the size of the filters.
        stride: the distance in the result between neighboring inputs.
        padding: the padding of the corresponding convolution; this much is cut from each side of the result.
        output_padding: extra size at the end of the result; `forward(input, output_size)` computes it.
        groups: the number of groups that the channels are divided into; each is treated separately.
        bias: whether a learned bias per channel is added.
        dilation: the distance between the filter's elements.
        padding_mode: only `zeros`.

    >>> layer = torch.nn.ConvTranspose1d(1, 1, 2, stride=2, bias=False)
    >>> _ = torch.nn.init.ones_(layer.weight)
    >>> layer(torch.tensor([[1.0, 2.0, 3.0]])).detach()
    tensor([[1., 1., 2., 2., 3., 3.]])
    """

    dimensions = 1

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return self._transpose(F.conv_transpose1d, input, output_size)


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of `Conv2d`, its gradient as a layer: spreads each input over a window.

    The input is (N, C, H, W) or (C, H, W).

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the result.
        kernel_size: the size of the filters; an int or one per dimension, as are the next three.
        stride: the distance in the result between neighboring inputs.
        padding: the padding of the corresponding convolution; this much is cut from each side of the result.
        output_padding: extra size at the end of the result; `forward(input, output_size)` computes it.
        groups: the number of groups that the channels are divided into; each is treated separately.
        bias: whether a learned bias per channel is added.
        dilation: the distance between the filter's elements.
        padding_mode: only `zeros`.

    `weight` is (in_channels, out_channels / groups, *kernel_size). H becomes
    (H - 1)·stride - 2·padding + dilation·(kernel_size - 1) + output_padding + 1, and W likewise.

    Raises:
        ValueError: `groups` does not divide the channels, or `padding_mode` is not `zeros`; or, when called, no
            convolution with these settings turns `output_size` into the input's size.

    >>> torch.nn.ConvTranspose2d(4, 2, 3, stride=2)(torch.zeros(1, 4, 5, 5), output_size=(12, 12)).shape
    torch.Size([1, 2, 12, 12])
    """

    dimensions = 2

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return self._transpose(F.conv_transpose2d, input, output_size)


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of `Conv3d`: spreads each input of (N, C, D, H, W) or (C, D, H, W) over a window.

    The arguments, and the size of the result, are those of `ConvTranspose2d`.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the result.
        kernel_size: the size of the filters; an int or one per dimension, as are the next two.
        stride: the distance in the result between neighboring inputs.
        padding: the padding of the corresponding convolution; this much is cut from each side of the result.
        output_padding: extra size at the end of the result; `forward(input, output_size)` computes it.
        groups: the number of groups that the channels are divided into; each is treated separately.
        bias: whether a learned bias per channel is added.
        dilation: the distance between the filter's elements.
        padding_mode: only `zeros`.

    >>> torch.nn.ConvTranspose3d(4, 2, 2, stride=2)(torch.zeros(1, 4, 3, 5, 5)).shape
    torch.Size([1, 2, 6, 10, 10])
    """

    dimensions = 3

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return self._transpose(F.conv_transpose3d, input, output_size)
