"""The geometric distribution: failures before the first success."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.probs_or_logits import ProbsOrLogits
from tensorgrad.distributions.utils import broadcast
from tensorgrad.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Geometric"]


class Geometric(ProbsOrLogits):
    """The number (0, 1, ...) of failures before the first success, with probability `probs` (log odds `logits`).

    >>> torch.distributions.Geometric(torch.tensor([0.5, 0.25])).mean
    tensor([1., 3.])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None) -> None:
        super().__init__(self._broadcast_either(probs, logits), validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape {tuple(self.probs.shape)}) of "
                f"distribution {self!r} to be positive but found invalid values:\n{self.probs[~(self.probs > 0)]}"
            )

    @property
    def mean(self) -> torch.Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> torch.Tensor:
        return torch.zeros_like(self.probs)

    @property
    def variance(self) -> torch.Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape=()) -> torch.Tensor:
        with torch.no_grad():
            u = self.probs.new_empty(self._extended_shape(sample_shape))
            u.uniform_(torch.finfo(u.dtype).tiny, 1)  # excludes 0, whose logarithm is infinite
            return (u.log() / torch.log1p(-self.probs)).floor()

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        value, probs = broadcast(value, self.probs)
        failing = probs.masked_fill((probs == 1) & (value == 0), 0)  # defines 0 · log 0 as 0
        return value * torch.log1p(-failing) + self.probs.log()

    def entropy(self) -> torch.Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
