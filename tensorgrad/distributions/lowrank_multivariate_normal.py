"""Multivariate normal distributions whose covariance is a diagonal plus a low-rank matrix."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.multivariate_normal import log_diagonal, solve_lower
from tensorgrad.distributions.utils import lazy_property, standard_normal

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """The normal distribution with mean `loc` (..., n) and covariance W Wᵀ + D, where W = `cov_factor` (..., n, r) and
    D is the diagonal matrix of `cov_diag` (..., n).

    Only determinants and inverses of r × r matrices are computed (Woodbury identity and matrix determinant lemma).

    Raises:
        ValueError: the shapes do not match.

    >>> D = torch.distributions
    >>> D.LowRankMultivariateNormal(torch.zeros(2), torch.tensor([[1.0], [0.0]]), torch.ones(2)).covariance_matrix
    tensor([[2., 0.],
            [0., 1.]])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            batch_shape = torch.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand(*batch_shape, *event_shape)
        self.cov_factor = cov_factor.expand(*batch_shape, *cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(*batch_shape, *event_shape)
        # Calculations use the parameters before broadcasting.
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._capacitance_tril = torch.linalg.cholesky(_one_plus(self._weighted @ cov_factor))

    @property
    def _weighted(self):
        """Wᵀ D⁻¹"""
        return self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)

    def _half_log_det(self):
        """Returns half the log determinant of the covariance."""
        return log_diagonal(self._capacitance_tril) + 0.5 * self._unbroadcasted_cov_diag.log().sum(-1)

    def _squared_distance(self, difference):
        """Returns differenceᵀ covariance⁻¹ difference."""
        plain = (difference.pow(2) / self._unbroadcasted_cov_diag).sum(-1)
        projected = (self._weighted @ difference.unsqueeze(-1)).squeeze(-1)
        return plain - solve_lower(self._capacitance_tril, projected).pow(2).sum(-1)

    @property
    def mean(self) -> torch.Tensor:
        return self.loc

    @property
    def mode(self) -> torch.Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> torch.Tensor:
        """The diagonal of the covariance matrix."""
        variance = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return variance.expand(*self._batch_shape, *self._event_shape)

    @lazy_property
    def scale_tril(self):
        """The lower Cholesky factor of the covariance matrix."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        factor = root * torch.linalg.cholesky(_one_plus(scaled @ scaled.mT))
        return factor.expand(*self._batch_shape, *factor.shape[-2:])

    @lazy_property
    def covariance_matrix(self):
        """W Wᵀ + D"""
        factor = self._unbroadcasted_cov_factor
        matrix = factor @ factor.mT + torch.diag_embed(self._unbroadcasted_cov_diag)
        return matrix.expand(*self._batch_shape, *matrix.shape[-2:])

    @lazy_property
    def precision_matrix(self):
        """The inverse of the covariance matrix."""
        part = torch.linalg.solve_triangular(self._capacitance_tril, self._weighted, upper=False)
        matrix = torch.diag_embed(self._unbroadcasted_cov_diag.reciprocal()) - part.mT @ part
        return matrix.expand(*self._batch_shape, *matrix.shape[-2:])

    def rsample(self, sample_shape=()) -> torch.Tensor:
        shape = self._extended_shape(sample_shape)
        rank = self.cov_factor.shape[-1]
        common = standard_normal((*shape[:-1], rank), self.loc.dtype, self.loc.device)
        independent = standard_normal(shape, self.loc.dtype, self.loc.device)
        along = (self._unbroadcasted_cov_factor @ common.unsqueeze(-1)).squeeze(-1)
        return self.loc + along + self._unbroadcasted_cov_diag.sqrt() * independent

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        squared = self._squared_distance(value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + squared) - self._half_log_det()

    def entropy(self) -> torch.Tensor:
        half = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return half.expand(self._batch_shape)


def _one_plus(matrix):
    """Returns the identity plus `matrix`."""
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device) + matrix
