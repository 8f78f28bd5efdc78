"""Mixtures of distributions of one family."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.categorical import Categorical
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.size import Size

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture of k distributions, weighted by a `Categorical`, in the last batch dimension of
    `component_distribution`.

    Raises:
        ValueError: the arguments have the wrong type, or their shapes do not match.

    >>> D = torch.distributions
    >>> halves = D.Categorical(torch.ones(2))
    >>> D.MixtureSameFamily(halves, D.Normal(torch.tensor([-1.0, 1.0]), torch.ones(2))).variance
    tensor(2.)
    """

    arg_constraints: dict = {}
    has_rsample = False

    def __init__(self, mixture_distribution, component_distribution, validate_args=None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        choice, batch = mixture_distribution.batch_shape, component_distribution.batch_shape
        for i, j in zip(reversed(choice), reversed(batch[:-1]), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({choice}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch[:-1]})"
                )
        classes = mixture_distribution.logits.shape[-1]
        if classes != batch[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({classes}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({batch[-1]})"
            )
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component = classes
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args=validate_args)

    def _part_shape(self, name, batch_shape):
        return batch_shape if name == "_mixture_distribution" else Size((*batch_shape, self._num_component))

    @constraints.dependent_property
    def support(self):
        """The values in the support of all components."""
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self):
        """The categorical distribution that selects the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self):
        """The components, in the last batch dimension."""
        return self._component_distribution

    @property
    def _component_dim(self) -> int:
        return -1 - len(self._event_shape)

    def _weigh(self, moments):
        """Returns the weighted mean over the components, given batch_shape + (k,) + event_shape."""
        probs = self.mixture_distribution.probs
        return (probs.reshape(*probs.shape, *(1,) * len(self._event_shape)) * moments).sum(self._component_dim)

    @property
    def mean(self) -> torch.Tensor:
        return self._weigh(self.component_distribution.mean)

    @property
    def variance(self) -> torch.Tensor:
        """The variance within the components plus that between them."""
        within, means = self.component_distribution.variance, self.component_distribution.mean
        return self._weigh(within) + self._weigh((means - self.mean.unsqueeze(self._component_dim)).pow(2))

    def cdf(self, value) -> torch.Tensor:
        parts = self.component_distribution.cdf(value.unsqueeze(self._component_dim))
        return (parts * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        parts = self.component_distribution.log_prob(value.unsqueeze(self._component_dim))
        return torch.logsumexp(parts + torch.log_softmax(self.mixture_distribution.logits, -1), -1)

    def sample(self, sample_shape=()) -> torch.Tensor:
        with torch.no_grad():
            shape, dim = self._extended_shape(sample_shape), len(sample_shape) + len(self._batch_shape)
            choice = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            choice = choice.reshape(*choice.shape, *(1,) * (len(self._event_shape) + 1))
            return drawn.gather(dim, choice.expand(*shape[:dim], 1, *shape[dim:])).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
