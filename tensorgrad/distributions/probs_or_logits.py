"""Distributions whose parameter is given as probabilities or as logits; the other is computed when it is needed."""

from __future__ import annotations

from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

EITHER = "Either `probs` or `logits` must be specified, but not both."


class ProbsOrLogits(Distribution):
    """Base class of such distributions. If `_is_binary`, each element is the probability (or the log odds) of one
    event; otherwise the last dimension has the probabilities of several classes."""

    _is_binary = True

    def _broadcast_either(self, probs, logits, **others) -> Size:
        """Stores `probs` or `logits`, whichever is given, broadcast with other parameters, which get its dtype.

        Raises: ValueError unless exactly one is given.
        """
        name = self._given(probs, logits)
        param, *rest = broadcast_all(probs if logits is None else logits, *others.values())
        vars(self)[name] = param
        vars(self).update((other, value.type_as(param)) for other, value in zip(others, rest, strict=True))
        return param.shape

    @staticmethod
    def _given(probs, logits) -> str:
        """Returns the name of the one that is not None. Raises: ValueError unless exactly one is given."""
        if (probs is None) == (logits is None):
            raise ValueError(EITHER)
        return "probs" if logits is None else "logits"

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits, self._is_binary)

    @lazy_property
    def logits(self) -> Tensor:
        """The log odds, or log probabilities."""
        return probs_to_logits(self.probs, self._is_binary)

    @property
    def _param(self) -> Tensor:
        return self.probs if "probs" in vars(self) else self.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.size()
