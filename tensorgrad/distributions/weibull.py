"""The Weibull distribution of lifetimes."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.exponential import Exponential
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.transforms import AffineTransform, PowerTransform
from tensorgrad.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """The Weibull distribution, P(x > t) = exp(-(t / scale)^concentration).

    >>> torch.distributions.Weibull(torch.tensor([2.0]), torch.tensor([1.0])).mean
    tensor([2.])
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale, concentration, validate_args=None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(torch.ones_like(self.scale), validate_args=validate_args)
        transforms = [
            PowerTransform(exponent=self.concentration_reciprocal),
            AffineTransform(loc=0, scale=self.scale),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, n: int):
        """E (x / scale)ⁿ = Γ(1 + n / concentration)"""
        return torch.exp(torch.lgamma(1 + n * self.concentration_reciprocal))

    @property
    def mean(self) -> torch.Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> torch.Tensor:
        ratio = (self.concentration - 1) / self.concentration
        return self.scale * ratio.pow(self.concentration.reciprocal())

    @property
    def variance(self) -> torch.Tensor:
        return self.scale.pow(2) * (self._moment(2) - self._moment(1).pow(2))

    def entropy(self) -> torch.Tensor:
        inverse = self.concentration_reciprocal
        return euler_constant * (1 - inverse) + torch.log(self.scale * inverse) + 1
