"""`Distribution`: what all distributions have, and the rules they share (parameters, shapes, checks)."""

from __future__ import annotations

import warnings

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.utils import lazy_property
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

__all__ = ["Distribution"]


class Distribution:
    """The base of all distributions. `batch_shape` counts independent distributions held side by side, `event_shape`
    is the shape of one sample of one of them; samples have shape sample_shape + batch_shape + event_shape.

    A subclass lists its parameters in `arg_constraints` (name to the region they must lie in), stores them under those
    names, and gives its `support`. From this the base checks arguments and values, prints, and expands.

    With `validate_args` (on by default) parameters outside their region, and values outside the support, raise
    ValueError.

    >>> import tensorgrad as torch
    >>> normal = torch.distributions.Normal(torch.zeros(3), 1.0)
    >>> normal.batch_shape, normal.sample((5,)).shape
    (torch.Size([3]), torch.Size([5, 3]))
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked where the constructor does not say. Raises: ValueError unless it is a bool."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()
        super().__init__()

    # --- parameters --------------------------------------------------------------------------------------------------

    def _validate_parameters(self) -> None:
        try:
            regions = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, region in regions.items():
            if constraints.is_dependent(region):
                continue
            if name not in vars(self) and isinstance(getattr(type(self), name), lazy_property):
                continue  # it follows from the parameter that was given instead
            value = getattr(self, name)
            if not region.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {region!r}, but found invalid values:\n{value}"
                )

    def _parameter_dims(self) -> dict[str, int]:
        """The names of all parameters, those of base classes too, with the trailing dimensions that are not batch."""
        regions: dict = {}
        for cls in reversed(type(self).__mro__):
            listed = vars(cls).get("arg_constraints")
            regions.update(self.arg_constraints if isinstance(listed, property) else listed or {})
        return {
            name: 0 if region is constraints.dependent else region.event_dim
            for name, region in regions.items()
            if name in vars(self)
        }

    def expand(self, batch_shape, _instance=None):
        """The same distribution with its batch dimensions expanded to `batch_shape`; nothing is copied or checked.

        `_instance` is for subclasses that prepare the new object themselves.

        >>> import tensorgrad as torch
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
                continue  # to be computed again from the expanded parameters
            vars(new).setdefault(name, value)
        new._batch_shape, new._event_shape = batch_shape, self._event_shape
        return new

    def _part_shape(self, name: str, batch_shape: Size) -> Size:
        """The batch shape of the distribution `self.<name>` that this one is made from."""
        return batch_shape

    def _get_checked_instance(self, cls, _instance=None):
        """A blank object for a subclass' own `expand`, or the one that it was given."""
        if _instance is None and type(self).__init__ is not cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters: one distribution each."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict:
        """The region that each parameter must lie in, by name."""
        raise NotImplementedError

    @property
    def support(self):
        """The region in which samples lie, a `Constraint`."""
        raise NotImplementedError

    # --- moments -----------------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        """The mean: batch_shape + event_shape."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most likely value: batch_shape + event_shape."""
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
        """`sample_shape` independent samples, without a gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()) -> Tensor:
        """`sample_shape` independent samples as a differentiable function of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """n independent samples; `sample((n,))` says the same and is preferred."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", category=FutureWarning, stacklevel=2
        )
        return self.sample(Size((n,)))

    def _extended_shape(self, sample_shape=()) -> Size:
        """The shape of `sample_shape` samples."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    # --- probabilities -----------------------------------------------------------------------------------------------

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density (or of the probability, if discrete) at `value`; event dimensions are gone."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a sample at or below `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile: the point at which `cdf` is `value`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution along a new first dimension, expanded to the batch shape or (`expand`
        off) with batch dimensions of 1."""
        raise NotImplementedError

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """`values` of shape (n, *event_shape) as `enumerate_support` lays them out."""
        ones = (1,) * len(self._batch_shape)
        values = values.reshape(-1, *ones, *self._event_shape)
        return values.expand(-1, *self._batch_shape, *self._event_shape) if expand else values

    def entropy(self) -> Tensor:
        """The entropy in nats: batch_shape."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy): batch_shape."""
        return torch.exp(self.entropy())

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check(self, value: Tensor) -> None:
        """Raises ValueError for what cannot be a sample, if arguments are validated."""
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
