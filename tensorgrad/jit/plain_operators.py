"""The operators of a program on what is not a tensor: numbers, strings, lists, dicts, devices.

PyTorch's names, and what they compute: not always what Python's function of that name does.
"""

from __future__ import annotations

import math
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorgrad.jit.errors import Error
from tensorgrad.tensor import Tensor

PERCENT = ("%", "s", "r", "d", "i", "f", "F", "e", "E", "c", "g", "G")  # what may follow a % in a format
LONGEST = 1 << 28  # elements of a list or characters of a string that a product makes


def _mul(a: Any, b: Any) -> Any:
    for one, times in ((a, b), (b, a)):
        if isinstance(one, list | str) and isinstance(times, int) and len(one) * times > LONGEST:
            raise ValueError(f"a {type(one).__name__} of more than {LONGEST:,} elements")
    return a * b


def _pow(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return float(a) ** b if b < 0 or (abs(a) > 1 and b > 63) else float(a**b)
    return a**b


def shown(value: Any) -> str:
    """A value as the text that a program makes of it: all digits of a float, strings within lists as they are."""
    if isinstance(value, float):
        if math.isfinite(value) and abs(value) < 1e10 and value == int(value):
            return f"{int(value)}."
        return f"{value:.17g}"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{shown(k)}: {shown(v)}" for k, v in value.items()) + "}"
    return str(value)


def _print(*values: Any) -> None:
    print(*map(shown, values))


def _format(text: str, *values: Any) -> str:
    """`text` with a value in place of each {}. (Nothing else that Python's `format` does.)"""
    parts = text.split("{}")
    if len(parts) - 1 > len(values):
        raise IndexError("too few arguments for a format string")
    return "".join(part + (shown(v) if more else "") for part, v, more in _with_values(parts, values))


def _with_values(parts: list[str], values: tuple) -> list[tuple[str, Any, bool]]:
    return [(part, values[i] if i < len(parts) - 1 else None, i < len(parts) - 1) for i, part in enumerate(parts)]


def _percent(text: str, *values: Any) -> str:
    values = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
    for specifier in re.findall("%(.?)", text, re.DOTALL):
        if specifier not in PERCENT:  # no widths: they may ask for any amount of memory
            raise ValueError(f"The specifier %{specifier} is not supported in TorchScript format strings")
    found = re.findall("%(.)", text, re.DOTALL)
    kinds = [specifier for specifier in found if specifier != "%"]
    plain = (v.item() if isinstance(v, Tensor) else v for v in values)
    return text % tuple(_formatted(v, kind) for v, kind in zip(plain, kinds, strict=True))


def _formatted(value: Any, kind: str) -> Any:
    """What `%` writes for a specifier: floats have the digits of 32 bits there, as in PyTorch."""
    if kind in "sr":
        return shown(value)
    return float(np.float32(value)) if kind in "fFeEgG" else value


