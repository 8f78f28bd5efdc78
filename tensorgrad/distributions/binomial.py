"""The binomial distribution: successes in a number of independent trials."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.probs_or_logits import ProbsOrLogits
from tensorgrad.nn.functional import softplus
from tensorgrad.tensor import Tensor

__all__ = ["Binomial"]


class Binomial(ProbsOrLogits):
    """The number of successes in `total_count` independent trials with probability `probs` (log odds `logits`).

    `enumerate_support` and `entropy` raise NotImplementedError unless all counts are the same.

    >>> torch.distributions.Binomial(100, torch.tensor([0.0, 0.2, 1.0])).mean
    tensor([  0.,  20., 100.])
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    total_count: Tensor

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None) -> None:
        super().__init__(self._broadcast_either(probs, logits, total_count=total_count), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        """0, 1, ..., total_count"""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> torch.Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> torch.Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> torch.Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()) -> torch.Tensor:
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            return torch.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        n = self.total_count
        ways = torch.lgamma(n + 1) - torch.lgamma(value + 1) - torch.lgamma(n - value + 1)
        # log p and log(1 - p) by logits and softplus, which are accurate for p near 0 or 1.
        return ways + value * self.logits - n * softplus(self.logits)

    def _common_count(self, method: str) -> int:
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{method}`.")
        return count

    def entropy(self) -> torch.Tensor:
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(torch.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand=True) -> torch.Tensor:
        count = self._common_count("enumerate_support")
        return self._enumerated(torch.arange(count + 1, dtype=self._param.dtype, device=self._param.device), expand)
