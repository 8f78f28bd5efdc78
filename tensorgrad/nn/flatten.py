"""Layers that only change the shape."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class Flatten(Module):
    """Merges the dimensions `start_dim` to `end_dim` into one; by default all but the first (the batch).

    Args:
        start_dim, end_dim: the first and the last of the dimensions that become one.

    >>> torch.nn.Flatten()(torch.zeros(32, 1, 5, 5)).shape
    torch.Size([32, 25])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits dimension `dim` into several, the inverse of `Flatten`.

    Args:
        dim: the dimension to split.
        unflattened_size: the sizes it becomes; one may be -1.

    Raises:
        TypeError: `unflattened_size` is not a tuple or list of ints.

    >>> torch.nn.Unflatten(1, (2, 5, 5))(torch.zeros(2, 50)).shape
    torch.Size([2, 2, 5, 5])
    """

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(unflattened_size, tuple | list):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found type {type(unflattened_size).__name__}"
            )
        for i, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {i}"
                )
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class PixelShuffle(Module):
    """Moves channels to a finer pixel grid: (*, C r², H, W) to (*, C, H r, W r) (Shi et al., 2016).

    out[c, h r + i, w r + j] = input[c r² + i r + j, h, w], where r is `upscale_factor`.

    Args:
        upscale_factor: r, by which height and width grow.

    Raises:
        RuntimeError: when called, if r² does not divide the channels.

    >>> torch.nn.PixelShuffle(3)(torch.zeros(1, 9, 4, 4)).shape
    torch.Size([1, 1, 12, 12])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        r = self.upscale_factor
        channels, height, width = input.shape[-3:]
        if channels % (r * r):
            raise RuntimeError(
                "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                f"upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
            )
        lead = input.shape[:-3]
        split = input.reshape(*lead, channels // (r * r), r, r, height, width)
        n = len(lead)
        order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
        return split.permute(order).reshape(*lead, channels // (r * r), height * r, width * r)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Moves blocks of r×r pixels to channels, (*, C, H r, W r) to (*, C r², H, W): undoes `PixelShuffle`.

    out[c r² + i r + j, h, w] = input[c, h r + i, w r + j], where r is `downscale_factor`.

    Args:
        downscale_factor: r, by which height and width shrink.

    Raises:
        RuntimeError: when called, if r does not divide height and width.

    >>> torch.nn.PixelUnshuffle(2)(torch.arange(8.0).view(1, 2, 4)).flatten(1)
    tensor([[0., 2.],
            [1., 3.],
            [4., 6.],
            [5., 7.]])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        r = self.downscale_factor
        channels, height, width = input.shape[-3:]
        for name, size, what in (("height", height, -2), ("width", width, -1)):
            if size % r:
                raise RuntimeError(
                    f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but "
                    f"input.size({what})={size} is not divisible by {r}"
                )
        lead = input.shape[:-3]
        split = input.reshape(*lead, channels, height // r, r, width // r, r)
        n = len(lead)
        order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
        return split.permute(order).reshape(*lead, channels * r * r, height // r, width // r)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleaves the channels of `groups` groups: (N, C, *) as (N, g, C/g, *), transposed (Zhang et al., 2018).

    The shape does not change.

    Args:
        groups: the number of groups, which divides the channels.

    Raises:
        RuntimeError: when called, if `groups` does not divide the channels.

    >>> torch.nn.ChannelShuffle(2)(torch.arange(6.0).view(1, 6, 1, 1)).flatten()
    tensor([0., 3., 1., 4., 2., 5.])
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        n, channels = input.shape[:2]
        if channels % self.groups:
            raise RuntimeError(
                f"Number of channels must be divisible by groups. Got {channels} channels and {self.groups} groups."
            )
        split = input.reshape(n, self.groups, channels // self.groups, *input.shape[2:])
        return split.transpose(1, 2).reshape(input.shape)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
