"""Converting the memory format of convolution weights."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nn.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from tensorgrad.nn.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Module, layers: tuple, memory_format: Any) -> Any:
    for layer in module.modules():
        if isinstance(layer, layers):
            last = "channels_last" in str(memory_format)
            weight = layer.weight.detach().movedim(1, -1) if last else layer.weight.detach()
            weight = weight.clone(memory_format=torch.contiguous_format)
            layer.weight.data = weight.movedim(-1, 1) if last else weight
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Converts the weights of all two-dimensional convolutions of `module` in place; returns `module`.

    Args:
        memory_format: `torch.channels_last` or `torch.contiguous_format`.

    >>> net = torch.nn.utils.convert_conv2d_weight_memory_format(torch.nn.Conv2d(8, 4, 3), torch.channels_last)
    >>> net.weight.stride()
    (72, 1, 24, 8)
    """
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The same for three-dimensional convolutions, with `torch.channels_last_3d` instead of `channels_last`.

    >>> layer = torch.nn.utils.convert_conv3d_weight_memory_format(torch.nn.Conv3d(8, 4, 2), torch.channels_last_3d)
    >>> layer.weight.stride()
    (64, 1, 32, 16, 8)
    """
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
