"""Constraints on values, for the parameters and the supports of distributions.

`constraint.check(value)` returns whether each element of a value (or each event, for constraints on vectors and
matrices) satisfies the constraint. Constraints without arguments are instances (`positive`, `simplex`, ...), those with
bounds are classes (`interval(0, 1)`, `greater_than(3)`, ...).
"""

from __future__ import annotations

import tensorgrad as torch
from tensorgrad.tensor import Tensor

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than",
    "lower_cholesky", "lower_triangular", "MixtureSameFamilyConstraint", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A constraint. The last `event_dim` dimensions are one event, which satisfies the constraint or not as a whole.

    >>> torch.distributions.constraints.positive.check(torch.tensor([-1.0, 2.0]))
    tensor([False,  True])
    """

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Returns whether each event of `value` satisfies the constraint: a boolean without the event's dimensions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        bounds = (f"{name}={value}" for name, value in vars(self).items() if name.endswith("_bound"))
        return f"{type(self).__name__[1:]}({', '.join(bounds)})"


def _all_of_last(inside: Tensor, dims: int) -> Tensor:
    """Reduces the last `dims` dimensions by logical and."""
    return inside.reshape(*inside.shape[: inside.dim() - dims], -1).all(-1)


# --- constraints that depend on the distribution ---------------------------------------------------------------------


class _Dependent(Constraint):
    """A constraint that depends on other values; only its event dimensions and discreteness can be known in advance.

    Args:
        is_discrete: whether it is discrete, if known.
        event_dim: the number of dimensions of an event, if known.

    Raises:
        NotImplementedError: an unknown attribute is read.
        ValueError: `check` is called.

    >>> torch.distributions.constraints.dependent(is_discrete=False, event_dim=1).event_dim
    1
    """

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def _known(self, name: str):
        value = getattr(self, f"_{name}")
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    @property
    def is_discrete(self):  # type: ignore[override]
        """Whether the constraint is discrete. Raises NotImplementedError if that is unknown."""
        return self._known("is_discrete")

    @property
    def event_dim(self):  # type: ignore[override]
        """The number of dimensions of an event. Raises NotImplementedError if that is unknown."""
        return self._known("event_dim")

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        """Returns the constraint with known attributes: `constraints.dependent(is_discrete=True, event_dim=1)`."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value):
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property that returns a constraint; on the class, it is itself a constraint that depends on the instance.

    >>> from tensorgrad.distributions import constraints
    >>> class Below(torch.distributions.Distribution):
    ...     @constraints.dependent_property(is_discrete=False, event_dim=0)
    ...     def support(self):
    ...         return constraints.less_than(self.high)
    >>> Below.support.event_dim
    0
    """

    def __init__(self, function=None, *, is_discrete=NotImplemented, event_dim=NotImplemented) -> None:
        property.__init__(self, function)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, function):  # type: ignore[override]
        """Decorates the function, if the property was created with keywords only."""
        return _DependentProperty(function, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint) -> bool:
    """Returns whether a constraint depends on the distribution that it belongs to.

    >>> torch.distributions.constraints.is_dependent(torch.distributions.Uniform.support)
    True
    """
    return isinstance(constraint, _Dependent)


# --- constraints derived from others ---------------------------------------------------------------------------------


class _Derived(Constraint):
    """Base of constraints that are derived from another one."""

    def __init__(self, base_constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"base_constraint must be a Constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self):  # type: ignore[override]
        """Whether the constraint is discrete."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self):  # type: ignore[override]
        """The number of dimensions of an event."""
        return self.base_constraint.event_dim


