"""DLPack for emulated arrays: NumPy's capsules, which say that the memory is a GPU's."""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.array.dlpack import BFLOAT, CUDA, UINT, _tensor_of
from tests.emulator import runtime, streams
from tests.emulator.arrays import fresh, ndarray


def export(array: ndarray, stream, max_version):
    """`ndarray.__dlpack__`: the consumer's stream waits for the current one, unless it is -1."""
    if stream is not None and (not isinstance(stream, int) or stream < -1 or stream == 0):
        raise ValueError(f"CUDA stream {stream} is not a stream")
    mine = streams.get_current_stream()
    if stream != -1 and stream not in (None, 1, mine.ptr):
        theirs = streams.Stream.from_external(_Handle(stream))
        event = mine.record()
        theirs.wait_event(event)
        WAITED.append((stream, event))
    host = array._host
    bfloat16 = host.dtype.name == "bfloat16"
    options = {} if max_version is None else {"max_version": max_version}
    capsule = (host.view(np.uint16) if bfloat16 else host).__dlpack__(**options)
    record = _tensor_of(capsule)
    record.device_type, record.device_id = CUDA, array._memory.device_id
    if bfloat16:
        record.code = BFLOAT
    return capsule


WAITED: list = []  # (consumer's stream, event that it waits for)


class _Handle:
    def __init__(self, ptr):
        self.ptr = ptr

    def __cuda_stream__(self):
        return 0, self.ptr


class _OnHost:
    """Shows NumPy a capsule of a GPU's memory as one of the CPU's."""

    def __init__(self, source):
        self.source, self.bfloat16 = source, False

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **options):
        stream = streams.get_current_stream().ptr or 1
        capsule = self.source
        if hasattr(capsule, "__dlpack__"):
            capsule = capsule.__dlpack__(stream=stream)
        record = _tensor_of(capsule)
        assert record.device_type == CUDA
        record.device_type = 1
        if record.code == BFLOAT:
            record.code, self.bfloat16 = UINT, True
        return capsule


def take(source) -> ndarray:
    """`cupy.from_dlpack`"""
    if isinstance(source, ndarray):
        return source
    device = source.__dlpack_device__()
    if device[0] != CUDA:
        return fresh(np.from_dlpack(source))
    with runtime.Device(device[1]):
        shown = _OnHost(source)
        host = np.from_dlpack(shown)
        if shown.bfloat16:
            import ml_dtypes

            host = host.view(ml_dtypes.bfloat16)
        reach = sum((n - 1) * s for n, s in zip(host.shape, host.strides, strict=True)) + host.itemsize
        memory = runtime.UnownedMemory(host.ctypes.data, reach if host.size else 0, host)
        return ndarray(host.shape, host.dtype, runtime.MemoryPointer(memory, 0), host.strides)
