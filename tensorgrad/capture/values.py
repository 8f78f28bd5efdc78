"""Tensors in nested arguments and results: lists, tuples, dicts, dataclasses, and what `torch.utils._pytree` knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.tensor import Tensor
from tensorgrad.utils import _pytree


def tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in a value, in order."""
    found: list[Tensor] = []
    mapped(value, found.append)
    return iter(found)


def mapped(value: Any, change: Callable[[Tensor], Any], call: Callable = lambda cls, *a, **k: cls(*a, **k)) -> Any:
    """A value with `change` applied to the tensors in it. `call` makes the objects that are not plain containers.

    >>> from tensorgrad.capture.values import mapped
    >>> mapped({"a": [torch.ones(2), 3]}, lambda t: t.shape)
    {'a': [torch.Size([2]), 3]}
    """

    def inner(v: Any) -> Any:
        return mapped(v, change, call)

    if isinstance(value, Tensor):
        return change(value)
    cls = value.__class__
    if cls in (list, tuple):
        return cls([inner(v) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return cls(*[inner(v) for v in value])
    if cls is dict:
        return {k: inner(v) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        if isinstance(value, dict):  # a ModelOutput of transformers leaves out what is None
            fields = {name: v for name, v in fields.items() if v is not None}
        return call(cls, **{name: inner(v) for name, v in fields.items()})
    if not _pytree.tree_is_leaf(value):
        leaves, spec = _pytree.tree_flatten(value)
        return call(_pytree.tree_unflatten, [inner(v) for v in leaves], spec)
    return value
