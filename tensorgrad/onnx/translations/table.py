"""The table of translations: the name of a row, and the function that translates it."""

from __future__ import annotations

from collections.abc import Callable

TABLE: dict[str, Callable] = {}


def translates(*names: str) -> Callable[[Callable], Callable]:
    """Enters a function into the table, for one or more rows."""

    def enter(function: Callable) -> Callable:
        for name in names:
            TABLE[name] = function
        return function

    return enter
