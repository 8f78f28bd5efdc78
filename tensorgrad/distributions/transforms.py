"""The standard transforms of scalars, vectors and matrices."""

from __future__ import annotations

import math
from numbers import Number

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.combined_transforms import (
    CatTransform,
    ComposeTransform,
    IndependentTransform,
    StackTransform,
    identity_transform,
)
from tensorgrad.distributions.transform import Transform, _InverseTransform, check_dims  # noqa: F401 imported from here
from tensorgrad.distributions.utils import broadcast_all, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from tensorgrad.nn.functional import logsigmoid, pad, softplus
from tensorgrad.size import Size

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip


def _inside_unit(y):
    """Clamps `y` away from 0 and 1, where inverses are infinite."""
    info = torch.finfo(y.dtype)
    return y.clamp(min=info.tiny, max=1.0 - info.eps)


def _clipped_sigmoid(x):
    return _inside_unit(torch.sigmoid(x))


# --- of scalars ------------------------------------------------------------------------------------------------------


class ExpTransform(Transform):
    """y = exp(x)

    >>> torch.distributions.ExpTransform()(torch.tensor([0.0]))
    tensor([1.])
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1
    _compared = ()

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        return x


class PowerTransform(Transform):
    """y = x ** exponent, for positive x

    >>> torch.distributions.PowerTransform(2.0)(torch.tensor([3.0]))
    tensor([9.])
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True
    _compared = ("exponent",)

    def __init__(self, exponent, cache_size=0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self):
        return self.exponent.sign()

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return torch.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x)), clamped away from 0 and 1

    >>> torch.distributions.SigmoidTransform()(torch.tensor([0.0]))
    tensor([0.5000])
    """

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = +1
    _compared = ()

    def _call(self, x):
        return _clipped_sigmoid(x)

    def _inverse(self, y):
        y = _inside_unit(y)
        return y.log() - torch.log1p(-y)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x))

    >>> torch.distributions.SoftplusTransform()(torch.tensor([0.0]))
    tensor([0.6931])
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1
    _compared = ()

    def _call(self, x):
        return softplus(x)

    def _inverse(self, y):
        return torch.log(-torch.expm1(-y)) + y

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        return -softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x). Its inverse is imprecise near ±1: use a cache if samples are mapped back.

    >>> torch.distributions.TanhTransform()(torch.tensor([0.0]))
    tensor([0.])
    """

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = +1
    _compared = ()

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return torch.atanh(y)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))  # log(1 - y²), but exact for large x


class AbsTransform(Transform):
    """y = |x|, which is not bijective; the inverse returns the positive value

    >>> torch.distributions.AbsTransform()(torch.tensor([-1.0]))
    tensor([1.])
    """

    domain = constraints.real
    codomain = constraints.positive
    _compared = ()

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """y = loc + scale · x, for scalars or for events of `event_dim` dimensions

    >>> torch.distributions.AffineTransform(1.0, 2.0)(torch.tensor([3.0]))
    tensor([7.])
    """

    bijective = True
    _compared = ("loc", "scale")

    def __init__(self, loc, scale, event_dim=0, cache_size=0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self):
        return self._event_dim

    def _reals(self):
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        """The real numbers."""
        return self._reals()

    @constraints.dependent_property(is_discrete=False)
    def codomain(self):
        """The real numbers."""
        return self._reals()

    @property
    def sign(self):
        if isinstance(self.scale, Number):
            return (self.scale > 0) - (self.scale < 0)  # type: ignore[operator]
        return self.scale.sign()

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        scale = self.scale
        if isinstance(scale, Number):
            stretch = torch.full_like(x, math.log(abs(scale)))  # type: ignore[arg-type]
        else:
            stretch = scale.abs().log().expand(torch.broadcast_shapes(x.shape, scale.shape))
        return sum_rightmost(stretch, self._event_dim)

    def forward_shape(self, shape):
        return torch.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """y = distribution.cdf(x): maps samples of the distribution to uniform ones; the inverse does the reverse

    >>> D = torch.distributions
    >>> D.CumulativeDistributionTransform(D.Normal(0.0, 1.0))(torch.tensor([0.0]))
    tensor([0.5000])
    """

    codomain = constraints.unit_interval
    bijective = True
    sign = +1

    def __init__(self, distribution, cache_size=0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self):
        """The distribution's support."""
        return self.distribution.support

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        return self.distribution.log_prob(x)


# --- of vectors ------------------------------------------------------------------------------------------------------


