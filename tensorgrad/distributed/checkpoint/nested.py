"""Nested state dicts as flat ones, whose names are the keys with dots between them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import tensorgrad as torch

__all__ = ["flatten_state_dict", "set_element"]

Path = tuple[Any, ...]


def _is_one_value(value: Any) -> bool:
    """Whether a value is kept whole: everything but dicts, and lists that hold tensors or dicts."""
    if isinstance(value, Mapping):
        return False
    if not isinstance(value, list):
        return True
    return all(not isinstance(item, torch.Tensor) and _is_one_value(item) for item in value)


def flatten_state_dict(state_dict: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """Returns the values by their names, and for each name the path of keys.

    Raises:
        ValueError: two values have the same name.
    """
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}

    def visit(path: Path, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                visit((*path, str(key)), item)
        elif _is_one_value(value):
            name = ".".join(map(str, path))
            if name in flat:
                raise ValueError(f"duplicated flatten key {name}")
            flat[name], paths[name] = value, path
        else:
            for index, item in enumerate(value):
                visit((*path, index), item)

    visit((), state_dict)
    return flat, paths


def set_element(nested: Any, path: Path, value: Any) -> None:
    """Puts a value at a path, and makes the dicts and lists on the way. Keys may be strings of other keys."""
    here = nested
    for key, following in pairwise(path):
        key = _prepared(here, key)
        if (isinstance(here, list) and here[key] is None) or (isinstance(here, dict) and key not in here):
            here[key] = [] if type(following) is int else {}
        here = here[key]
    here[_prepared(here, path[-1])] = value


def _prepared(container: Any, key: Any) -> Any:
    """The key to use, after a list has been made long enough."""
    if isinstance(container, list):
        container += [None] * (key + 1 - len(container))
        return key
    if key in container:
        return key
    return next((known for known in container if str(known) == key), key)
