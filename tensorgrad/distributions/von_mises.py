"""The von Mises distribution, the analog of the normal distribution on the circle."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles around `loc` (radians) with density ∝ exp(concentration · cos(x - loc)).

    Samples are in [-π, π) and are drawn in double precision.

    >>> torch.distributions.VonMises(torch.tensor([1.0]), torch.tensor([4.0])).mean
    tensor([1.])
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc, concentration, validate_args=None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> torch.Tensor:
        """The mean direction."""
        return self.loc

    @property
    def mode(self) -> torch.Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> torch.Tensor:
        """The circular variance 1 - E cos(x - loc)."""
        return 1 - torch.special.i1e(self.concentration) / torch.special.i0e(self.concentration)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        k = self.concentration
        log_i0 = torch.log(torch.special.i0e(k)) + k
        return k * torch.cos(value - self.loc) - math.log(2 * math.pi) - log_i0

    @lazy_property
    def _proposal_r(self):
        k = self.concentration.double()
        tau = 1 + torch.sqrt(1 + 4 * k.pow(2))
        rho = (tau - torch.sqrt(2 * tau)) / (2 * k)
        return torch.where(k < 1e-5, 1 / k + k, (1 + rho.pow(2)) / (2 * rho))

    @torch.no_grad()
    def sample(self, sample_shape=()) -> torch.Tensor:
        """Draws by rejection sampling with proposals from a wrapped Cauchy distribution.

        Source: D. J. Best and N. I. Fisher, "Efficient simulation of the von Mises distribution", Applied Statistics 28
        (1979).
        """
        shape = self._extended_shape(sample_shape)
        loc, k, r = self.loc.double(), self.concentration.double(), self._proposal_r
        angle = torch.empty(shape, dtype=loc.dtype, device=loc.device)
        done = torch.zeros(shape, dtype=torch.bool, device=loc.device)
        while not done.all():
            u1, u2, u3 = torch.rand((3, *shape), dtype=loc.dtype, device=loc.device).unbind()
            z = torch.cos(math.pi * u1)
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accept = (c * (2 - c) - u2 > 0) | (torch.log(c / u2) + 1 - c >= 0)
            angle = torch.where(accept, (u3 - 0.5).sign() * f.acos(), angle)
            done = done | accept
        return ((angle + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)
