"""The gamma distribution."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.exp_family import ExponentialFamily
from tensorgrad.distributions.utils import broadcast_all
from tensorgrad.ops.random.gamma_sample import _standard_gamma

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The gamma distribution with shape `concentration` and `rate` (the inverse of the scale).

    Samples are also differentiable in the concentration (implicit reparameterization: `ops/random/gamma_sample.py`).

    >>> gamma = torch.distributions.Gamma(torch.tensor([1.0, 3.0]), 2.0)
    >>> gamma.mean, gamma.variance
    (tensor([0.5000, 1.5000]), tensor([0.2500, 0.7500]))
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration, rate, validate_args=None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> torch.Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> torch.Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape=()) -> torch.Tensor:
        shape = self._extended_shape(sample_shape)
        value = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=torch.finfo(value.dtype).tiny)  # detached, so that clamping keeps the gradient
        return value

    def log_prob(self, value) -> torch.Tensor:
        value = torch.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._check(value)
        alpha, rate = self.concentration, self.rate
        return torch.xlogy(alpha, rate) + torch.xlogy(alpha - 1, value) - rate * value - torch.lgamma(alpha)

    def cdf(self, value) -> torch.Tensor:
        self._check(value)
        return torch.special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> torch.Tensor:
        alpha = self.concentration
        return alpha - self.rate.log() + torch.lgamma(alpha) + (1.0 - alpha) * torch.digamma(alpha)

    @property
    def _natural_params(self):
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x, y):
        return torch.lgamma(x + 1) + (x + 1) * torch.log(-y.reciprocal())
