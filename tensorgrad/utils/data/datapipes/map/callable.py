"""The datapipe that calls a function with each sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import MapDataPipe
from tensorgrad.utils.data.datapipes.utils.common import _check_unpickable_fn

__all__ = ["MapperMapDataPipe", "default_fn"]


def default_fn(data: Any) -> Any:
    """Returns what it is given."""
    return data


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe):
    """Applies a function to each sample (method `map`).

    Args:
        datapipe: The samples.
        fn: The function.

    >>> from tensorgrad.utils.data.datapipes.map import SequenceWrapper
    >>> list(SequenceWrapper([1, 2]).map(str))
    ['1', '2']
    """

    def __init__(self, datapipe: Any, fn: Callable = default_fn) -> None:
        _check_unpickable_fn(fn)
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)
