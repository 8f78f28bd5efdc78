"""Infers the schema of an operator from the annotations of the Python function: `torch.library.infer_schema`."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Union

from tensorgrad.devices import device
from tensorgrad.dtypes import dtype
from tensorgrad.tensor import Tensor

__all__ = ["infer_schema"]

_SINGLE: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", dtype: "ScalarType", device: "Device",
}  # fmt: skip
_SCALAR = frozenset((int, float, bool))
_LISTED = ("Tensor", "SymInt", "float", "bool", "Scalar")  # of which there may be lists
_OPTIONAL_LISTS = ("SymInt[]", "float[]", "bool[]")
_RETURNED = ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar")


def infer_schema(prototype_function: Callable, /, *, mutates_args: Any, op_name: str | None = None) -> str:
    """Returns the schema of an operator that a function implements, from its annotations.

    Args:
        prototype_function: the function.
        mutates_args: the names of the arguments that it writes to, or "unknown": maybe all of them.
        op_name: the name of the operator, if it is to be part of the schema.

    Raises:
        ValueError: If an annotation is missing, or of a type that operators do not have.

    >>> def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    ...     return x * by
    >>> torch.library.infer_schema(scaled, mutates_args=())
    '(Tensor x, float by=2.0) -> Tensor'
    """
    signature = inspect.signature(prototype_function)
    hints = _hints(prototype_function)
    shown = signature.replace(
        parameters=[p.replace(annotation=hints.get(p.name, p.annotation)) for p in signature.parameters.values()],
        return_annotation=hints.get("return", signature.return_annotation),
    )

    def refuse(what: str) -> ValueError:
        return ValueError(f"infer_schema(func): {what} Got func with signature {shown})")

    parts: list[str] = []
    only = False
    for i, (name, p) in enumerate(signature.parameters.items()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise refuse("We do not support positional-only args, varargs, or varkwargs.")
        if p.kind is p.KEYWORD_ONLY and not only:
            parts.append("*")
            only = True
        if p.annotation is p.empty:
            raise refuse(f"Parameter {name} must have a type annotation.")
        annotation = hints.get(name, p.annotation)
        kind = _kind(annotation)
        if kind is None:
            if typing.get_origin(annotation) is tuple:
                raise refuse(
                    f"Parameter {name} has unsupported type {annotation}. We do not support Tuple inputs in schema. As "
                    "a workaround, please try to use List instead."
                )
            raise refuse(f"Parameter {name} has unsupported type {annotation}.")
        if (mutates_args == "unknown" and kind.startswith("Tensor")) or (
            mutates_args != "unknown" and name in mutates_args
        ):
            if not kind.startswith("Tensor"):
                raise refuse(
                    f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated"
                )
            kind = f"Tensor(a{i}!){kind.removeprefix('Tensor')}"
        parts.append(f"{kind} {name}" + ("" if p.default is p.empty else f"={_default(p.default, name, refuse)}"))
    if mutates_args != "unknown":
        unknown = set(mutates_args) - set(signature.parameters)
        if unknown:
            raise refuse(
                f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args should "
                "contain the names of all args that the custom op mutates, or just the string 'unknown' if you "
                "don't know."
            )
    if signature.return_annotation is signature.empty:
        raise refuse("No return type annotation was provided. Please add one.")
    return f"{op_name or ''}({', '.join(parts)}) -> {_returns(hints.get('return'), refuse)}"


def _hints(function: Callable) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # a name that only the function's own scope knows
        return {n: a for n, a in getattr(function, "__annotations__", {}).items() if not isinstance(a, str)}


def _kind(annotation: Any) -> str | None:
    """The schema's type for an annotation; None if there is none."""
    try:
        if annotation in _SINGLE:
            return _SINGLE[annotation]
    except TypeError:
        return None
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        others = [a for a in inside if a is not type(None)]
        if set(others) == _SCALAR:
            return "Scalar" if len(others) == len(inside) else "Scalar?"
        if len(others) != 1 or len(others) == len(inside):
            return None
        kind = _kind(others[0])
        return f"{kind}?" if kind in (*_SINGLE.values(), *_OPTIONAL_LISTS) else None
    if origin in (list, Sequence) and len(inside) == 1:
        kind = _kind(inside[0])
        return f"{kind}[]" if kind in (*_LISTED, "Tensor?") else None
    return None


def _default(value: Any, name: str, refuse: Callable) -> str:
    if value is None or isinstance(value, int | float | bool):
        return str(value)
    if isinstance(value, str | device):
        return f'"{value}"'
    if isinstance(value, dtype):
        return str(value).removeprefix("torch.")
    raise refuse(
        f"Parameter {name} has an unsupported default value type {type(value)}. Please file an issue on "
        "GitHub so we can prioritize this."
    )


def _returns(annotation: Any, refuse: Callable) -> str:
    if annotation in (None, type(None)):
        return "()"
    kind = _kind(annotation)
    if kind in _RETURNED:
        return str(kind)
    if typing.get_origin(annotation) is tuple:
        inside = typing.get_args(annotation)
        kinds = [_kind(item) for item in inside]
        if all(kind in _RETURNED for kind in kinds):
            return f"({', '.join(map(str, kinds))})" if len(kinds) != 1 else f"({kinds[0]})"
    raise refuse(f"Return has unsupported type {annotation}.")
