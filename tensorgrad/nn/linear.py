"""Linear and bilinear layers."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn import init
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


class Identity(Module):
    """Returns its input. Accepts any arguments, so that it can replace any layer.

    >>> torch.nn.Identity(54, unused=True)(torch.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """y = x Wᵀ + b on the last dimension.

    Args:
        in_features: the size of the last dimension of the input.
        out_features: the size of the last dimension of the result.
        bias: whether there is a b.

    `weight` is (out_features, in_features), `bias` (out_features); both are initialized uniformly from
    ±1/√in_features.

    >>> torch.nn.Linear(20, 30)(torch.zeros(128, 20)).shape
    torch.Size([128, 30])
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.empty((out_features, in_features), device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        # √5 makes the bound 1/√fan_in, which is how PyTorch has always initialized linear layers.
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """y = x₁ᵀ A x₂ + b: one matrix per output feature.

    Args:
        in1_features, in2_features: the sizes of the last dimensions of the two inputs.
        out_features: the size of the last dimension of the result.
        bias: whether there is a b.

    >>> torch.nn.Bilinear(2, 3, 4)(torch.zeros(5, 2), torch.zeros(5, 3)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(torch.empty((out_features, in1_features, in2_features), device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
