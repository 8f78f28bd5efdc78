"""Schemas of operators: `ns::name.overload(Tensor x, int[] dims=[1], *, float? eps=None) -> Tensor`."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tensorgrad.devices import device
from tensorgrad.dtypes import BY_NAME, dtype
from tensorgrad.layouts import layout, memory_format
from tensorgrad.tensor import Tensor

__all__ = ["Argument", "FunctionSchema", "parse"]

_NUMBER = (bool, int, float, complex)
# The types that arguments may have -> what Python values fit.
_FITS: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda v: isinstance(v, Tensor),
    "int": lambda v: isinstance(v, int),
    "SymInt": lambda v: isinstance(v, int),
    "float": lambda v: isinstance(v, float | int),
    "bool": lambda v: isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "complex": lambda v: isinstance(v, _NUMBER),
    "Scalar": lambda v: isinstance(v, _NUMBER) or (isinstance(v, Tensor) and v.dim() == 0),
    "number": lambda v: isinstance(v, _NUMBER),
    "ScalarType": lambda v: isinstance(v, dtype | int),
    "Device": lambda v: isinstance(v, device | str | int),
    "Layout": lambda v: isinstance(v, layout | int),
    "MemoryFormat": lambda v: isinstance(v, memory_format | int),
    "Generator": lambda v: type(v).__name__ == "Generator",
    "Storage": lambda v: True,
    "Dimname": lambda v: isinstance(v, str),
    "Any": lambda v: True,
    "AnyEnumType": lambda v: True,
    "t": lambda v: True,
    "None": lambda v: v is None,
}
_ARGUMENT = re.compile(
    r"(?P<base>[A-Za-z_]\w*)(?:\((?P<alias>[^()]*)\)|(?P<written>!))?(?P<rest>(?:\?|\[\d*\])*)(?:\((?P<late>[^()]*)\))?"
    r"(?P<more>(?:\?|\[\d*\])*)\s*(?P<name>[A-Za-z_]\w*)?\s*(?:=\s*(?P<default>.+))?$",
    re.DOTALL,
)


class Argument(NamedTuple):
    """One argument, or one result: its name, type and default."""

    name: str
    type: str
    default_value: Any
    has_default: bool
    kwarg_only: bool
    alias: str | None

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self.has_default

    @property
    def is_write(self) -> bool:
        """Whether the operator writes to it."""
        return self.alias is not None and "!" in self.alias.partition("->")[0]

    @property
    def is_out(self) -> bool:
        """Whether it receives a result."""
        return self.is_write and self.kwarg_only

    def fits(self, value: Any) -> bool:
        """Whether a value is of this type."""
        return _fits(self.type, value)

    def __str__(self) -> str:
        base = re.match(r"\w+", self.type)
        assert base is not None
        kind = (
            self.type.replace("None", "NoneType")
            if self.alias is None
            else f"{base.group()}({self.alias}){self.type[base.end() :]}"
        )
        text = f"{kind} {self.name}" if self.name else kind
        return f"{text}={_shown(self.default_value, self.type)}" if self.has_default else text


def _fits(kind: str, value: Any) -> bool:
    if kind.endswith("?"):
        return value is None or _fits(kind[:-1], value)
    if kind.endswith("]"):
        inner = kind[: kind.rindex("[")]
        if kind[-2] != "[" and _fits(inner, value):  # `int[2]` takes one number for all
            return True
        return isinstance(value, list | tuple) and all(_fits(inner, item) for item in value)
    return _FITS[kind](value)


def _shown(value: Any, kind: str) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        text = f"{value:.17g}"
        return f"{text}." if re.fullmatch(r"-?\d+", text) else text
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(item, kind) for item in value)}]"
    return str(value).removeprefix("torch.")


class FunctionSchema(NamedTuple):
    """What an operator takes and returns.

    >>> from tensorgrad.library.schema import parse
    >>> schema = parse("ns::f.out(Tensor x, *, float? eps=None) -> Tensor")
    >>> schema.name, schema.overload_name, schema.arguments[1].type
    ('ns::f', 'out', 'float?')
    >>> print(schema)
    ns::f.out(Tensor x, *, float? eps=None) -> Tensor
    """

    name: str
    overload_name: str
    arguments: list[Argument]
    returns: list[Argument]
    several: bool = False  # whether the results are in parentheses: a tuple, also of one

    @property
    def is_mutable(self) -> bool:
        """Whether the operator writes to an argument."""
        return any(argument.is_write for argument in self.arguments)

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns all arguments of a call, by position and by keyword, with defaults filled in.

        Raises:
            RuntimeError: If they do not fit, as PyTorch says it.
        """
        positional = [a for a in self.arguments if not a.kwarg_only]
        total = len(args) + len(kwargs)
        if total > len(self.arguments):
            raise RuntimeError(
                f"{self.name}() expected at most {len(self.arguments)} argument(s) but received {total} argument(s). "
                f"Declaration: {self}"
            )
        if len(args) > len(positional):
            raise RuntimeError(
                f"{self.name}() takes {len(positional)} positional argument(s) but {len(args)} was/were given.  "
                f"Declaration: {self}"
            )
        given = dict(zip((a.name for a in positional), args, strict=False))
        known = {a.name for a in self.arguments}
        for name, value in kwargs.items():
            if name not in known:
                raise RuntimeError(
                    f"Unknown keyword argument '{name}' for operator '{self._full_name}'. Schema: {self}"
                )
            if name in given:
                raise RuntimeError(f"{self.name}() got multiple values for argument '{name}'. Declaration: {self}")
            given[name] = value
        values: dict[str, Any] = {}
        for position, argument in enumerate(self.arguments):
            if argument.name not in given:
                if not argument.has_default:
                    raise RuntimeError(
                        f"{self.name}() is missing value for argument '{argument.name}'. Declaration: {self}"
                    )
                values[argument.name] = argument.default_value
                continue
            value = given[argument.name]
            if not argument.fits(value):
                raise RuntimeError(self._misfit(argument, value, position))
            values[argument.name] = value
        return (
            [values[a.name] for a in positional],
            {a.name: values[a.name] for a in self.arguments if a.kwarg_only},
        )

    @property
    def _full_name(self) -> str:
        return f"{self.name}.{self.overload_name}" if self.overload_name else self.name

    def without_defaults(self, args: list[Any]) -> list[Any]:
        """Returns positional arguments without the last ones that are the defaults: what kernels are given."""
        given = list(args)
        while given:
            argument = self.arguments[len(given) - 1]
            last = given[-1]
            if not argument.has_default or type(last) is not type(argument.default_value):
                break
            if last is not argument.default_value and last != argument.default_value:
                break
            given.pop()
        return given

    def _misfit(self, argument: Argument, value: Any, position: int) -> str:
        kind = re.sub(r"^(.*)\?$", r"Optional[\1]", re.sub(r"^(\w+)\[\d*\]", r"List[\1]", argument.type))
        detail = (
            f"Unable to cast {value!r} to Tensor"
            if argument.type.startswith("Tensor")
            else (f"Unable to cast Python instance of type {type(value)} to C++ type")
        )
        return (
            f"{self.name}() Expected a value of type '{kind.replace('SymInt', 'int')}' for argument "
            f"'{argument.name}' but instead found type '{type(value).__name__}'.\nPosition: {position}\nValue: "
            f"{value!r}\nDeclaration: {self}\nCast error details: {detail}"
        )

    def __str__(self) -> str:
        parts = [str(a) for a in self.arguments]
        first = next((i for i, a in enumerate(self.arguments) if a.kwarg_only), None)
        if first is not None:
            parts.insert(first, "*")
        results = ", ".join(map(str, self.returns))
        return f"{self._full_name}({', '.join(parts)}) -> {f'({results})' if self.several else results}"


