"""`Size`: the shape of a tensor, a tuple that knows how many elements it describes."""

from __future__ import annotations

import math


class Size(tuple):
    """A tensor's shape; a tuple in every respect, plus `numel()`.

    >>> import tensorgrad as torch
    >>> torch.zeros(2, 3).shape
    torch.Size([2, 3])
    >>> torch.Size([2, 3]).numel()
    6
    """

    __slots__ = ()

    def numel(self) -> int:
        """The product of the sizes: 1 for an empty shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, index):
        item = tuple.__getitem__(self, index)
        return Size(item) if isinstance(index, slice) else item

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __mul__(self, times):
        return Size(tuple.__mul__(self, times))

    def __reduce__(self):
        return Size, (tuple(self),)
