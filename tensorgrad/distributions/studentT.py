"""Student's t-distribution."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.chi2 import Chi2
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import broadcast_all, standard_normal

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t-distribution with `df` degrees of freedom, location `loc` and scale `scale`.

    >>> torch.distributions.StudentT(torch.tensor([1.0, 4.0])).variance
    tensor([nan, 2.])
    """

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df, validate_args=False)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> torch.Tensor:
        return self.loc

    @property
    def variance(self) -> torch.Tensor:
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        return finite.masked_fill(self.df <= 2, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape=()) -> torch.Tensor:
        normal = standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        return self.loc + self.scale * (normal * torch.rsqrt(self._chi2.rsample(sample_shape) / self.df))

    def _log_beta(self):
        """log B(df/2, 1/2)"""
        half = 0.5 * self.df
        return torch.lgamma(half) + 0.5 * math.log(math.pi) - torch.lgamma(half + 0.5)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        squared = ((value - self.loc) / self.scale).pow(2)
        density = -0.5 * (self.df + 1.0) * torch.log1p(squared / self.df)
        return density - self.scale.log() - 0.5 * self.df.log() - self._log_beta()

    def entropy(self) -> torch.Tensor:
        upper = 0.5 * (self.df + 1)
        bend = upper * (torch.digamma(upper) - torch.digamma(0.5 * self.df))
        return self.scale.log() + bend + 0.5 * self.df.log() + self._log_beta()
