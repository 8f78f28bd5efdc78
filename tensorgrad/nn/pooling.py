"""Pooling: the maximum, the mean or the p-norm of each window."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn import functional as F
from tensorgrad.nn.conv import per_dimension
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class _MaxPoolNd(Module):
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


class MaxPool1d(_MaxPoolNd):
    """The maximum of each window of (N, C, L) or (C, L).

    Args:
        kernel_size: the size of the window.
        stride: the distance between windows; by default `kernel_size`, so that they do not overlap.
        padding: how many -inf are added on each side, at most half the window.
        dilation: the distance between the window's elements.
        return_indices: also return the indices of the maxima in the input.
        ceil_mode: round the output size up, so that a window may extend beyond the border.

    L becomes ⌊(L + 2·padding - dilation·(kernel_size - 1) - 1) / stride⌋ + 1.

    >>> torch.nn.MaxPool1d(2)(torch.tensor([[1.0, 3.0, 5.0, 2.0]]))
    tensor([[3., 5.]])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool2d(_MaxPoolNd):
    """The maximum of each window of (N, C, H, W) or (C, H, W).

    Args:
        kernel_size: the size of the window; an int or one per dimension, as are the next three.
        stride: the distance between windows; by default `kernel_size`, so that they do not overlap.
        padding: how many -inf are added on each side, at most half the window.
        dilation: the distance between the window's elements.
        return_indices: also return the indices of the maxima in the flattened H·W.
        ceil_mode: round the output size up, so that a window may extend beyond the border.

    H becomes ⌊(H + 2·padding - dilation·(kernel_size - 1) - 1) / stride⌋ + 1, and W likewise.

    Raises:
        RuntimeError: when called, if the padding exceeds half the window, or the output would be empty.

    >>> torch.nn.MaxPool2d(2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool3d(_MaxPoolNd):
    """The maximum of each window of (N, C, D, H, W) or (C, D, H, W). Arguments and sizes: `MaxPool2d`.

    Args:
        kernel_size: the size of the window; an int or one per dimension, as are the next three.
        stride: the distance between windows; by default `kernel_size`, so that they do not overlap.
        padding: how many -inf are added on each side, at most half the window.
        dilation: the distance between the window's elements.
        return_indices: also return the indices of the maxima in the flattened D·H·W.
        ceil_mode: round the output size up, so that a window may extend beyond the border.

    >>> torch.nn.MaxPool3d(2, stride=1)(torch.arange(8.0).view(1, 2, 2, 2))
    tensor([[[[7.]]]])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class _AvgPoolNd(Module):
    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of (N, C, L) or (C, L).

    Args:
        kernel_size: the size of the window.
        stride: the distance between windows; by default `kernel_size`, so that they do not overlap.
        padding: how many zeros are added on each side, at most half the window.
        ceil_mode: round the output size up, so that a window may extend beyond the border.
        count_include_pad: whether the padding counts as elements of the window.

    L becomes ⌊(L + 2·padding - kernel_size) / stride⌋ + 1.

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


class _AvgPoolWithDivisor(_AvgPoolNd):
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


