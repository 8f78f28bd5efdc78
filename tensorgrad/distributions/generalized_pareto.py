"""The generalized Pareto distribution of excesses over a threshold."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The generalized Pareto distribution: P(x > t) = (1 + c (t - loc) / scale)^(-1/c) for t ≥ loc, with
    c = `concentration`. It is exponential in the limit c = 0; for c < 0, the support ends at loc - scale / c.

    >>> torch.distributions.GeneralizedPareto(0.0, 1.0, torch.tensor([0.0, 0.5, 1.0])).mean
    tensor([1., 2., nan])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        """From loc to infinity, or to loc - scale / concentration if the concentration is negative."""
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, torch.where(self.concentration < 0, end, math.inf))

    def _limit_and_divisor(self):
        """Returns where the concentration is (close to) 0, and the concentration with 1 at these elements."""
        limit = torch.isclose(self.concentration, torch.zeros_like(self.concentration))
        return limit, torch.where(limit, 1.0, self.concentration)

    @property
    def mean(self) -> torch.Tensor:
        """NaN where the concentration is 1 or more and the mean is infinite."""
        return (self.loc + self.scale / (1 - self.concentration)).masked_fill(self.concentration >= 1, math.nan)

    @property
    def mode(self) -> torch.Tensor:
        return self.loc

    @property
    def variance(self) -> torch.Tensor:
        """NaN where the concentration is 1/2 or more and the variance is infinite or undefined."""
        c = self.concentration
        finite = self.scale.pow(2) / ((1 - c).pow(2) * (1 - 2 * c))
        return finite.masked_fill(c >= 0.5, math.nan)

    def rsample(self, sample_shape=()) -> torch.Tensor:
        return self.icdf(torch.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def _exponent(self, value):
        """Returns -log P(x > value)."""
        limit, c = self._limit_and_divisor()
        z = (value - self.loc) / self.scale
        return torch.where(limit, z, torch.log1p(c * z) / c)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        limit, c = self._limit_and_divisor()
        factor = torch.where(limit, 1.0, 1 + c)
        return -self.scale.log() - factor * self._exponent(value)

    def log_survival_function(self, value) -> torch.Tensor:
        """Returns log P(x > value)."""
        self._check(value)
        return -self._exponent(value)

    def log_cdf(self, value) -> torch.Tensor:
        """Returns log P(x <= value)."""
        self._check(value)
        return torch.log1p(-torch.exp(self.log_survival_function(value)))

    def cdf(self, value) -> torch.Tensor:
        return torch.exp(self.log_cdf(value))

    def icdf(self, value) -> torch.Tensor:
        limit, c = self._limit_and_divisor()
        exponent = -torch.log1p(-value)
        return self.loc + self.scale * torch.where(limit, exponent, torch.expm1(c * exponent) / c)

    def entropy(self) -> torch.Tensor:
        return self.scale.log() + self.concentration + 1