def parse(text: str) -> FunctionSchema:
    """Reads a schema.

    Raises:
        RuntimeError: If it is none, or has a type that does not exist.
    """
    opening = text.find("(")
    if opening < 0:
        raise RuntimeError("Tried to parse a function schema but only the operator name was given")
    closing = _closing(text, opening)
    full = text[:opening].strip()
    name, _, overload = full.partition(".")
    arrow = text[closing + 1 :].strip()
    if not re.fullmatch(r"(\w+::)?\w+", name) or not arrow.startswith("->"):
        raise RuntimeError(f"\nexpected a schema `name(Type argument, ...) -> Type`, but got:\n{text}")
    arguments, only = [], False
    unnamed = itertools.count()
    for part in _split(text[opening + 1 : closing]):
        if part == "*":
            only = True
        else:
            arguments.append(_argument(part, text, only, unnamed))
    returned = arrow[2:].strip()
    several = returned.startswith("(")
    results = _split(returned[1:-1] if several else returned)
    return FunctionSchema(
        name, overload, arguments, [_argument(part, text, False, unnamed) for part in results], several
    )


def _closing(text: str, opening: int) -> int:
    depth, quoted = 0, False
    for at in range(opening, len(text)):
        quoted ^= text[at] == '"'
        if quoted:
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise RuntimeError(f"\nexpected ) in a schema:\n{text}")


def _split(text: str) -> list[str]:
    """The parts between commas that are not within brackets."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, char in enumerate(text):
        quoted ^= char == '"'
        if quoted:
            continue
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _alias(annotation: str) -> str:
    """Returns the sets of an annotation as PyTorch prints them: the one after `->` only if it is another."""
    before, _, after = annotation.partition("->")
    before, after = before.strip(), after.strip()
    return f"{before} -> {after}" if after not in ("", before.rstrip("!")) else before


def _argument(part: str, text: str, only: bool, unnamed: Iterator[int]) -> Argument:
    found = _ARGUMENT.fullmatch(part)
    if found is None or found["base"] not in _FITS:
        wrong = found["base"] if found else part
        at = text.index(wrong)
        raise RuntimeError(
            "\nunknown type specifier. Common valid schema types include Tensor, SymInt, int, float, bool, Scalar"
            f":\n{text}\n{' ' * at}{'~' * len(wrong)} <--\n"
        )
    kind = found["base"] + (found["rest"] or "") + (found["more"] or "")
    alias: str | None
    if found["written"]:  # `Tensor!`: written to, and of no set that has a name
        alias = f"${next(unnamed)}! -> "
    else:
        annotation = found["alias"] if found["alias"] is not None else found["late"]
        alias = None if annotation is None else _alias(annotation)
    default = found["default"]
    value = None if default is None else _default(default.strip(), kind)
    return Argument(found["name"] or "", kind, value, default is not None, only, alias)


def _default(text: str, kind: str) -> Any:
    words = {"True": True, "False": False, "None": None, "inf": math.inf, "nan": math.nan}
    if text in words:
        return words[text]
    if kind.startswith("ScalarType") and text in BY_NAME:
        return BY_NAME[text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a name, such as that of a memory format
        return text
    if kind.startswith("float") and isinstance(value, int):
        return float(value)
    if kind.startswith("Device") and isinstance(value, str):
        return device(value)
    return value
