"""Checks of what functions of sparse tensors are given: PyTorch's type of error, which names function and argument."""

from __future__ import annotations

import math
from typing import Any

from tensorgrad.dtypes import as_dtype
from tensorgrad.errors import check_numbers, check_of_64_bits, typename
from tensorgrad.layouts import layout as layout_class
from tensorgrad.tensor import Tensor


def _wrong(name: str, argument: str, wanted: str, value: Any) -> TypeError:
    return TypeError(f"{name}(): argument '{argument}' must be {wanted}, not {typename(value)}")


def tensors(name: str, **given: Any) -> None:
    """Raises: TypeError unless all values are tensors."""
    for position, (argument, value) in enumerate(given.items(), 1):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name}(): argument '{argument}' (position {position}) must be Tensor, not {typename(value)}"
            )


def factors(name: str, of: Tensor, **given: Any) -> None:
    """Raises: TypeError unless all values are numbers; RuntimeError for a complex one where tensors are real."""
    for argument, value in given.items():
        if isinstance(value, Tensor) and value.ndim:
            raise _wrong(name, argument, "Number", value)
        if isinstance(value, complex) and not of.is_complex():
            raise RuntimeError("value cannot be converted to type float without overflow")
        if not isinstance(value, complex):
            check_numbers(name, first=0, wanted="Number", **{argument: value})


def flags(name: str, **given: Any) -> None:
    """Raises: TypeError unless all values are bools, or None."""
    for argument, value in given.items():
        if value is not None and value.__class__ is not bool:
            raise _wrong(name, argument, "bool", value)


def layouts(name: str, **given: Any) -> None:
    """Raises: TypeError unless all values are layouts, or None."""
    for argument, value in given.items():
        if value is not None and not isinstance(value, layout_class):
            raise _wrong(name, argument, "torch.layout", value)


def kind(name: str, dtype: Any) -> Any:
    """Returns a dtype, or None. Raises: TypeError if it is neither."""
    return None if dtype is None else as_dtype(dtype, name)


def integer(name: str, argument: str, value: Any) -> int:
    """Returns an integer. Raises: TypeError if it is none, ValueError if 64 bits cannot hold it."""
    one = not isinstance(value, Tensor) or (not value.ndim and value.dtype.category == 1)
    if value.__class__ is bool or not hasattr(value, "__index__") or not one:
        raise _wrong(name, argument, "int", value)
    check_of_64_bits(int(value), argument)
    return int(value)


def sizes(name: str, argument: str, value: Any) -> tuple[int, ...]:
    """Returns a shape. Raises: TypeError if it is no sequence of integers, RuntimeError if it cannot be a shape."""
    if not isinstance(value, list | tuple):
        raise _wrong(name, argument, "tuple of ints", value)
    shape = tuple([integer(name, argument, n) for n in value])
    negative = [n for n in shape if n < 0]
    if negative:
        raise RuntimeError(f"Trying to create tensor with negative dimension {negative[0]}: {list(shape)}")
    if math.prod(shape) >= 2**63:
        raise RuntimeError(
            f"numel: integer multiplication overflow: a tensor of size {list(shape)} has too many elements"
        )
    return shape
