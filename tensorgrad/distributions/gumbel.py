"""The Gumbel distribution of maxima."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.transforms import AffineTransform, ExpTransform
from tensorgrad.distributions.uniform import Uniform
from tensorgrad.distributions.utils import broadcast_all, euler_constant

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The Gumbel distribution, P(x <= t) = exp(-exp(-(t - loc) / scale)).

    >>> torch.distributions.Gumbel(0.0, 1.0).mean
    tensor(0.5772)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc, scale, validate_args=None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        # loc - scale · log(-log u) for uniform u, excluding the infinities at 0 and 1.
        info = torch.finfo(self.loc.dtype)
        base = Uniform(
            torch.full_like(self.loc, info.tiny), torch.full_like(self.loc, 1 - info.eps), validate_args=validate_args
        )
        negate = AffineTransform(loc=0, scale=-torch.ones_like(self.scale))
        scale_and_shift = AffineTransform(loc=self.loc, scale=-self.scale)
        transforms = [ExpTransform().inv, negate, ExpTransform().inv, scale_and_shift]
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> torch.Tensor:
        return self.loc

    @property
    def stddev(self) -> torch.Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> torch.Tensor:
        return self.stddev.pow(2)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def entropy(self) -> torch.Tensor:
        return self.scale.log() + (1 + euler_constant)
