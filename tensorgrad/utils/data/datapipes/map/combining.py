"""Datapipes that join several into one."""

from __future__ import annotations

from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import MapDataPipe

__all__ = ["ConcaterMapDataPipe", "ZipperMapDataPipe"]


def _checked(datapipes: tuple) -> Any:
    if not datapipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, MapDataPipe) for pipe in datapipes):
        raise TypeError("Expected all inputs to be `MapDataPipe`")
    return datapipes


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe):
    """Has the samples of several datapipes one after another (method `concat`).

    >>> from tensorgrad.utils.data.datapipes.map import SequenceWrapper
    >>> list(SequenceWrapper([1, 2]).concat(SequenceWrapper("ab")))
    [1, 2, 'a', 'b']
    """

    def __init__(self, *datapipes: MapDataPipe) -> None:
        self.datapipes = _checked(datapipes)

    def __getitem__(self, index: int) -> Any:
        first = 0
        for pipe in self.datapipes:
            if index - first < len(pipe):
                return pipe[index - first]
            first += len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe):
    """Has tuples with one sample of each datapipe (method `zip`).

    >>> from tensorgrad.utils.data.datapipes.map import SequenceWrapper
    >>> list(SequenceWrapper([1, 2]).zip(SequenceWrapper("abc")))
    [(1, 'a'), (2, 'b')]
    """

    def __init__(self, *datapipes: MapDataPipe) -> None:
        self.datapipes = _checked(datapipes)

    def __getitem__(self, index: Any) -> tuple:
        parts = []
        for pipe in self.datapipes:
            try:
                parts.append(pipe[index])
            except IndexError as error:
                raise IndexError(f"Index {index} is out of range for one of the input MapDataPipes {pipe}.") from error
        return tuple(parts)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)
