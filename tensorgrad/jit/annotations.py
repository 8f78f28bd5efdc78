"""`torch.jit.annotations`: types for scripted functions.

They are Python's. `BroadcastingList2[int]` is a list, or an int for each of its elements.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, TypeVar, Union  # noqa: UP035  (PyTorch's module has these names)

T = TypeVar("T")
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = Union[List[T], T]  # noqa: UP006, UP007

__all__ = [
    "Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple", "Union",
]  # fmt: skip