def _slice(a: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return a[start:end:step]


def _put(container: Any, key: Any, value: Any) -> Any:
    container[key] = value
    return container


def _delete(container: Any, key: Any) -> None:
    del container[key]


def _sort(a: list, reverse: bool = False) -> None:
    if a and isinstance(a[0], Tensor):
        a.sort(key=lambda t: t.item(), reverse=reverse)
    else:
        a.sort(key=_comparable, reverse=reverse)


class _comparable:
    """A value of a list that is sorted: objects are compared by their own `__lt__`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Any) -> bool:
        if hasattr(self.value, "_method"):
            return bool(self.value._method("__lt__").run((self.value, other.value)))
        return self.value < other.value


def _sorted(a: Any) -> list:
    made = list(a)
    _sort(made)
    return made


def _pop(container: Any, *key: Any) -> Any:
    return container.pop(*key)


def _derived(index: int, start: int, step: int) -> int:
    return start + index * step


def _rounded(x: float) -> float:
    return float(round(x))


def _least(a: Any, *b: Any) -> Any:
    return min(a, *b)


def _greatest(a: Any, *b: Any) -> Any:
    return max(a, *b)


def _raise(message: str = "", kind: Any = None) -> None:
    raise Error(f"{'RuntimeError' if kind is None else kind}: {message}")


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(str(message), stacklevel=2)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list) and a and isinstance(a[0], Tensor):
        return len(a) == len(b) and all(bool((x == y).all()) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _same(a: Any, b: Any) -> bool:
    return a is b


def _is_in(container: Any, key: Any) -> bool:
    return any(_equal(key, k) for k in container) if isinstance(container, list) else key in container


def _dictionary(pairs: Any = ()) -> dict:
    return dict(pairs)


def _remove(a: list, value: Any) -> None:
    for i, found in enumerate(a):
        if _equal(found, value) if not isinstance(value, Tensor) else bool((found == value).all()):
            del a[i]
            return
    raise ValueError("list.remove(x): x not in list")


def _split(text: str, separator: str | None = None, most: int = -1) -> list[str]:
    return text.split(separator, most)


def _join(text: str, parts: list[str]) -> str:
    return text.join(parts)


def _find(text: str, part: str, start: int = 0, end: int = -1) -> int:
    return text.find(part, start, len(text) if end == -1 else end)


def _rfind(text: str, part: str, start: int = 0, end: int = -1) -> int:
    return text.rfind(part, start, len(text) if end == -1 else end)


LINES = "\n\r\v\f\x1c\x1d\x1e"


def _splitlines(text: str, keep: bool = False) -> list[str]:
    """Lines; each separator is one of its own, as in PyTorch, and an element of its own if it is kept."""
    parts = re.split(f"([{LINES}])", text)
    parts = parts[:-1] if not parts[-1] else parts
    return parts if keep else parts[::2]


def _string(name: str) -> Callable[..., Any]:
    function = getattr(str, name)

    def run(text: str, *args: Any) -> Any:
        if not isinstance(text, str):
            raise TypeError(f"{name}: expected a string, but got {type(text).__name__}")
        result = function(text, *args)
        return list(result) if name in ("partition", "rpartition") else result

    return run


def _log(x: Any, base: Any = None) -> float:
    return math.log(x) if base is None else math.log(x, base)


PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add, "add_": operator.iadd, "sub": operator.sub, "mul": _mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "__round_to_zero_floordiv": lambda a, b: int(a / b),
    "remainder": operator.mod, "fmod": math.fmod, "mathremainder": math.remainder, "pow": _pow,
    "neg": operator.neg, "abs": abs, "fabs": math.fabs,
    "eq": _equal, "ne": lambda a, b: not _equal(a, b), "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "__is__": _same, "__isnot__": lambda a, b: a is not b, "__not__": operator.not_,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "bitwise_not": operator.invert,
    "__lshift__": operator.lshift, "__rshift__": operator.rshift,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "logical_not": operator.not_, "divmod": divmod,
    "floor": math.floor, "ceil": math.ceil, "round": _rounded, "trunc": math.trunc,
    "sqrt": math.sqrt, "exp": math.exp, "expm1": math.expm1, "log": _log, "log2": math.log2, "log10": math.log10,
    "log1p": math.log1p, "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos,
    "atan": math.atan, "atan2": math.atan2, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh,
    "asinh": math.asinh, "acosh": math.acosh, "atanh": math.atanh, "degrees": math.degrees, "radians": math.radians,
    "erf": math.erf, "erfc": math.erfc, "gamma": math.gamma, "lgamma": math.lgamma, "factorial": math.factorial,
    "gcd": math.gcd, "copysign": math.copysign, "hypot": math.hypot, "ldexp": math.ldexp, "frexp": math.frexp,
    "modf": math.modf, "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite,
    "Int": int, "Float": float, "Bool": bool, "Complex": complex, "str": shown, "chr": chr, "ord": ord, "hex": hex,
    "bin": bin, "oct": oct, "hash": hash, "len": len, "list": list, "dict": _dictionary,
    "any": any, "all": all, "sum": sum, "print": _print, "max": _greatest, "min": _least,
    "format": _format, "percentFormat": _percent, "warn": _warn,
    "__derive_index": _derived, "__range_length": lambda low, high, step: len(range(low, high, step)),
    # lists, dicts and strings
    "__getitem__": operator.getitem, "_set_item": _put, "Delete": _delete, "__contains__": _is_in,
    "append": lambda a, value: a.append(value) or a, "extend": lambda a, more: a.extend(more),
    "insert": lambda a, place, value: a.insert(place, value), "remove": _remove, "reverse": lambda a: a.reverse(),
    "clear": lambda a: a.clear(), "copy": lambda a: a.copy(), "pop": _pop, "popitem": lambda a: a.popitem(),
    "index": lambda a, value, *bounds: a.index(value, *bounds),
    "count": lambda a, value, *bounds: a.count(value, *bounds),
    "sort": _sort, "sorted": _sorted, "slice": _slice, "select": lambda a, at: a[at],
    "keys": lambda a: list(a.keys()), "values": lambda a: list(a.values()), "items": lambda a: list(a.items()),
    "get": lambda a, key, default=None: a.get(key, default),
    "setdefault": lambda a, key, value: a.setdefault(key, value), "update": lambda a, more: a.update(more),
    "split": _split, "splitlines": _splitlines, "join": _join, "find": _find, "rfind": _rfind,
    **{name: _string(name) for name in (
        "capitalize", "center", "endswith", "expandtabs", "isalnum", "isalpha", "isdecimal", "isdigit", "isidentifier",
        "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "ljust", "lower", "lstrip", "partition",
        "replace", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "startswith", "strip", "swapcase",
        "title", "upper", "zfill")},
}  # fmt: skip

PRIM: dict[str, Callable[..., Any]] = {
    "RaiseException": _raise, "min": _least, "max": _greatest, "abs": abs, "rangelist": lambda n: list(range(n)),
    "unchecked_unwrap_optional": lambda value: value, "unchecked_cast": lambda value: value,
    "Print": _print, "StringIndex": operator.getitem, "TupleIndex": operator.getitem,
    "ModuleContainerIndex": operator.getitem, "EnumName": lambda e: e.name, "EnumValue": lambda e: e.value,
    "type": lambda device: device.type, "index": lambda device: device.index, "id": id,
    "IfThenElse": lambda condition, a, b: a if condition else b,
}  # fmt: skip
