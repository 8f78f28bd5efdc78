"""Signatures of ops as text: `"sum(input, dim: dims = None, keepdim: bool = False)"`, read into parameters.

A parameter without an annotation is a tensor (optional if its default is None), `tensors` marks a list of tensors, and
any other annotation marks a plain value, which is passed to the kernel unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

TENSOR, OPTIONAL, LIST, PLAIN_VALUE = "tensor", "optional tensor", "list of tensors", "plain value"


class Param(NamedTuple):
    """One parameter of an op."""

    name: str
    kind: str
    annotation: str  # as written; "" for tensors
    default: str  # as written; "" if it is required
    keyword: bool  # only by keyword

    @property
    def is_tensor(self) -> bool:
        return self.kind is not PLAIN_VALUE


def parse(signature: str) -> tuple[str, tuple[Param, ...]]:
    """The name and parameters of `"name(a, b=None, dim: int = 0, *, flag: bool = False)"`."""
    name, _, inside = signature[:-1].partition("(")
    return name, _params(inside)


@cache  # every second op has the parameters of another one
def _params(inside: str) -> tuple[Param, ...]:
    params, keyword = [], False
    for part in split_outside_brackets(inside):
        if part == "*":
            keyword = True
            continue
        left, _, default = part.partition("=")
        param, _, annotation = left.partition(":")
        annotation, default = annotation.strip(), default.strip()
        kind = PLAIN_VALUE if annotation else OPTIONAL if default == "None" else TENSOR
        if annotation == "tensors":
            kind = LIST
        params.append(Param(param.strip(), kind, annotation, default, keyword))
    return tuple(params)


def split_outside_brackets(text: str) -> list[str]:
    """`"a, b=(1, 2)"` as `["a", "b=(1, 2)"]`."""
    parts, depth, start = [], 0, 0
    if "(" not in text and "[" not in text:
        return [part.strip() for part in text.split(",")] if text else []
    for i, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if text else []


def arguments_of(function: Callable) -> tuple[str, ...]:
    """The names of a function's parameters."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def with_names(function: Any, *names: str) -> FunctionType:
    """The same function with other names for its first parameters: rows read from these what to save."""
    code = function.__code__
    code = code.replace(co_varnames=(*names, *code.co_varnames[len(names) :]))
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.named_before = function  # type: ignore[attr-defined]  # by which its source is found (viz/formulas.py)
    return made
