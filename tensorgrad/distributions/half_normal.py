"""The half-normal distribution."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.normal import Normal
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.transforms import AbsTransform

__all__ = ["HalfNormal"]


class HalfNormal(TransformedDistribution):
    """The distribution of |x| for normal x with mean 0 and standard deviation `scale`.

    >>> torch.distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale, validate_args=None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self):
        """The standard deviation of the normal distribution."""
        return self.base_dist.scale

    @property
    def mean(self) -> torch.Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> torch.Tensor:
        return torch.zeros_like(self.scale)

    @property
    def variance(self) -> torch.Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        return torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value) -> torch.Tensor:
        self._check(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value) -> torch.Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> torch.Tensor:
        return self.base_dist.entropy() - math.log(2)
