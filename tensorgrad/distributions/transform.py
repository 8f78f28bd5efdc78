"""`Transform`, the base class of changes of variables: their inverses, caches and shapes.

The standard ones are in `transforms.py`, combinations of others in `combined_transforms.py`.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

from tensorgrad.distributions import constraints
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor


class Transform:
    """A differentiable change of variables from `domain` to `codomain`, with its log Jacobian determinant.

    `transform(x)` maps forwards and `transform.inv(y)` backwards. With `cache_size` 1, the last pair of argument and
    result is cached, so that the result is mapped back to exactly its argument. This is useful if the inverse is
    expensive or inexact.

    A subclass defines `_call`, `_inverse` and `log_abs_det_jacobian`, and sets `domain`, `codomain`, `bijective` and,
    if it is element-wise, `sign`: 1 for an increasing function, -1 for a decreasing one.

    >>> exp = torch.distributions.ExpTransform()
    >>> x = torch.tensor([1.0, 2.0])
    >>> exp(x), exp.log_abs_det_jacobian(x, exp(x))
    (tensor([2.7183, 7.3891]), tensor([1., 2.]))
    """

    bijective: Any = False
    _cached_x_y: tuple[Tensor | None, Tensor | None] = (None, None)
    domain: Any
    codomain: Any
    # The attributes that are compared to test transforms of a class for equality; None: compared by identity.
    _compared: tuple[str, ...] | None = None

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Any = None  # a weak reference: the inverse refers to this transform
        super().__init__()

    def __getstate__(self):
        return {**vars(self), "_inv": None}

    @property
    def event_dim(self) -> int:
        """The number of event dimensions, if domain and codomain have the same number; otherwise raises ValueError."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return self.domain.event_dim

    @property
    def inv(self) -> Transform:
        """The inverse transform."""
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """1 if the function is increasing, -1 if it is decreasing. Raises NotImplementedError if it is neither."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the transform with a cache of this size; itself if it already has one."""
        if self._cache_size == cache_size:
            return self
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        return new

    def __eq__(self, other) -> bool:
        if self is other:
            return True
        if self._compared is None or type(self) is not type(other):
            return False
        return all(_same(getattr(self, name), getattr(other, name)) for name in self._compared)

    def __ne__(self, other) -> bool:
        return not self == other

    def __call__(self, x: Tensor) -> Tensor:
        known_x, known_y = self._cached_x_y
        if self._cache_size and x is known_x and known_y is not None:
            return known_y
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        known_x, known_y = self._cached_x_y
        if self._cache_size and y is known_y and known_x is not None:
            return known_x
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        """Maps x forwards."""
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        """Maps y backwards."""
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |det dy/dx| at x, given y = transform(x), without the domain's event dimensions."""
        raise NotImplementedError

    def forward_shape(self, shape) -> Size:
        """Returns the shape of the result for an argument of this shape."""
        return shape

    def inverse_shape(self, shape) -> Size:
        """Returns the shape of the argument for a result of this shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _same(a, b) -> bool:
    equal = a == b
    return bool(equal.all()) if isinstance(equal, Tensor) else equal


def check_dims(shape, least: int) -> None:
    """Raises ValueError if a shape has fewer dimensions than an event."""
    if len(shape) < least:
        raise ValueError("Too few dimensions on input")


class _InverseTransform(Transform):
    """The inverse of another transform, created by `transform.inv`."""

    _compared = ("_inv",)

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    def __getstate__(self):
        return vars(self)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The codomain of the transform."""
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The domain of the transform."""
        return self._inv.domain

    @property
    def bijective(self) -> Any:
        """Whether the transform is bijective."""
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Any:
        return self._inv

    def with_cache(self, cache_size=1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __call__(self, x):
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x, y) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"
