"""Types of TorchScript: of annotations in a source, of Python's values, and how they relate."""

from __future__ import annotations

import ast
import enum
import types
import typing
from collections.abc import Callable
from typing import Any

from tensorgrad import devices, dtypes, layouts
from tensorgrad.jit.annotations import BROADCASTING
from tensorgrad.jit.declared import SCRIPTED
from tensorgrad.jit.scripting.errors import NotWritable
from tensorgrad.jit.scripting.source import MISSING
from tensorgrad.jit.types import Type
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

TENSOR, INT, FLOAT, BOOL, STR, NONE = (Type(n) for n in ("Tensor", "int", "float", "bool", "str", "NoneType"))
COMPLEX, NUMBER, DEVICE, ANY = Type("complex"), Type("number"), Type("Device"), Type("Any")
PLAIN: dict[Any, Type] = {
    Tensor: TENSOR, int: INT, float: FLOAT, bool: BOOL, str: STR, None: NONE, type(None): NONE, complex: COMPLEX,
    devices.device: DEVICE, dtypes.dtype: INT, layouts.layout: INT, layouts.memory_format: INT, Any: ANY,
    Size: Type("List", (INT,)),
}  # fmt: skip
BY_NAME: dict[str, Any] = {
    "Tensor": Tensor, "Optional": typing.Optional, "List": list, "Dict": dict, "Tuple": tuple, "Union": typing.Union,
    "Any": Any, "Final": typing.Final,
}  # fmt: skip
ORIGINS: dict[Any, str] = {
    list: "List", dict: "Dict", tuple: "Tuple", typing.Union: "Union", types.UnionType: "Union",
    **dict.fromkeys(BROADCASTING, "List"),
}  # fmt: skip


def list_of(kind: Type) -> Type:
    """`List[kind]`."""
    return Type("List", (kind,))


def tuple_of(*kinds: Type) -> Type:
    """`Tuple[kinds]`."""
    return Type("Tuple", kinds)


def optional(kind: Type) -> Type:
    """`Optional[kind]`."""
    return kind if kind.name in ("Optional", "NoneType", "Any") else Type("Optional", (kind,))


def within(kind: Type) -> Type:
    """The type without None."""
    return kind.parts[0] if kind.name == "Optional" else kind


def fits(kind: Type, wanted: Type) -> bool:
    """Whether a value of one type may stand where another is wanted."""
    if kind == wanted or wanted.name == "Any":
        return True
    if wanted.name == "Optional":
        return kind.name == "NoneType" or fits(within(kind), wanted.parts[0])
    if wanted.name == "Union":
        return any(fits(kind, part) for part in wanted.parts)
    if wanted.name == "number":
        return kind.name in ("int", "float", "complex")
    if wanted.name == "Tuple" and kind.name == "Tuple":
        return len(kind.parts) == len(wanted.parts) and all(map(fits, kind.parts, wanted.parts))
    if wanted.cls is not None and kind.cls is not None:
        return wanted.cls.is_interface_of(kind.cls)
    return False


def joined(one: Type, other: Type) -> Type | None:
    """The type of what is of one type or of another, or None."""
    if fits(one, other):
        return other
    if fits(other, one):
        return one
    if "NoneType" in (one.name, other.name) or "Optional" in (one.name, other.name):
        inner = joined(
            within(one if one.name != "NoneType" else other), within(other if other.name != "NoneType" else one)
        )
        return None if inner is None else optional(inner)
    if one.name == other.name == "Tuple" and len(one.parts) == len(other.parts):
        parts = [joined(a, b) for a, b in zip(one.parts, other.parts, strict=True)]
        return None if None in parts else Type("Tuple", tuple(p for p in parts if p is not None))
    return None


