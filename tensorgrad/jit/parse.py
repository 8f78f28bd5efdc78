"""The text of an archive's program: a subset of Python, of which Python's own parser makes a tree, and no more.

Nothing is compiled or executed by Python. The tree may have the kinds of nodes listed here; compiling.py turns them
into functions. Everything else is refused with its file and line.
"""

from __future__ import annotations

import ast
import warnings
from typing import NamedTuple

from tensorgrad.jit.errors import Place, ProgramError

LONGEST = 8 << 20  # bytes of all files of a program: what a tree takes is some hundred times its text
DEEPEST = 200  # nodes inside each other, blocks included

ALLOWED = tuple(
    getattr(ast, name)
    for name in [
        "Module", "ClassDef", "FunctionDef", "arguments", "arg", "Return", "Assign", "AnnAssign", "For",
        "While", "If", "With", "withitem", "Expr", "Pass", "BoolOp", "And", "Or", "UnaryOp", "USub", "Not",
        "BinOp", "Add", "Sub", "Mult", "Div", "FloorDiv", "Mod", "Pow", "IfExp", "Dict", "Compare", "Eq",
        "NotEq", "Lt", "LtE", "Gt", "GtE", "Is", "IsNot", "In", "NotIn", "Call", "keyword", "Constant",
        "Attribute", "Subscript", "Name", "List", "Tuple", "Load", "Store",
    ]
)  # fmt: skip


class File(NamedTuple):
    """A file of a program: its name in the archive, its lines, and its tree."""

    name: str
    lines: list[str]
    tree: ast.Module

    def at(self, node: ast.AST, function: str = "") -> Place:
        """The place of a node."""
        return Place(self.name, getattr(node, "lineno", 0), function)

    def line(self, number: int) -> str:
        """The text of a line."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    def text(self, node: ast.stmt) -> str:
        """The lines of a statement."""
        return "\n".join(self.lines[node.lineno - 1 : node.end_lineno])


def parse(name: str, text: bytes) -> File:
    """Returns the tree of a file.

    Raises: ProgramError if it is not Python, or has what no program of TorchScript has.
    """
    try:
        source = text.decode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, about what a program does in its text
            tree = ast.parse(source, name)
    except SyntaxError as error:
        raise ProgramError(f"the program cannot be read: {error.msg}", Place(name, error.lineno or 0)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        why = str(error) or "it is nested too deeply"
        raise ProgramError(f"the program cannot be read: {why}", Place(name, 0)) from None
    # The lines that Python counts: `splitlines` would count form feeds too.
    file = File(name, source.replace("\r\n", "\n").replace("\r", "\n").split("\n"), tree)
    _check(file)
    return file


def _check(file: File) -> None:
    """Refuses what no program has. (A list in place of a recursion: the depth is the file's choice.)"""
    left: list[tuple[ast.AST, int, int]] = [(file.tree, 0, 0)]
    while left:
        node, depth, line = left.pop()
        line = getattr(node, "lineno", line)
        if depth > DEEPEST:
            raise ProgramError("the program is nested too deeply", Place(file.name, line))
        if not isinstance(node, ALLOWED):
            kind = type(node).__name__
            raise ProgramError(f"the program has what TorchScript does not have: {kind}", Place(file.name, line))
        left.extend((child, depth + 1, line) for child in ast.iter_child_nodes(node))
