"""The negative binomial distribution: successes before a given number of failures."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.gamma import Gamma
from tensorgrad.distributions.probs_or_logits import ProbsOrLogits
from tensorgrad.nn.functional import logsigmoid
from tensorgrad.tensor import Tensor

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits):
    """The number of successes, with probability `probs` (log odds `logits`), before `total_count` failures.

    >>> torch.distributions.NegativeBinomial(3.0, torch.tensor([0.5])).mean
    tensor([3.])
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    total_count: Tensor

    def __init__(self, total_count, probs=None, logits=None, validate_args=None) -> None:
        super().__init__(self._broadcast_either(probs, logits, total_count=total_count), validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        return self.total_count * torch.exp(self.logits)

    @property
    def mode(self) -> torch.Tensor:
        return ((self.total_count - 1) * torch.exp(self.logits)).floor().clamp(min=0.0)

    @property
    def variance(self) -> torch.Tensor:
        return self.mean / torch.sigmoid(-self.logits)

    def sample(self, sample_shape=()) -> torch.Tensor:
        """Draws from Poisson distributions with rates from a gamma distribution."""
        with torch.no_grad():
            rates = Gamma(self.total_count, torch.exp(-self.logits), validate_args=False)
            return torch.poisson(rates.sample(sample_shape))

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        failures = self.total_count
        ways = torch.lgamma(failures + value) - torch.lgamma(1.0 + value) - torch.lgamma(failures)
        ways = ways.masked_fill(failures + value == 0, 0)
        return failures * logsigmoid(-self.logits) + value * logsigmoid(self.logits) + ways
