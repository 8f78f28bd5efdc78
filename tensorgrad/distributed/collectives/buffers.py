"""Tensors as the flat NumPy arrays that are sent and received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorgrad.storage import STORAGES

__all__ = ["as_bytes", "concatenated", "flat", "host_array", "store", "store_each", "target"]


def host_array(tensor: Any) -> np.ndarray:
    """The values of a tensor on the host, in its own memory if it is on the CPU."""
    array = tensor._array
    return STORAGES[array.__class__].to_host(array)


def flat(tensor: Any) -> np.ndarray:
    """The values of a tensor as a contiguous array of one dimension; its own memory where that is possible."""
    return np.ascontiguousarray(host_array(tensor)).reshape(-1)


def target(tensor: Any) -> np.ndarray:
    """A flat array to receive a tensor's new values: its own memory, or a fresh array that `store` will copy."""
    array = tensor._array
    if array.__class__ is np.ndarray and array.flags.c_contiguous and array.flags.writeable and array.flags.aligned:
        return array.reshape(-1)
    return np.empty(array.size, array.dtype)


def store(tensor: Any, values: np.ndarray) -> None:
    """Makes these the values of a tensor, and records the write. Values that are in its memory already stay there."""
    array = tensor._array
    tensor._storage.bump()
    if array.size == 0 or (array.__class__ is np.ndarray and _same_memory(array, values)):
        return
    storage = STORAGES[array.__class__]
    if values.dtype != array.dtype:
        values = values.view(np.bool_) if array.dtype.kind == "b" else values.astype(array.dtype)
    values = values.reshape(array.shape)
    if array.__class__ is not np.ndarray:
        values = storage.from_host(values, storage.device_of(array))
    storage.write(array, values)


def _same_memory(array: np.ndarray, values: np.ndarray) -> bool:
    """Whether a flat array is the memory of this one."""
    pointers = [a.__array_interface__["data"][0] for a in (array, values)]
    return array.flags.c_contiguous and pointers[0] == pointers[1] and array.nbytes == values.nbytes


def as_bytes(array: np.ndarray) -> np.ndarray:
    """A flat array's memory as bytes: what is only moved needs no type."""
    return array.view(np.uint8)


def concatenated(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Flat arrays behind each other, as one."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def store_each(tensors: list[Any], rows: Any) -> None:
    """Copies the rows into the tensors, one into each."""
    for tensor, row in zip(tensors, rows):
        store(tensor, row)
