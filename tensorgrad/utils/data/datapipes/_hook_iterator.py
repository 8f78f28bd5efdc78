"""One iterator at a time: what reads a datapipe anew ends the iterator before, and errors name the datapipe."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

_RAISED_IN = "This exception is thrown by __iter__ of"
_NAMED = (_RAISED_IN, "This iterator has been invalidated")  # messages with them name a datapipe


def described(pipe: Any) -> str:
    """Returns a datapipe with the arguments that it was made with, as far as it keeps them."""
    names = sorted(set(inspect.signature(type(pipe).__init__).parameters) & set(vars(pipe)))
    values = ((name, vars(pipe)[name]) for name in names)
    given = (f"{name}={value.__name__ if inspect.isfunction(value) else repr(value)}" for name, value in values)
    return f"{type(pipe).__name__}({', '.join(given)})"


def one_at_a_time(function: Callable[[Any], Iterator]) -> Callable[[Any], Iterator]:
    """Returns the `__iter__` of a datapipe whose own one is `function`."""
    if not inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def begin(pipe: Any) -> Iterator:
            return _Checked(pipe, pipe._begin(), function(pipe))

        return begin

    @functools.wraps(function)
    def generate(pipe: Any) -> Iterator:
        number = pipe._begin()
        items = function(pipe)
        while True:
            try:
                item = next(items)
            except StopIteration:
                return
            except Exception as error:
                _name(pipe, error)
                raise
            pipe._number_of_samples_yielded += 1
            yield item
            pipe._require(number)

    return generate


def _name(pipe: Any, error: Exception) -> None:
    """Says in an error which datapipe raised it. A first argument that is not a text stays: a program may read it."""
    first = error.args[0] if error.args else ""
    if isinstance(first, str) and not any(words in first for words in _NAMED):
        error.args = (f"{first}\n{_RAISED_IN} {described(pipe)}", *error.args[1:])


class _Checked(Iterator):
    """The iterator of a datapipe whose `__iter__` is not a generator."""

    def __init__(self, pipe: Any, number: int, items: Iterator) -> None:
        self._pipe, self._number, self._items = pipe, number, items

    def __next__(self) -> Any:
        self._pipe._require(self._number)
        item = next(self._items)
        self._pipe._number_of_samples_yielded += 1
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)
