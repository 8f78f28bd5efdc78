"""The multivariate normal distribution."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import lazy_property, standard_normal
from tensorgrad.tensor import Tensor

__all__ = ["MultivariateNormal"]


def solve_lower(factor: Tensor, vectors: Tensor) -> Tensor:
    """Returns factor⁻¹ v for lower triangular factors (..., n, n) and vectors (..., n), with broadcast batches."""
    extra = vectors.dim() - 1 - (factor.dim() - 2)
    if extra <= 0:
        return torch.linalg.solve_triangular(factor, vectors.unsqueeze(-1), upper=False).squeeze(-1)
    # Vectors that share a factor are solved together, as the columns of one matrix.
    shape = vectors.shape[:extra]
    columns = vectors.reshape(-1, *vectors.shape[extra:]).movedim(0, -1)
    solved = torch.linalg.solve_triangular(factor, columns, upper=False).movedim(-1, 0)
    return solved.reshape(*shape, *solved.shape[1:])


def log_diagonal(factor: Tensor) -> Tensor:
    """Returns the sum of the logarithms of the diagonal, half the log determinant of factor · factorᵀ."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """Returns the lower Cholesky factor of the inverse: the inverse of an upper triangular factor of `precision`, which
    is the flipped Cholesky factor of the flipped matrix."""
    upper = torch.linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    eye = torch.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return torch.linalg.solve_triangular(upper, eye, upper=False)


_precision_to_scale_tril = precision_to_scale_tril  # PyTorch's name: libraries import it


class GivenByMatrix(Distribution):
    """Base class of distributions with an n × n matrix, given as `covariance_matrix`, `precision_matrix` (its inverse)
    or `scale_tril` (its lower Cholesky factor). The other two are computed when they are needed."""

    @lazy_property
    def scale_tril(self):
        """The lower Cholesky factor of the covariance matrix."""
        return self._expanded(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        """The covariance matrix."""
        factor = self._unbroadcasted_scale_tril
        return self._expanded(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self):
        """The inverse of the covariance matrix."""
        return self._expanded(torch.cholesky_inverse(self._unbroadcasted_scale_tril))

    def _expanded(self, matrix):
        return matrix.expand(*self._batch_shape, *matrix.shape[-2:])

    @staticmethod
    def _only(matrices: dict, error: type[Exception] = ValueError) -> tuple[str, Tensor]:
        """Returns name and value of the only matrix that is not None. Raises: `error` unless there is exactly one."""
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise error("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        return given[0]

    def _factorize(self, name: str, matrix: Tensor) -> None:
        """Stores the Cholesky factor of the matrix, not broadcast, which all calculations use."""
        factor_of = {"scale_tril": lambda m: m, "covariance_matrix": torch.linalg.cholesky}
        self._unbroadcasted_scale_tril = factor_of.get(name, precision_to_scale_tril)(matrix)


class MultivariateNormal(GivenByMatrix):
    """The multivariate normal distribution with mean `loc` (..., n) and one of `covariance_matrix`, `precision_matrix`
    and `scale_tril` (..., n, n). The last is the fastest, as the others are converted to it.

    Raises:
        ValueError: not exactly one matrix is given, or an argument has too few dimensions.

    >>> normal = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    >>> normal.log_prob(torch.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = dict(covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril)
        name, matrix = self._only(matrices)
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(*batch_shape, *loc.shape[-1:])
        vars(self)[name] = matrix.expand(*batch_shape, *matrix.shape[-2:])
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._factorize(name, matrix)  # after the validation of the matrix

    @property
    def mean(self) -> torch.Tensor:
        return self.loc

    @property
    def mode(self) -> torch.Tensor:
        return self.loc

    @property
    def variance(self) -> torch.Tensor:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(*self._batch_shape, *self._event_shape)

    def rsample(self, sample_shape=()) -> torch.Tensor:
        normal = standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ normal.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        squared = solve_lower(self._unbroadcasted_scale_tril, value - self.loc).pow(2).sum(-1)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + squared) - log_diagonal(self._unbroadcasted_scale_tril)

    def entropy(self) -> torch.Tensor:
        n = self._event_shape[0]
        half = 0.5 * n * (1.0 + math.log(2 * math.pi)) + log_diagonal(self._unbroadcasted_scale_tril)
        return half.expand(self._batch_shape)
