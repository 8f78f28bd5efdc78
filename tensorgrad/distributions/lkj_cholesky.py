"""The LKJ distribution of the Cholesky factors of correlation matrices."""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.beta import Beta
from tensorgrad.distributions.distribution import Distribution
from tensorgrad.distributions.utils import broadcast_all
from tensorgrad.size import Size

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of `dim` × `dim` correlation matrices M with density ∝ det(M)^(concentration - 1).

    At concentration 1, M is uniformly distributed; for larger concentrations, matrices near the identity are more
    likely.

    Raises:
        ValueError: `dim` is less than 2.

    Source: D. Lewandowski, D. Kurowicka and H. Joe, "Generating random correlation matrices based on vines and extended
    onion method", J. Multivariate Analysis 100 (2009); the onion method.

    >>> factor = torch.distributions.LKJCholesky(3, 0.5).sample()
    >>> (factor @ factor.mT).diagonal().round(decimals=4)
    tensor([1., 1., 1.])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        alpha = self.concentration
        # The distribution of the squared length of each row left of the diagonal, where the first row is empty.
        before = torch.arange(dim, dtype=alpha.dtype, device=alpha.device) - 1
        before[0] = 0
        self._beta = Beta(before + 0.5, (alpha + 0.5 * (dim - 2)).unsqueeze(-1) - 0.5 * before)
        super().__init__(self.concentration.shape, Size((dim, dim)), validate_args=validate_args)

    def _part_shape(self, name, batch_shape):
        return Size((*batch_shape, self.dim))

    def sample(self, sample_shape=()) -> torch.Tensor:
        with torch.no_grad():
            shape, dtype, device = (
                self._extended_shape(sample_shape),
                self.concentration.dtype,
                self.concentration.device,
            )
            squared = self._beta.sample(sample_shape).unsqueeze(-1)
            direction = torch.randn(shape, dtype=dtype, device=device).tril(-1)
            direction = direction / direction.norm(dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0
            lower = squared.sqrt() * direction
            left = (1 - lower.pow(2).sum(-1)).clamp(min=torch.finfo(dtype).tiny)
            return lower + torch.diag_embed(left.sqrt())

    def log_prob(self, value) -> torch.Tensor:
        self._check(value)
        alpha, n = self.concentration, self.dim - 1
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        # The density of the factor: det(M)^(concentration - 1) times the Jacobian of M as a function of the factor.
        rows = torch.arange(2, self.dim + 1, device=alpha.device)
        power = 2 * (alpha - 1).unsqueeze(-1) + self.dim - rows
        half = alpha + 0.5 * n
        normalizer = 0.5 * n * math.log(math.pi) + torch.mvlgamma(half - 0.5, n) - torch.lgamma(half) * n
        return (power * diagonal.log()).sum(-1) - normalizer
