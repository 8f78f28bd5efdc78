"""The CPU: NumPy arrays as memory."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tensorgrad import devices
from tensorgrad.storage.fresh import copied, empty
from tensorgrad.storage.stubs import Storage, register

# Functions called with each array whose elements are about to be read on the host, while something wants to know.
READERS: list = []


class Window:
    """Exposes a strided window of another array's memory to NumPy, and keeps that array alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: np.ndarray, address: int, shape: tuple, strides: tuple, dtype: np.dtype):
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, not owner.flags.writeable),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{dtype.itemsize}",  # the real type is set by .view: NumPy may have no typestr for it
        }


@register
class CPUStorage(Storage):
    __slots__ = ()

    device_type = "cpu"
    array_type = np.ndarray
    xp: ClassVar[Any] = np

    @classmethod
    def device_of(cls, array) -> devices.device:
        return devices.CPU

    @classmethod
    def from_host(cls, array, device):
        return copied(array)

    @classmethod
    def to_host(cls, array):
        for reader in READERS:
            reader(array)
        return array

    @classmethod
    def empty(cls, shape, dtype, device):
        return empty(shape, dtype)

    @classmethod
    def copy(cls, array):
        return copied(array)

    @classmethod
    def write(cls, target, values):
        target[...] = values

    @classmethod
    def add_to(cls, target, values):
        np.add(target, values, target)

    def strided(self, shape, strides, offset, dtype):
        if self.array.size == 0 and 0 not in shape:
            return np.empty(shape, dtype)
        window = Window(self.array, self.array.ctypes.data + offset, shape, strides, dtype)
        return np.asarray(window).view(dtype)

    def offset_of(self, array):
        if array.size or owner_of(array) is owner_of(self.array):
            return array.ctypes.data - self.array.ctypes.data
        return 0  # no element, and made without looking at this memory

    def data_ptr(self):
        return self.array.ctypes.data


def owner_of(array: Any) -> Any:
    """The array, or what else has the memory that an array shows."""
    while (base := array.owner if isinstance(array, Window) else getattr(array, "base", None)) is not None:
        array = base
    return array
