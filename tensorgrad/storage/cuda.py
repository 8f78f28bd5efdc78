"""NVIDIA GPUs: memory is CuPy's. Loaded when a CUDA tensor is first asked for, so that `import` costs nothing."""

from __future__ import annotations

import numpy as np

from tensorgrad import devices
from tensorgrad.storage.stubs import Storage, register


def load() -> type[Storage]:
    """Registers the CUDA storage and returns it.

    Raises: RuntimeError that says what is missing: the package CuPy, or a GPU.
    """
    try:
        import cupy
    except ImportError:
        raise RuntimeError(
            "device 'cuda' needs CuPy, which is not installed: pip install cupy-cuda13x (or cupy-cuda12x)"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"device 'cuda' needs an NVIDIA GPU and its driver; CUDA says: {error}") from None
    if not count:
        raise RuntimeError("device 'cuda' needs an NVIDIA GPU; CUDA finds none")

    @register
    class CUDAStorage(Storage):
        __slots__ = ()

        device_type = "cuda"
        array_type = cupy.ndarray
        xp = cupy

        @classmethod
        def device_of(cls, array):
            return devices.device("cuda", array.device.id)

        @classmethod
        def from_host(cls, array, device):
            with cupy.cuda.Device(device.index or 0):
                return cupy.asarray(array)

        @classmethod
        def to_host(cls, array):
            return cupy.asnumpy(array)

        @classmethod
        def empty(cls, shape, dtype, device):
            with cupy.cuda.Device(device.index or 0):
                return cupy.empty(shape, dtype)

        @classmethod
        def copy(cls, array):
            return array.copy(order="K")

        @classmethod
        def write(cls, target, values):
            target[...] = values

        @classmethod
        def add_to(cls, target, values):
            target += values

        def strided(self, shape, strides, offset, dtype):
            start = self.array.data
            memory = cupy.cuda.MemoryPointer(start.mem, start.ptr - start.mem.ptr + offset)
            return cupy.ndarray(shape, np.dtype(dtype), memory, strides)

        def offset_of(self, array):
            return array.data.ptr - self.array.data.ptr

        def data_ptr(self):
            return self.array.data.ptr

    from tensorgrad.kernels.cuda import table

    table.install()
    return CUDAStorage
