"""The inverse gamma distribution."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.gamma import Gamma
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """The distribution of 1 / x for x from a gamma distribution with `concentration` and `rate`.

    >>> torch.distributions.InverseGamma(torch.tensor([1.0, 3.0]), 1.0).mean
    tensor([   inf, 0.5000])
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration, rate, validate_args=None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    @property
    def concentration(self):
        """The shape parameter of the gamma distribution."""
        return self.base_dist.concentration

    @property
    def rate(self):
        """The rate of the gamma distribution."""
        return self.base_dist.rate

    @property
    def mean(self) -> torch.Tensor:
        alpha = self.concentration
        return torch.where(alpha > 1, self.rate / (alpha - 1), math.inf)

    @property
    def mode(self) -> torch.Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> torch.Tensor:
        alpha = self.concentration
        return torch.where(alpha > 2, self.rate.pow(2) / ((alpha - 1).pow(2) * (alpha - 2)), math.inf)

    def entropy(self) -> torch.Tensor:
        alpha = self.concentration
        return alpha + self.rate.log() + alpha.lgamma() - (1 + alpha) * alpha.digamma()
