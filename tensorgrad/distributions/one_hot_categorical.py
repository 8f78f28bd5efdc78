"""Categorical distributions whose samples are one-hot vectors."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.categorical import Categorical
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.nn.functional import one_hot

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(Distribution):
    """One of k classes as a one-hot vector; the parameters are those of `Categorical`.

    >>> torch.distributions.OneHotCategorical(torch.tensor([0.0, 1.0])).sample()
    tensor([0., 1.])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

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
        return self.probs

    @property
    def mode(self) -> torch.Tensor:
        return self._vectors(self.probs.argmax(-1))

    @property
    def variance(self) -> torch.Tensor:
        return self.probs * (1 - self.probs)

    def _vectors(self, classes):
        return one_hot(classes, self._event_shape[0]).to(self.probs)

    def sample(self, sample_shape=()) -> torch.Tensor:
        return self._vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> torch.Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand=True) -> torch.Tensor:
        return self._enumerated(torch.eye(*self._event_shape, dtype=self.probs.dtype, device=self.probs.device), expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot samples with the gradient of the probabilities (straight-through estimator).

    Source: Y. Bengio, N. Léonard and A. Courville, "Estimating or Propagating Gradients Through Stochastic Neurons for
    Conditional Computation", 2013.

    >>> probs = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> torch.distributions.OneHotCategoricalStraightThrough(probs).rsample().requires_grad
    True
    """

    has_rsample = True

    def rsample(self, sample_shape=()) -> torch.Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
