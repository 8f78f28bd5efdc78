"""The beta distribution."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.dirichlet import Dirichlet
from tensorgrad.distributions.exp_family import ExponentialFamily
from tensorgrad.distributions.utils import broadcast_all

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """The beta distribution on [0, 1]: density ∝ x^(concentration1 - 1) (1 - x)^(concentration0 - 1).

    It is the distribution of the first component of a Dirichlet distribution with two components.

    >>> torch.distributions.Beta(torch.tensor([1.0, 3.0]), 1.0).mean
    tensor([0.5000, 0.7500])
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None) -> None:
        both = torch.stack(broadcast_all(concentration1, concentration0), -1)
        # Validated below, under the names of the arguments.
        self._dirichlet = Dirichlet(both, validate_args=False)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    @property
    def concentration1(self):
        """The first concentration; larger values move samples towards 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self):
        """The second concentration; larger values move samples towards 0."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> torch.Tensor:
        return self._dirichlet.mean[..., 0]

    @property
    def mode(self) -> torch.Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> torch.Tensor:
        return self._dirichlet.variance[..., 0]

    def rsample(self, sample_shape=()) -> torch.Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        return self._dirichlet.log_prob(torch.stack([value, 1.0 - value], -1))

    def entropy(self) -> torch.Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self):
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x, y):
        return torch.lgamma(x) + torch.lgamma(y) - torch.lgamma(x + y)
