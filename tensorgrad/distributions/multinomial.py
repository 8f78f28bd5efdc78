"""The multinomial distribution: the counts of each class in several draws."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.binomial import Binomial
from tensorgrad.distributions.categorical import Categorical
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import broadcast
from tensorgrad.size import Size

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """The counts of each of k classes in `total_count` draws (one int for the whole batch); `probs` or `logits` as for
    `Categorical`. `log_prob` accepts counts of any total.

    Raises:
        NotImplementedError: the total count is not an int.

    >>> torch.distributions.Multinomial(4, torch.tensor([0.0, 1.0])).sample()
    tensor([0., 4.])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        """Vectors of counts that sum to at most total_count."""
        return constraints.multinomial(self.total_count)

    @property
    def probs(self):
        """The probabilities of the classes."""
        return self._categorical.probs

    @property
    def logits(self):
        """The log probabilities of the classes."""
        return self._categorical.logits

    @property
    def param_shape(self):
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def mean(self) -> torch.Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> torch.Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()) -> torch.Tensor:
        drawn = self._categorical.sample(Size((self.total_count,)) + Size(sample_shape)).movedim(0, -1)
        counts = drawn.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add_(-1, drawn, torch.ones_like(drawn)).type_as(self.probs)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        logits, value = broadcast(self.logits, value)
        ways = torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)  # defines 0 · -∞ as 0
        return ways + (logits * value).sum(-1)

    def entropy(self) -> torch.Tensor:
        """Returns the entropy of total_count draws minus the mean logarithm of the number of their orders."""
        n = self.total_count
        count = Binomial(n, probs=self.probs, validate_args=False)  # the distribution of each class's count
        support = count.enumerate_support(expand=False)
        mean_log_factorials = (torch.exp(count.log_prob(support)) * torch.lgamma(support + 1)).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + mean_log_factorials
