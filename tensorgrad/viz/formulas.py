"""Readable text from an op's row: its signature, what it computes, and the source of its derivatives."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import NamedTuple

from tensorgrad.autograd.function import FunctionCtx
from tensorgrad.autograd.graph import Node
from tensorgrad.autograd.views import CopySlices
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS
from tensorgrad.rows.op import Op
from tensorgrad.rows.signature import arguments_of

MOST_LINES = 24


class Formula(NamedTuple):
    """An op in words and formulas. `derivatives` has (input, source text) pairs."""

    signature: str
    summary: str
    derivatives: list[tuple[str, str]]
    twin: str = ""


def of_node(node: Node) -> Formula:
    """Describes what a node computed and how its gradients are found.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> formula = of_node(x.exp().grad_fn)
    >>> formula.signature, formula.derivatives
    ('exp(input)', [('input', 'g * conj(out)')])
    """
    if isinstance(node, FunctionCtx):
        function = node.function
        derivative = _definition(function.backward)
        return Formula(f"{function.__name__}.apply(...)", first_sentence(function.__doc__), [("", derivative)])
    if isinstance(node, CopySlices):
        summary = (
            "A write through a view: gradients of the written part flow through the write, the rest pass unchanged."
        )
        return Formula(node.name(), summary, [])
    op = node.op
    if not isinstance(op, Op):
        return Formula(node.name(), "", [])
    derivatives = [(name, source(formula)) for name, formula in op.formulas.items() if name in op.wrt]
    if op.backward is not None:
        derivatives = [(", ".join(op.wrt), source(op.backward))]
    public = FUNCTIONAL.get(op.name) or FUNCTIONS.get(op.name)
    summary = first_sentence(op.doc) or first_sentence(getattr(public, "__doc__", ""))
    if summary.startswith(f"{op.name}("):  # a row without a description: its docstring starts with the signature again
        summary = ""
    return Formula(op.signature, summary, derivatives, source(op.twin) if op.twin else "")


def first_sentence(doc: str | None) -> str:
    """Returns the first paragraph of a docstring, on one line.

    >>> first_sentence("One\\n    thing.\\n\\n    More.")
    'One thing.'
    """
    return " ".join((doc or "").strip().split("\n\n")[0].split())


@functools.lru_cache(maxsize=4096)
def source(function: Callable) -> str:
    """Returns the source of a formula: the expression of a lambda, or the definition of a function.

    Long definitions are truncated. Returns "" if the source is not available.
    """
    if (before := getattr(function, "named_before", None)) is not None:
        renamed = dict(zip(arguments_of(before), arguments_of(function)))
        return re.sub(r"\b[^\W\d]\w*", lambda word: renamed.get(word[0], word[0]), source(before))
    code = function.__code__
    for node in _functions(code.co_filename).get(code.co_firstlineno, ()):
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if names != [*arguments_of(function)]:
            continue
        if isinstance(node, ast.Lambda) and function.__name__ == "<lambda>":
            return " ".join(_text(code.co_filename, node.body).split())
        if isinstance(node, ast.FunctionDef) and function.__name__ == node.name:
            return shortened(" " * node.col_offset + _text(code.co_filename, node))
    return ""


def _definition(function: Callable) -> str:
    try:
        return shortened(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


def shortened(text: str) -> str:
    """Truncates text to at most 24 lines, and dedents it."""
    lines = textwrap.dedent(text).rstrip().split("\n")
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], "..."])


@functools.lru_cache(maxsize=64)
def _tree(path: str) -> tuple[str, ast.Module | None]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return text, ast.parse(text)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return "", None


@functools.lru_cache(maxsize=64)
def _functions(path: str) -> dict[int, list]:
    """Returns the functions and lambdas of a file, by their first line."""
    found: dict[int, list] = {}
    tree = _tree(path)[1]
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            decorated = getattr(node, "decorator_list", None)
            found.setdefault(decorated[0].lineno if decorated else node.lineno, []).append(node)
    return found


def _text(path: str, node: ast.AST) -> str:
    return ast.get_source_segment(_tree(path)[0], node) or ""
