"""The Dirichlet distribution: random points on the simplex."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.exp_family import ExponentialFamily
from tensorgrad.nn.functional import one_hot
from tensorgrad.ops.random.gamma_sample import _sample_dirichlet

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution of vectors of probabilities, with `concentration` (..., k).

    Samples are differentiable (implicit reparameterization, see `ops/random/gamma_sample.py`).

    Raises:
        ValueError: the concentration has no dimensions.

    >>> torch.distributions.Dirichlet(torch.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration, validate_args=None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> torch.Tensor:
        peaked = (self.concentration - 1).clamp(min=0.0)
        corner = one_hot(peaked.argmax(-1), self.concentration.shape[-1]).to(peaked)
        at_corners = (self.concentration < 1).all(-1, keepdim=True)
        return torch.where(at_corners, corner, peaked / peaked.sum(-1, True))

    @property
    def variance(self) -> torch.Tensor:
        alpha, total = self.concentration, self.concentration.sum(-1, True)
        return alpha * (total - alpha) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape=()) -> torch.Tensor:
        return _sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        return torch.xlogy(self.concentration - 1.0, value).sum(-1) - self._log_beta(self.concentration)

    def entropy(self) -> torch.Tensor:
        alpha, k = self.concentration, self.concentration.shape[-1]
        total = alpha.sum(-1)
        spread = (alpha - 1.0) * torch.digamma(alpha)
        return self._log_beta(alpha) - (k - total) * torch.digamma(total) - spread.sum(-1)

    @staticmethod
    def _log_beta(alpha):
        return torch.lgamma(alpha).sum(-1) - torch.lgamma(alpha.sum(-1))

    @property
    def _natural_params(self):
        return (self.concentration,)

    def _log_normalizer(self, x):
        return self._log_beta(x)
