"""Checks of arguments, before anything is sent, with PyTorch's messages."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.group import ProcessGroup, not_in_group, warn_not_in_group
from tensorgrad.distributed.reduce_op import kind_of, supports_complex

__all__ = [
    "complex_op", "deprecated", "one_per_rank", "outside", "rank_exists", "same_bytes", "same_dtype", "same_shapes",
    "tensor", "tensors",
]  # fmt: skip


def tensor(value: Any, name: str) -> None:
    """Raises: TypeError unless it is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"""Invalid function argument. Expected parameter `{name}` of type torch.Tensor
             but got {type(value)} instead."""
        )
    if value.is_meta:
        raise RuntimeError(f"tensors on the meta device hold no data to send or receive (parameter `{name}`)")


def tensors(values: Any, name: str) -> None:
    """Raises: TypeError unless it is a list of tensors."""
    if not isinstance(values, list):
        raise TypeError(
            f"""Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]
             but got {type(values)} instead."""
        )
    if not all(isinstance(value, torch.Tensor) for value in values):
        raise TypeError(
            f"""Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]
             but got {type(values)} with elements of type {[type(value) for value in values]}."""
        )
    for value in values:
        tensor(value, name)


def same_dtype(*groups: Any) -> None:
    """Raises: ValueError if tensors differ in dtype. A complex dtype and its real one count as the same."""
    last = None
    for value in (value for part in groups for value in (part if isinstance(part, list) else [part])):
        dtype = value.dtype
        if dtype.is_complex:
            dtype = torch.float32 if dtype == torch.complex64 else torch.float64
        if last is not None and last != dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypesFound {last} and  {value.dtype}")
        last = dtype


def same_bytes(function: str, first: Any, others: Sequence[Any]) -> None:
    """Raises: RuntimeError if tensors differ in dtype: their bytes would be misread."""
    for index, value in enumerate(others):
        if value.dtype != first.dtype:
            raise RuntimeError(
                f"ProcessGroupGloo::{function}: invalid tensor type at index {index} (expected {first.dtype}, got "
                f"{value.dtype})"
            )


def same_shapes(function: str, expected: Sequence[int], values: Sequence[Any]) -> None:
    """Raises: RuntimeError if a tensor has another shape."""
    for index, value in enumerate(values):
        if tuple(value.shape) != tuple(expected):
            wanted, got = (", ".join(map(str, shape)) for shape in (expected, value.shape))
            raise RuntimeError(
                f"ProcessGroupGloo::{function}: invalid tensor size at index {index} (expected ({wanted}), got ({got}))"
            )


def complex_op(function: str, op: Any, *values: Any) -> None:
    """Raises: ValueError if a complex tensor is to be reduced by an operation that has no meaning for it."""
    if any(value.dtype.is_complex for value in values) and not supports_complex(op):
        raise ValueError(f"{function} does not support {kind_of(op)} on complex tensors")


def rank_exists(function: str, group: ProcessGroup, rank: int) -> None:
    """Raises: RuntimeError if the group has no such rank."""
    if not isinstance(rank, int) or not 0 <= rank < group.size():
        raise RuntimeError(f"ProcessGroupGloo::{function}: invalid root rank: {rank}")


def outside(group: Any, name: str) -> bool:
    """Whether this process is not a member of the group; then nothing is to be done, with a warning."""
    if not_in_group(group):
        warn_not_in_group(name)
        return True
    return False


def one_per_rank(
    function: str, own: Any, values: list[Any], size: int, root: bool, *, argument: str, end: str, list_of: str
) -> None:
    """Checks a list that only one rank gives: one tensor for each rank, like the rank's own.

    Args:
        function: the collective's name.
        own: the tensor that every rank gives.
        values: the list; empty if there is none.
        size: how many ranks there are.
        root: whether this is the rank that gives the list.
        argument, end, list_of: words of the messages: the argument's name, "source" or "destination", and "input" or
            "output".

    Raises:
        ValueError: the list is missing, or given elsewhere.
        RuntimeError: its length, or a dtype or shape, does not fit.
    """
    if root != bool(values):
        where, negation = (f"{end} rank", "") if root else (f"non-{end} ranks", "NOT ")
        raise ValueError(f"Argument ``{argument}`` must {negation}be specified on {where}.")
    if not root:
        return
    if len(values) != size:
        raise RuntimeError(
            f"ProcessGroupGloo::{function}: Incorrect {list_of} list size {len(values)}. {list_of.capitalize()} list "
            f"size should be {size}, same as size of the process group."
        )
    same_bytes(function, own, values)
    same_shapes(function, own.shape, values)


def deprecated(name: str, better: str) -> None:
    """Warns that a function has a newer name."""
    warnings.warn(
        f"`torch.distributed.{name}` is deprecated. Please use `torch.distributed.{better}` instead.",
        FutureWarning,
        stacklevel=3,
    )
