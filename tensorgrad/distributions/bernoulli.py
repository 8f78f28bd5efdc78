"""The Bernoulli distribution: the outcome of one binary trial."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.exp_family import ExponentialFamily
from tensorgrad.distributions.probs_or_logits import ProbsOrLogits
from tensorgrad.distributions.utils import broadcast
from tensorgrad.nn.functional import binary_cross_entropy_with_logits, softplus

__all__ = ["Bernoulli"]


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """1 with probability `probs` (log odds `logits`), otherwise 0.

    >>> torch.distributions.Bernoulli(torch.tensor([0.25])).log_prob(torch.tensor([1.0])).exp()
    tensor([0.2500])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs=None, logits=None, validate_args=None) -> None:
        super().__init__(self._broadcast_either(probs, logits), validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        return self.probs

    @property
    def mode(self) -> torch.Tensor:
        likely = (self.probs >= 0.5).to(self.probs)
        return likely.masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> torch.Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape=()) -> torch.Tensor:
        with torch.no_grad():
            return torch.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        logits, value = broadcast(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> torch.Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True) -> torch.Tensor:
        return self._enumerated(torch.arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    @property
    def _natural_params(self):
        return (torch.logit(self.probs),)

    def _log_normalizer(self, x):
        return softplus(x)
