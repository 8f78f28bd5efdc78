"""Combinations of transforms: composed, applied to parts of a tensor, or over more dimensions."""

from __future__ import annotations

import math
import weakref
from typing import Any

import tensorgrad as torch
from tensorgrad.distributions import constraints
from tensorgrad.distributions.transform import Transform, check_dims
from tensorgrad.distributions.utils import sum_rightmost


def _widened(constraint, event_dim: int):
    """Returns the constraint with at least `event_dim` event dimensions."""
    missing = event_dim - constraint.event_dim
    return constraints.independent(constraint, missing) if missing > 0 else constraint


class ComposeTransform(Transform):
    """The composition of transforms, applied in the order of `parts`. Without parts it is the identity.

    >>> D = torch.distributions
    >>> D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.ExpTransform()])(torch.tensor([-0.5])).item()
    1.0
    """

    _compared = ("parts",)

    def __init__(self, parts, cache_size=0) -> None:
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The domain of the first part, with the event dimensions that the later parts need."""
        return self._end(self.parts, "domain", "codomain")

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The codomain of the last part, with the event dimensions that the earlier parts need."""
        return self._end(self.parts[::-1], "codomain", "domain")

    @staticmethod
    def _end(parts, near: str, far: str):
        """Returns the constraint at the start of a chain; its event dimensions are computed from the other end."""
        if not parts:
            return constraints.real
        event_dim = getattr(parts[-1], far).event_dim
        for part in reversed(parts):
            own = getattr(part, near).event_dim
            event_dim = max(event_dim + own - getattr(part, far).event_dim, own)
        return _widened(getattr(parts[0], near), event_dim)

    @property
    def bijective(self) -> Any:
        """Whether all parts are bijective."""
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        return math.prod(part.sign for part in self.parts)

    @property
    def inv(self) -> Any:
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv, inverse._inv = weakref.ref(inverse), weakref.ref(self)
        return inverse

    def with_cache(self, cache_size=1) -> Any:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        if not self.parts:
            return torch.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0.0
        event_dim = self.domain.event_dim
        for part, before, after in zip(self.parts, values, values[1:]):
            own = part.log_abs_det_jacobian(before, after)
            total = total + sum_rightmost(own, event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inside = ",\n    ".join(repr(part) for part in self.parts)
        return f"{type(self).__name__}(\n    {inside}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """`base_transform` with `reinterpreted_batch_ndims` more event dimensions, over which log determinants are summed.

    >>> exp = torch.distributions.IndependentTransform(torch.distributions.ExpTransform(), 1)
    >>> exp.log_abs_det_jacobian(torch.ones(3), torch.ones(3).exp())
    tensor(3.)
    """

    def __init__(self, base_transform, reinterpreted_batch_ndims, cache_size=0) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size=1) -> Any:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The domain of the base, with more event dimensions."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The codomain of the base, with more event dimensions."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> Any:
        """Whether the base is bijective."""
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x):
        check_dims(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y):
        check_dims(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class _SideBySide(Transform):
    """One transform for each part of a tensor along a dimension."""

    def __init__(self, tseq, dim=0, cache_size=0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> Any:
        """Whether all transforms are bijective."""
        return all(t.bijective for t in self.transforms)

    def _parts(self, value):
        raise NotImplementedError

    def _joined(self, parts):
        raise NotImplementedError

    def _call(self, x):
        return self._joined([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)])

    def _inverse(self, y):
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)])


class CatTransform(_SideBySide):
    """One transform for each part of a tensor along `dim`; part i has length `lengths[i]` (1 by default).

    >>> D = torch.distributions
    >>> D.CatTransform([D.ExpTransform(), D.AffineTransform(0.0, 2.0)], lengths=[1, 2])(torch.tensor([0.0, 1.0, 2.0]))
    tensor([1., 2., 4.])
    """

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match tseq ({len(self.transforms)})")

    @property
    def event_dim(self) -> Any:
        """The maximum number of event dimensions of the transforms."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> Any:
        """The total length of all parts."""
        return sum(self.lengths)

    def with_cache(self, cache_size=1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _parts(self, value):
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for {value.dim()}-dimensional tensor")
        if value.size(self.dim) != self.length:
            raise AssertionError(f"x.size({self.dim}) = {value.size(self.dim)} must equal length {self.length}")
        return value.split(self.lengths, self.dim)

    def _joined(self, parts):
        return torch.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        pieces = [
            sum_rightmost(t.log_abs_det_jacobian(before, after), self.event_dim - t.event_dim)
            for t, before, after in zip(self.transforms, self._parts(x), self._parts(y))
        ]
        # The dimension of the parts, counted from the end without event dimensions; not negative if it was one of them.
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return torch.cat(pieces, dim) if dim < 0 else sum(pieces)  # type: ignore[return-value]

    @constraints.dependent_property
    def domain(self) -> Any:
        """The domains of the transforms."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        """The codomains of the transforms."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_SideBySide):
    """One transform for each slice of a tensor along `dim`.

    >>> D = torch.distributions
    >>> D.StackTransform([D.ExpTransform(), D.AffineTransform(0.0, 2.0)])(torch.tensor([0.0, 1.0]))
    tensor([1., 2.])
    """

    def with_cache(self, cache_size=1) -> Any:
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _parts(self, value):
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for {value.dim()}-dimensional tensor")
        if value.size(self.dim) != len(self.transforms):
            raise AssertionError(
                f"size {value.size(self.dim)} at dim {self.dim} does not match number of transforms "
                f"{len(self.transforms)}"
            )
        return value.unbind(self.dim)

    def _joined(self, parts):
        return torch.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x, y) -> torch.Tensor:
        parts = zip(self.transforms, self._parts(x), self._parts(y))
        return self._joined([t.log_abs_det_jacobian(before, after) for t, before, after in parts])

    @constraints.dependent_property
    def domain(self) -> Any:
        """The domains of the transforms."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        """The codomains of the transforms."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
