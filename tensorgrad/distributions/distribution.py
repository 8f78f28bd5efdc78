"""`Distribution`, the base class of all distributions: their interface, parameters, shapes and checks."""

from __future__ import annotations

import warnings

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.utils import lazy_property
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

__all__ = ["Distribution"]


class Distribution:
    """The base class of all distributions.

    An instance is a batch of independent distributions: `batch_shape` is the shape of the batch, `event_shape` that of
    one sample of one distribution. Samples have the shape sample_shape + batch_shape + event_shape.

    A subclass lists its parameters in `arg_constraints` (name to constraint), stores them under those names, and
    defines its `support`. The base class uses these to check arguments and values, to print, and to expand.

    With `validate_args` (on by default), invalid parameters, and values outside the support, raise ValueError.

    >>> normal = torch.distributions.Normal(torch.zeros(3), 1.0)
    >>> normal.batch_shape, normal.sample((5,)).shape
    (torch.Size([3]), torch.Size([5, 3]))
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether arguments are checked by default.

        Raises:
            ValueError: `value` is not a bool.
        """
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()
        super().__init__()

    # --- parameters --------------------------------------------------------------------------------------------------

    def _validate_parameters(self) -> None:
        try:
            required = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, constraint in required.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in vars(self) and isinstance(getattr(type(self), name), lazy_property):
                continue  # computed from the parameter that was given instead
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def _parameter_dims(self) -> dict[str, int]:
        """Returns the number of event dimensions of each parameter, including those of base classes, by name."""
        found: dict = {}
        for cls in reversed(type(self).__mro__):
            listed = vars(cls).get("arg_constraints")
            found.update(self.arg_constraints if isinstance(listed, property) else listed or {})
        return {
            name: 0 if constraint is constraints.dependent else constraint.event_dim
            for name, constraint in found.items()
            if name in vars(self)
        }

    def expand(self, batch_shape, _instance=None):
        """Returns the distribution with its batch dimensions expanded to `batch_shape`, without copies or checks.

        `_instance` is for subclasses that prepare the new object themselves.

        >>> torch.distributions.Normal(0.0, 1.0).expand((2, 3)).loc.shape
        torch.Size([2, 3])
        """
        new = type(self).__new__(type(self)) if _instance is None else _instance
        batch_shape, dims = Size(batch_shape), self._parameter_dims()
        for name, value in vars(self).items():
            if name in dims:
                value = value.expand(batch_shape + value.shape[value.dim() - dims[name] :])
            elif isinstance(value, Distribution):
                value = value.expand(self._part_shape(name, batch_shape))
            elif isinstance(getattr(type(self), name, None), lazy_property):
                continue  # recomputed from the expanded parameters when needed
            vars(new).setdefault(name, value)
        new._batch_shape, new._event_shape = batch_shape, self._event_shape
        return new

    def _part_shape(self, name: str, batch_shape: Size) -> Size:
        """Returns the expanded batch shape of the distribution `self.<name>`, a component of this one."""
        return batch_shape

    def _get_checked_instance(self, cls, _instance=None):
        """Returns a blank instance for a subclass's own `expand`, or the one that it was given."""
        if _instance is None and type(self).__init__ is not cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict:
        """The constraint on each parameter, by name."""
        raise NotImplementedError

    @property
    def support(self):
        """The constraint that all samples satisfy, a `Constraint`."""
        raise NotImplementedError

    # --- moments -----------------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        """The mean: batch_shape + event_shape."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value: batch_shape + event_shape."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element: batch_shape + event_shape."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each element: batch_shape + event_shape."""
        return self.variance.sqrt()

    # --- samples -----------------------------------------------------------------------------------------------------

    def sample(self, sample_shape=()) -> Tensor:
        """Returns `sample_shape` independent samples, without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()) -> Tensor:
        """Returns `sample_shape` independent samples that are differentiable functions of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Returns n independent samples. Deprecated: use `sample((n,))`."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", category=FutureWarning, stacklevel=2
        )
        return self.sample(Size((n,)))

    def _extended_shape(self, sample_shape=()) -> Size:
        """Returns the shape of `sample_shape` samples."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    # --- probabilities -----------------------------------------------------------------------------------------------

    def log_prob(self, value: Tensor) -> Tensor:
        """Returns the logarithm of the density (or of the probability, if discrete) at `value`, one per event."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """Returns the cumulative distribution function: the probability of a sample at or below `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """Returns the quantile: the point at which `cdf` is `value`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns all values of a discrete distribution along a new first dimension.

        They are expanded to the batch shape or, with `expand=False`, have batch dimensions of size 1.
        """
        raise NotImplementedError

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """Reshapes `values`, (n, *event_shape), to the result of `enumerate_support`."""
        ones = (1,) * len(self._batch_shape)
        values = values.reshape(-1, *ones, *self._event_shape)
        return values.expand(-1, *self._batch_shape, *self._event_shape) if expand else values

    def entropy(self) -> Tensor:
        """Returns the entropy in nats: batch_shape."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """Returns exp(entropy): batch_shape."""
        return torch.exp(self.entropy())

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check(self, value: Tensor) -> None:
        """Raises ValueError if `value` cannot be a sample and arguments are validated."""
        if self._validate_args:
            self._validate_sample(value)

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, expected = value.shape, self._batch_shape + self._event_shape
        if shape[len(shape) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {self._event_shape}.")
        for i, j in zip(reversed(shape), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        given = {name: vars(self)[name] for name in self.arg_constraints if name in vars(self)}
        shown = (f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in given.items())
        return f"{type(self).__name__}({', '.join(shown)})"
