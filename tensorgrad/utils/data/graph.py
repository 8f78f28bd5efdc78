"""The graph of a datapipe: which datapipes it is made of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]

DataPipe = IterDataPipe | MapDataPipe
DataPipeGraph = dict[int, tuple[Any, "DataPipeGraph"]]


def traverse_dps(datapipe: DataPipe) -> DataPipeGraph:
    """Returns a datapipe's graph: its `id` -> (it, the graphs of those in its attributes and their collections).

    Raises:
        RuntimeError: If it is not a datapipe.

    >>> from tensorgrad.utils.data.graph import traverse_dps
    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> pipe = IterableWrapper([1, 2]).map(str)
    >>> source = pipe.datapipe
    >>> traverse_dps(pipe) == {id(pipe): (pipe, {id(source): (source, {})})}
    True
    """
    return _graph(datapipe, True, frozenset())


def traverse(datapipe: DataPipe, only_datapipe: bool | None = None) -> DataPipeGraph:
    """`traverse_dps`, by its older name; unless `only_datapipe`, other objects in attributes are searched too."""
    told = "`traverse` function is deprecated and will be removed after 1.13. Please use `traverse_dps` instead."
    if not only_datapipe:
        told += " And, the behavior will be changed to the equivalent of `only_datapipe=True`."
    warnings.warn(told, FutureWarning, stacklevel=2)
    return _graph(datapipe, bool(only_datapipe), frozenset())


def _graph(pipe: Any, only_pipes: bool, above: frozenset[int]) -> DataPipeGraph:
    if not isinstance(pipe, DataPipe):
        raise RuntimeError(f"Expected `IterDataPipe` or `MapDataPipe`, but {type(pipe)} is found")
    if id(pipe) in above:
        return {}
    above |= {id(pipe)}
    graph: DataPipeGraph = {}
    seen: set[int] = set()
    for value in vars(pipe).values():
        for inner in _inside(value, only_pipes, seen):
            graph.update(_graph(inner, only_pipes, above))
    return {id(pipe): (pipe, graph)}


def _inside(value: Any, only_pipes: bool, seen: set[int]) -> Iterator[Any]:
    """Yields the datapipes in an attribute: it, those in collections and, unless `only_pipes`, in other objects."""
    if isinstance(value, DataPipe):
        yield value
        return
    if isinstance(value, str | bytes | bytearray | range | type) or id(value) in seen:
        return
    seen.add(id(value))
    parts: Any = ()
    if isinstance(value, dict):
        parts = (*value.keys(), *value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif not only_pipes and hasattr(value, "__dict__") and not callable(value):
        parts = vars(value).values()
    for part in parts:
        yield from _inside(part, False, seen)
