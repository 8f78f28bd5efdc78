"""The source of a function or class as a tree, and what the names in it stand for."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from typing import Any

from tensorgrad.jit.scripting.errors import NotWritable, Place

MISSING = object()


class Source:
    """The source of a function.

    Attributes:
        tree: its tree. place: where it is.

    Raises: NotWritable if it has no source.
    """

    def __init__(self, function: Any) -> None:
        self.function = inspect.unwrap(function)
        if not inspect.isfunction(self.function):
            raise NotWritable(f"{function!r:.100} is not a function of Python")
        if self.function.__name__ == "<lambda>":
            raise NotWritable("a lambda has no source of its own")
        self.tree, self.place = tree_of(self.function)
        if not isinstance(self.tree, ast.FunctionDef):
            raise NotWritable(f"the source of {self.function.__qualname__} is not a function")
        code = self.function.__code__
        cells = zip(code.co_freevars, self.function.__closure__ or (), strict=True)
        self.outer = {name: cell for name, cell in cells}

    def look_up(self, name: str) -> Any:
        """What a name of the source stands for, or MISSING."""
        if name in self.outer:
            try:
                return self.outer[name].cell_contents
            except ValueError:
                return MISSING
        return self.function.__globals__.get(name, getattr(builtins, name, MISSING))


class ClassSource:
    """The names around a class."""

    def __init__(self, cls: type) -> None:
        self.names = vars(sys.modules.get(cls.__module__, builtins))
        self.place = Place(cls.__module__, 0, [])

    def look_up(self, name: str) -> Any:
        """What a name stands for, or MISSING."""
        return self.names.get(name, getattr(builtins, name, MISSING))


def tree_of(what: Any) -> tuple[Any, Place]:
    """The tree of a function or class, and its place. Raises: NotWritable."""
    try:
        lines, first = inspect.getsourcelines(what)
        file = inspect.getsourcefile(what) or "<unknown>"
    except (OSError, TypeError) as error:
        raise NotWritable(f"the source of {getattr(what, '__qualname__', what)} cannot be read: {error}") from None
    text = textwrap.dedent("".join(lines))
    try:
        found = ast.parse(text, type_comments=True).body
    except SyntaxError:
        try:
            found = ast.parse(text).body
        except SyntaxError as error:
            raise NotWritable(f"the source of {what.__qualname__} cannot be read: {error}") from None
    return found[0], Place(file, first - 1, text.split("\n"))
