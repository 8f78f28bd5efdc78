"""`Size`: the shape of a tensor, a tuple with a method for the number of elements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import index as as_int
from typing import Any, SupportsIndex, overload

SYMBOLS: list[type] = []  # classes that stand for a size that is not known


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple with the additional method `numel()`.

    Args:
        sizes: integers.

    >>> torch.zeros(2, 3).shape
    torch.Size([2, 3])
    >>> torch.Size([2, 3]).numel()
    6
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        made = tuple.__new__(cls, sizes)
        for n in made:
            if n.__class__ is not int:
                return tuple.__new__(cls, [n if isinstance(n, int) else _as_int(i, n) for i, n in enumerate(made)])
        return made

    def numel(self) -> int:
        """Returns the product of the sizes: 1 for an empty shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Size: ...
    def __getitem__(self, index):
        item = tuple.__getitem__(self, index)
        return new_size(Size, item) if item.__class__ is tuple else item

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else self._not_a_tuple(other)

    def __radd__(self, other: Any) -> Any:
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def _not_a_tuple(self, other):
        if hasattr(other, "__array_interface__"):  # NumPy adds arrays and its numbers to each size
            return NotImplemented
        raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")

    def __mul__(self, times: SupportsIndex) -> Size:
        return new_size(Size, tuple.__mul__(self, times))

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


def _as_int(i: int, value):
    """A size that is not an int as one, unless it is a symbol.

    Raises: TypeError if it is not an integer.
    """
    if isinstance(value, tuple(SYMBOLS)):
        return value
    if not hasattr(value, "__index__"):
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {i} is '{type(value).__name__}')")
    return as_int(value)


new_size = tuple.__new__  # `new_size(Size, shape)`: of sizes that need no check, such as an array's
