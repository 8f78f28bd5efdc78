"""`torch.jit.annotations`: types for scripted functions.

They are Python's. Nothing is scripted, so `BroadcastingList2[int]`, an int or a list of them, is not checked.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035  (PyTorch's module has these names)


class BroadcastingList1:
    """`BroadcastingList1[int]`: in Python, any value.

    >>> from tensorgrad.jit.annotations import BroadcastingList2
    >>> BroadcastingList2[int]
    typing.Any
    """

    def __class_getitem__(cls, kind: Any) -> Any:
        return Any


BroadcastingList2 = BroadcastingList3 = BroadcastingList1

__all__ = [
    "Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple", "Union",
]  # fmt: skip
