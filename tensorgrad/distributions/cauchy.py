"""The Cauchy distribution."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import broadcast_all

__all__ = ["Cauchy"]


class Cauchy(Distribution):
    """The Cauchy (Lorentz) distribution with median `loc` and half width at half maximum `scale`; it has no mean.

    >>> torch.distributions.Cauchy(0.0, 1.0).cdf(torch.tensor([0.0, 1.0]))
    tensor([0.5000, 0.7500])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        """NaN, as the mean is undefined."""
        return torch.full_like(self.loc, math.nan)

    @property
    def mode(self) -> torch.Tensor:
        return self.loc

    @property
    def variance(self) -> torch.Tensor:
        return torch.full_like(self.loc, math.inf)

    def rsample(self, sample_shape=()) -> torch.Tensor:
        return self.loc + self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        standardized = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - torch.log1p(standardized.pow(2))

    def cdf(self, value) -> torch.Tensor:
        self._check(value)
        return torch.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value) -> torch.Tensor:
        return torch.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> torch.Tensor:
        return math.log(4 * math.pi) + self.scale.log()
