"""What tensors a stage takes and gives: checks, and the numbers that describe them to another rank."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.dtypes import BY_NAME

__all__ = ["Layout", "PipeliningMetadataError", "as_tensors", "check_alike", "decode", "encode", "outputs_of"]

CODES = list(BY_NAME)  # the number of a dtype in a message is its place here


class PipeliningMetadataError(RuntimeError):
    """What stages take or give does not fit together."""


class Layout(NamedTuple):
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool

    @classmethod
    def of(cls, tensor: Any) -> Layout:
        """Returns the layout of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)


def as_tensors(args: Any, allow_none: bool = False) -> tuple[Any, ...]:
    """Returns a tensor, or a tuple or list of tensors, as a tuple.

    Raises:
        PipeliningMetadataError: something else is in it.
    """
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, tuple | list):
        raise PipeliningMetadataError(
            f"Stage args must be a tensor, tuple, or list of tensors, got {type(args).__name__}."
        )
    for i, arg in enumerate(args):
        if arg is None and not allow_none:
            raise PipeliningMetadataError(
                f"Stage arg[{i}] is None. Stage args must be tensors. Use kwargs for optional values."
            )
        if arg is not None and not isinstance(arg, torch.Tensor):
            raise PipeliningMetadataError(
                f"Stage arg[{i}] has type {type(arg).__name__}. All stage args must be tensors. Use kwargs for "
                "non-tensor inputs."
            )
        if arg is not None and hasattr(arg, "device_mesh"):
            raise PipeliningMetadataError(
                f"Stage arg[{i}] is a DTensor. Stages pass plain tensors on: call to_local() or full_tensor() in the "
                "one, and DTensor.from_local() in the other."
            )
    return tuple(args)


def outputs_of(output: Any) -> tuple[Any, ...]:
    """Returns what a module returned as a tuple of one or more."""
    return tuple(output) if type(output) in (tuple, list) else (output,)


def check_alike(what: str, expected: tuple[Layout, ...], actual: tuple[Any, ...]) -> None:
    """Compares tensors with the layouts that were announced.

    Raises:
        PipeliningMetadataError: their number, a shape or a dtype differs.
    """
    if len(expected) != len(actual):
        raise PipeliningMetadataError(f"{what}: expected {len(expected)} tensors, got {len(actual)}")
    for i, (layout, tensor) in enumerate(zip(expected, actual)):
        differ = []
        if layout.shape != tuple(tensor.shape):
            differ.append(f"shape mismatch: {torch.Size(layout.shape)} vs {tensor.shape}")
        if layout.dtype != tensor.dtype:
            differ.append(f"dtype mismatch: {layout.dtype} vs {tensor.dtype}")
        if differ:
            raise PipeliningMetadataError(f"{what}[{i}]: {'; '.join(differ)}")


def encode(layouts: list[Layout]) -> list[int]:
    """Returns layouts as numbers.

    >>> from tensorgrad.distributed.pipelining.metadata import CODES, Layout, encode
    >>> encode([Layout((2, 3), torch.float32, True)]) == [1, CODES.index("float32"), 1, 2, 2, 3]
    True
    """
    numbers = [len(layouts)]
    for shape, dtype, requires_grad in layouts:
        numbers += [CODES.index(dtype.name), int(requires_grad), len(shape), *shape]
    return numbers


def decode(numbers: list[int]) -> list[Layout]:
    """Returns the layouts that `encode` made numbers of.

    >>> from tensorgrad.distributed.pipelining.metadata import Layout, decode, encode
    >>> decode(encode([Layout((2, 3), torch.int64, False)]))
    [Layout(shape=(2, 3), dtype=torch.int64, requires_grad=False)]
    """
    rest = iter(numbers)
    layouts = []
    for _ in range(next(rest)):
        code, requires_grad, ndim = (next(rest) for _ in range(3))
        layouts.append(Layout(tuple(next(rest) for _ in range(ndim)), BY_NAME[CODES[code]], bool(requires_grad)))
    return layouts
