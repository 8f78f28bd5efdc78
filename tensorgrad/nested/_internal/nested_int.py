"""The size of a ragged dimension: a symbol that stands for the lengths of all pieces.

Two nested tensors have the same one if they were made with the same tensor of offsets (or of lengths): then op by op
their pieces fit each other, and nothing has to be compared.
"""

from __future__ import annotations

import itertools
from typing import Any, NoReturn

from tensorgrad.symbolic import SymInt
from tensorgrad.system import forks
from tensorgrad.tensor import Tensor
from tensorgrad.utils.weak import WeakTensorKeyDictionary

__all__ = ["SIZES", "NestedInt", "of_tensor", "share_size"]

_NUMBERS = itertools.count(1)
_LOCK = forks.lock()
SIZES: Any = WeakTensorKeyDictionary()  # offsets or lengths -> their size


class NestedInt(SymInt):
    """A ragged size, or a multiple of one. It equals itself; that it is at least 2 is all that is known of it.

    >>> n = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).size(1)
    >>> n == n, n == 2, n > 1
    (True, False, True)
    """

    __slots__ = ("factor", "number")

    number: int
    factor: int

    def __new__(cls, number: int, factor: int = 1) -> NestedInt:
        made = object.__new__(cls)
        made.number, made.factor = number, factor
        return made

    def __repr__(self) -> str:
        return f"j{self.number}" if self.factor == 1 else f"{self.factor}*j{self.number}"

    def __hash__(self) -> int:
        return hash((self.number, self.factor))

    def __reduce__(self) -> NoReturn:
        raise TypeError("the size of a ragged dimension cannot be pickled: it belongs to a tensor of offsets")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NestedInt) and (self.number, self.factor) == (other.number, other.factor)

    def __ge__(self, other: Any) -> bool:
        if isinstance(other, NestedInt) and other.number == self.number:
            return self.factor >= other.factor
        if isinstance(other, int) and other <= 2:
            return True
        raise ValueError("ge: relation is indeterminate")

    def __le__(self, other: Any) -> bool:
        if isinstance(other, NestedInt):
            return other >= self
        if isinstance(other, int) and other < 2:
            return False
        raise ValueError("ge: relation is indeterminate")

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __mul__(self, other: Any) -> NestedInt:
        if isinstance(other, int):
            return NestedInt(self.number, self.factor * other)
        raise ValueError(f"unsupported: {type(other)}")

    __rmul__ = __mul__

    def __bool__(self) -> bool:
        return True


def of_tensor(lengths_or_offsets: Tensor) -> NestedInt:
    """The size that stands for these lengths, or offsets: always the same for one tensor."""
    with _LOCK:
        if lengths_or_offsets not in SIZES:
            SIZES[lengths_or_offsets] = NestedInt(next(_NUMBERS))
        return SIZES[lengths_or_offsets]


def share_size(source: Tensor, copy: Tensor) -> Tensor:
    """Gives a copy of offsets, such as on another device, the same ragged size; returns it."""
    if copy is not source:
        size = of_tensor(source)
        with _LOCK:
            SIZES[copy] = size
    return copy
