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

_WORDS = {
    "id",
    "attr",
    "arg",
    "name",
    "ctx",
    "kind",
    "simple",
    "type_comment",
}  # fields that hold no node that is looked at


def _children(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node in which there are nodes."""
    if kind is ast.Constant:
        return ()
    return tuple(field for field in kind._fields if field not in _WORDS)


ALLOWED: dict[type[ast.AST], tuple[str, ...]] = {
    kind: _children(kind)
    for kind in (
        ast.Module, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AnnAssign,
        ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.With, ast.withitem, ast.Expr, ast.Pass, ast.BoolOp,
        ast.And, ast.Or, ast.UnaryOp, ast.USub, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv,
        ast.Mod, ast.Pow, ast.IfExp, ast.Dict, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
        ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.Call, ast.keyword, ast.Constant, ast.Attribute, ast.Subscript,
        ast.Name, ast.List, ast.Tuple,
    )
}  # fmt: skip


class File(NamedTuple):
    """A file of a program: its name in the archive, its lines, its tree, and the variables that each function sets."""

    name: str
    lines: list[str]
    tree: ast.Module
    variables: dict[ast.FunctionDef, list[str]]

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
    file = File(name, source.replace("\r\n", "\n").replace("\r", "\n").split("\n"), tree, {})
    _check(file)
    return file


def _check(file: File) -> None:
    """Refuses what no program has, and notes the variables of each function.

    A list takes the place of a recursion: the depth is the file's choice.
    """
    left: list[tuple[ast.AST, ast.AST, int, list[str] | None]] = [(file.tree, file.tree, 0, None)]
    while left:
        node, parent, depth, variables = left.pop()
        kind = node.__class__
        fields = ALLOWED.get(kind)
        if fields is None or depth > DEEPEST:
            line = getattr(node, "lineno", getattr(parent, "lineno", 0))
            problem = f"the program has what TorchScript does not have: {kind.__name__}"
            raise ProgramError("the program is nested too deeply" if fields else problem, Place(file.name, line))
        if kind is ast.Name:
            if variables is not None and node.ctx.__class__ is ast.Store:  # type: ignore[attr-defined]
                variables.append(node.id)  # type: ignore[attr-defined]
            continue
        if kind is ast.FunctionDef and variables is None:
            variables = file.variables[node] = []  # type: ignore[index]
        depth += 1
        for field in fields:
            value = getattr(node, field)
            if value.__class__ is list:
                left.extend([(child, node, depth, variables) for child in value if child is not None])
            elif value is not None:
                left.append((value, node, depth, variables))
