"""`pin_memory=True`: puts batches into pinned memory, which a GPU can read directly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorgrad import accelerator
from tensorgrad.utils.data.collate import like_mapping, like_sequence


def pinner(loader: Any) -> Callable[[Any], Any] | None:
    """Returns the function that pins a batch of this loader; None if pinning is off or there is no GPU."""
    if not loader.pin_memory:
        return None
    if loader.pin_memory_device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{loader.pin_memory_device}'.",
            stacklevel=6,
        )
    if not accelerator.is_available():
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be "
            "used.",
            stacklevel=6,
        )
        return None
    return pin_memory


def pin_memory(data: Any) -> Any:
    """Returns a batch with every tensor in pinned memory, keeping its structure.

    Objects that have a method `pin_memory` are pinned by calling it.
    """
    own = getattr(data, "pin_memory", None)  # tensors have it too
    if own is not None:
        return own()
    if isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        return like_mapping(data, {key: pin_memory(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(value) for value in data))
    if isinstance(data, Sequence):
        return like_sequence(data, [pin_memory(value) for value in data])
    return data
