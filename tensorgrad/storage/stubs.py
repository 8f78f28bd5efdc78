"""The interface of a device, and the tables that find its implementation.

**The class of the array is the device**, and the layout. A device is a subclass of `Storage` with an `array_type`:
defining it and passing it to `register` is all that the rest of the package needs. A storage object itself is small:
the array that owns the bytes, and a version that every in-place write increments, shared by all views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tensorgrad import devices, layouts
from tensorgrad.storage import float8
from tensorgrad.storage.wide import wide
from tensorgrad.system.per_thread import PerThread


class _Inference(PerThread):
    """Whether this thread is in inference mode, in which inference tensors may be written (see autograd/modes.py)."""

    on = False


INFERENCE = _Inference()


class Storage:
    """The bytes behind one or more tensors, on one device.

    A device implements the class methods below (see `storage/cpu.py`, and CONTRIBUTING.md in the repository).
    `array` owns the memory; `version` counts in-place writes and is None for tensors made in inference mode.

    It may also implement direct transfers, which avoid a copy on the host (`storage/cuda/storage.py`: `send` to
    another device, `receive` from the CPU, `fetch` into host memory).

    An array type needs `shape`, `dtype` (NumPy's), `strides` (bytes), `ndim`, `size`, `itemsize`, `nbytes`
    and `flags.c_contiguous`.

    >>> x = torch.arange(4, dtype=torch.int16)
    >>> memory = x[1:]._storage
    >>> memory.nbytes(), memory.data_ptr() == x.data_ptr()
    (8, True)
    """

    __slots__ = ("__weakref__", "array", "detached", "shown", "version")

    array: Any
    version: Any
    detached: bool  # set for what `detach` makes of an inference tensor, which may be written outside the mode, too
    shown: Any  # a weak reference to the `UntypedStorage` handed to the program, if any (ops/pytorch/storage_values.py)
    device_type: ClassVar[str]  # "cpu", "cuda", ...
    layout: ClassVar[layouts.layout] = layouts.strided
    backend: ClassVar[str]  # the name that kernels are registered for: the device type, or that of another layout
    array_type: ClassVar[type]  # the class of a tensor's `_array` on this device
    xp: ClassVar[Any] = None  # the NumPy-like module that `kernels/array/` uses; None: only registered kernels run
    several: ClassVar[bool] = (
        False  # whether arrays of this type may be on several devices, which differ in their index
    )

    @classmethod
    def of(cls, array, version: int | None = 0) -> Storage:
        """Creates a storage over `array`'s memory."""
        storage = object.__new__(cls)
        storage.array, storage.version = array, version
        return storage

    @property
    def memory(self) -> Storage:
        """What the elements lie in: the storage itself, unless it is a layer over another one."""
        return self

    # --- what a device implements ---

    @classmethod
    def device_of(cls, array) -> devices.device:
        """Returns the device of an array (several GPUs may share an array type)."""
        return devices.device(cls.device_type)

    @classmethod
    def from_host(cls, array: np.ndarray, device: devices.device):
        """Copies a NumPy array to this device."""
        raise NotImplementedError(f"{cls.__name__}.from_host: copy a NumPy array to the device")

    @classmethod
    def constant(cls, array: np.ndarray, device: devices.device):
        """Copies a NumPy array whose values would be the same if the program ran again, such as those of `arange`."""
        return cls.from_host(array, device)

    @classmethod
    def to_host(cls, array) -> np.ndarray:
        """Returns a NumPy array with the values of `array`, which may share its memory."""
        raise NotImplementedError(f"{cls.__name__}.to_host: copy a device array to NumPy")

    @classmethod
    def empty(cls, shape: tuple, dtype: np.dtype, device: devices.device):
        """Creates an uninitialized array."""
        return cls.from_host(np.empty(shape, dtype), device)

    @classmethod
    def copy(cls, array):
        """Copies an array to a new dense one, keeping the memory order of `array` if possible."""
        return cls.from_host(np.array(cls.to_host(array), order="K"), cls.device_of(array))

    @classmethod
    def cast(cls, array, dtype: np.dtype, order: str = "K"):
        """Casts an array: complex numbers to their real part; short integers wrap around."""
        if array.dtype.kind == "W":
            array = wide(array, order)
        if array.dtype.kind == "c" and dtype.kind not in "cWb":  # 1j is true
            array = array.real
        if dtype.itemsize == 1 and dtype.kind in "fV":
            return float8.rounded(array, dtype, order)
        if array.dtype.itemsize == 1 and array.dtype.kind in "fV":
            array = array.astype(np.float32, order=order)
        with np.errstate(all="ignore"):
            # the conversion to int32 is the processor's, in PyTorch too
            if array.dtype.kind in "fV" and dtype.kind in "iu" and dtype.itemsize < 8 and dtype.name != "int32":
                array = array.astype(np.int64)
            return array.astype(dtype, order=order)

    @classmethod
    def write(cls, target, values) -> None:
        """Writes `values` (an array of this device or a scalar), broadcast and cast, into `target`'s memory."""
        raise NotImplementedError(f"{cls.__name__}.write: store values into an existing array")

    @classmethod
    def add_to(cls, target, values) -> None:
        """Adds `values`, an array of the same shape and dtype, to `target` in place."""
        cls.write(target, cls.from_host(cls.to_host(target) + cls.to_host(values), cls.device_of(target)))

    @classmethod
    def current_device(cls) -> devices.device:
        """Returns the device that is used if no index is given."""
        return devices.device(cls.device_type)

    @classmethod
    def number(cls, value: np.ndarray, like):
        """Creates a 0-dimensional, read-only operand on the device of the array `like`."""
        return cls.from_host(value, cls.device_of(like))

    @staticmethod
    def guard(kernel):
        """Wraps a kernel for this device: with several GPUs, it runs on the one that holds its arrays."""
        return kernel

    def strided(self, shape: tuple, strides: tuple, offset: int, dtype: np.dtype):
        """Creates a view of this storage's memory: `strides` and `offset` in bytes from its first byte."""
        raise NotImplementedError(f"{type(self).__name__} has no strided views")

    def offset_of(self, array) -> int:
        """Returns the offset in bytes of the first element of `array`, a view of this storage."""
        return 0

    def geometry(self, array) -> Any:
        """Returns what `view` needs to make `array`, a view of this storage, again: shape, strides and offset."""
        return array.shape, array.strides, self.offset_of(array)

    def view(self, geometry, dtype: np.dtype):
        """Creates a view of this storage's memory (or of a copy of it) from the geometry of another one."""
        shape, strides, offset = geometry
        return self.strided(shape, strides, offset, dtype)

    def apart(self, array):
        """Returns another array object over the same memory."""
        return self.strided(array.shape, array.strides, self.offset_of(array), array.dtype)

    @classmethod
    def number_on_host(cls, array) -> np.ndarray:
        """Returns a NumPy array with the only element of `array`."""
        return cls.to_host(array)

    @classmethod
    def check_branch(cls, array) -> None:
        """Raises an error if the program may not branch on the value of `array`."""

    @classmethod
    def all_samples(cls, array):
        """Returns the array with the values of all samples, if this one stands for each of them (vmap); else itself."""
        return array

    @classmethod
    def for_each_sample(cls, array, made):
        """Returns `made`, a new tensor like `array`; one for each sample if the array has a batch (vmap)."""
        return made

    # --- derived ---

    @property
    def device(self) -> devices.device:
        """The device of the memory."""
        return self.device_of(self.array)

    def nbytes(self) -> int:
        """Returns the size of the memory in bytes."""
        array = self.array
        steps = zip(array.shape, array.strides, strict=True)
        return sum((n - 1) * s for n, s in steps) + array.itemsize if array.size else 0

    size = nbytes

    def data_ptr(self) -> int:
        """Returns the address of the first byte; 0 if the device has no addresses."""
        return 0

    def of_inference(self) -> bool:
        """Whether the tensors that use this storage were made in inference mode."""
        return self.version is None or getattr(self, "detached", False)

    def bump(self) -> None:
        """Records an in-place write about to happen, so that saved values can be checked."""
        if self.version is None:
            self.check_writable()
        else:
            self.version += 1

    def check_writable(self) -> None:
        """Raises: RuntimeError for the memory of an inference tensor, outside inference mode."""
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
BACKENDS: set[str] = set()  # what kernels can be registered for: types of devices, and names of other layouts
LOADERS: dict[str, Callable[[], type[Storage]]] = {}  # device type -> function that registers its storage on first use


def register(cls: type[Storage]) -> type[Storage]:
    """Registers a device, or a layout on a device. Use as a decorator on its `Storage` class."""
    devices.TYPES.add(cls.device_type)
    STORAGES[cls.array_type] = cls
    if cls.layout is not layouts.strided:
        cls.backend = cls.layout.name
    elif "backend" not in vars(cls):  # else another kind of array in the memory of a device: storage/quantized.py
        BY_DEVICE[cls.device_type] = cls
        cls.backend = cls.device_type
    BACKENDS.add(cls.backend)
    return cls


def storage_class(device: devices.device) -> type[Storage]:
    """Returns the storage class of a device, loading it on first use.

    Raises: an error that says what to install if the device is not available.
    """
    found = BY_DEVICE.get(device.type)
    if found is None and device.type in LOADERS:
        return LOADERS[device.type]()
    if found is None:
        raise RuntimeError(f"PyTorch is not linked with support for {device.type} devices")
    return found
