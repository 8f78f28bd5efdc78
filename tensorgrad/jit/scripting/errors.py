"""What is wrong with a source: it is not TorchScript, or this library cannot write it as such."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple


class FrontendError(Exception):
    """A source is not in TorchScript; the message shows the line."""

    __module__ = "torch.jit.frontend"


class NotSupportedError(FrontendError):
    """A source has a construct that TorchScript does not have."""

    __module__ = "torch.jit.frontend"


class UnsupportedNodeError(NotSupportedError):
    """A source has a kind of statement or expression that TorchScript does not have."""

    __module__ = "torch.jit.frontend"


class NotInTorchScript(RuntimeError):
    """A layer is none that TorchScript has, wherever it stands."""


class NotWritable(Exception):
    """A source may be TorchScript, but has no text as a program here. What is scripted then runs as Python."""


class Place(NamedTuple):
    """A line of a source: its file, the number of the line before the source, and its lines."""

    file: str
    before: int
    lines: list[str]

    def at(self, problem: str, node: ast.AST | None) -> str:
        """A message that shows the line of a node."""
        line = getattr(node, "lineno", 1)
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        column = getattr(node, "col_offset", len(text) - len(text.lstrip()))
        end = getattr(node, "end_col_offset", 0) if getattr(node, "end_lineno", line) == line else len(text)
        marks = " " * column + "~" * max(min(end, len(text)) - column, 1)
        return f'{problem}:\n  File "{self.file}", line {self.before + line}\n{text}\n{marks} <--- HERE'


def refused(place: Place, problem: str, node: Any, kind: type[Exception] = RuntimeError) -> Exception:
    """An error that names the line of a node."""
    return kind(place.at(problem, node))
