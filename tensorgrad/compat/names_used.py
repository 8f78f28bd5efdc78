"""Reads which names of PyTorch's a Python file uses. The file is parsed and not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

PACKAGES = ("torch", "functorch")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Bound = dict[str, "str | None"]  # a variable -> the name of PyTorch's that it stands for; None: anything else


class Use(NamedTuple):
    """One place where a file uses a name of PyTorch's."""

    name: str  #: with its module, such as `torch.nn.Linear`
    line: int
    at_import: bool  #: whether it is used as soon as the file is imported, rather than when a function is called
    guarded: bool  #: whether the program is prepared for its absence: `try`, `hasattr`, `TYPE_CHECKING`


def names_used(source: str | bytes) -> list[Use]:
    """Returns the uses of PyTorch's names in a file, in the order of its lines.

    Raises:
        SyntaxError: If the file is not written in this version of Python.

    >>> from tensorgrad.compat.names_used import names_used
    >>> [use.name for use in names_used("from torch import nn as n; n.Linear(2, 3); import torch.fft as f; f.fft")]
    ['torch.nn', 'torch.nn.Linear', 'torch.fft', 'torch.fft.fft']
    """
    tree = ast.parse(source)
    reader = _Reader(_imported(tree))
    reader.body(tree.body)
    return sorted(reader.uses, key=lambda use: use.line)


def _is_torchs(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def _aliases(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """The variables that an import binds to something of PyTorch's: (variable, what it stands for, what is used)."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if _is_torchs(alias.name):
                first = alias.name.partition(".")[0]
                yield alias.asname or first, alias.name if alias.asname else first, alias.name
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and _is_torchs(node.module or ""):
        for alias in node.names:
            full = f"{node.module}.{alias.name}" if alias.name != "*" else str(node.module)
            yield alias.asname or alias.name, full, full


def _imported(tree: ast.AST) -> _Bound:
    """What the imports of a file bind, those in functions among them: they use one variable for one thing."""
    return {variable: full for node in ast.walk(tree) for variable, full, _ in _aliases(node)}


def _assigned(function: ast.AST) -> set[str]:
    """The variables of a function that are its own: parameters and what it assigns, imports excepted."""
    found: set[str] = set()
    inner = list(ast.iter_child_nodes(function))
    while inner:
        node = inner.pop()
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if not isinstance(node, (*_SCOPES, ast.ClassDef)):
            inner += ast.iter_child_nodes(node)
    return found


def _prepares(test: ast.AST) -> bool:
    """Whether a condition asks for something that may be absent: `hasattr(torch, "x")`, a version, a type checker."""
    text = ast.unparse(test)
    return any(word in text for word in ("hasattr", "TYPE_CHECKING", "version", "VERSION", "_available", "_AVAILABLE"))


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = ast.unparse(handler.type)
    return any(
        name in caught for name in ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "Runtime")
    )


class _Reader(ast.NodeVisitor):
    """Collects uses; knows whether it is in a function or in code that is prepared for absences."""

    def __init__(self, bound: _Bound) -> None:
        self.bound = bound
        self.uses: list[Use] = []
        self.at_import, self.guarded = True, False

    def body(self, nodes: list) -> None:
        for node in nodes:
            self.visit(node)

    def use(self, name: str, line: int) -> None:
        self.uses.append(Use(name, line, self.at_import, self.guarded))

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for _, _, used in _aliases(node):
            self.use(used, node.lineno)

    visit_ImportFrom = visit_Import

    def visit_Name(self, node: ast.Name) -> None:
        pass  # the module alone, such as an argument: its import was a use already

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        start = self.bound.get(inner.id) if isinstance(inner, ast.Name) else None
        if start is None:
            self.visit(inner)
            return
        if not isinstance(node.ctx, ast.Load):
            chain = chain[1:]  # what a program sets need not exist
        if chain:
            self.use(".".join([start, *reversed(chain)]), node.lineno)

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        if not isinstance(node, ast.Lambda):
            self.body(node.decorator_list)
            for annotation in (node.returns, *(argument.annotation for argument in _arguments(node.args))):
                if annotation is not None:
                    self.visit(annotation)
        self.body([default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None])
        outer = self.bound, self.at_import
        self.bound = {**self.bound, **dict.fromkeys(_assigned(node))}
        self.at_import = False
        self.body(node.body if isinstance(node.body, list) else [node.body])
        self.bound, self.at_import = outer

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _scope

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        outer = self.bound
        self.bound = {**outer, **dict.fromkeys(_assigned(node))}
        self.generic_visit(node)
        self.bound = outer

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    def _guarded(self, nodes: list, guarded: bool = True) -> None:
        outer = self.guarded
        self.guarded = outer or guarded
        self.body(nodes)
        self.guarded = outer

    def visit_Try(self, node: ast.Try) -> None:
        self._guarded(node.body, any(map(_catches, node.handlers)))
        self._guarded([*node.handlers, *node.orelse])  # what stands in for it, and what follows if it is there
        self.body(node.finalbody)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        prepared = _prepares(node.test)
        self.visit(node.test)
        for branch in (node.body, node.orelse):
            self._guarded(branch if isinstance(branch, list) else [branch], prepared)

    visit_IfExp = visit_If

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._guarded(node.values, _prepares(node))


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    rest = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]
