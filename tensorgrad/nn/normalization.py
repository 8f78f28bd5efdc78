"""Layers that normalize each sample separately."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn import init
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


class ScaledNorm(Module):
    """A normalization followed by a learned scale (`weight`) and shift (`bias`), both optional."""

    def _make(self, shape: Any, weight: bool, bias: bool | None, device: Any, dtype: Any) -> None:
        """Creates the parameters; with `bias=None` the layer has no attribute `bias`."""
        for name, wanted in (("weight", weight), ("bias", weight and bias)):
            if name == "weight" or bias is not None:
                made = Parameter(torch.empty(shape, device=device, dtype=dtype)) if wanted else None
                self.register_parameter(name, made)

    def reset_parameters(self) -> None:
        """Sets the weight to one and the bias to zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if getattr(self, "bias", None) is not None:
            init.zeros_(self.bias)


def _shape(normalized_shape: Any) -> tuple[int, ...]:
    return tuple(normalized_shape) if hasattr(normalized_shape, "__iter__") else (int(normalized_shape),)


class LayerNorm(ScaledNorm):
    """(x - mean) / √(var + eps) · weight + bias, over the last dimensions (Ba et al., 2016).

    Args:
        normalized_shape: the sizes of the dimensions to normalize over; an int means the last dimension.
        eps: added to the variance.
        elementwise_affine: whether there are a weight and a bias, of shape `normalized_shape`.
        bias: whether there is a bias.

    >>> torch.nn.LayerNorm(10)(torch.zeros(20, 5, 10)).shape
    torch.Size([20, 5, 10])
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._make(self.normalized_shape, elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(ScaledNorm):
    """x / √(mean(x²) + eps) · weight, with the mean over the last dimensions (Zhang and Sennrich, 2019).

    Args:
        normalized_shape: the sizes of the dimensions to normalize over; an int means the last dimension.
        eps: added to the mean square; by default the machine epsilon of the dtype.
        elementwise_affine: whether there is a weight, of shape `normalized_shape`, initialized to ones.

    Raises:
        RuntimeError: when called, if the input does not end in `normalized_shape`.

    >>> torch.nn.RMSNorm(2)(torch.tensor([[3.0, 4.0], [0.3, 0.4]])).detach()
    tensor([[0.8485, 1.1314],
            [0.8485, 1.1314]])
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._make(self.normalized_shape, elementwise_affine, None, device, dtype)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(ScaledNorm):
    """(x - mean) / √(var + eps) · weight + bias, over each group of channels of (N, C, *) (Wu and He, 2018).

    Args:
        num_groups: the number of groups of channels.
        num_channels: C, the number of channels.
        eps: added to the variance.
        affine: whether there are a weight and a bias, one scalar per channel each.
        bias: whether there is a bias.

    Raises:
        ValueError: the groups do not divide the channels.

    >>> torch.nn.GroupNorm(3, 6)(torch.zeros(20, 6, 10, 10)).shape
    torch.Size([20, 6, 10, 10])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._make(num_channels, affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """x / (k + alpha/n · Σ x²)^beta, summed over n = `size` neighboring channels (Krizhevsky et al., 2012).

    Input and result are (N, C, *). The sum for channel c runs over the existing channels from c - ⌊n/2⌋ to
    c + ⌊(n - 1)/2⌋.

    Args:
        size: n.
        alpha, beta, k: as in the formula.

    Raises:
        ValueError: when called, if the input has fewer than three dimensions.

    >>> torch.nn.LocalResponseNorm(3, alpha=3.0, beta=1.0)(torch.ones(1, 4, 1)).flatten()
    tensor([0.3333, 0.2500, 0.2500, 0.3333])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """x / (k + alpha/size · Σ x²)^beta for (N, C, H, W), summed over the `size` channels around each channel.

    This is not quite `LocalResponseNorm`: as in PyTorch, an even `size` sums over `size - 1` channels, and
    the first channel is part of the sums of all later channels. (PyTorch's gradient ignores the latter; here the
    gradient is the exact derivative.)

    Args:
        size, alpha, beta, k: as in the formula.

    Raises:
        ValueError: the input does not have four dimensions.

    >>> torch.nn.CrossMapLRN2d(3, alpha=3.0, beta=1.0)(torch.ones(1, 4, 1, 1)).flatten()
    tensor([0.3333, 0.2500, 0.2000, 0.2500])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        square = input * input
        reach = (self.size - 1) // 2 + 1
        lines = F.pad(square.flatten(2).unsqueeze(1), (0, 0, reach - 1, reach - 1))
        sums = F.avg_pool2d(lines, (2 * reach - 1, 1), stride=1, divisor_override=1).reshape(input.shape)
        first = F.pad(square[:, :1].expand(-1, max(input.shape[1] - reach, 0), -1, -1), (0, 0, 0, 0, reach, 0))
        total = sums + first[:, : input.shape[1]]
        return input * (total * (self.alpha / self.size) + self.k) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
