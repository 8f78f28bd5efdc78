"""Pooling: the largest or the mean value of each window."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn import functional as F
from tensorgrad.nn.conv import per_dimension
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class _MaxPool(Module):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest value of each window of (N, C, L) or (C, L). Arguments: :class:`MaxPool2d`.

    >>> import tensorgrad as torch
    >>> torch.nn.MaxPool1d(2)(torch.tensor([[1.0, 3.0, 5.0, 2.0]]))
    tensor([[3., 5.]])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool2d(_MaxPool):
    """The largest value of each window of (N, C, H, W) or (C, H, W).

    Args:
        kernel_size: size of the window; like the next three a number or one per dimension.
        stride: distance from window to window; by default ``kernel_size``, so that they do not overlap.
        padding: -inf added on both sides, at most half the window.
        dilation: distance between the window's elements.
        return_indices: also return where the maxima are.
        ceil_mode: round the size of the result up: a window may reach beyond the border.

    Example::

        >>> import tensorgrad as torch
        >>> torch.nn.MaxPool2d(2)(torch.zeros(1, 3, 8, 8)).shape
        torch.Size([1, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool3d(_MaxPool):
    """The largest value of each window of (N, C, D, H, W) or (C, D, H, W). Arguments: :class:`MaxPool2d`."""

    def forward(self, input: Tensor) -> Any:
        return F.max_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class _AvgPool(Module):
    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L) or (C, L). Arguments: :class:`AvgPool2d`.

    >>> import tensorgrad as torch
    >>> torch.nn.AvgPool1d(2)(torch.tensor([[1.0, 3.0, 5.0, 7.0]]))
    tensor([[2., 6.]])
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = per_dimension(kernel_size, 1)
        self.stride = per_dimension(kernel_size if stride is None else stride, 1)
        self.padding = per_dimension(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )  # fmt: skip


class _AvgPoolNd(_AvgPool):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override


class AvgPool2d(_AvgPoolNd):
    """The mean of each window of (N, C, H, W) or (C, H, W).

    Args:
        kernel_size: size of the window; like the next two a number or one per dimension.
        stride: distance from window to window; by default ``kernel_size``, so that they do not overlap.
        padding: zeros added on both sides, at most half the window.
        ceil_mode: round the size of the result up: a window may reach beyond the border.
        count_include_pad: the padding counts as elements of the window.
        divisor_override: divide by this instead of the number of elements.

    Example::

        >>> import tensorgrad as torch
        >>> torch.nn.AvgPool2d(2)(torch.ones(1, 1, 2, 2))
        tensor([[[[1.]]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool3d(_AvgPoolNd):
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W). Arguments: :class:`AvgPool2d`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class _AdaptivePool(Module):
    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Max pooling with windows such that the result has ``output_size`` elements."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Max pooling with windows such that the result has size ``output_size``; ``None`` keeps a dimension's size."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Max pooling with windows such that the result has size ``output_size``; ``None`` keeps a dimension's size."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _AdaptiveAvgPool(_AdaptivePool):
    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Mean pooling with windows such that the result has ``output_size`` elements.

    >>> import tensorgrad as torch
    >>> torch.nn.AdaptiveAvgPool1d(2)(torch.tensor([[1.0, 3.0, 5.0, 7.0]]))
    tensor([[2., 6.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Mean pooling with windows such that the result has size ``output_size``; ``None`` keeps a dimension's size.

    Example::

        >>> import tensorgrad as torch
        >>> torch.nn.AdaptiveAvgPool2d((1, None))(torch.zeros(1, 3, 8, 9)).shape
        torch.Size([1, 3, 1, 9])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Mean pooling with windows such that the result has size ``output_size``; ``None`` keeps a dimension's size."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)