class _IndependentConstraint(_Derived):
    """A constraint with more event dimensions: all elements along them must satisfy the base constraint.

    Args:
        base_constraint: the base constraint.
        reinterpreted_batch_ndims: the number of additional event dimensions.

    Raises:
        AssertionError: `base_constraint` is not a constraint, or the number is not a non-negative int.

    >>> from tensorgrad.distributions import constraints
    >>> pairs = constraints.independent(constraints.positive, 1)
    >>> pairs.check(torch.tensor([[1.0, 2.0], [1.0, -2.0]]))
    tensor([ True, False])
    """

    def __init__(self, base_constraint, reinterpreted_batch_ndims) -> None:
        super().__init__(base_constraint)
        if not isinstance(reinterpreted_batch_ndims, int):
            raise AssertionError(
                f"reinterpreted_batch_ndims must be an int, got {type(reinterpreted_batch_ndims).__name__}"
            )
        if reinterpreted_batch_ndims < 0:
            raise AssertionError(f"reinterpreted_batch_ndims must be >= 0, got {reinterpreted_batch_ndims}")
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def event_dim(self):  # type: ignore[override]
        """The number of dimensions of an event."""
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value):
        inside = self.base_constraint.check(value)
        if inside.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return _all_of_last(inside, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(_Derived):
    """The support of a mixture: a value must be in the support of every component.

    Args:
        base_constraint: the support of the components, which are in the last dimension of a batch.

    Raises:
        AssertionError: `base_constraint` is not a constraint.

    >>> from tensorgrad.distributions import constraints
    >>> both = constraints.greater_than(torch.tensor([0.0, 2.0]))  # of two components
    >>> constraints.MixtureSameFamilyConstraint(both).check(torch.tensor([1.0, 3.0]))
    tensor([False,  True])
    """

    def check(self, value):
        """Returns whether each event of `value` is in the support of all components."""
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        inside = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return _all_of_last(inside, inside.dim() - (value.dim() - self.event_dim))

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Sequence(Constraint):
    """One constraint for each part of a tensor along a dimension."""

    def __init__(self, cseq, dim=0) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self):  # type: ignore[override]
        """Whether one of the constraints is discrete."""
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self):  # type: ignore[override]
        """The number of dimensions of an event."""
        return max(c.event_dim for c in self.cseq)

    def _check_dim(self, value):
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for value with {value.dim()} dimensions")

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}()"


class _Cat(_Sequence):
    """Constraints on the parts of a tensor joined by `torch.cat`.

    Args:
        cseq: a constraint for each part.
        dim: the dimension along which the parts were joined.
        lengths: the sizes of the parts along it, by default 1 each.

    Raises:
        AssertionError: an element is not a constraint, or the number of lengths is not that of the constraints.

    >>> from tensorgrad.distributions import constraints
    >>> region = constraints.cat([constraints.positive, constraints.less_than(0.0)], lengths=[1, 2])
    >>> region.check(torch.tensor([1.0, -1.0, 1.0]))
    tensor([ True,  True, False])
    """

    def __init__(self, cseq, dim=0, lengths=None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    def check(self, value):
        self._check_dim(value)
        # Elements after the listed parts belong to none of them and are ignored.
        parts = value.narrow(self.dim, 0, sum(self.lengths)).split(self.lengths, self.dim)
        return torch.cat([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(_Sequence):
    """Constraints on the slices of a tensor joined by `torch.stack`.

    Args:
        cseq: a constraint for each slice.
        dim: the dimension along which the slices were stacked.

    Raises:
        AssertionError: an element is not a constraint.

    >>> from tensorgrad.distributions import constraints
    >>> region = constraints.stack([constraints.positive, constraints.real], dim=1)
    >>> region.check(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    tensor([[ True,  True],
            [False,  True]])
    """

    @property
    def event_dim(self):  # type: ignore[override]
        """The number of dimensions of an event."""
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value):
        self._check_dim(value)
        return torch.stack([c.check(v) for c, v in zip(self.cseq, value.unbind(self.dim))], self.dim)


# --- bounds ----------------------------------------------------------------------------------------------------------


class _Lower(Constraint):
    def __init__(self, lower_bound) -> None:
        self.lower_bound = lower_bound


class _Upper(Constraint):
    def __init__(self, upper_bound) -> None:
        self.upper_bound = upper_bound


class _Between(Constraint):
    def __init__(self, lower_bound, upper_bound) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _GreaterThan(_Lower):
    """(lower_bound, ∞]: elementwise, lower_bound < value. The bound is a scalar or a tensor.

    >>> torch.distributions.constraints.greater_than(2.0).check(torch.tensor([1.0, 2.0, 3.0]))
    tensor([False, False,  True])
    """

    def check(self, value):
        return self.lower_bound < value


class _GreaterThanEq(_Lower):
    """[lower_bound, ∞]: elementwise, lower_bound ≤ value. The bound is a scalar or a tensor.

    >>> torch.distributions.constraints.greater_than_eq(2.0).check(torch.tensor([1.0, 2.0, 3.0]))
    tensor([False,  True,  True])
    """

    def check(self, value):
        return self.lower_bound <= value


class _LessThan(_Upper):
    """[-∞, upper_bound): elementwise, value < upper_bound. The bound is a scalar or a tensor.

    >>> torch.distributions.constraints.less_than(2.0).check(torch.tensor([1.0, 2.0, 3.0]))
    tensor([ True, False, False])
    """

    def check(self, value):
        return value < self.upper_bound


class _Interval(_Between):
    """[lower_bound, upper_bound]: elementwise, including both bounds, which are scalars or tensors.

    >>> torch.distributions.constraints.interval(0.0, 1.0).check(torch.tensor([0.0, 1.0, 1.5]))
    tensor([ True,  True, False])
    """

    def check(self, value):
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    """[lower_bound, upper_bound): elementwise, excluding the upper bound. Bounds are scalars or tensors.

    >>> torch.distributions.constraints.half_open_interval(0.0, 1.0).check(torch.tensor([0.0, 1.0, 1.5]))
    tensor([ True, False, False])
    """

    def check(self, value):
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_Between):
    """lower_bound, lower_bound + 1, ..., upper_bound: elementwise, integers including both bounds.

    >>> torch.distributions.constraints.integer_interval(0, 2).check(torch.tensor([0.0, 0.5, 2.0, 3.0]))
    tensor([ True, False,  True, False])
    """

    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _IntegerLessThan(_Upper):
    """..., upper_bound - 1, upper_bound"""

    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Lower):
    """lower_bound, lower_bound + 1, ..."""

    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (value >= self.lower_bound)


