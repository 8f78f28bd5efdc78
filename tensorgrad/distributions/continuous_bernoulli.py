"""The continuous Bernoulli distribution: the exponential family on [0, 1] with the Bernoulli density."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.exp_family import ExponentialFamily
from tensorgrad.distributions.probs_or_logits import ProbsOrLogits
from tensorgrad.distributions.utils import broadcast, clamp_probs, lazy_property, logits_to_probs
from tensorgrad.nn.functional import binary_cross_entropy_with_logits

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Values in [0, 1] with density ∝ probs^x (1 - probs)^(1 - x), a likelihood for grayscale pixels.

    The formulas divide by 2 probs - 1. Between the two `lims` around 1/2, their Taylor series are used instead.

    Source: G. Loaiza-Ganem and J. P. Cunningham, "The continuous Bernoulli: fixing a pervasive error in variational
    autoencoders", NeurIPS 2019.

    >>> torch.distributions.ContinuousBernoulli(torch.tensor([0.5])).log_prob(torch.tensor([0.2]))
    tensor([0.])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        shape = self._broadcast_either(probs, logits)
        self._lims = lims
        if probs is not None:
            if validate_args and not constraints.unit_interval.check(self.probs).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)  # there is no density for 0 and 1
        super().__init__(shape, validate_args=validate_args)

    @lazy_property
    def probs(self):
        """The parameter (not the mean), clamped away from 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _away(self):
        """Returns where the formulas are numerically stable."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _safe_probs(self):
        """Returns probs, replaced where it is not `_away` by a value at which the formulas are finite."""
        return torch.where(self._away(), self.probs, self._lims[0])

    def _log_norm(self):
        """log(2 artanh(1 - 2 probs) / (1 - 2 probs))"""
        p, x = self._safe_probs(), self.probs - 0.5
        exact = torch.log((torch.log1p(-p) - torch.log(p)).abs()) - torch.log((1 - 2 * p).abs())
        return torch.where(self._away(), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x.pow(2)) * x.pow(2))

    @property
    def mean(self) -> torch.Tensor:
        p, x = self._safe_probs(), self.probs - 0.5
        exact = p / (2.0 * p - 1.0) + 1.0 / (torch.log1p(-p) - torch.log(p))
        return torch.where(self._away(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def variance(self) -> torch.Tensor:
        p, square = self._safe_probs(), (self.probs - 0.5).pow(2)
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (torch.log1p(-p) - torch.log(p)).pow(2)
        return torch.where(self._away(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * square) * square)

    def rsample(self, sample_shape=()) -> torch.Tensor:
        u = torch.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device)
        return self.icdf(u)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        logits, value = broadcast(self.logits, value)
        return self._log_norm() - binary_cross_entropy_with_logits(logits, value, reduction="none")

    def cdf(self, value) -> torch.Tensor:
        self._check(value)
        p = self._safe_probs()
        exact = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        return torch.where(self._away(), exact, value).clamp(min=0.0, max=1.0)

    def icdf(self, value) -> torch.Tensor:
        p = self._safe_probs()
        exact = (torch.log1p(value * (2.0 * p - 1.0) - p) - torch.log1p(-p)) / (p.log() - torch.log1p(-p))
        return torch.where(self._away(), exact, value)

    def entropy(self) -> torch.Tensor:
        log_at_0, log_at_1 = torch.log1p(-self.probs), torch.log(self.probs)
        return self.mean * (log_at_0 - log_at_1) - self._log_norm() - log_at_0

    @property
    def _natural_params(self):
        return (self.logits,)

    def _log_normalizer(self, x):
        """log((exp(x) - 1) / x), by its Taylor series near 0."""
        away = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        safe = torch.where(away, x, self._lims[0] - 0.5)
        exact = torch.log(torch.expm1(safe).abs()) - torch.log(safe.abs())
        return torch.where(away, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
