"""`torch.jit.annotations`: types for scripted functions.

They are Python's, and lists for which a number stands, too: `BroadcastingList2[int]` is a list of two, or an int.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035  (PyTorch's module has these names)


class BroadcastingList1:
    """`BroadcastingList1[int]`: a list of one, or a number.

    >>> from tensorgrad.jit.annotations import BroadcastingList1
    >>> BroadcastingList1[int]
    tensorgrad.jit.annotations.BroadcastingList1[int]
    """

    __class_getitem__: Any = classmethod(GenericAlias)


class BroadcastingList2:
    """`BroadcastingList2[int]`: a list of two, or a number, which a scripted function gets as a list of it twice.

    >>> from tensorgrad.jit.annotations import BroadcastingList2
    >>> @torch.jit.script
    ... def area(size: BroadcastingList2[int]) -> int:
    ...     return size[0] * size[1]
    >>> @torch.jit.script
    ... def square(side: int) -> int:
    ...     return area(side)
    >>> square(3)
    9
    """

    __class_getitem__: Any = classmethod(GenericAlias)


class BroadcastingList3:
    """`BroadcastingList3[int]`: a list of three, or a number.

    >>> from tensorgrad.jit.annotations import BroadcastingList3
    >>> BroadcastingList3[float]
    tensorgrad.jit.annotations.BroadcastingList3[float]
    """

    __class_getitem__: Any = classmethod(GenericAlias)


BROADCASTING: dict[Any, int] = {BroadcastingList1: 1, BroadcastingList2: 2, BroadcastingList3: 3}

__all__ = [
    "Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple", "Union",
]  # fmt: skip
