"""CuPy arrays as the memory of tensors on NVIDIA GPUs. Imported by `storage/cuda/` if CuPy is available."""

from __future__ import annotations

from typing import Any

import cupy
import cupyx
import numpy as np
from cupy import cuda, ndarray
from cupy.cuda import runtime

from tensorgrad import devices, dtypes
from tensorgrad.layouts import dense_order, inverse
from tensorgrad.storage.cuda import State, synchronizing
from tensorgrad.storage.cuda.capture import RUNNING, current, refuse
from tensorgrad.storage.cuda.devices import guarded
from tensorgrad.storage.cuda.memory import keep_until_done
from tensorgrad.storage.stubs import Storage, storage_class

CARDS = runtime.getDeviceCount()
_names = tuple(devices.device("cuda", i) for i in range(CARDS))
_numbers: dict[tuple, Any] = {}  # (dtype, bytes, GPU, stream) -> that scalar on the GPU
_values: dict[int, np.ndarray] = {}  # the id of such a scalar -> its value


def value_of(array) -> np.ndarray | None:
    """Returns the value of a scalar that `CUDAStorage.number` returned, without waiting for the GPU; None of others."""
    if RUNNING and (capture := current()) is not None:
        return next((np.frombuffer(key[1], key[0])[0] for key, a in capture.numbers.items() if a is array), None)
    return _values.get(id(array))


def check_dtype(dtype: np.dtype) -> None:
    """Raises: NotImplementedError for complex numbers of half precision and types of fewer than eight bits."""
    if dtype.kind == "W" or dtype.names is not None:
        kind = dtypes.from_numpy_dtype(dtype)
        raise NotImplementedError(f"{kind} is not supported on GPUs: CuPy has no arrays of it")


# --- copies to, from and among GPUs ----------------------------------------------------------------------------------


def _in_order(array, copy):
    """Applies a row-major `copy` to a dense array, keeping the array's memory order."""
    if array.ndim < 2 or array.flags.c_contiguous:
        return copy(array)
    order = dense_order(array)
    if order is None:
        return copy(array)
    return copy(array.transpose(order)).transpose(inverse(order))


def _on(device: devices.device, make, *args):
    """Calls `make` with a device as the current one; without an index, the current device is used."""
    index = device.index
    if index is None or (index == 0 and CARDS == 1):
        return make(*args)
    if index >= CARDS:
        raise RuntimeError(
            "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs? "
            f"(got {device}, but the number of GPUs is {CARDS})"
        )
    with cuda.Device(index):
        return make(*args)


def _pinned(array: np.ndarray) -> bool:
    try:
        return runtime.pointerGetAttributes(array.ctypes.data).type == runtime.memoryTypeHost
    except runtime.CUDARuntimeError:  # older drivers raise an error for ordinary memory
        return False


def _upload(array: np.ndarray):
    """Copies to the GPU. CuPy reads ordinary memory before it returns, but pinned memory only when the copy runs."""
    return cupy.asarray(array, order="C", blocking=_pinned(array))


def _upload_soon(array: np.ndarray):
    """Queues a copy to the GPU; the pinned memory that it reads is kept alive until then."""
    made = cupy.empty(array.shape, array.dtype)
    _copy_soon(made.data.ptr, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice)
    keep_until_done(array)
    return made


def _copy_soon(target: int, source: int, size: int, kind: int) -> None:
    """Queues a copy between the GPU and pinned memory. (CuPy's methods refuse to do it in a graph.)"""
    runtime.memcpyAsync(target, source, size, kind, cuda.get_current_stream().ptr)


def _dense(array):
    return array if array.flags.c_contiguous else cupy.ascontiguousarray(array)


def _download(array):
    return cupy.asnumpy(array, order="C")


def _download_soon(array):
    made = cupyx.empty_pinned(array.shape, array.dtype)
    array = _dense(array)
    _copy_soon(made.ctypes.data, array.data.ptr, made.nbytes, runtime.memcpyDeviceToHost)
    keep_until_done((array, made))
    return made


def _across(array):
    """Copies to the current GPU. Both GPUs' streams wait for each other, as null streams do by themselves."""
    source = array.data.device_id
    with cuda.Device(source):
        array = _dense(array)
        ready = cuda.get_current_stream().record(cuda.Event(disable_timing=True))
    stream = cuda.get_current_stream()
    stream.wait_event(ready)
    made = cupy.empty(array.shape, array.dtype)
    made.data.copy_from_device_async(array.data, array.nbytes)
    done = stream.record(cuda.Event(disable_timing=True))
    with cuda.Device(source):
        cuda.get_current_stream().wait_event(done)
    return made


