"""What a device must provide, and the table that finds it.

**The class of the array is the device.** A device is a subclass of `Storage` with an `array_type`: defining it and
calling `register` on it is all that the rest of the house needs. A storage object itself is small: the array that owns
the bytes, and the version that every in-place write raises, shared by all views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tensorgrad import devices
from tensorgrad.system.per_thread import PerThread


class _Inference(PerThread):
    """Whether this thread is in inference mode, where inference tensors may be written (see autograd/modes.py)."""

    on = False


INFERENCE = _Inference()


class Storage:
    """The bytes behind one or more tensors, on one device.

    A device implements the class methods below (see `storage/cpu.py`, and CONTRIBUTING.md in the repository).
    `array` owns the memory; `version` counts in-place writes and is None for tensors made in inference mode.

    It may also know better ways to other devices than by a copy on the host (`storage/cuda/storage.py`: `send` to
    another device, `receive` what the CPU sends, `fetch` into memory of the host).

    An array type needs `shape`, `dtype` (NumPy's), `strides` (bytes), `ndim`, `size`, `itemsize` and `nbytes`.

    >>> import tensorgrad as torch
    >>> x = torch.arange(4, dtype=torch.int16)
    >>> memory = x[1:]._storage
    >>> memory.nbytes(), memory.data_ptr() == x.data_ptr()
    (8, True)
    """

    __slots__ = ("__weakref__", "array", "shown", "version")

    array: Any
    version: Any
    shown: Any  # a weak reference to the `UntypedStorage` that programs hold, once one did (ops/storage_values.py)
    device_type: ClassVar[str]  # "cpu", "cuda", ...
    array_type: ClassVar[type]  # what a tensor's `_array` is on this device
    xp: ClassVar[Any] = None  # the NumPy-like module that `kernels/array/` runs on; None: only registered kernels run
    several: ClassVar[bool] = False  # whether arrays of this type may be on devices that differ in their index

    @classmethod
    def of(cls, array, version: int | None = 0) -> Storage:
        """A storage over `array`'s memory."""
        storage = object.__new__(cls)
        storage.array, storage.version = array, version
        return storage

    # --- what a device implements ---

    @classmethod
    def device_of(cls, array) -> devices.device:
        """The device object of one array (several cards may share an array type)."""
        return devices.device(cls.device_type)

    @classmethod
    def from_host(cls, array: np.ndarray, device: devices.device):
        """A copy of a NumPy array on this device."""
        raise NotImplementedError(f"{cls.__name__}.from_host: copy a NumPy array to the device")

    @classmethod
    def to_host(cls, array) -> np.ndarray:
        """A NumPy array with the values of `array`, which may share its memory."""
        raise NotImplementedError(f"{cls.__name__}.to_host: copy a device array to NumPy")

    @classmethod
    def empty(cls, shape: tuple, dtype: np.dtype, device: devices.device):
        """A new array whose values are whatever the memory held."""
        return cls.from_host(np.empty(shape, dtype), device)

    @classmethod
    def copy(cls, array):
        """A fresh array of the same values, dense, in the order of `array`'s strides where that is possible."""
        return cls.from_host(np.array(cls.to_host(array), order="K"), cls.device_of(array))

    @classmethod
    def cast(cls, array, dtype: np.dtype, order: str = "K"):
        """The same values in another dtype: of complex numbers the real part; short integers wrap around."""
        if array.dtype.kind == "c" and dtype.kind not in "cb":  # 1j is true
            array = array.real
        with np.errstate(all="ignore"):
            # int32 is the processor's own conversion, in PyTorch too
            if array.dtype.kind in "fV" and dtype.kind in "iu" and dtype.itemsize < 8 and dtype.name != "int32":
                array = array.astype(np.int64)
            return array.astype(dtype, order=order)

    @classmethod
    def write(cls, target, values) -> None:
        """Writes `values` (an array of this device or a number), broadcast and cast, into `target`'s memory."""
        raise NotImplementedError(f"{cls.__name__}.write: store values into an existing array")

    @classmethod
    def add_to(cls, target, values) -> None:
        """Adds `values`, an array of the same shape and dtype, to `target` in place."""
        cls.write(target, cls.from_host(cls.to_host(target) + cls.to_host(values), cls.device_of(target)))

    @classmethod
    def current_device(cls) -> devices.device:
        """The device that is meant where no index is given."""
        return devices.device(cls.device_type)

    @classmethod
    def number(cls, value: np.ndarray, like):
        """A 0-dimensional array, an operand that nobody writes to, on the device of the array `like`."""
        return cls.from_host(value, cls.device_of(like))

    @staticmethod
    def guard(kernel):
        """A kernel as this device runs it: where there are several of a kind, on the one that has its arrays."""
        return kernel

    def strided(self, shape: tuple, strides: tuple, offset: int, dtype: np.dtype):
        """An array over this storage's memory: `strides` and `offset` in bytes from the storage's first byte."""
        raise NotImplementedError(f"{type(self).__name__} has no strided views")

    def offset_of(self, array) -> int:
        """How many bytes into the storage the first element of `array` (a view of it) lies."""
        return 0

    # --- what follows ---

    @property
    def device(self) -> devices.device:
        """Where the memory is."""
        return self.device_of(self.array)

    def nbytes(self) -> int:
        """The size of the memory, in bytes."""
        array = self.array
        steps = zip(array.shape, array.strides, strict=True)
        return sum((n - 1) * s for n, s in steps) + array.itemsize if array.size else 0

    size = nbytes

    def data_ptr(self) -> int:
        """The address of the first byte; 0 where a device has none to show."""
        return 0

    def bump(self) -> None:
        """Records an in-place write, which comes next: whoever saved the old values finds out."""
        if self.version is None:
            self.check_writable()
        else:
            self.version += 1

    def check_writable(self) -> None:
        """Raises: RuntimeError for the memory of an inference tensor, outside of inference mode."""
        if self.version is None and not INFERENCE.on:
            raise RuntimeError(
                "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a "
                "normal tensor before doing inplace update.See https://github.com/pytorch/rfcs/pull/17 for more "
                "details."
            )

    def __reduce__(self):
        data = self.strided((self.nbytes(),), (1,), 0, np.dtype("uint8"))
        return _unpickle, (str(self.device), np.ascontiguousarray(self.to_host(data)))


def _unpickle(name: str, data: np.ndarray) -> Storage:
    device = devices.device(name)
    cls = storage_class(device)
    return cls.of(cls.from_host(data, device))


class _Table(dict):
    def __missing__(self, array_type):
        raise TypeError(f"no storage is registered for arrays of type {array_type.__module__}.{array_type.__name__}")


STORAGES: dict[Any, type[Storage]] = _Table()  # array class -> storage class
BY_DEVICE: dict[str, type[Storage]] = {}  # device type -> storage class
LOADERS: dict[str, Callable[[], type[Storage]]] = {}  # device type -> what registers its storage when first needed


def register(cls: type[Storage]) -> type[Storage]:
    """Makes a device known. Use as a decorator on its `Storage` class."""
    devices.TYPES.add(cls.device_type)
    STORAGES[cls.array_type] = BY_DEVICE[cls.device_type] = cls
    return cls


def storage_class(device: devices.device) -> type[Storage]:
    """The storage of a device, loading it when it is first asked for.

    Raises: an error that says what to install when the device cannot be used here.
    """
    found = BY_DEVICE.get(device.type)
    if found is None and device.type in LOADERS:
        return LOADERS[device.type]()
    if found is None:
        raise RuntimeError(f"no storage is registered for device '{device}'")
    return found
