"""The logistic normal distribution: normal variates mapped to the simplex."""

from __future__ import annotations

from tensorgrad.distributions import constraints
from tensorgrad.distributions.normal import Normal
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Points on the simplex of dimension k, mapped by `StickBreakingTransform` from k - 1 normal variates with mean
    `loc` and standard deviation `scale` (..., k - 1).

    >>> torch.distributions.LogisticNormal(torch.zeros(3), torch.ones(3)).event_shape
    torch.Size([4])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self):
        """The means of the normal variates."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self):
        """The standard deviations of the normal variates."""
        return self.base_dist.base_dist.scale
