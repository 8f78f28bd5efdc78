"""Extracting windows of images as columns, and the reverse."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn import functional as F
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class Fold(Module):
    """Sums columns (N, C · window size, windows) into images (N, C, *output_size): the transpose of `Unfold`.

    Args:
        output_size: the size of the images.
        kernel_size: the size of the windows; an int or one per dimension, as are the next three.
        dilation: the distance between a window's elements.
        padding: how many zeros had been added on each side.
        stride: the distance between windows.

    >>> torch.nn.Fold(output_size=(4, 5), kernel_size=(2, 2))(torch.zeros(1, 3 * 2 * 2, 12)).shape
    torch.Size([1, 3, 4, 5])
    """

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """Extracts windows of images (N, C, H, W) as columns (N, C · window size, windows).

    Args:
        kernel_size: the size of the windows; an int or one per dimension, as are the next three.
        dilation: the distance between a window's elements.
        padding: how many zeros are added on each side.
        stride: the distance between windows.

    >>> torch.nn.Unfold(kernel_size=(2, 3))(torch.zeros(2, 5, 3, 4)).shape
    torch.Size([2, 30, 4])
    """

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
