"""The table of ONNX's operators: what they are called, and the functions of tensors that compute them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import tensorgrad as torch
from tensorgrad.dtypes import BY_NAME
from tensorgrad.dtypes import dtype as Dtype
from tensorgrad.onnx.model import NAMES

OPERATORS: dict[str, Callable] = {}  # by name; those of other domains than ONNX's first as "domain::name"
SEVERAL: set[str] = set()  # those whose functions return a tuple
OLDER: dict[str, list[tuple[int, Callable]]] = {}  # what they were before a version, the oldest first
LARGEST = 2**31  # elements of a tensor whose size is a value of the file

PREVIEW, TRAINING, CLASSIC = "ai.onnx.preview::", "ai.onnx.preview.training::", "ai.onnx.ml::"


def operator(*names: str, several: bool = False) -> Callable[[Callable], Callable]:
    """Enters a function into the table. Attributes are its parameters; `count` is the number of results wanted."""

    def enter(function: Callable) -> Callable:
        for name in names:
            OPERATORS[name] = function
            if several:
                SEVERAL.add(name)
        return function

    return enter


def plain(**names: Any) -> None:
    """Enters operators that are one function without attributes."""
    for name, function in names.items():

        def call(*inputs: Any, _function: Callable = function) -> Any:
            return _function(*inputs)

        call.__name__ = call.__qualname__ = name.lower()
        OPERATORS[name] = call


def function_of(name: str, version: int) -> Callable:
    """What an operator was in a version."""
    return next((function for before, function in OLDER.get(name, ()) if version < before), OPERATORS[name])


def integers(value: Any) -> Any:
    """A list of integers, which is an input in newer versions, and was an attribute."""
    return value if value is None or isinstance(value, list) else value.reshape(-1).tolist()


def bounded(shape: Iterable[int]) -> list[int]:
    """A shape that a file says. Raises: ValueError if no tensor has it, or only one that is too large."""
    sizes = [int(size) for size in shape]
    if any(size < 0 for size in sizes) or math.prod(sizes) > LARGEST:
        raise ValueError(f"onnx: a tensor of the shape {sizes}")
    return sizes


def dtype_of(number: int) -> Dtype:
    """The dtype that a number means."""
    if number not in NAMES:
        raise NotImplementedError(f"onnx: elements of type {number}")
    return BY_NAME[NAMES[number]]


def pads_of(pads: Any, n: int) -> list[int]:
    """Padding as `F.pad` takes it: the last dimension first, before and after."""
    return [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])]


def places(index: Any, size: int) -> Any:
    """Indices that may be negative, from the start."""
    return torch.where(index < 0, index + size, index)
