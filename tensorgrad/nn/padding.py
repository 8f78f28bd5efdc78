"""Layers that pad their input at the borders.

`padding` is one int for all sides, or (left, right), (left, right, top, bottom), (left, right, top, bottom, front,
back) for one, two and three dimensions.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.nn import functional as F
from tensorgrad.nn.conv import per_dimension
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class _Pad(Module):
    dimensions: int
    mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = per_dimension(padding, 2 * self.dimensions)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`.

    (*, W) becomes (*, left + W + right).
    `padding` is an int for both sides, or (left, right).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.
        value: what the new elements are.

    >>> torch.nn.ConstantPad1d((1, 2), 7.0)(torch.zeros(1, 2))
    tensor([[7., 0., 0., 7., 7.]])
    """

    dimensions = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`.

    (*, H, W) becomes (*, top + H + bottom, left + W + right).
    `padding` is an int for all sides, or (left, right, top, bottom).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.
        value: what the new elements are.

    >>> torch.nn.ConstantPad2d((1, 0, 0, 1), 7.0)(torch.zeros(1, 1, 2))
    tensor([[[7., 0., 0.],
             [7., 7., 7.]]])
    """

    dimensions = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`.

    (*, D, H, W) becomes (*, front + D + back, top + H + bottom, left + W + right).
    `padding` is an int for all sides, or (left, right, top, bottom, front, back).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.
        value: what the new elements are.

    >>> torch.nn.ConstantPad3d((1, 0, 0, 0, 0, 0), 7.0)(torch.zeros(1, 1, 1, 2))
    tensor([[[[7., 0., 0.]]]])
    """

    dimensions = 3


class ZeroPad1d(_ZeroPad):
    """Pads the last dimension with zeros.

    (*, W) becomes (*, left + W + right).
    `padding` is an int for both sides, or (left, right).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    >>> torch.nn.ZeroPad1d((1, 2))(torch.ones(1, 2))
    tensor([[0., 1., 1., 0., 0.]])
    """

    dimensions = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two dimensions with zeros.

    (*, H, W) becomes (*, top + H + bottom, left + W + right).
    `padding` is an int for all sides, or (left, right, top, bottom).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    >>> torch.nn.ZeroPad2d((1, 0, 0, 1))(torch.ones(1, 1, 2))
    tensor([[[0., 1., 1.],
             [0., 0., 0.]]])
    """

    dimensions = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three dimensions with zeros.

    (*, D, H, W) becomes (*, front + D + back, top + H + bottom, left + W + right).
    `padding` is an int for all sides, or (left, right, top, bottom, front, back).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    >>> torch.nn.ZeroPad3d(1)(torch.ones(1, 4, 5, 6)).shape
    torch.Size([1, 6, 7, 8])
    """

    dimensions = 3


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Pads the last dimension with its mirror image, without repeating the border.

    The input is (N, C, W) or (C, W); W becomes left + W + right.
    `padding` is an int for both sides, or (left, right).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    Raises:
        RuntimeError: an amount is not smaller than the size of its dimension.

    >>> torch.nn.ReflectionPad1d(2)(torch.arange(4.0).view(1, 4))
    tensor([[2., 1., 0., 1., 2., 3., 2., 1.]])
    """

    dimensions = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Pads the last two dimensions with their mirror image, without repeating the border.

    The input is (N, C, H, W) or (C, H, W); H becomes top + H + bottom, W becomes left + W + right.
    `padding` is an int for all sides, or (left, right, top, bottom).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    Raises:
        RuntimeError: an amount is not smaller than the size of its dimension.

    >>> torch.nn.ReflectionPad2d((1, 1, 1, 0))(torch.arange(4.0).view(1, 2, 2))
    tensor([[[3., 2., 3., 2.],
             [1., 0., 1., 0.],
             [3., 2., 3., 2.]]])
    """

    dimensions = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads the last three dimensions with their mirror image, without repeating the border.

    The input is (N, C, D, H, W) or (C, D, H, W); D becomes front + D + back, and so on.
    `padding` is an int for all sides, or (left, right, top, bottom, front, back).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    Raises:
        RuntimeError: an amount is not smaller than the size of its dimension.

    >>> torch.nn.ReflectionPad3d((1, 1, 0, 0, 0, 0))(torch.arange(8.0).view(1, 2, 2, 2))[0, 1]
    tensor([[5., 4., 5., 4.],
            [7., 6., 7., 6.]])
    """

    dimensions = 3


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Pads the last dimension by repeating its border.

    The input is (N, C, W) or (C, W); W becomes left + W + right.
    `padding` is an int for both sides, or (left, right).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    >>> torch.nn.ReplicationPad1d((1, 2))(torch.arange(3.0).view(1, 3))
    tensor([[0., 0., 1., 2., 2., 2.]])
    """

    dimensions = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Pads the last two dimensions by repeating their border.

    The input is (N, C, H, W) or (C, H, W); H becomes top + H + bottom, W becomes left + W + right.
    `padding` is an int for all sides, or (left, right, top, bottom).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    >>> torch.nn.ReplicationPad2d((1, 0, 0, 1))(torch.arange(4.0).view(1, 2, 2))
    tensor([[[0., 0., 1.],
             [2., 2., 3.],
             [2., 2., 3.]]])
    """

    dimensions = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads the last three dimensions by repeating their border.

    The input is (N, C, D, H, W) or (C, D, H, W); D becomes front + D + back, and so on.
    `padding` is an int for all sides, or (left, right, top, bottom, front, back).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    >>> torch.nn.ReplicationPad3d((2, 1, 0, 0, 0, 0))(torch.arange(8.0).view(1, 2, 2, 2))[0, 1]
    tensor([[4., 4., 4., 5., 5.],
            [6., 6., 6., 7., 7.]])
    """

    dimensions = 3


class _CircularPadNd(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        n = self.dimensions
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")
        return F.pad(input, self.padding, self.mode)


class CircularPad1d(_CircularPadNd):
    """Pads the last dimension circularly, with values from its other end.

    The input is (N, C, W) or (C, W); W becomes left + W + right.
    `padding` is an int for both sides, or (left, right).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    Raises:
        ValueError: the input has another number of dimensions.
        RuntimeError: an amount exceeds the size of its dimension.

    >>> torch.nn.CircularPad1d((1, 2))(torch.arange(4.0).view(1, 4))
    tensor([[3., 0., 1., 2., 3., 0., 1.]])
    """

    dimensions = 1


class CircularPad2d(_CircularPadNd):
    """Pads the last two dimensions circularly, with values from their other ends.

    The input is (N, C, H, W) or (C, H, W); H becomes top + H + bottom, W becomes left + W + right.
    `padding` is an int for all sides, or (left, right, top, bottom).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    Raises:
        ValueError: the input has another number of dimensions.
        RuntimeError: an amount exceeds the size of its dimension.

    >>> torch.nn.CircularPad2d((1, 0, 0, 1))(torch.arange(4.0).view(1, 2, 2))
    tensor([[[1., 0., 1.],
             [3., 2., 3.],
             [1., 0., 1.]]])
    """

    dimensions = 2


class CircularPad3d(_CircularPadNd):
    """Pads the last three dimensions circularly, with values from their other ends.

    The input is (N, C, D, H, W) or (C, D, H, W); D becomes front + D + back, and so on.
    `padding` is an int for all sides, or (left, right, top, bottom, front, back).
    Negative amounts remove elements.

    Args:
        padding: how many elements are added: one number for all sides, or two per dimension, the last dimension first.

    Raises:
        ValueError: the input has another number of dimensions.
        RuntimeError: an amount exceeds the size of its dimension.

    >>> torch.nn.CircularPad3d((1, 0, 0, 1, 0, 0))(torch.arange(8.0).view(1, 2, 2, 2))[0, 1]
    tensor([[5., 4., 5.],
            [7., 6., 7.],
            [5., 4., 5.]])
    """

    dimensions = 3
