"""The Wishart distribution of sample covariances."""

from __future__ import annotations

import math
import warnings

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.chi2 import Chi2
from tensorgrad.distributions.exp_family import ExponentialFamily
from tensorgrad.distributions.multivariate_normal import GivenByMatrix, log_diagonal
from tensorgrad.size import Size

__all__ = ["Wishart"]


class Wishart(GivenByMatrix, ExponentialFamily):
    """The distribution of Σ x xᵀ over `df` normal vectors x of mean 0, with one of `covariance_matrix`,
    `precision_matrix` and `scale_tril` (..., n, n). `df` need not be an integer, but must exceed n - 1.

    Raises:
        ValueError: `df` is too small, or an argument has too few dimensions.
        AssertionError: not exactly one matrix is given.

    >>> torch.distributions.Wishart(torch.tensor(3.0), torch.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self):
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None) -> None:
        matrices = dict(covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril)
        name, matrix = self._only(matrices, AssertionError)
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        df = torch.as_tensor(df, dtype=matrix.dtype, device=matrix.device)
        n = matrix.shape[-1]
        batch_shape = torch.broadcast_shapes(matrix.shape[:-2], df.shape)
        self.df = df.expand(batch_shape)
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        vars(self)[name] = matrix.expand(*batch_shape, n, n)
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        if (self.df < n).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        self._factorize(name, matrix)
        # The squared diagonal of a sample's factor: one degree of freedom fewer in each row.
        self._diagonals = Chi2(self.df.unsqueeze(-1) - torch.arange(n, dtype=df.dtype, device=df.device))

    def _part_shape(self, name, batch_shape):
        return batch_shape + self._event_shape[:1]

    @property
    def mean(self) -> torch.Tensor:
        return self.df.reshape(*self._batch_shape, 1, 1) * self.covariance_matrix

    @property
    def mode(self) -> torch.Tensor:
        """NaN unless df exceeds n + 1."""
        factor = self.df - self._event_shape[-1] - 1
        factor = factor.masked_fill(factor <= 0, math.nan)
        return factor.reshape(*self._batch_shape, 1, 1) * self.covariance_matrix

    @property
    def variance(self) -> torch.Tensor:
        matrix = self.covariance_matrix
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.reshape(*self._batch_shape, 1, 1) * (matrix.pow(2) + products)

    def _bartlett_sampling(self, sample_shape: Size | tuple = ()):
        """Draws L A Aᵀ Lᵀ, where A is lower triangular with chi variates on the diagonal and normal ones below it.

        Source: M. S. Bartlett, "On the theory of statistical regression", Proc. Royal Soc. Edinburgh 53 (1933).
        """
        n, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        diagonal = self._diagonals.rsample(sample_shape).sqrt()
        lower = torch.diag_embed(diagonal.clamp(min=torch.finfo(factor.dtype).eps))
        rows, columns = torch.tril_indices(n, n, offset=-1, device=factor.device)
        below = torch.randn(*lower.shape[:-2], n * (n - 1) // 2, dtype=factor.dtype, device=factor.device)
        lower[..., rows, columns] = below
        root = factor @ lower
        return root @ root.mT

    def rsample(self, sample_shape=(), max_try_correction=None) -> torch.Tensor:
        """Returns samples. Those that are singular due to rounding are drawn again, up to `max_try_correction` times
        (by default 10, or 3 with a batch).

        PyTorch inverts the check of the first samples and redraws those that are not singular, so its results are those
        of the second draw. This function does the same.
        """
        tries = (3 if self._batch_shape else 10) if max_try_correction is None else max_try_correction
        sample_shape = Size(sample_shape)
        sample = self._bartlett_sampling(sample_shape)
        again = self.support.check(sample)
        for _ in range(tries):
            if self._batch_shape:
                again = again.flatten(len(sample_shape)).any(-1)
            if not again.any():
                break
            sample = self._replace(sample, again, self._bartlett_sampling(Size((int(again.sum()),))))
            again = ~self.support.check(sample)
        return sample

    @staticmethod
    def _replace(sample, mask, new):
        """Returns `sample` with the elements at `mask` (over its first dimensions) taken from `new`."""
        if not mask.dim():
            return new[0]
        sample = sample.clone()
        sample[mask] = new
        return sample

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        nu, n = self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        trace = torch.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        normalizer = nu * (n * math.log(2) / 2 + log_diagonal(factor)) + torch.mvlgamma(nu / 2, n)
        return (nu - n - 1) / 2 * torch.linalg.slogdet(value).logabsdet - trace / 2 - normalizer

    def entropy(self) -> torch.Tensor:
        nu, n = self.df, self._event_shape[-1]
        steps = torch.arange(n, dtype=nu.dtype, device=nu.device) / 2
        digammas = torch.digamma(nu.unsqueeze(-1) / 2 - steps).sum(-1)
        size = (n + 1) * (n * math.log(2) / 2 + log_diagonal(self._unbroadcasted_scale_tril))
        return size + torch.mvlgamma(nu / 2, n) - (nu - n - 1) / 2 * digammas + nu * n / 2

    @property
    def _natural_params(self):
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x, y):
        n = self._event_shape[-1]
        half_df = y + (n + 1) / 2
        return half_df * (-torch.linalg.slogdet(-2 * x).logabsdet + math.log(2) * n) + torch.mvlgamma(half_df, n)
