"""Nonlinearities: functions applied to every element, and the softmax family.

`inplace=True` writes the result into the input.
"""

from __future__ import annotations

import warnings
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn import init as initial
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


class _InPlace(Module):
    """An activation whose only argument is `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


def _suffix(module: Module) -> str:
    return ", inplace=True" if module.inplace else ""


class ReLU(_InPlace):
    """max(x, 0), the rectified linear unit. `inplace`: write into the input.

    Args:
        inplace: write the result into the input.

    >>> torch.nn.ReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, inplace=self.inplace)


class SiLU(_InPlace):
    """x · sigmoid(x), also called swish (Elfwing et al., 2017).

    Args:
        inplace: write the result into the input.

    >>> torch.nn.SiLU()(torch.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, inplace=self.inplace)


class Mish(_InPlace):
    """x · tanh(softplus(x)) = x · tanh(log(1 + eˣ)) (Misra, 2019). `inplace`: write into the input.

    Args:
        inplace: write the result into the input.

    >>> torch.nn.Mish()(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3034,  0.0000,  1.9440])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, inplace=self.inplace)


class SELU(_InPlace):
    """scale · (max(0, x) + min(0, α (eˣ - 1))), with scale = 1.0507... and α = 1.6732...

    With these constants, mean 0 and variance 1 are preserved from layer to layer (Klambauer et al., 2017).
    `inplace`: write into the input.

    Args:
        inplace: write the result into the input.

    >>> torch.nn.SELU()(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.1113,  0.0000,  2.1014])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Hardswish(_InPlace):
    """x · clamp(x + 3, 0, 6) / 6, an approximation of `SiLU` (Howard et al., 2019).

    `inplace`: write into the input.

    Args:
        inplace: write the result into the input.

    >>> torch.nn.Hardswish()(torch.tensor([-1.0, 0.0, 1.0, 4.0]))
    tensor([-0.3333,  0.0000,  0.6667,  4.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""  # PyTorch prints no arguments for this class and the next


class Hardsigmoid(_InPlace):
    """clamp(x + 3, 0, 6) / 6: 0 up to -3, 1 from 3 on, linear in between. `inplace`: write into the input.

    Args:
        inplace: write the result into the input.

    >>> torch.nn.Hardsigmoid()(torch.tensor([-4.0, 0.0, 1.5, 4.0]))
    tensor([0.0000, 0.5000, 0.7500, 1.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Sigmoid(Module):
    """1 / (1 + e⁻ˣ).

    >>> torch.nn.Sigmoid()(torch.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        return torch.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent.

    >>> torch.nn.Tanh()(torch.tensor([0.0, 2.0]))
    tensor([0.0000, 0.9640])
    """

    def forward(self, input: Tensor) -> Tensor:
        return torch.tanh(input)


class LogSigmoid(Module):
    """log(1 / (1 + e⁻ˣ)), computed without overflow for large |x|.

    >>> torch.nn.LogSigmoid()(torch.tensor([-100.0, 0.0, 2.0]))
    tensor([-100.0000,   -0.6931,   -0.1269])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|): between -1 and 1 like tanh, but approaches the bounds more slowly.

    >>> torch.nn.Softsign()(torch.tensor([-1.0, 0.0, 3.0]))
    tensor([-0.5000,  0.0000,  0.7500])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x): about x³/3 near 0, about x ∓ 1 far away.

    >>> torch.nn.Tanhshrink()(torch.tensor([-2.0, 0.0, 2.0]))
    tensor([-1.0360,  0.0000,  1.0360])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class Threshold(Module):
    """x where it exceeds `threshold`, else `value`.

    Args:
        threshold: the bound; x equal to it is replaced.
        value: the replacement.
        inplace: write into the input.

    >>> torch.nn.Threshold(0.5, -1.0)(torch.tensor([0.0, 0.5, 2.0]))
    tensor([-1., -1.,  2.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{_suffix(self)}"


class RReLU(Module):
    """x where positive, else a·x; in training, a is drawn uniformly from [lower, upper) for each element.

    In evaluation, a is the mean of the bounds, (lower + upper) / 2 (Xu et al., 2015).

    Args:
        lower, upper: the bounds of a.
        inplace: write into the input.

    Raises:
        RuntimeError: when called, if `lower` exceeds `upper`.

    >>> torch.nn.RReLU(0.1, 0.3).eval()(torch.tensor([-1.0, 2.0]))
    tensor([-0.2000,  2.0000])
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{_suffix(self)}"


class Hardtanh(Module):
    """clamp(x, min_val, max_val): linear between the bounds, constant beyond.

    Args:
        min_val, max_val: the bounds, by default -1 and 1; `min_value` and `max_value` are their old names.
        inplace: write into the input.

    Raises:
        AssertionError: `max_val` is not greater than `min_val`.

    >>> torch.nn.Hardtanh(-2.0, 2.0)(torch.tensor([-5.0, 1.0, 3.0]))
    tensor([-2.,  1.,  2.])
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for old, new, value in (("min_value", "min_val", min_value), ("max_value", "max_val", max_value)):
            if value is not None:
                warnings.warn(
                    f"keyword argument `{old}` is deprecated and renamed to `{new}`", FutureWarning, stacklevel=2
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{_suffix(self)}"


class ReLU6(Hardtanh):
    """clamp(x, 0, 6) = min(max(0, x), 6) (Krizhevsky, 2010). `inplace`: write into the input.

    Args:
        inplace: write the result into the input.

    >>> torch.nn.ReLU6()(torch.tensor([-1.0, 2.0, 8.0]))
    tensor([0., 2., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ELU(Module):
    """x where positive, else α (eˣ - 1) (Clevert et al., 2015).

    Args:
        alpha: α; the result approaches -α for very negative x.
        inplace: write into the input.

    >>> torch.nn.ELU()(torch.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{_suffix(self)}"


class CELU(Module):
    """max(0, x) + min(0, α (e^(x/α) - 1)), whose slope is continuous for every α (Barron, 2017).

    Args:
        alpha: α; for α > 0 the result approaches -α for very negative x.
        inplace: write into the input.

    Raises:
        RuntimeError: when called, if α is 0.

    >>> torch.nn.CELU(2.0)(torch.tensor([-2.0, 0.0, 2.0]))
    tensor([-1.2642,  0.0000,  2.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{_suffix(self)}"


class LeakyReLU(Module):
    """x where positive, else `negative_slope` · x (Maas et al., 2013). `inplace`: write into the input.

    Args:
        negative_slope: the slope for negative elements.
        inplace: write the result into the input.

    >>> torch.nn.LeakyReLU(0.1)(torch.tensor([-1.0, 2.0]))
    tensor([-0.1000,  2.0000])
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{_suffix(self)}"


class PReLU(Module):
    """x where positive, else a·x with a learned a, one for all channels or one per channel (He et al., 2015).

    Args:
        num_parameters: 1, or the number of channels (the size of the input's second dimension).
        init: the initial value of a.

    `weight` is a, (num_parameters).

    Raises:
        RuntimeError: when called, if there is more than one a and their number is not that of the channels.

    >>> torch.nn.PReLU(2, init=0.5)(torch.tensor([[-1.0, -2.0], [3.0, -4.0]]))
    tensor([[-0.5000, -1.0000],
            [ 3.0000, -2.0000]], grad_fn=<PreluKernelBackward0>)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(torch.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets a to its initial value."""
        initial.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """a · sigmoid(b), where a and b are the halves of the input along `dim` (Dauphin et al., 2016).

    Args:
        dim: the dimension to halve, by default the last: (*, 2n) becomes (*, n).

    Raises:
        RuntimeError: when called, if the dimension has an odd size.

    >>> torch.nn.GLU()(torch.tensor([3.0, 0.0]))
    tensor([1.5000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GELU(Module):
    """x · Φ(x), where Φ is the normal CDF; `approximate="tanh"` approximates it by a tanh (Hendrycks, 2016).

    Args:
        approximate: `none` (exact) or `tanh`.

    >>> torch.nn.GELU()(torch.tensor([-1.0, 2.0]))
    tensor([-0.1587,  1.9545])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Hardshrink(Module):
    """x where |x| exceeds `lambd`, else 0.

    Args:
        lambd: elements between -lambd and lambd become zero.

    >>> torch.nn.Hardshrink(0.5)(torch.tensor([-2.0, 0.3, 0.5, 0.7]))
    tensor([-2.0000,  0.0000,  0.0000,  0.7000])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Module):
    """Shrinks x towards 0 by `lambd`: sign(x) · max(|x| - lambd, 0).

    Args:
        lambd: how much elements move towards zero; not negative.

    Raises:
        RuntimeError: when called, if `lambd` is negative.

    >>> torch.nn.Softshrink(0.5)(torch.tensor([-2.0, 0.3, 0.5, 0.7]))
    tensor([-1.5000,  0.0000,  0.0000,  0.2000])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softplus(Module):
    """log(1 + e^(beta·x)) / beta, a smooth ReLU; x itself where beta·x exceeds `threshold`.

    Args:
        beta: the sharpness of the bend.
        threshold: where beta · x is greater, the result is x itself, so that nothing overflows.

    >>> torch.nn.Softplus()(torch.tensor([0.0, 2.0]))
    tensor([0.6931, 2.1269])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class _Along(Module):
    """A function along one dimension."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_Along):
    """exp(xᵢ) / Σⱼ exp(xⱼ) along `dim`: positive values that sum to 1, in the input's shape.

    Args:
        dim: the dimension that j runs over; omitting it is deprecated (0 for 0, 1 or 3 dimensions, else 1).

    >>> torch.nn.Softmax(dim=1)(torch.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class Softmin(_Along):
    """exp(-xᵢ) / Σⱼ exp(-xⱼ) along `dim`: `Softmax` of -x, in the input's shape.

    Args:
        dim: the dimension along which the results add up to 1.

    >>> torch.nn.Softmin(dim=0)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([0.6652, 0.2447, 0.0900])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(_Along):
    """log(exp(xᵢ) / Σⱼ exp(xⱼ)) along `dim`, computed without overflow, in the input's shape.

    Args:
        dim: the dimension along which the exponentials add up to 1.

    >>> torch.nn.LogSoftmax(dim=1)(torch.zeros(1, 2))
    tensor([[-0.6931, -0.6931]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W), separately for each pixel, in the input's shape.

    Raises:
        ValueError: the input has another number of dimensions.

    >>> torch.nn.Softmax2d()(torch.tensor([[[0.0, 1.0]], [[0.0, 3.0]]]))[:, 0]  # two channels, two pixels
    tensor([[0.5000, 0.1192],
            [0.5000, 0.8808]])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)
