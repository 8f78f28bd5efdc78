"""Values as the text of a program."""

from __future__ import annotations

import json
import keyword
import math
import re
from typing import Any

from tensorgrad import devices
from tensorgrad.jit.types import number_of
from tensorgrad.tensor import Tensor


class Untraceable(RuntimeError):
    """What was traced has no text in TorchScript."""


def identifier(name: str) -> str:
    """A name that a variable may have: the same if it may."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    taken = keyword.iskeyword(made) or made in ("self", "torch", "ops", "CONSTANTS", "inf", "nan")
    return f"_{made}" if not made or made[0].isdigit() or taken or made.startswith("__") else made


def literal(value: Any) -> str:
    """A plain value as text. Raises: Untraceable."""
    value = number_of(value)
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return str(float(value)) if math.isfinite(value) else str(value)
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, devices.device):
        return f"torch.device({json.dumps(str(value))})"
    if hasattr(value, "dtype") and hasattr(value, "item"):  # a number of NumPy's
        return literal(value.item())
    raise Untraceable(f"a value of type {type(value).__name__} has no text in TorchScript")


def type_of(value: Any) -> str:
    """The type of a value as text. Raises: Untraceable."""
    if isinstance(value, Tensor):
        return "Tensor"
    if isinstance(value, tuple):
        return f"Tuple[{', '.join(map(type_of, value))}]"
    if isinstance(value, list | dict):
        kinds = {type_of(v) for v in (value.values() if isinstance(value, dict) else value)}
        if len(kinds) != 1 or (isinstance(value, dict) and not all(isinstance(k, str) for k in value)):
            raise Untraceable(f"a {type(value).__name__} of values of several types, or of none: use a tuple")
        return f"Dict[str, {kinds.pop()}]" if isinstance(value, dict) else f"List[{kinds.pop()}]"
    for cls, name in ((bool, "bool"), (int, "int"), (float, "float"), (complex, "complex"), (str, "str")):
        if isinstance(value, cls):
            return name
    if value is None:
        return "NoneType"
    if isinstance(value, devices.device):
        return "Device"
    raise Untraceable(f"a value of type {type(value).__name__} has no type in TorchScript")
