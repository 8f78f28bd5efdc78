"""Sequences, which are lists of tensors, and optional values, which may be None."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.onnx.operators.table import operator


def _place(position: Any, count: int, end: int) -> int:
    at = int(position)
    if not -count <= at < end:
        raise IndexError(f"onnx: position {at} in a sequence of {count}")
    return at + count if at < 0 else at


@operator("SequenceConstruct")
def sequence_construct(*values: Any) -> Any:
    return list(values)


@operator("SequenceEmpty")
def sequence_empty(dtype: int = 1) -> Any:
    return []


@operator("SequenceInsert")
def sequence_insert(values: Any, value: Any, position: Any = None) -> Any:
    count = len(values)
    at = count if position is None else _place(position, count, count + 1)
    return [*values[:at], value, *values[at:]]


@operator("SequenceErase")
def sequence_erase(values: Any, position: Any = None) -> Any:
    count = len(values)
    at = _place(-1 if position is None else position, count, count)
    return [*values[:at], *values[at + 1 :]]


@operator("SequenceAt")
def sequence_at(values: Any, position: Any) -> Any:
    return values[_place(position, len(values), len(values))]


@operator("SequenceLength")
def sequence_length(values: Any) -> Any:
    return torch.tensor(len(values))


@operator("ConcatFromSequence")
def concat_from_sequence(values: Any, axis: int, new_axis: int = 0) -> Any:
    return (torch.stack if new_axis else torch.cat)(list(values), axis)


@operator("SplitToSequence")
def split_to_sequence(x: Any, split: Any = None, axis: int = 0, keepdims: int = 1) -> Any:
    if split is None:
        return list(x.split(1, axis) if keepdims else x.unbind(axis))
    return list(x.split(split.tolist() if split.dim() else int(split), axis))


@operator("Optional")
def optional(value: Any = None, type: Any = None) -> Any:
    return value


@operator("OptionalHasElement")
def optional_has_element(value: Any = None) -> Any:
    return torch.tensor(value is not None)


@operator("OptionalGetElement")
def optional_get_element(value: Any) -> Any:
    if value is None:
        raise ValueError("onnx: OptionalGetElement of nothing")
    return value
