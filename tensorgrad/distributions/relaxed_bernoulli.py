"""A continuous relaxation of the Bernoulli distribution, so that gradients flow through samples.

Source: C. J. Maddison, A. Mnih and Y. W. Teh, "The Concrete Distribution", ICLR 2017; E. Jang, S. Gu and B. Poole,
"Categorical Reparameterization with Gumbel-Softmax", ICLR 2017.
"""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.probs_or_logits import ProbsOrLogits
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.transforms import SigmoidTransform
from tensorgrad.distributions.utils import broadcast, clamp_probs
from tensorgrad.nn.functional import softplus

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(ProbsOrLogits):
    """The log odds of a `RelaxedBernoulli`: logistic noise around `logits`, divided by `temperature`.

    >>> from tensorgrad.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
    >>> LogitRelaxedBernoulli(torch.tensor(0.5), torch.tensor([0.3, 0.6])).sample().shape
    torch.Size([2])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None) -> None:
        self.temperature = temperature
        super().__init__(self._broadcast_either(probs, logits), validate_args=validate_args)

    def rsample(self, sample_shape=()) -> torch.Tensor:
        shape = self._extended_shape(sample_shape)
        p = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(torch.rand(shape, dtype=p.dtype, device=p.device))
        return (u.log() - torch.log1p(-u) + p.log() - torch.log1p(-p)) / self.temperature

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        logits, value = broadcast(self.logits, value)
        apart = logits - value * self.temperature
        return self.temperature.log() + apart - 2 * softplus(apart)


class RelaxedBernoulli(TransformedDistribution):
    """Values in (0, 1) that are above 1/2 with probability `probs`, and concentrate at 0 and 1 for low `temperature`.

    >>> torch.distributions.RelaxedBernoulli(torch.tensor(2.0), torch.tensor([0.1, 0.9])).sample().shape
    torch.Size([2])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None) -> None:
        super().__init__(
            LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args=validate_args
        )

    @property
    def temperature(self):
        """The temperature; the lower it is, the closer samples are to 0 and 1."""
        return self.base_dist.temperature

    @property
    def logits(self):
        """The log odds of a sample above 1/2."""
        return self.base_dist.logits

    @property
    def probs(self):
        """The probability of a sample above 1/2."""
        return self.base_dist.probs
