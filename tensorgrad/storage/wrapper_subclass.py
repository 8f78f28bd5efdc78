"""Tensors without memory of their own: their class keeps the values elsewhere, and says what ops on them do.

They are made by `Tensor._make_wrapper_subclass`. No op has a kernel for their arrays, so nothing ever computes with
memory that is not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad import devices
from tensorgrad.storage.meta import MetaArray
from tensorgrad.storage.stubs import STORAGES, Storage


class NoMemory(MetaArray):
    """The shape, strides and dtype of such a tensor, and the device and offset (in bytes) that it says it has."""

    __slots__ = ("device", "offset")

    device: devices.device
    offset: int

    @classmethod
    def like(
        cls, shape: tuple, strides: tuple | None, dtype: np.dtype, device: devices.device, offset: int = 0
    ) -> NoMemory:
        """Creates one, C-contiguous unless `strides` (in bytes) are given."""
        made = cls(MetaArray.empty(shape, dtype, strides).phantom)
        made.device, made.offset = device, offset
        return made


class NoStorage(Storage):
    __slots__ = ()

    device_type = "cpu"
    backend = "elsewhere"
    array_type = NoMemory

    @classmethod
    def device_of(cls, array: Any) -> devices.device:
        return array.device

    def offset_of(self, array: Any) -> int:
        return getattr(array, "offset", 0)

    @classmethod
    def to_host(cls, array: Any) -> np.ndarray:
        raise NotImplementedError("a tensor of a class with __torch_dispatch__ has no memory of its own to be read")

    @classmethod
    def write(cls, target: Any, values: Any) -> None:
        cls.to_host(target)

    @classmethod
    def copy(cls, array: Any) -> Any:
        return cls.to_host(array)


STORAGES[NoMemory] = NoStorage