class AvgPool2d(_AvgPoolWithDivisor):
    """The mean of each window of (N, C, H, W) or (C, H, W).

    Args:
        kernel_size: the size of the window; an int or one per dimension, as are the next two.
        stride: the distance between windows; by default `kernel_size`, so that they do not overlap.
        padding: how many zeros are added on each side, at most half the window.
        ceil_mode: round the output size up, so that a window may extend beyond the border.
        count_include_pad: whether the padding counts as elements of the window.
        divisor_override: divide by this instead of the number of elements.

    H becomes ⌊(H + 2·padding - kernel_size) / stride⌋ + 1, and W likewise.

    Raises:
        RuntimeError: when called, if the padding exceeds half the window, or the output would be empty.

    >>> torch.nn.AvgPool2d(2)(torch.ones(1, 1, 2, 2))
    tensor([[[[1.]]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool3d(_AvgPoolWithDivisor):
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W). Arguments and sizes: `AvgPool2d`.

    Args:
        kernel_size: the size of the window; an int or one per dimension, as are the next two.
        stride: the distance between windows; by default `kernel_size`, so that they do not overlap.
        padding: how many zeros are added on each side, at most half the window.
        ceil_mode: round the output size up, so that a window may extend beyond the border.
        count_include_pad: whether the padding counts as elements of the window.
        divisor_override: divide by this instead of the number of elements.

    >>> torch.nn.AvgPool3d((1, 2, 2))(torch.arange(8.0).view(1, 2, 2, 2)).flatten()
    tensor([1.5000, 5.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class _AdaptivePool(Module):
    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPoolNd(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Max pooling of (N, C, L) or (C, L), with windows chosen so that L becomes `output_size`.

    Output i covers the inputs from ⌊i·L/n⌋ to ⌈(i + 1)·L/n⌉ - 1, where n is the output size.
    `return_indices` also returns the indices of the maxima.

    Args:
        output_size: the length of the result.
        return_indices: also return the indices of the maxima in the input.

    >>> torch.nn.AdaptiveMaxPool1d(2)(torch.tensor([[1.0, 3.0, 5.0, 2.0, 4.0]]))
    tensor([[5., 5.]])
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Max pooling of (N, C, H, W) or (C, H, W), with windows chosen to give the output size.

    Args:
        output_size: an int or one per dimension; `None` keeps the size of a dimension.
        return_indices: also return the indices of the maxima in the flattened H·W.

    The windows along each dimension are those of `AdaptiveMaxPool1d`.

    >>> torch.nn.AdaptiveMaxPool2d((1, 2))(torch.arange(12.0).view(1, 3, 4))
    tensor([[[ 9., 11.]]])
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Max pooling of (N, C, D, H, W) or (C, D, H, W) to a given size.

    Args:
        output_size: an int or one per dimension; `None` keeps the size of a dimension.
        return_indices: also return the indices of the maxima in the flattened D·H·W.

    >>> torch.nn.AdaptiveMaxPool3d((1, None, 2))(torch.zeros(1, 3, 4, 5, 6)).shape
    torch.Size([1, 3, 1, 5, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _AdaptiveAvgPoolNd(_AdaptivePool):
    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Average pooling of (N, C, L) or (C, L), with windows chosen so that L becomes `output_size`.

    Output i covers the inputs from ⌊i·L/n⌋ to ⌈(i + 1)·L/n⌉ - 1, where n is the output size.

    Args:
        output_size: the length of the result.

    >>> torch.nn.AdaptiveAvgPool1d(2)(torch.tensor([[1.0, 3.0, 5.0, 7.0]]))
    tensor([[2., 6.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Average pooling of (N, C, H, W) or (C, H, W), with windows chosen to give the output size.

    Args:
        output_size: an int or one per dimension; `None` keeps the size of a dimension.

    The windows along each dimension are those of `AdaptiveAvgPool1d`.

    >>> torch.nn.AdaptiveAvgPool2d((1, None))(torch.zeros(1, 3, 8, 9)).shape
    torch.Size([1, 3, 1, 9])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Average pooling of (N, C, D, H, W) or (C, D, H, W) to a given size.

    Args:
        output_size: an int or one per dimension; `None` keeps the size of a dimension.

    >>> torch.nn.AdaptiveAvgPool3d(1)(torch.arange(8.0).view(1, 2, 2, 2)).flatten()
    tensor([3.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class _FractionalMaxPool(Module):
    dimensions: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        n, name = self.dimensions, f"FractionalMaxPool{self.dimensions}d"
        self.kernel_size, self.return_indices = per_dimension(kernel_size, n), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else per_dimension(output_size, n)
        self.output_ratio = None if output_ratio is None else per_dimension(output_ratio, n)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maximum of windows with random spacing in (N, C, H, W) or (C, H, W) (Graham, 2014).

    Args:
        kernel_size: the size of the windows; an int or one per dimension, as is `output_size`.
        output_size: the output size.
        output_ratio: alternatively, the output size as a fraction of the input's, between 0 and 1.
        return_indices: also return the indices of the maxima.
        _random_samples: (N, C, 2) values between 0 and 1 that determine the windows' positions; drawn if not given.

    Raises:
        ValueError: not exactly one of size and ratio is given, or the ratio is not between 0 and 1.

    >>> torch.nn.FractionalMaxPool2d(3, output_ratio=(0.5, 0.25))(torch.zeros(1, 2, 32, 32)).shape
    torch.Size([1, 2, 16, 8])
    """

    dimensions = 2

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool2d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class FractionalMaxPool3d(_FractionalMaxPool):
    """The maximum of windows with random spacing in (N, C, D, H, W) or (C, D, H, W) (Graham, 2014).

    Args:
        kernel_size: the size of the windows; an int or one per dimension, as is `output_size`.
        output_size: the output size.
        output_ratio: alternatively, the output size as a fraction of the input's, between 0 and 1.
        return_indices: also return the indices of the maxima.
        _random_samples: (N, C, 3) values between 0 and 1 that determine the windows' positions; drawn if not given.

    Raises:
        ValueError: not exactly one of size and ratio is given, or the ratio is not between 0 and 1.

    >>> torch.nn.FractionalMaxPool3d(2, output_size=(4, 6, 8))(torch.zeros(1, 2, 9, 16, 16)).shape
    torch.Size([1, 2, 4, 6, 8])
    """

    dimensions = 3

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool3d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class _LPPoolNd(Module):
    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The p-norm of each window of (N, C, L) or (C, L), (Σ xᵖ)^(1/p).

    Args:
        norm_type: p, not 0; 1 gives sums, and the limit at infinity is the maximum.
        kernel_size: the size of the window.
        stride: the distance between windows; by default `kernel_size`.
        ceil_mode: round the output size up, so that a window may extend beyond the border.

    >>> torch.nn.LPPool1d(2, 2)(torch.tensor([[3.0, 4.0, 5.0, 12.0]]))
    tensor([[ 5., 13.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of (N, C, H, W) or (C, H, W): (Σ xᵖ)^(1/p).

    Args:
        norm_type: p, not 0; 1 gives sums, and the limit at infinity is the maximum.
        kernel_size: the size of the window; an int or one per dimension, as is `stride`.
        stride: the distance between windows; by default `kernel_size`.
        ceil_mode: round the output size up, so that a window may extend beyond the border.

    H becomes ⌊(H - kernel_size) / stride⌋ + 1, and W likewise.

    >>> torch.nn.LPPool2d(2, (1, 2))(torch.tensor([[[3.0, 4.0], [5.0, 12.0]]]))
    tensor([[[ 5.],
             [13.]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of (N, C, D, H, W) or (C, D, H, W), (Σ xᵖ)^(1/p).

    Args:
        norm_type: p, not 0; 1 gives sums, and the limit at infinity is the maximum.
        kernel_size: the size of the window; an int or one per dimension, as is `stride`.
        stride: the distance between windows; by default `kernel_size`.
        ceil_mode: round the output size up, so that a window may extend beyond the border.

    >>> torch.nn.LPPool3d(1, 2)(torch.ones(1, 2, 2, 2)).flatten()
    tensor([8.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _MaxUnpoolNd(Module):
    dimensions: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = per_dimension(kernel_size, self.dimensions)
        self.stride = per_dimension(kernel_size if stride is None else stride, self.dimensions)
        self.padding = per_dimension(padding, self.dimensions)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts maxima of `MaxPool1d` back where they came from, zeros elsewhere.

    Args:
        kernel_size, stride, padding: those of the pooling.

    >>> values, indices = torch.nn.MaxPool1d(2, return_indices=True)(torch.tensor([[1.0, 3.0, 5.0, 2.0]]))
    >>> torch.nn.MaxUnpool1d(2)(values, indices)
    tensor([[0., 3., 5., 0.]])
    """

    dimensions = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts maxima of `MaxPool2d` (with `return_indices`) back where they came from, with zeros elsewhere.

    Args:
        kernel_size, stride, padding: those of the pooling.

    In `forward(input, indices, output_size=None)`, `output_size` selects one of the sizes that pool to the input's
    size; without it, H becomes (H - 1)·stride - 2·padding + kernel_size.

    Raises:
        RuntimeError: when called, if the indices have another shape than the input, or are out of range.
        ValueError: when called, if `output_size` does not pool to the input's size.

    >>> values, indices = torch.nn.MaxPool2d(2, return_indices=True)(torch.arange(4.0).reshape(1, 1, 2, 2))
    >>> torch.nn.MaxUnpool2d(2)(values, indices)
    tensor([[[[0., 0.],
              [0., 3.]]]])
    """

    dimensions = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts maxima of `MaxPool3d` back where they came from, zeros elsewhere.

    Args:
        kernel_size, stride, padding: those of the pooling.

    >>> values, indices = torch.nn.MaxPool3d(2, return_indices=True)(torch.arange(8.0).view(1, 2, 2, 2))
    >>> torch.nn.MaxUnpool3d(2)(values, indices)[0, 1]
    tensor([[0., 0.],
            [0., 7.]])
    """

    dimensions = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)
