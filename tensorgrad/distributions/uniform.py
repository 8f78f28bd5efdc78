"""The uniform distribution."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import broadcast_all

__all__ = ["Uniform"]


class Uniform(Distribution):
    """The continuous uniform distribution on [low, high).

    >>> uniform = torch.distributions.Uniform(torch.tensor([0.0, 2.0]), 4.0)
    >>> uniform.cdf(torch.tensor([1.0, 3.0]))
    tensor([0.2500, 0.5000])
    """

    has_rsample = True

    @property
    def arg_constraints(self):
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    def __init__(self, low, high, validate_args=None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        """[low, high]"""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> torch.Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> torch.Tensor:
        """NaN, as no value is more likely than the others."""
        return math.nan * self.high

    @property
    def stddev(self) -> torch.Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> torch.Tensor:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape=()) -> torch.Tensor:
        u = torch.rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        inside = ((self.low <= value) & (value < self.high)).type_as(self.low)
        return torch.log(inside) - torch.log(self.high - self.low)

    def cdf(self, value) -> torch.Tensor:
        self._check(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value) -> torch.Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> torch.Tensor:
        return torch.log(self.high - self.low)
