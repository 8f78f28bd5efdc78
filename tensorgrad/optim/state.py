"""The scalars in a parameter's optimizer state, such as step counts."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.storage import huge_pages
from tensorgrad.storage.fresh import map_zeros
from tensorgrad.storage.stubs import Storage
from tensorgrad.tensor import Tensor


def begin(state: dict[str, Any], p: Tensor, starts: dict[str, Callable[[Tensor], Tensor]]) -> None:
    """Initializes the state of a parameter before its first step."""
    for name, start in starts.items():
        with huge_pages.if_fast():
            state[name] = start(p)
        if start is torch.zeros_like:  # the step is about to read and write it
            map_zeros(state[name]._array)


def state_scalar(value: float, p: Tensor, group: dict[str, Any], on_device: bool = False) -> Tensor:
    """Returns a scalar of a parameter's state, with the dtype and device that it has in PyTorch.

    Args:
        on_device: whether it is on the parameter's device in any case.
    """
    fused = group.get("fused")
    dtype = torch.float64 if torch.get_default_dtype() == torch.float64 and not fused else torch.float32
    device = p.device if on_device or fused or group.get("capturable") else "cpu"
    if device == "cpu":  # written down, so that a fake tensor of it knows its value
        return torch.tensor(float(value), dtype=dtype)
    return torch.full((), float(value), dtype=dtype, device=device)


def starts_at(value: float, group: dict[str, Any], on_device: bool = False) -> Callable[[Tensor], Tensor]:
    """Returns `state_scalar` as a function of the parameter."""
    return lambda p: state_scalar(value, p, group, on_device)


def counts_and_zeros(group: dict[str, Any], *zeros: str, **counts: float) -> dict[str, Callable[[Tensor], Tensor]]:
    """Returns how the state of most optimizers starts: the step and other scalars, and zeros like the parameter."""
    scalars = {name: starts_at(value, group) for name, value in {"step": 0, **counts}.items()}
    return {**scalars, **dict.fromkeys(zeros, torch.zeros_like)}


def count(state: dict[str, Any], group: dict[str, Any] | None = None) -> float:
    """Increments the state's step count and returns it. The count is a tensor so that PyTorch can load it."""
    array = state["step"]._array
    if array.__class__ is not np.ndarray:
        return _count_on_device(state["step"])
    step = array.item() + 1
    array[()] = step
    return step


_COUNTS: weakref.WeakKeyDictionary[Storage, tuple[int | None, float]] = weakref.WeakKeyDictionary()


def _count_on_device(tensor: Tensor) -> float:
    """Increments a count on another device. It is read back only if other code has written to it, as reading waits for
    all pending work of the device."""
    storage = tensor._storage
    version, step = _COUNTS.get(storage, (None, 0.0))
    step = (tensor.item() if version is None or version != storage.version else step) + 1
    storage.write(tensor._array, step)
    storage.bump()
    _COUNTS[storage] = storage.version, step
    return step


def rounded(value: float) -> Any:
    """Rounds to the dtype in which PyTorch stores scalars of the state."""
    return (np.float64 if torch.get_default_dtype() == torch.float64 else np.float32)(value)
