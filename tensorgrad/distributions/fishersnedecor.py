"""The F-distribution of Fisher and Snedecor."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.gamma import Gamma
from tensorgrad.distributions.utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared variates with `df1` and `df2` degrees of freedom, each divided by its degrees.

    >>> torch.distributions.FisherSnedecor(torch.tensor(3.0), torch.tensor(4.0)).mean
    tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1, df2, validate_args=None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1, validate_args=False)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2, validate_args=False)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        return (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, math.nan)

    @property
    def mode(self) -> torch.Tensor:
        peak = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return peak.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> torch.Tensor:
        n, m = self.df1, self.df2
        spread = 2 * m.pow(2) * (n + m - 2) / (n * (m - 2).pow(2) * (m - 4))
        return spread.masked_fill(m <= 4, math.nan)

    def rsample(self, sample_shape=()) -> torch.Tensor:
        tiny = torch.finfo(self.df2.dtype).tiny
        ratio = self._gamma1.rsample(sample_shape) / self._gamma2.rsample(sample_shape).clamp(min=tiny)
        return ratio.clamp(min=tiny)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
        return a * ratio.log() + (a - 1) * torch.log(value) - (a + b) * torch.log1p(ratio * value) - log_beta