def of_annotation(annotation: Any, classes: Callable[[type], Type | None], scope: Any) -> Type:
    """The type that an annotation, as an object or as a text, stands for. Raises: NotWritable."""
    if isinstance(annotation, str):
        return of_node(ast.parse(annotation.strip(), mode="eval").body, classes, scope)
    if isinstance(annotation, typing.ForwardRef):
        return of_annotation(annotation.__forward_arg__, classes, scope)
    try:
        if annotation in PLAIN:
            return PLAIN[annotation]
    except TypeError:
        pass
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Final:
        return of_annotation(args[0], classes, scope)
    if origin in ORIGINS:
        return _made(ORIGINS[origin], [of_annotation(a, classes, scope) for a in args])
    if isinstance(annotation, type):
        found = classes(annotation)
        if found is not None:
            return found
    raise NotWritable(f"unknown type {annotation!r:.100}")


def _made(name: str, parts: list[Type]) -> Type:
    if name == "Union":
        rest = [p for p in parts if p != NONE]
        made = rest[0] if len(rest) == 1 else Type("Union", tuple(rest))
        return optional(made) if len(rest) < len(parts) else made
    if name in ("List", "Dict") and len(parts) != (1 if name == "List" else 2):
        raise NotWritable(f"the type {name} needs the types of what it contains")
    return Type(name, tuple(parts))


def of_node(node: ast.expr, classes: Callable[[type], Type | None], scope: Any) -> Type:
    """The type that the tree of an annotation stands for. Raises: NotWritable."""
    if isinstance(node, ast.Constant):
        return NONE if node.value is None else of_annotation(node.value, classes, scope)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _made("Union", [of_node(n, classes, scope) for n in (node.left, node.right)])
    if isinstance(node, ast.Subscript):
        base = _object(node.value, scope)
        given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base is typing.Final:
            return of_node(given[0], classes, scope)
        parts = [of_node(n, classes, scope) for n in given] if given else []
        if base is typing.Optional:
            return optional(parts[0])
        origin = typing.get_origin(base) or base
        if origin in ORIGINS:
            return _made(ORIGINS[origin], parts)
        raise NotWritable(f"unknown type {ast.unparse(node)[:100]}")
    return of_annotation(_object(node, scope), classes, scope)


def repeats(annotation: Any, scope: Any) -> int:
    """How often a number stands in the list that an annotation such as `BroadcastingList2[int]` makes of it; or 0."""
    origin = typing.get_origin(annotation)
    if isinstance(annotation, str) and annotation.endswith("]"):
        try:
            origin = _object(ast.parse(annotation.partition("[")[0].strip(), mode="eval").body, scope)
        except (NotWritable, SyntaxError):
            return 0
    return BROADCASTING.get(origin, 0) if isinstance(origin, type) else 0


def _object(node: ast.expr, scope: Any) -> Any:
    found = MISSING
    if isinstance(node, ast.Name):
        found = scope.look_up(node.id)
        if found is MISSING:  # a name that is only in annotations is not among those that a function keeps
            found = BY_NAME.get(node.id, MISSING)
    elif isinstance(node, ast.Attribute):
        found = getattr(_object(node.value, scope), node.attr, MISSING)
    if found is MISSING:
        raise NotWritable(f"unknown type {ast.unparse(node)[:100]}")
    return found


def of_value(value: Any, classes: Callable[[type], Type | None]) -> Type:
    """The type of a value of Python. Raises: NotWritable."""
    if isinstance(value, tuple) and not isinstance(value, Size):
        if hasattr(value, "_fields"):
            found = classes(type(value))
            if found is not None:
                return found
        return Type("Tuple", tuple(of_value(v, classes) for v in value))
    if isinstance(value, list | Size) and value:
        kinds = {of_value(v, classes) for v in value}
        if len(kinds) == 1:
            return list_of(kinds.pop())
    if isinstance(value, dict) and value:
        keys, kinds = {of_value(v, classes) for v in value}, {of_value(v, classes) for v in value.values()}
        if len(keys) == len(kinds) == 1:
            return Type("Dict", (keys.pop(), kinds.pop()))
    for cls in (type(value), *type(value).__mro__):
        if cls in PLAIN:
            return PLAIN[cls]
    if isinstance(value, enum.Enum) or type(value) in SCRIPTED:
        found = classes(type(value))
        if found is not None:
            return found
    raise NotWritable(f"a value of type {type(value).__name__} has no type in TorchScript: {value!r:.60}")
