"""The settings of a parameter group, and values derived from them, cached between steps."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np

from tensorgrad.optim.flags import is_up
from tensorgrad.tensor import Tensor

_NEVER = object()
_CONSTANT = {float, int, bool, str, NoneType}


class Constants:
    """The coefficients of a step as zero-dimensional NumPy arrays, for updates of arrays of one dtype.

    This halves the time of an operation on a small array, as every operation would convert a Python scalar again.
    `None` and booleans are not converted.

    Attributes:
        t: the step.
        n: the constants under the names of the coefficients (as slots, which are faster to read than a named tuple).
    """

    __slots__ = ("_dtype", "_last", "n", "t")

    def __init__(self, dtype: np.dtype, names: tuple[str, ...]) -> None:
        half = dtype.itemsize == 2  # computed in float32
        self._dtype = np.dtype("float32") if half else np.empty(0, dtype).real.dtype
        self._last: Any = None  # the coefficients that they were made from
        self.n: Any = _slots(names)()
        self.t: Any = _NEVER

    def become(self, t: Any, coefficients: Any) -> None:
        """Updates the constants to the coefficients of step `t`, as far as they changed."""
        n, last = self.n, self._last or (_NEVER,) * len(coefficients)
        self._last = None  # if a conversion fails, all are converted again next time
        for name, new, old in zip(coefficients._fields, coefficients, last, strict=True):
            if new != old:
                kept = getattr(n, name, None)
                if new is None or new.__class__ is bool:
                    setattr(n, name, new)
                elif kept.__class__ is np.ndarray:
                    kept[()] = new
                else:
                    setattr(n, name, np.array(new, self._dtype))
        self.t, self._last = t, coefficients


@lru_cache
def _slots(names: tuple[str, ...]) -> type:
    return type("Coefficients", (), {"__slots__": names})


class Settings:
    """A group's settings at its last step, with values that can be reused while they do not change.

    Attributes:
        starts: the entries of a parameter's state: `{name: the function that creates it}`.
        names: the entries that the update takes, in its order; `None` for those that these settings do not need.
        seen: the settings themselves.
        steady: whether all of them are immutable, unlike lists and tensors.
        flagged: whether one of PyTorch's flags is set, which requires checks.
        ready: `{parameter: (its array, temporaries like it, constants)}` for small parameters.
    """

    __slots__ = (
        "_coefficients",
        "_constants",
        "_keys",
        "_read",
        "flagged",
        "names",
        "ready",
        "seen",
        "starts",
        "steady",
    )

    def __init__(self, optimizer: Any, group: dict[str, Any]) -> None:
        known = {*optimizer.defaults, *optimizer._flags.missing}
        self._keys = [name for name in group if name in known]
        self._read = itemgetter(*self._keys)
        self._constants: dict[np.dtype, Constants] = {}
        self.ready: dict[Tensor, tuple[Any, tuple, Constants]] = {}
        self._renew(optimizer, group)

    def follow(self, optimizer: Any, group: dict[str, Any]) -> None:
        """Updates everything if a setting changed. Raises: KeyError if a setting was removed."""
        if not self.steady or self._read(group) != self.seen:
            self._renew(optimizer, group)

    def _renew(self, optimizer: Any, group: dict[str, Any]) -> None:
        self.steady = False  # until everything below has succeeded
        self.seen = self._read(group)
        self.starts = starts = optimizer._initial_state(group)
        self.names: list[Any] = [name if name in starts else None for name in optimizer._state_arrays]
        self.flagged = is_up(group)
        self._coefficients: tuple | None = None
        for constants in self._constants.values():
            constants.t = _NEVER
        self.steady = _steady(self.seen)

    def coefficients(self, optimizer: Any, group: dict[str, Any], t: Any) -> Any:
        """Returns the coefficients of step `t`."""
        made = self._coefficients
        if made is None or made[0] != t:
            if not self.steady:  # a setting may be a tensor
                group = dict(zip(self._keys, map(_plain, self.seen), strict=True))
            made = self._coefficients = t, optimizer._coefficients_at(group, t)
        return made[1]

    def constants(self, dtype: np.dtype, coefficients: Any) -> Constants:
        """Returns the constants for arrays of this dtype, named like `coefficients`; maybe those of another step."""
        made = self._constants.get(dtype)
        if made is None:
            made = self._constants[dtype] = Constants(dtype, coefficients._fields)
        return made


def _steady(values: tuple) -> bool:
    """Returns whether all settings are immutable, unlike lists and tensors."""
    for value in values:
        if value.__class__ not in _CONSTANT and not (value.__class__ is tuple and _steady(value)):
            return False
    return True


def _plain(value: Any) -> Any:
    return tuple(map(as_scalar, value)) if value.__class__ is tuple else as_scalar(value)


def as_scalar(value: Any) -> Any:
    """Converts a setting that is a one-element tensor to a scalar of its dtype, with which PyTorch computes."""
    return value._array.dtype.type(value.item()) if isinstance(value, Tensor) else value
