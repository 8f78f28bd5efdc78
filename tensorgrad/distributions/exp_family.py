"""Exponential families: densities of the form h(x) exp(θ·t(x) - A(θ)), whose entropy can be computed from A(θ)."""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.tensor import Tensor

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """The base class of exponential families, whose density is h(x) exp(θ·t(x) - A(θ)).

    A subclass can define its natural parameters θ (`_natural_params`, each with the batch's dimensions first), its
    log normalizer A, a function of them (`_log_normalizer`), and the mean of log h(x) (`_mean_carrier_measure`).
    The base class then computes the entropy, A(θ) - θ·∇A(θ) - E log h(x).

    Source: F. Nielsen and R. Nock, "Entropies and Cross-entropies of Exponential Families", ICIP 2010.

    >>> class Rate(torch.distributions.ExponentialFamily):  # density λ exp(-λ x), so θ = -λ and A(θ) = -log(-θ)
    ...     _mean_carrier_measure = 0
    ...     def __init__(self, rate):
    ...         self.rate = rate
    ...         super().__init__(rate.shape, validate_args=False)
    ...     @property
    ...     def _natural_params(self):
    ...         return (-self.rate,)
    ...     def _log_normalizer(self, theta):
    ...         return -torch.log(-theta)
    >>> Rate(torch.tensor([1.0, 2.0])).entropy().detach()  # 1 - log λ
    tensor([1.0000, 0.3069])
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        """θ, each with the batch's dimensions first."""
        raise NotImplementedError

    def _log_normalizer(self, *natural_params) -> Tensor:
        """A(θ): batch_shape."""
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self):
        """The mean of log h(x)."""
        raise NotImplementedError

    def _mean_statistics(self) -> tuple[list[Tensor], Tensor, tuple]:
        """Returns θ (detached), A(θ), and the means of t(x), which are the gradient of A."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with torch.enable_grad():
            normalizer = self._log_normalizer(*natural)
            return natural, normalizer, torch.autograd.grad(normalizer.sum(), natural, create_graph=True)

    def entropy(self) -> torch.Tensor:
        """A(θ) - θ·E t(x) - E log h(x)."""
        result = -self._mean_carrier_measure
        natural, normalizer, means = self._mean_statistics()
        result = result + normalizer
        for parameter, mean in zip(natural, means, strict=True):
            result = result - (parameter * mean).reshape(*self._batch_shape, -1).sum(-1)
        return result
