"""Nested tensors in PyTorch's files: what is written, and what a file may say.

A file is checked before a tensor is made of it: every piece must lie within the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad import layouts
from tensorgrad.serialization.describe import described
from tensorgrad.tensor import Tensor

JAGGED = "torch.nested._internal.nested_tensor"


class Ignored:
    """What a file says of its tensors to PyTorch's compiler."""


def parts_of(tensor: Any) -> tuple[str, str, tuple]:
    """The module and name of PyTorch's function that rebuilds a nested tensor, and its arguments."""
    if tensor.layout is layouts.jagged:
        return JAGGED, "_rebuild_njt", (tensor._parts(),)
    values = tensor._values.detach().requires_grad_(tensor.requires_grad)
    geometry = tensor._nested_tensor_size(), tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets()
    return "torch._utils", "_rebuild_nested_tensor", (values, *geometry)


def _numbers(value: Any, what: str, ndim: int) -> np.ndarray:
    """The integers of a tensor. Raises: ValueError unless it has so many dimensions and is stored row by row."""
    if isinstance(value, Tensor) and not value.is_nested and value.device.type != "meta":
        array: Any = value.cpu()._array
        if array.dtype.name in ("int32", "int64") and array.ndim == ndim and array.flags.c_contiguous:
            return array.astype(np.int64)
    raise ValueError(f"a nested tensor's {what} must be {ndim}-dimensional integers, not {described(value)}")


def _values(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.is_nested or value.layout is not layouts.strided:
        raise ValueError(f"a nested tensor's values must be an ordinary tensor, not {described(value)}")
    return value


def rebuild_jagged(parts: Any) -> Tensor:
    """A nested tensor of the jagged layout.

    Raises: ValueError if the parts do not fit each other.
    """
    from tensorgrad.nested._internal.nested_tensor import NestedTensor

    if not isinstance(parts, dict):
        raise ValueError(f"a nested tensor consists of parts, but the file contains {described(parts)}")
    values, lengths, dim = _values(parts.get("values")), parts.get("lengths"), parts.get("_ragged_idx", 1)
    starts = _numbers(parts.get("offsets"), "offsets", 1)
    if type(dim) is not int or not 1 <= dim <= values.ndim:
        raise ValueError(f"dimension {described(dim)} of a nested tensor cannot be ragged")
    counts = np.diff(starts) if lengths is None else _numbers(lengths, "lengths", 1)
    total = values.shape[dim - 1]
    if not len(starts) or len(counts) != len(starts) - 1:
        raise ValueError("a nested tensor's offsets and lengths do not fit each other")
    whole = lengths is not None or (starts[0], starts[-1]) == (0, total)
    if not whole or _outside(starts[:-1], total) or _outside(counts, total) or (starts[:-1] + counts > total).any():
        raise ValueError(f"a nested tensor's offsets do not fit its {total} values")
    made = NestedTensor(values, parts["offsets"], lengths=lengths, _ragged_idx=dim)
    return made.requires_grad_() if parts.get("requires_grad") is True and values.is_leaf else made


def rebuild_strided(values: Any, sizes: Any, strides: Any, starts: Any) -> Tensor:
    """A nested tensor of the strided layout.

    Raises: ValueError if a piece exceeds the values.
    """
    from tensorgrad.nested._internal.strided import StridedNestedTensor

    values = _values(values)
    if values.ndim != 1:
        raise ValueError(f"a nested tensor's values must have one dimension, not {values.ndim}")
    if isinstance(sizes, Tensor) and not sizes.is_nested and not sizes.numel():
        return StridedNestedTensor(values, [], ndim=0)
    shapes, steps = _numbers(sizes, "sizes", 2), _numbers(strides, "strides", 2)
    places, total = _numbers(starts, "storage offsets", 1), len(values)
    if shapes.shape != steps.shape or len(places) != len(shapes):
        raise ValueError("a nested tensor's sizes, strides and storage offsets differ in number")
    if _outside(shapes, total) or _outside(steps, total) or _outside(places, total):
        raise ValueError(f"a piece does not fit into the {total} values of a nested tensor")
    ends = places + ((shapes - 1) * steps.astype(object)).sum(1) + 1 if shapes.shape[1] else places + 1
    if ((ends > total) & (shapes != 0).all(1)).any():
        raise ValueError(f"a piece does not fit into the {total} values of a nested tensor")
    return StridedNestedTensor(values, [*map(tuple, shapes.tolist())], [*map(tuple, steps.tolist())], places.tolist())


def _outside(numbers: np.ndarray, total: int) -> bool:
    """Whether some numbers are negative, or larger than the number of values (then sums may overflow)."""
    return bool(((numbers < 0) | (numbers > max(total, 1))).any())
