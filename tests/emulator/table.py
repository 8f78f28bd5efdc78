"""Reads `cupy_names.txt`: the names and parameters of the real CuPy."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path

P = inspect.Parameter


@cache
def rows() -> dict[str, tuple[str, str]]:
    """name -> (kind, what is known of it)"""
    found = {}
    for line in Path(__file__).with_name("cupy_names.txt").read_text().splitlines():
        if not line.startswith("#"):
            kind, name, rest = (line + "  ").split(" ", 2)
            found[name] = kind, rest.strip()
    return found


@cache
def signature(name: str) -> inspect.Signature:
    """The parameters of a function. `bind` raises TypeError for what CuPy's function does not take."""
    made, keywords = [], False
    for part in filter(None, rows()[name][1].split(", ")):
        if part == "*":
            keywords = True
        elif part == "..." or part.startswith("**"):
            if part == "...":
                made.append(P("args", P.VAR_POSITIONAL))
            made.append(P("kwargs", P.VAR_KEYWORD))
        elif part.startswith("*"):
            made.append(P(part[1:], P.VAR_POSITIONAL))
            keywords = True
        else:
            kind = P.KEYWORD_ONLY if keywords else P.POSITIONAL_OR_KEYWORD
            made.append(P(part.rstrip("="), kind, default=None if part.endswith("=") else P.empty))
    return inspect.Signature(made)


def bound(name: str, args: tuple, kwargs: dict) -> tuple[list, dict]:
    """A call's arguments: those without a default by position, all others by name. Raises: TypeError as CuPy does."""
    found = signature(name)
    try:
        given = found.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"cupy.{name}: {error}") from None
    by_position, by_name = [], {}
    for key, value in given.items():
        parameter = found.parameters[key]
        if parameter.kind is P.VAR_POSITIONAL:
            by_position += value
        elif parameter.kind is P.VAR_KEYWORD:
            by_name |= value
        elif parameter.default is P.empty and parameter.kind is P.POSITIONAL_OR_KEYWORD:
            by_position.append(value)
        else:
            by_name[key] = value
    return by_position, by_name
