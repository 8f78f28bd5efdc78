"""The types of a program: what its annotations say, and what a value from Python becomes under each.

Within a program dtypes, layouts and memory formats are numbers, as in PyTorch: they become that where they enter.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorgrad import devices, dtypes, layouts
from tensorgrad.tensor import Tensor

DTYPES: tuple[Any, ...] = tuple(
    dtypes.BY_NAME.get(name)
    for name in [
        "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
        "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2", "quint2x4", "bits1x8",
        "bits2x4", "bits4x2", "bits8", "bits16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz",
        "float8_e4m3fnuz", "uint16", "uint32", "uint64",
    ]
)  # fmt: skip  # the order in which PyTorch numbers them
LAYOUTS: tuple[Any, ...] = tuple(
    getattr(layouts, name, None)
    for name in ("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
)
FORMATS: tuple[Any, ...] = tuple(
    getattr(layouts, name) for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
)


def number_of(value: Any) -> Any:
    """The number that a dtype, layout or memory format is in a program; any other value itself."""
    for kind, table in ((dtypes.dtype, DTYPES), (layouts.layout, LAYOUTS), (layouts.memory_format, FORMATS)):
        if isinstance(value, kind) and value in table:
            return table.index(value)
    return value


class Mismatch(TypeError):
    """A value is not of the type that a program declares."""


class Type(NamedTuple):
    """A type: its name, what it is made of, and the class of the program that it names."""

    name: str
    parts: tuple[Type, ...] = ()
    cls: Any = None

    def accept(self, value: Any) -> Any:
        """The value as this type. Raises: Mismatch."""
        return ACCEPT[self.name](self, value)

    def holds(self, value: Any) -> bool:
        """Whether a value is of this type."""
        try:
            return HOLDS[self.name](self, value)
        except KeyError:
            return True

    def __str__(self) -> str:
        if self.cls is not None:
            return str(self.cls.name)
        return self.name + (f"[{', '.join(map(str, self.parts))}]" if self.parts else "")


def _only(*classes: type, but: tuple[type, ...] = ()) -> Callable[[Type, Any], Any]:
    def accept(kind: Type, value: Any) -> Any:
        if isinstance(value, classes) and not isinstance(value, but):
            return value
        raise Mismatch

    return accept


def _int(kind: Type, value: Any) -> int:
    value = number_of(value)
    if isinstance(value, int):
        return value
    if hasattr(value, "__index__") and not isinstance(value, Tensor):
        return int(value)
    raise Mismatch


def _float(kind: Type, value: Any) -> float:
    if isinstance(value, int | float) or (hasattr(value, "__float__") and not isinstance(value, Tensor | str)):
        return float(value)
    raise Mismatch


def _complex(kind: Type, value: Any) -> complex:
    if isinstance(value, int | float | complex):
        return complex(value)
    raise Mismatch


def _list(kind: Type, value: Any) -> list:
    if isinstance(value, str | bytes | dict | Tensor) or not hasattr(value, "__iter__"):
        raise Mismatch
    return [kind.parts[0].accept(v) for v in value]


def _dict(kind: Type, value: Any) -> dict:
    if not isinstance(value, dict):
        raise Mismatch
    return {kind.parts[0].accept(k): kind.parts[1].accept(v) for k, v in value.items()}


def _tuple(kind: Type, value: Any) -> tuple:
    if not isinstance(value, tuple) or len(value) != len(kind.parts):
        raise Mismatch
    return tuple(part.accept(v) for part, v in zip(kind.parts, value, strict=True))


def _optional(kind: Type, value: Any) -> Any:
    return None if value is None else kind.parts[0].accept(value)


def _union(kind: Type, value: Any) -> Any:
    for part in kind.parts:
        if part.holds(value):
            return part.accept(value)
    raise Mismatch


def _device(kind: Type, value: Any) -> Any:
    if isinstance(value, str | devices.device):
        return devices.device(value)
    raise Mismatch


def _class(kind: Type, value: Any) -> Any:
    return kind.cls.accept(value)


def _any(kind: Type, value: Any) -> Any:
    return number_of(value)


ACCEPT: dict[str, Callable[[Type, Any], Any]] = {
    "Tensor": _only(Tensor), "int": _int, "float": _float, "complex": _complex, "str": _only(str), "bool": _only(bool),
    "number": _only(int, float, complex), "Scalar": _only(int, float, complex), "List": _list, "Dict": _dict,
    "Tuple": _tuple, "Optional": _optional, "Union": _union, "Device": _device, "NoneType": _only(type(None)),
    "class": _class,
    **dict.fromkeys(("Any", "AnyList", "AnyTuple", "AnyClassType", "Future", "Await", "RRef", "Generator", "Stream",
                     "Storage", "Layout", "MemoryFormat", "ScalarType", "QScheme", "Capsule", "PyObject", "t"), _any),
}  # fmt: skip
HOLDS: dict[str, Callable[[Type, Any], bool]] = {
    "Tensor": lambda kind, v: isinstance(v, Tensor),
    "int": lambda kind, v: isinstance(v, int) and not isinstance(v, bool),
    "float": lambda kind, v: isinstance(v, float),
    "complex": lambda kind, v: isinstance(v, complex),
    "bool": lambda kind, v: isinstance(v, bool),
    "str": lambda kind, v: isinstance(v, str),
    "number": lambda kind, v: isinstance(v, int | float | complex) and not isinstance(v, bool),
    "Scalar": lambda kind, v: isinstance(v, int | float | complex) and not isinstance(v, bool),
    "NoneType": lambda kind, v: v is None,
    "Device": lambda kind, v: isinstance(v, devices.device),
    "List": lambda kind, v: isinstance(v, list) and all(kind.parts[0].holds(e) for e in v),
    "AnyList": lambda kind, v: isinstance(v, list),
    "AnyTuple": lambda kind, v: isinstance(v, tuple),
    "Dict": lambda kind, v: (
        isinstance(v, dict) and all(kind.parts[0].holds(k) and kind.parts[1].holds(e) for k, e in v.items())
    ),
    "Tuple": lambda kind, v: (
        isinstance(v, tuple)
        and len(v) == len(kind.parts)
        and all(part.holds(e) for part, e in zip(kind.parts, v, strict=True))
    ),
    "Optional": lambda kind, v: v is None or kind.parts[0].holds(v),
    "Union": lambda kind, v: any(part.holds(v) for part in kind.parts),
    "class": lambda kind, v: kind.cls.holds(v),
}
PARTS = {"List": 1, "Dict": 2, "Optional": 1, "Future": 1, "Await": 1, "RRef": 1}
ANY_OF = {"list": "AnyList", "tuple": "AnyTuple"}  # what `isinstance` asks for: with parts of any type
ANY = Type("Any")


def read_type(node: ast.expr | None, find: Callable[[str, ast.AST], Any], refuse: Callable[..., Exception]) -> Type:
    """Returns the type that an annotation names. `find` returns a class of the program."""
    if node is None:
        return ANY
    if isinstance(node, ast.Constant) and node.value is None:
        return Type("NoneType")
    if isinstance(node, ast.Name) and node.id in ANY_OF:
        return Type(ANY_OF[node.id])
    if isinstance(node, ast.Name) and node.id in ACCEPT and node.id not in PARTS and node.id != "class":
        return Type(node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        name = node.value.id
        given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = tuple(read_type(part, find, refuse) for part in given)
        if name == "Final" and len(parts) == 1:
            return parts[0]
        if len(parts) == PARTS.get(name, -1) or name in ("Tuple", "Union"):
            return Type(name, parts)
    path = dotted(node)
    if path is not None and path.startswith("__torch__."):
        return Type("class", (), find(path, node))
    raise refuse(f"unknown type {ast.unparse(node)[:200]}", node)


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of a chain of attributes of a name, else None."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(names)])
