"""The Kumaraswamy distribution."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.transforms import AffineTransform, PowerTransform
from tensorgrad.distributions.uniform import Uniform
from tensorgrad.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """A distribution on [0, 1] similar to the beta distribution, with P(x <= t) = 1 - (1 - t^a)^b, where
    a = `concentration1` and b = `concentration0`.

    >>> torch.distributions.Kumaraswamy(torch.tensor([1.0]), torch.tensor([1.0])).mean
    tensor([0.5000])
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(
            torch.full_like(self.concentration0, 0), torch.full_like(self.concentration0, 1),
            validate_args=validate_args,
        )  # fmt: skip
        transforms = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, n: int):
        """E xⁿ = b B(1 + n/a, b)"""
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * torch.exp(a.lgamma() + b.lgamma() - (a + b).lgamma())

    @property
    def mean(self) -> torch.Tensor:
        return self._moment(1)

    @property
    def mode(self) -> torch.Tensor:
        a, b = self.concentration1, self.concentration0
        peak = ((a - 1) / (a * b - 1)).pow(a.reciprocal())
        return peak.masked_fill((a < 1) | (b < 1), math.nan)

    @property
    def variance(self) -> torch.Tensor:
        return self._moment(2) - self.mean.pow(2)

    def entropy(self) -> torch.Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = torch.digamma(b + 1) + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
