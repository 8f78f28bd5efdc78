"""Transforms from unconstrained real values to a constraint.

`biject_to(constraint)` is bijective and has a computable density (for samplers such as Hamiltonian Monte Carlo).
`transform_to(constraint)` may be overparameterized, and is suitable for gradient descent on parameters.

    unconstrained = torch.zeros(3, requires_grad=True)
    scale = transform_to(Normal.arg_constraints["scale"])(unconstrained)
"""

from __future__ import annotations

from numbers import Number
from typing import Any

from tensorgrad.distributions import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """A table of constraint classes and functions that create a transform for a constraint of that class.

    >>> D = torch.distributions
    >>> D.transform_to(D.constraints.greater_than(3))(torch.tensor([0.0]))
    tensor([4.])
    """

    def __init__(self) -> None:
        self._registry: dict[type, Any] = {}

    def register(self, constraint, factory=None):
        """Registers a factory for a constraint or a class of constraints; can be used as a decorator.

        Raises:
            TypeError: `constraint` is not a constraint.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        cls = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(cls, type) or not issubclass(cls, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[cls] = factory
        return factory

    def __call__(self, constraint):
        """Returns the transform for a constraint.

        Raises:
            NotImplementedError: none is registered for its class.
        """
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints") from None
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _in_both(*classes):
    """A decorator that registers a function for these classes of constraints in both registries."""

    def decorator(factory):
        for cls in classes:
            biject_to.register(cls, factory)
            transform_to.register(cls, factory)
        return factory

    return decorator


@_in_both(constraints._Real)
def _real(constraint):
    return transforms.identity_transform


@_in_both(constraints._GreaterThan, constraints._GreaterThanEq)
def _above(constraint):
    affine = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), affine])


@_in_both(constraints._LessThan)
def _below(constraint):
    affine = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), affine])


@_in_both(constraints._Interval, constraints._HalfOpenInterval)
def _between(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, Number) and isinstance(high, Number) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


@_in_both(constraints._CorrCholesky)
def _corr_cholesky(constraint):
    return transforms.CorrCholeskyTransform()


@biject_to.register(constraints._Simplex)
def _simplex_bijectively(constraint):
    return transforms.StickBreakingTransform()


@transform_to.register(constraints._Simplex)
def _simplex(constraint):
    return transforms.SoftmaxTransform()


@transform_to.register(constraints._LowerCholesky)
def _lower_cholesky(constraint):
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints._PositiveDefinite)
@transform_to.register(constraints._PositiveSemidefinite)
def _positive_definite(constraint):
    return transforms.PositiveDefiniteTransform()


def _register_combined(registry):
    """Registers the derived constraints, whose transforms are combinations of those of their base constraints."""

    @registry.register(constraints._IndependentConstraint)
    def _independent(constraint):
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    @registry.register(constraints._Cat)
    def _cat(constraint):
        return transforms.CatTransform([registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths)

    @registry.register(constraints._Stack)
    def _stack(constraint):
        return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)


_register_combined(biject_to)
_register_combined(transform_to)
