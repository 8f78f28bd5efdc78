"""A continuous relaxation of the categorical distribution, so that gradients flow through samples.

Source: C. J. Maddison, A. Mnih and Y. W. Teh, "The Concrete Distribution", ICLR 2017; E. Jang, S. Gu and B. Poole,
"Categorical Reparameterization with Gumbel-Softmax", ICLR 2017.
"""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.categorical import Categorical
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.transforms import ExpTransform
from tensorgrad.distributions.utils import broadcast, clamp_probs

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(Distribution):
    """The logarithm of a `RelaxedOneHotCategorical`: Gumbel noise around the logits, divided by `temperature`.

    >>> from tensorgrad.distributions.relaxed_categorical import ExpRelaxedCategorical
    >>> ExpRelaxedCategorical(torch.tensor(0.5), torch.tensor([0.3, 0.7])).sample().shape
    torch.Size([2])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector  # as in PyTorch; actually, the exponentials sum to 1
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
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

    def rsample(self, sample_shape=()) -> torch.Tensor:
        logits = self.logits
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(torch.rand(shape, dtype=logits.dtype, device=logits.device))
        scores = (logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        k = self._event_shape[0]
        logits, value = broadcast(self.logits, value)
        scores = logits - value * self.temperature
        scores = scores - scores.logsumexp(-1, keepdim=True)
        return scores.sum(-1) + math.lgamma(k) + (k - 1) * self.temperature.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points on the simplex, closest to each corner with probability `probs`, at the corners for low `temperature`.

    >>> torch.distributions.RelaxedOneHotCategorical(torch.tensor(2.0), torch.tensor([0.1, 0.9])).sample().shape
    torch.Size([2])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self):
        """The temperature; the lower it is, the closer samples are to the corners."""
        return self.base_dist.temperature

    @property
    def logits(self):
        """The log probabilities of the classes."""
        return self.base_dist.logits

    @property
    def probs(self):
        """The probabilities of the classes."""
        return self.base_dist.probs