# --- scalars and vectors ---------------------------------------------------------------------------------------------


class _Real(Constraint):
    """Everything but NaN."""

    def check(self, value):
        return value == value


class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """Vectors of zeros with a single 1."""

    is_discrete = True
    event_dim = 1

    def check(self, value):
        return boolean.check(value).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    """Vectors of non-negative values that sum to 1 (within 1e-6)."""

    event_dim = 1

    def check(self, value):
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Vectors (along the last dimension) of non-negative counts that sum to at most `upper_bound`.

    >>> torch.distributions.constraints.multinomial(3).check(torch.tensor([[1.0, 2.0], [2.0, 2.0]]))
    tensor([ True, False])
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound) -> None:
        self.upper_bound = upper_bound

    def check(self, value):
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)

    def __repr__(self) -> str:
        return "Multinomial()"


# --- matrices --------------------------------------------------------------------------------------------------------


class _Matrices(Constraint):
    event_dim = 2


class _LowerTriangular(_Matrices):
    """Zeros above the diagonal."""

    def check(self, value):
        return _all_of_last(value.tril() == value, 2)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular with a positive diagonal."""

    def check(self, value):
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Cholesky factors of correlation matrices: lower triangular, positive diagonal, rows of length 1."""

    def check(self, value):
        tolerance = torch.finfo(value.dtype).eps * value.size(-1) * 10
        lengths = torch.linalg.norm(value.detach(), dim=-1)
        return super().check(value) & ((lengths - 1.0).abs() <= tolerance).all(-1)


class _Square(_Matrices):
    """Square matrices."""

    def check(self, value):
        rows, columns = value.shape[-2:]
        return torch.full(value.shape[:-2], rows == columns, dtype=torch.bool, device=value.device)


class _Symmetric(_Square):
    """Equal to the transpose (within 1e-6)."""

    def check(self, value):
        square = super().check(value)
        return _all_of_last(torch.isclose(value, value.mT, atol=1e-6), 2) if square.all() else square


class _PositiveSemidefinite(_Symmetric):
    """Symmetric, without negative eigenvalues."""

    def check(self, value):
        symmetric = super().check(value)
        return (torch.linalg.eigvalsh(value) >= 0).all(-1) if symmetric.all() else symmetric


class _PositiveDefinite(_Symmetric):
    """Symmetric, with a Cholesky factorization."""

    def check(self, value):
        symmetric = super().check(value)
        return torch.linalg.cholesky_ex(value).info == 0 if symmetric.all() else symmetric


# --- names -----------------------------------------------------------------------------------------------------------

dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
cat = _Cat
stack = _Stack
boolean = _Boolean()
one_hot = _OneHot()
integer_interval = _IntegerInterval
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
multinomial = _Multinomial
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
