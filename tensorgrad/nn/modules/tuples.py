"""The private helpers of `torch.nn.modules.utils` for sizes: layers that are written like PyTorch's use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that makes a tuple of what it is given: `n` times a single value."""

    def parse(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Iterable) else (value,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(values: Iterable[Any], n: int) -> tuple[Any, ...]:
    """Returns the values from last to first, each `n` times: `functional.pad` takes paddings in this order."""
    return tuple(value for value in reversed(tuple(values)) for _ in range(n))


def _list_with_default(out_size: Any, defaults: list[int]) -> Any:
    """Returns sizes with those that are None taken from the end of `defaults`.

    Raises:
        ValueError: If there are as many sizes as dimensions, or more.
    """
    if isinstance(out_size, int | float):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    last = defaults[-len(out_size) :]
    return [default if size is None else size for size, default in zip(out_size, last, strict=False)]
