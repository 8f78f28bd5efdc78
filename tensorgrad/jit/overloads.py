"""Functions and methods that `torch.jit._overload` and `_overload_method` declare for several types of arguments."""

from __future__ import annotations

import inspect
from typing import Any

_DECLARED: dict[str, list[Any]] = {}


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def declare(function: Any) -> Any:
    """Remembers one declaration, and returns it. The function of the same name that follows has the source."""
    if not inspect.isfunction(function):
        return function
    found = _DECLARED.setdefault(_name(function), [])
    if found and found[-1].__code__.co_firstlineno >= function.__code__.co_firstlineno:
        found.clear()  # the class is made once more
    found.append(function)
    return function


def of(function: Any) -> tuple[Any, ...]:
    """The declarations for a function; none if it has only one form."""
    return tuple(_DECLARED.get(_name(function), ()))
