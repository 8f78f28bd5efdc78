"""Distributions of transformed samples."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.independent import Independent
from tensorgrad.distributions.transforms import ComposeTransform, Transform
from tensorgrad.distributions.utils import sum_rightmost
from tensorgrad.size import Size

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of samples of `base_distribution` after `transforms` (one, or a list applied in order).

    Densities require bijective transforms; `cdf` and `icdf` require monotone ones.

    Raises:
        ValueError: an element is not a transform, or the base has too few dimensions.

    >>> D = torch.distributions
    >>> log_normal = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.ExpTransform()])
    >>> log_normal.cdf(torch.tensor(1.0))
    tensor(0.5000)
    """

    arg_constraints: dict = {}

    def __init__(self, base_distribution, transforms, validate_args=None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        shape = base_distribution.batch_shape + base_distribution.event_shape
        base_dim = len(base_distribution.event_shape)
        chain = ComposeTransform(self.transforms)
        domain_dim, codomain_dim = chain.domain.event_dim, chain.codomain.event_dim
        if len(shape) < domain_dim:
            raise ValueError(f"base_distribution needs to have shape with size at least {domain_dim}, but got {shape}.")
        shape = chain.forward_shape(shape)  # a transform's parameters may broadcast the batch
        base_shape = chain.inverse_shape(shape)
        if base_shape != base_distribution.batch_shape + base_distribution.event_shape:
            base_distribution = base_distribution.expand(base_shape[: len(base_shape) - base_dim])
        if domain_dim > base_dim:
            base_distribution = Independent(base_distribution, domain_dim - base_dim)
        self.base_dist = base_distribution
        cut = len(shape) - (codomain_dim + max(base_dim - domain_dim, 0))
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def _part_shape(self, name, batch_shape):
        shape = Size(batch_shape) + self._event_shape
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        return shape[: len(shape) - len(self.base_dist.event_shape)]

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """The codomain of the last transform, for the whole event."""
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        missing = len(self._event_shape) - codomain.event_dim
        return constraints.independent(codomain, missing) if missing > 0 else codomain

    @property
    def has_rsample(self) -> Any:  # type: ignore[override]
        """Whether the samples of the base are differentiable."""
        return self.base_dist.has_rsample

    def _forwards(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

    def sample(self, sample_shape=()) -> torch.Tensor:
        with torch.no_grad():
            return self._forwards(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=()) -> torch.Tensor:
        return self._forwards(self.base_dist.rsample(sample_shape))

    def log_prob(self, value) -> torch.Tensor:
        """Returns the base's log density at the preimage of `value`, minus the log Jacobian determinants."""
        self._check(value)
        log_det: Any = 0.0
        event_dim, y = len(self._event_shape), value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            own = transform.log_abs_det_jacobian(x, y)
            log_det = log_det + sum_rightmost(own, event_dim - transform.domain.event_dim)
            y = x
        return sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape)) - log_det

    def _mirrored(self, probability):
        """Returns p, or 1 - p where the composed transform is decreasing."""
        sign = math.prod(transform.sign for transform in self.transforms)
        return probability if isinstance(sign, int) and sign == 1 else sign * (probability - 0.5) + 0.5

    def cdf(self, value) -> torch.Tensor:
        """Returns the probability of a sample at or below `value`; for monotone transforms only."""
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._mirrored(self.base_dist.cdf(value))

    def icdf(self, value) -> torch.Tensor:
        """Returns the quantile; for monotone transforms only."""
        return self._forwards(self.base_dist.icdf(self._mirrored(value)))
