"""The categorical distribution: one of several classes."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.probs_or_logits import ProbsOrLogits
from tensorgrad.size import Size

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits):
    """The index of one of k classes, with weights `probs` (..., k) or unnormalized log probabilities `logits`.

    Both are normalized along their last dimension.

    Args:
        probs, logits: tensors of shape (..., k); exactly one is given.
        validate_args: whether arguments and values are checked; by default as `Distribution.set_default_validate_args`
            says.

    Raises:
        ValueError: the parameter has no dimensions, or not exactly one is given.

    >>> policy = torch.distributions.Categorical(torch.tensor([1.0, 3.0]))
    >>> policy.probs, policy.log_prob(torch.tensor(1)).exp()
    (tensor([0.2500, 0.7500]), tensor(0.7500))
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _is_binary = False

    def __init__(self, probs=None, logits=None, validate_args=None) -> None:
        name = self._given(probs, logits)
        given = logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if name == "probs":
            self.probs = given / given.sum(-1, keepdim=True)
        else:
            self.logits = given - given.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        """0, 1, ..., k - 1"""
        return constraints.integer_interval(0, self._num_events - 1)

    def _undefined(self):
        return self._param.new_full(self._batch_shape, math.nan)

    @property
    def mean(self) -> torch.Tensor:
        """NaN, as classes are not ordered."""
        return self._undefined()

    @property
    def mode(self) -> torch.Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> torch.Tensor:
        """NaN, as classes are not ordered."""
        return self._undefined()

    def sample(self, sample_shape=()) -> torch.Tensor:
        sample_shape = Size(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = torch.multinomial(rows, sample_shape.numel(), True)
        return drawn.T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        index, logits = value.long().unsqueeze(-1), self.logits
        if index.shape[:-1] != logits.shape[:-1]:
            index, logits = torch.broadcast_tensors(index, logits)
            index = index[..., :1]
        return logits.gather(-1, index).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        lowest = torch.finfo(self.logits.dtype).min  # defines 0 · -∞ as 0
        return -(self.logits.clamp(min=lowest) * self.probs).sum(-1)

    def enumerate_support(self, expand=True) -> torch.Tensor:
        return self._enumerated(torch.arange(self._num_events, device=self._param.device), expand)
