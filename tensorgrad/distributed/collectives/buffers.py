"""Tensors as the flat arrays that are sent and received.

They are NumPy's; or, in a group whose GPUs communicate by NCCL, those of tensors on a GPU stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorgrad.distributed.group import ProcessGroup
from tensorgrad.storage import STORAGES

__all__ = ["apart", "at_home", "as_bytes", "concatenated", "copy_to", "empty", "flat", "store", "store_each", "target"]


def _sendable(array: Any, group: ProcessGroup) -> Any:
    """The array itself if the group communicates from its device, else one on the host."""
    if array.__class__ is np.ndarray or group.communicates_from(array):
        return array
    return STORAGES[array.__class__].to_host(array)


def at_home(function: Callable[..., Any], array: Any, *arguments: Any) -> Any:
    """Calls a function of an array on the GPU that holds it."""
    if array.__class__ is np.ndarray:
        return function(array, *arguments)
    return STORAGES[array.__class__].guard(function)(array, *arguments)


def _flattened(array: Any) -> Any:
    if not array.flags.c_contiguous:
        array = STORAGES[array.__class__].xp.ascontiguousarray(array)
    return array.reshape(-1)


def flat(tensor: Any, group: ProcessGroup) -> Any:
    """The values of a tensor as a contiguous array of one dimension; its own memory where that is possible."""
    return at_home(_flattened, _sendable(tensor._array, group))


def target(tensor: Any, group: ProcessGroup) -> Any:
    """A flat array to receive a tensor's new values: its own memory, or a fresh array that `store` will copy."""
    array = tensor._array
    if array.__class__ is np.ndarray:
        if array.flags.c_contiguous and array.flags.writeable and array.flags.aligned:
            return array.reshape(-1)
    elif group.communicates_from(array):
        return at_home(_flattened, array) if array.flags.c_contiguous else empty((array.size,), array)
    return np.empty(array.size, array.dtype)


def copy_to(values: Any, tensor: Any, group: ProcessGroup) -> None:
    """Copies the values of a tensor into its `target`, unless they are there."""
    if tensor._array.__class__ is not values.__class__ or not _same_memory(tensor._array, values):
        at_home(_write, values, flat(tensor, group))


def _write(values: Any, new: Any) -> None:
    values[...] = new


def empty(shape: tuple[int, ...], like: Any) -> Any:
    """A fresh array of the same dtype, on the same device."""
    if like.__class__ is np.ndarray:
        return np.empty(shape, like.dtype)
    storage = STORAGES[like.__class__]
    return storage.empty(shape, like.dtype, storage.device_of(like))


def store(tensor: Any, values: Any) -> None:
    """Makes these the values of a tensor, and records the write. Values that are in its memory already stay there."""
    array = tensor._array
    tensor._storage.bump()
    if array.size == 0 or (array.__class__ is values.__class__ and _same_memory(array, values)):
        return
    storage = STORAGES[array.__class__]
    if values.dtype != array.dtype:
        cast = STORAGES[values.__class__].cast
        values = at_home(_as_bools, values) if array.dtype.kind == "b" else cast(values, array.dtype)
    values = at_home(lambda given: given.reshape(array.shape), values)
    if array.__class__ is not values.__class__:
        values = storage.from_host(values, storage.device_of(array))
    storage.write(array, values)


def _as_bools(values: Any) -> Any:
    return values.view(np.bool_)


def store_each(tensors: Sequence[Any], rows: Sequence[Any]) -> None:
    """`store` for several tensors."""
    for tensor, values in zip(tensors, rows):
        store(tensor, values)


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0] if array.__class__ is np.ndarray else array.data.ptr


def _same_memory(array: Any, values: Any) -> bool:
    """Whether a flat array is the memory of this one."""
    return array.flags.c_contiguous and _address(array) == _address(values) and array.nbytes == values.nbytes


def apart(given: Any, received: Any) -> Any:
    """A flat array, or a copy of it if it overlaps another one."""
    first, second = _address(given), _address(received)
    overlap = given.nbytes and first < second + received.nbytes and second < first + given.nbytes
    return STORAGES[given.__class__].copy(given) if overlap and given.__class__ is received.__class__ else given


def as_bytes(array: Any) -> Any:
    """A flat array's memory as bytes: what is only moved needs no type."""
    return at_home(_as_uint8, array)


def _as_uint8(array: Any) -> Any:
    return array.view(np.uint8)


def concatenated(arrays: Sequence[Any]) -> Any:
    """Flat arrays behind each other, as a new one."""
    xp = STORAGES[arrays[0].__class__].xp
    return at_home(lambda *parts: xp.concatenate(parts), *arrays)
