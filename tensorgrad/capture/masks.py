"""Masks: tensors of a program that is recorded hold traced arrays, except while an op runs."""

from __future__ import annotations

from typing import Any

from tensorgrad.capture.traced import TracedArray, TracedStorage
from tensorgrad.storage.meta import MetaArray
from tensorgrad.storage.stubs import Storage
from tensorgrad.tensor import Tensor, share


class Unmasked:
    """A context in which tensors hold their real arrays."""

    def __init__(self, recorder: Any, tensors: list[Tensor]) -> None:
        self.recorder = recorder
        self.tensors = [t for t in tensors if t._array.__class__ is TracedArray]

    def __enter__(self) -> None:
        self.before = [(t, t._array, t._memory) for t in self.tensors]
        for t in self.tensors:
            unmask(t)

    def __exit__(self, *exception: Any) -> None:
        for t, array, _ in self.before:
            t._array = array
            if t._memory is not None:
                t._memory = self.recorder.storage_over(t._memory)


def unmask(tensor: Tensor) -> None:
    if tensor._array.__class__ is TracedArray:
        tensor._array = tensor._array.real
    if tensor._memory.__class__ is TracedStorage:
        tensor._memory = tensor._memory.real


def real_saved(saved: Any) -> Any:
    """What a node saved, with real arrays."""
    if saved.__class__ is list or (saved.__class__ is tuple and not (saved and saved[0].__class__ is TracedArray)):
        return type(saved)(real_saved(s) if s.__class__ in (list, tuple) else s for s in saved)
    if saved.__class__ is tuple and saved[1].__class__ is TracedStorage:
        return saved[0].real, saved[1].real, saved[2]
    return saved


def real_array(tensor: Tensor) -> Any:
    return unwrapped(tensor._array)


def unwrapped(array: Any) -> Any:
    return array.real if array.__class__ is TracedArray else array


def real_storage(tensor: Tensor) -> Storage:
    storage = tensor._storage
    return storage.real if storage.__class__ is TracedStorage else storage


def described(array: Any) -> Tensor:
    """A meta tensor of an array's shape, strides and dtype."""
    return share(MetaArray.empty(array.shape, array.dtype, array.strides), None)