class ReshapeTransform(Transform):
    """Reshapes events of shape `in_shape` to `out_shape`.

    Raises:
        ValueError: the numbers of elements differ.

    >>> torch.distributions.ReshapeTransform((2, 3), (6,))(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 6])
    """

    bijective = True

    def __init__(self, in_shape, out_shape, cache_size=0) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self):
        """Arrays of real numbers."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self):
        """Arrays of real numbers."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x):
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y):
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape):
        return self._exchange(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape):
        return self._exchange(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _exchange(shape, old, new):
        check_dims(shape, len(old))
        cut = len(shape) - len(old)
        if shape[cut:] != old:
            raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
        return shape[:cut] + new


class SoftmaxTransform(Transform):
    """y = softmax(x) over the last dimension: onto the simplex, but not bijective (see `StickBreakingTransform`)

    >>> torch.distributions.SoftmaxTransform()(torch.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    _compared = ()

    def _call(self, x):
        return torch.softmax(x, -1)

    def _inverse(self, y):
        return y.log()

    def forward_shape(self, shape):
        check_dims(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """Maps k - 1 real numbers to a point on the simplex of dimension k, by breaking a stick of length 1.

    Each number is the log odds of the fraction to break off what is left of the stick, relative to equal pieces.

    >>> torch.distributions.StickBreakingTransform()(torch.zeros(3))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True
    _compared = ()

    @staticmethod
    def _offset(like):
        """Returns the negated log odds of equal pieces: of breaking off 1/k, then 1/(k-1), ..., 1/2."""
        return torch.arange(like.shape[-1], 0, -1, dtype=like.dtype, device=like.device).log()

    def _call(self, x):
        fraction = _clipped_sigmoid(x - self._offset(x))
        left = (1 - fraction).cumprod(-1)
        return pad(fraction, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y):
        pieces = y[..., :-1]
        left = (1 - pieces.cumsum(-1)).clamp(min=torch.finfo(y.dtype).tiny)
        return pieces.log() - left.log() + self._offset(pieces)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        x = x - self._offset(x)
        return (logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        check_dims(shape, 1)
        return Size(shape[:-1]) + Size((shape[-1] + 1,))

    def inverse_shape(self, shape):
        check_dims(shape, 1)
        return Size(shape[:-1]) + Size((shape[-1] - 1,))


# --- to matrices -----------------------------------------------------------------------------------------------------


class CorrCholeskyTransform(Transform):
    """Maps n (n - 1) / 2 real numbers to the Cholesky factor of an n × n correlation matrix.

    Their tanh, below the diagonal, are partial correlations: fractions of what is left of a row's length 1.

    Source: the canonical partial correlations of D. Lewandowski, D. Kurowicka and H. Joe, "Generating random
    correlation matrices based on vines and extended onion method", J. Multivariate Analysis 100 (2009).

    >>> torch.distributions.CorrCholeskyTransform()(torch.zeros(1))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x):
        eps = torch.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(torch.tanh(x).clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - partial.pow(2)).sqrt().cumprod(-1)
        eye = torch.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + eye) * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y):
        left = pad(1 - y.pow(2).cumsum(-1)[..., :-1], [1, 0], value=1)
        return torch.atanh(tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt())

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        # Each element below the diagonal is a tanh times the root of what the elements before it left of the row.
        left = 1 - y.pow(2).cumsum(-1)
        scaling = 0.5 * tril_matrix_to_vec(left, -2).log().sum(-1)
        return scaling + 2 * (math.log(2.0) - x - softplus(-2 * x)).sum(-1)

    def forward_shape(self, shape):
        check_dims(shape, 1)
        size = shape[-1]
        n = round((0.25 + 2 * size) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != size:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size(shape[:-1]) + Size((n, n))

    def inverse_shape(self, shape):
        check_dims(shape, 2)
        rows, columns = shape[-2:]
        if rows != columns:
            raise ValueError("Input is not square")
        return Size(shape[:-2]) + Size((rows * (rows - 1) // 2,))


class LowerCholeskyTransform(Transform):
    """Maps square matrices to lower triangular ones with a positive diagonal, by exp of the diagonal

    >>> torch.distributions.LowerCholeskyTransform()(torch.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    _compared = ()

    def _call(self, x):
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Maps square matrices to positive definite ones: L Lᵀ with L from `LowerCholeskyTransform`

    >>> torch.distributions.PositiveDefiniteTransform()(torch.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    _compared = ()

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(torch.linalg.cholesky(y))