class CUDAStorage(Storage):
    __slots__ = ()

    device_type = "cuda"
    array_type = ndarray
    xp = cupy
    several = CARDS > 1

    # --- copies to, from and among GPUs ---

    @classmethod
    def from_host(cls, array, device):
        if RUNNING:
            refuse("copying values from the host to the GPU")
        check_dtype(array.dtype)
        return _on(device, _in_order, array, _upload)

    @classmethod
    def constant(cls, array, device):
        if RUNNING and (capture := current()) is not None:
            return _on(device, capture.constant, array).copy(order="K")  # a replay may write to it
        return cls.from_host(array, device)

    @classmethod
    def to_host(cls, array):
        if RUNNING:
            refuse("copying values from the GPU to the host, as item(), tolist(), print and `if tensor:` do")
        if State.sync_mode:
            synchronizing()
        made = _in_order(array, _download)
        if State.arrived is not None:
            State.arrived()
        return made

    @classmethod
    def send(cls, array, device, non_blocking=False):
        if device.type == "cuda":
            return _on(device, _in_order, array, _across)
        if device.type == "cpu":
            return _in_order(array, _download_soon) if non_blocking and array.size else cls.to_host(array)
        return storage_class(device).from_host(cls.to_host(array), device)

    @classmethod
    def receive(cls, array, device, non_blocking=False):
        gapless = array.flags.c_contiguous or dense_order(array) is not None
        if non_blocking and gapless and array.size and _pinned(array):
            return _on(device, _in_order, array, _upload_soon)
        return cls.from_host(array, device)

    @classmethod
    def fetch(cls, array, target):
        rows = target.flags.c_contiguous and array.flags.c_contiguous
        if not (rows and target.__class__ is np.ndarray and target.size and _pinned(target)):
            return False
        _copy_soon(target.ctypes.data, array.data.ptr, target.nbytes, runtime.memcpyDeviceToHost)
        keep_until_done((array, target))
        return True

    @classmethod
    def locked(cls, array: np.ndarray) -> np.ndarray:
        """Copies a host array to pinned memory."""
        made = cupyx.empty_like_pinned(array) if array.size else np.empty_like(array)
        made[...] = array
        return made

    @classmethod
    def is_locked(cls, array: np.ndarray) -> bool:
        """Whether a host array is in pinned memory."""
        return bool(array.size) and _pinned(array)

    # --- arrays ---

    @classmethod
    def device_of(cls, array):
        return _names[array.data.device_id]

    @classmethod
    def current_device(cls):
        return _names[runtime.getDevice()]

    @classmethod
    def empty(cls, shape, dtype, device):
        check_dtype(dtype)
        return _on(device, cupy.empty, shape, dtype)

    @classmethod
    def number(cls, value, like):
        """Scalars are cached on the GPU, since programs use the same few repeatedly; each stream has its own."""
        if RUNNING and (capture := current()) is not None:
            return capture.number(value)
        card = like.data.device_id
        key = (value.dtype, value.tobytes(), card, cuda.get_current_stream(card).ptr)
        found = _numbers.get(key)
        if found is None:
            if len(_numbers) >= 1024:
                _numbers.clear()
                _values.clear()
            found = _numbers[key] = _on(_names[card], cupy.asarray, value)
            _values[id(found)] = value
        return found

    @classmethod
    def cast(cls, array, dtype, order="K"):
        check_dtype(dtype)
        if order == "K" and State.converted is not None:
            made = State.converted(array, dtype)
            if made is not NotImplemented:
                return made
        return super().cast(array, dtype, order)

    @classmethod
    def copy(cls, array):
        return array.copy(order="K")

    @classmethod
    def write(cls, target, values):
        if values.__class__ is ndarray:
            target[...] = values
        else:
            target.fill(values)

    @classmethod
    def add_to(cls, target, values):
        cupy.add(target, values, out=target)

    # --- memory ---

    def strided(self, shape, strides, offset, dtype):
        check_dtype(dtype)
        start = self.array.data
        if not self.array.size:
            return _on(self.device, cupy.empty, shape, dtype)
        memory = cuda.MemoryPointer(start.mem, start.ptr - start.mem.ptr + offset)
        return ndarray(shape, np.dtype(dtype), memory, strides)

    def offset_of(self, array):
        return array.data.ptr - self.array.data.ptr if array.size else 0

    def data_ptr(self):
        return self.array.data.ptr


if CARDS > 1:
    for _name in ("to_host", "copy", "cast", "write", "add_to", "fetch"):
        setattr(CUDAStorage, _name, classmethod(guarded(getattr(CUDAStorage, _name).__func__)))
    CUDAStorage.guard, _download_soon = staticmethod(guarded), guarded(_download_soon)
