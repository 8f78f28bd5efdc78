"""What `help`, `inspect` and tooltips show as the parameters of a function that is made from a row: those of PyTorch.

The functions themselves cannot say it: until it is first called, a function only stands for the real one, and that has
defaults of its own, to tell what was left out. A signature is made when it is asked for, since there are hundreds.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from tensorgrad.dispatch.templates import has_out
from tensorgrad.rows.op import Op
from tensorgrad.rows.signature import LIST, OPTIONAL, Param

Parameter = inspect.Parameter
# What a row calls the values of a parameter -> what they are, in Python's terms.
TYPES = {
    "int": "int", "float": "float", "bool": "bool", "number": "Number", "str": "str",
    "dims": "int | Sequence[int] | None", "shape": "int | Sequence[int]", "dtype": "dtype | None",
}  # fmt: skip
OPERAND = "Tensor | Number"


class Promised(inspect.Signature):
    """A signature that is made when one of its parts is first read."""

    __slots__ = ("_make",)
    _make: Callable[[], inspect.Signature]

    def __getattr__(self, name: str) -> Any:
        if name not in inspect.Signature.__slots__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        made: Any = self._make()
        for slot in inspect.Signature.__slots__:
            setattr(self, slot, getattr(made, slot))
        return getattr(self, name)


def promise(function: Callable, make: Callable[[], inspect.Signature]) -> None:
    """Lets a function show the signature that `make` returns.

    >>> import inspect
    >>> str(inspect.signature(torch.cumsum)).replace("'", "")
    '(input: Tensor, dim: int, *, dtype: dtype | None = None, out: Tensor | None = None) -> Tensor'
    >>> str(inspect.signature(torch.Tensor.tril_)).replace("'", "")
    '(self, diagonal: int = 0) -> Tensor'
    """
    signature = Promised.__new__(Promised)
    signature._make = make
    function.__signature__ = signature  # type: ignore[attr-defined]


def of_row(op: Op) -> inspect.Signature:
    """The signature of the function of a row."""
    given, keyword = [], False
    numbers = op.kind == "pointwise" and sum(p.is_tensor for p in op.params) > 1
    for i, p in enumerate(op.params):
        keyword = keyword or p.keyword
        given.append(
            Parameter(
                p.name,
                Parameter.KEYWORD_ONLY if keyword else Parameter.POSITIONAL_OR_KEYWORD,
                default=_value(p.default) if p.default else Parameter.empty,
                annotation=_type(p, numbers and i > 0),
            )
        )
    one = len(op.outputs) == 1
    if has_out(op):
        stored = "Tensor | None" if one else "tuple[Tensor, ...] | None"
        given.append(Parameter("out", Parameter.KEYWORD_ONLY, default=None, annotation=stored))
    several = f"tuple[{', '.join(['Tensor'] * len(op.outputs))}]"
    return inspect.Signature(given, return_annotation="Tensor" if one else several)


def in_place(of: inspect.Signature, first: str = "self", without: str = "out") -> inspect.Signature:
    """The signature of the in-place form of a function: the tensor first, and nowhere else to store the result."""
    before, *rest = of.parameters.values()
    kept = [p for p in rest if p.name != without]
    receiver = Parameter(
        first, before.kind if before.kind is Parameter.POSITIONAL_ONLY else Parameter.POSITIONAL_OR_KEYWORD
    )
    return inspect.Signature([receiver, *kept], return_annotation="Tensor")


def of_operator(op: Op) -> inspect.Signature:
    """The signature of the method behind `a + b`, or `-a`."""
    operands = list(in_place(of_row(op)).parameters.values())[: 2 if len(op.params) > 1 else 1]
    return inspect.Signature(operands, return_annotation="Tensor")


def _value(text: str) -> Any:
    """A default, from how it is written in a row."""
    try:
        return ast.literal_eval(text)
    except ValueError:
        return _Written(text)


class _Written:
    """A default that is not a literal; prints as written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _type(p: Param, numbers: bool) -> Any:
    if p.kind is LIST:
        return "Sequence[Tensor]"
    if p.is_tensor:
        return (OPERAND if numbers else "Tensor") + (" | None" if p.kind is OPTIONAL else "")
    found = TYPES.get(p.annotation)
    if found is None:
        return Parameter.empty
    return f"{found} | None" if p.default == "None" and "None" not in found else found
