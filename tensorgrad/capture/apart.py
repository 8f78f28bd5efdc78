"""Whether arrays share memory in a call as little as when its plan was made: a plan that writes depends on it.

What a plan reaches by itself are the same arrays in each call; arguments and gradients are others. Two arrays that own
their memory are apart, so mostly it is enough to compare owners.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.storage.cpu import owner_of
from tensorgrad.tensor import Tensor

_OWNERS = (np.ndarray, bytes, bytearray)  # two of these have no memory in common


class Apart:
    """Says whether the arguments of a call, and the gradients that its plan adds to, lie in memory of their own."""

    def __init__(self, arrays: list[Any], with_grad: list[tuple[Tensor, tuple]]) -> None:
        """`arrays` are those that the plan reaches by itself; `with_grad` leaves, and the layouts of their `.grad`."""
        self._arrays, self._with_grad = arrays, with_grad
        owners = [owner_of(a) for a in arrays]
        self._kept = owners
        self._known = frozenset(map(id, owners))
        self._plain = all(o.__class__ in _OWNERS for o in owners)

    def __call__(self, inputs: Any) -> bool:
        """Whether it is so; gradients have to have their layouts, too."""
        arrays = [t._array for t in inputs]
        for leaf, (shape, strides, dtype) in self._with_grad:
            grad = leaf._grad
            if grad is None or grad.__class__ is not Tensor:
                return False
            array = grad._array
            if (
                array.__class__ is not np.ndarray
                or array.shape != shape
                or array.strides != strides
                or array.dtype != dtype
            ):
                return False
            arrays.append(array)
        found = set()
        for array in arrays:
            owner = array if array.base is None else owner_of(array)
            if not self._plain or owner.__class__ not in _OWNERS:
                return self._compared(arrays)
            if id(owner) in self._known or id(owner) in found:
                return self._compared(arrays)
            found.add(id(owner))
        return True

    def _compared(self, arrays: list[Any]) -> bool:
        """The same by addresses."""
        for i, array in enumerate(arrays):
            if any(np.may_share_memory(array, other) for other in (*self._arrays, *arrays[:i])):
                return False
        return True
