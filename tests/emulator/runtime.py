"""`cupy.cuda`: devices, memory and streams of the emulated GPU.

There are `DEVICES` devices of `TOTAL` bytes each (the environment's EMULATED_GPUS, else two).
Streams and events are in streams.py.
"""

from __future__ import annotations

import contextlib
import os
import threading
import types

import numpy as np

DEVICES = int(os.environ.get("EMULATED_GPUS", "2"))
TOTAL = 4 << 30
PAGE = 512  # allocations are rounded up to this, as CuPy's pool does


ERRORS = {
    1: "cudaErrorInvalidValue: invalid argument", 2: "cudaErrorMemoryAllocation: out of memory",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
    400: "cudaErrorInvalidResourceHandle: invalid resource handle",
}  # fmt: skip


class CUDARuntimeError(RuntimeError):
    """What the CUDA runtime complains about."""

    def __init__(self, status=1, message=None):
        self.status = status
        super().__init__(message or ERRORS.get(status, "cudaErrorUnknown: unknown error"))


class OutOfMemoryError(MemoryError):
    """No room for an allocation."""

    def __init__(self, size, total, limit=0):
        text = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        super().__init__(text + (f", limit set to: {limit:,} bytes)." if limit else ")."))


class DeviceSynchronized(RuntimeError):
    """The host waits for the device where `cupyx.allow_synchronize(False)` forbids it."""


class _Current(threading.local):
    device = 0
    stream = None
    may_synchronize = True
    linalg = "ignore"


CURRENT = _Current()


@contextlib.contextmanager
def allow_synchronize(allow):
    """`cupyx.allow_synchronize`"""
    before, CURRENT.may_synchronize = CURRENT.may_synchronize, allow
    try:
        yield
    finally:
        CURRENT.may_synchronize = before


@contextlib.contextmanager
def errstate(*, divide=None, over=None, under=None, invalid=None, linalg=None):
    """`cupyx.errstate`, which knows only whether a failure of linear algebra is looked for."""
    if any(v is not None for v in (divide, over, under, invalid)) or linalg not in (None, "ignore", "raise"):
        raise NotImplementedError
    before, CURRENT.linalg = CURRENT.linalg, linalg or CURRENT.linalg
    try:
        yield
    finally:
        CURRENT.linalg = before


def check_synchronize():
    """Raises: DeviceSynchronized where the host may not wait for the device, RuntimeError in a capture."""
    from tests.emulator import graphs

    graphs.check_host_waits("D2H transfers")
    if not CURRENT.may_synchronize:
        raise DeviceSynchronized("Device synchronization is not allowed")


# --- devices ---------------------------------------------------------------------------------------------------------


class Device:
    """A GPU by number; the current one without."""

    def __init__(self, device=None):
        self.id = CURRENT.device if device is None else int(getattr(device, "id", device))
        self._before = []

    def use(self):
        if not 0 <= self.id < DEVICES:
            raise CUDARuntimeError(101, "cudaErrorInvalidDevice: invalid device ordinal")
        CURRENT.device = self.id

    def __enter__(self):
        self._before.append(CURRENT.device)
        self.use()
        return self

    def __exit__(self, *_):
        CURRENT.device = self._before.pop()

    def synchronize(self):
        """All work is done at once."""
        device_synchronize()

    compute_capability = "90"
    mem_info = property(lambda self: POOL._info(self.id))

    @property
    def attributes(self):
        return {"MultiProcessorCount": 132, "MaxThreadsPerBlock": 1024, "WarpSize": 32}

    def __int__(self):
        return self.id

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"<CUDA Device {self.id}>"


def getDeviceProperties(device):
    if not 0 <= device < DEVICES:
        raise CUDARuntimeError(101, "cudaErrorInvalidDevice: invalid device ordinal")
    return {
        "name": b"Emulated GPU", "totalGlobalMem": TOTAL, "major": 9, "minor": 0, "multiProcessorCount": 132,
        "warpSize": 32, "maxThreadsPerBlock": 1024, "sharedMemPerBlock": 49152, "sharedMemPerBlockOptin": 232448,
        "sharedMemPerMultiprocessor": 233472, "maxThreadsPerMultiProcessor": 2048, "regsPerBlock": 65536,
        "regsPerMultiprocessor": 65536, "clockRate": 1980000, "memoryClockRate": 2619000, "memoryBusWidth": 5120,
        "l2CacheSize": 52428800, "integrated": 0, "isMultiGpuBoard": 0, "pciBusID": device, "pciDeviceID": 0,
        "pciDomainID": 0, "uuid": bytes(15) + bytes([device]),
    }  # fmt: skip


# --- memory ----------------------------------------------------------------------------------------------------------


LIVE: dict[int, int] = {}  # address -> bytes of all allocations: kernels may follow addresses in memory to them


class Memory:
    """One allocation: host bytes that stand for a GPU's, aligned like those, and at first all ones (nan, -1)."""

    def __init__(self, size: int, pool=None):
        self.device_id = CURRENT.device
        self.device = Device(self.device_id)
        self.size = int(size)
        self._counted, self._pool = 0, pool or POOL
        self._pool._take(self)
        self._block = self._pool._block(self) if size else np.empty(0, np.uint8)
        self.bytes = self._block[: self.size]
        self.ptr = self.bytes.ctypes.data if size else 0
        if size:
            # A graph may use a block of its pool for several sizes.
            LIVE[self.ptr] = self.size if self._pool is POOL else self._counted
            _outside(self.ptr)

    def __del__(self):
        if self._counted:
            LIVE.pop(self.ptr, None)
        self._pool._give(self)


def _outside(address: int) -> None:
    """Tells captures of memory that is not theirs, whose content stays."""
    from tests.emulator import graphs

    if graphs.CAPTURES and graphs.current() is None:
        for capture in graphs.CAPTURES:
            capture.outside.add(address)


def device_synchronize():
    """Waits for all work of a device, which cannot be done while one of its streams is captured."""
    from tests.emulator import graphs

    graphs.check_device()


class UnownedMemory(Memory):
    """Memory that somebody else owns: `owner` is kept."""

    def __init__(self, ptr, size, owner, device_id=-1):
        import ctypes

        self.owner = owner
        self.ptr, self.size, self._counted, self._pool = ptr, size, 0, POOL
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(ptr)) if size else np.empty(0, np.uint8)
        self.device_id = CURRENT.device if device_id < 0 else device_id
        self.device = Device(self.device_id)


class MemoryPointer:
    """A place in an allocation."""

    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + int(offset)

    device_id = property(lambda self: self.mem.device_id)
    device = property(lambda self: self.mem.device)

    def __int__(self):
        return self.ptr

    def __add__(self, offset):
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def copy_from_device_async(self, src, size, stream=None):
        """Copies from a place in the memory of this or another device."""
        import ctypes

        from tests.emulator import graphs

        target, source = self.ptr, src.ptr
        graphs.launch(lambda: ctypes.memmove(target, source, size) and None)

    def copy_to_host_async(self, mem, size, stream=None):
        """Copies to an address of the host's memory."""
        import ctypes

        from tests.emulator import graphs

        graphs.check_host_waits("D2H transfers")

        ctypes.memmove(mem if isinstance(mem, int) else mem.value, self.ptr, size)

    def copy_from_host_async(self, mem, size, stream=None):
        """Copies from an address of the host's memory."""
        import ctypes

        from tests.emulator import graphs

        graphs.check_host_waits("H2D transfers")

        ctypes.memmove(self.ptr, mem if isinstance(mem, int) else mem.value, size)


class MemoryPool:
    """Counts what is in use on each device, and what was given back and is kept for later.

    The default pool gives all memory back, and fails kernels that use it later. Other pools keep it, and give it out
    again for the same size in the same stream.
    """

    def __init__(self, allocator=None):
        self._blocks: dict[tuple, list] = {}
        self._used, self._kept, self._limit = [0] * DEVICES, [0] * DEVICES, [0] * DEVICES

    def _take(self, memory):
        device, size = memory.device_id, -(-memory.size // PAGE) * PAGE
        if size <= self._kept[device]:
            self._kept[device] -= size
        else:
            self._grow(device, size)
        memory._counted = size
        self._used[device] += size

    def _grow(self, device, size):
        """More from the driver: never beyond the limit; if the GPU is full, what is kept is given back first."""
        from tests.emulator import graphs

        graphs.check_unsafe()
        held, limit = self._used[device] + self._kept[device], self._limit[device]
        if limit and held + size > limit:
            raise OutOfMemoryError(size, held, limit)
        if held + size > TOTAL:
            self._kept[device] = 0
        if self._used[device] + size > TOTAL:
            raise OutOfMemoryError(size, held, limit)

    def _place(self, memory):
        from tests.emulator import streams

        return memory.device_id, memory._counted, streams.get_current_stream().ptr

    def _block(self, memory):
        """The bytes for an allocation, aligned as a GPU's, and at first all ones (nan, -1)."""
        memory._arena = place = self._place(memory)
        if self._blocks.get(place):
            return self._blocks[place].pop()
        raw = np.full(memory._counted + PAGE, 255, np.uint8)
        start = -raw.ctypes.data % PAGE
        return raw[start : start + memory._counted]

    def _give(self, memory):
        self._used[memory.device_id] -= memory._counted
        self._kept[memory.device_id] += memory._counted
        if self is not POOL and memory._counted:
            self._blocks.setdefault(memory._arena, []).append(memory._block)
            LIVE[memory.ptr] = memory._counted  # a graph may use it

    def _info(self, device):
        return TOTAL - self._used[device] - self._kept[device], TOTAL

    def malloc(self, size):
        return MemoryPointer(Memory(size, self), 0)

    def used_bytes(self):
        return self._used[CURRENT.device]

    def free_bytes(self):
        return self._kept[CURRENT.device]

    def total_bytes(self):
        return self.used_bytes() + self.free_bytes()

    def n_free_blocks(self):
        return int(self.free_bytes() > 0)

    def free_all_blocks(self, stream=None):
        self._kept[CURRENT.device] = 0
        for place in [place for place in self._blocks if place[0] == CURRENT.device]:
            for block in self._blocks.pop(place):
                LIVE.pop(block.ctypes.data, None)

    def set_limit(self, size=None, fraction=None):
        if size is not None and fraction is not None:
            raise ValueError("size and fraction cannot be specified at one time")
        self._limit[CURRENT.device] = int(size if size is not None else TOTAL * (fraction or 0))

    def get_limit(self):
        return self._limit[CURRENT.device]


POOL = MemoryPool()
_allocators = [POOL.malloc]


def alloc(size):
    """Memory from the allocator in use."""
    return _allocators[-1](size)


def get_allocator():
    return _allocators[-1]


def set_allocator(allocator=None):
    assert allocator is None or callable(allocator)
    _allocators[-1] = allocator or POOL.malloc


@contextlib.contextmanager
def using_allocator(allocator=None):
    """Another allocator for a while."""
    _allocators.append(allocator or POOL.malloc)
    try:
        yield
    finally:
        _allocators.pop()


# --- memory of the host that is locked in place ----------------------------------------------------------------------

_pinned: dict[int, int] = {}  # address -> size


def empty_pinned(shape, dtype=float, order="C"):
    """`cupyx.empty_pinned`"""
    import weakref

    from tests.emulator import graphs

    graphs.check_unsafe()
    made = np.empty(shape, dtype, order)
    if made.size:
        _pinned[made.ctypes.data] = made.nbytes
        weakref.finalize(made, _pinned.pop, made.ctypes.data)
    return made


def empty_like_pinned(a, dtype=None, order="K", subok=None, shape=None):
    """`cupyx.empty_like_pinned`"""
    like = np.empty_like(a, dtype=dtype, order=order, shape=shape)
    made = empty_pinned(like.size, like.dtype)
    return np.ndarray(like.shape, like.dtype, made, 0, like.strides)


class PinnedMemoryPool:
    """The pool of locked memory: nothing in it waits to be used again."""

    def n_free_blocks(self):
        return 0

    def free_all_blocks(self):
        """Nothing is kept."""


PINNED_POOL = PinnedMemoryPool()


def pointerGetAttributes(ptr):
    locked = any(start <= ptr < start + size for start, size in _pinned.items())
    return types.SimpleNamespace(device=0 if locked else -2, type=int(locked), hostPointer=ptr, devicePointer=0)


# --- modules ---------------------------------------------------------------------------------------------------------


def modules() -> dict[str, types.ModuleType]:
    """`cupy.cuda` and its parts."""
    from tests.emulator import graphs, nccl, streams

    made = {}
    nvtx: list[str] = []  # what was named, for tests to look at

    def module(name, **content):
        made[name] = types.ModuleType(name)
        made[name].__dict__.update(content)
        return made[name]

    runtime = module(
        "cupy.cuda.runtime",
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: DEVICES,
        getDevice=lambda: CURRENT.device,
        setDevice=lambda device: Device(device).use(),
        getDeviceProperties=getDeviceProperties,
        memGetInfo=lambda: POOL._info(CURRENT.device),
        deviceSynchronize=device_synchronize,
        **graphs.RUNTIME,
        streamSynchronize=lambda stream: None,
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13000,
        pointerGetAttributes=pointerGetAttributes,
        memoryTypeUnregistered=0,
        memoryTypeHost=1,
        memoryTypeDevice=2,
        memoryTypeManaged=3,
        deviceCanAccessPeer=lambda device, peer: 0,
    )
    module("cupy.cuda.profiler", start=lambda: nvtx.append("start"), stop=lambda: nvtx.append("stop"))
    module(
        "cupy.cuda.nvtx", available=True, NAMED=nvtx, RangePush=lambda message, id_color=-1: nvtx.append(message),
        RangePop=lambda: nvtx.append("pop"), Mark=lambda message, id_color=-1: nvtx.append(message),
        RangeStart=lambda message, color: nvtx.append(message) or len(nvtx), RangeEnd=lambda number: None,
    )  # fmt: skip
    made["cupy.cuda.nccl"] = nccl.module()
    memory = module(
        "cupy.cuda.memory", OutOfMemoryError=OutOfMemoryError, MemoryPointer=MemoryPointer, Memory=Memory,
        UnownedMemory=UnownedMemory, MemoryPool=MemoryPool,
    )  # fmt: skip
    module(
        "cupy.cuda", runtime=runtime, memory=memory, Device=Device, Stream=streams.Stream, Event=streams.Event,
        MemoryPool=MemoryPool, PinnedMemoryPool=PinnedMemoryPool,
        MemoryPointer=MemoryPointer, Memory=Memory, UnownedMemory=UnownedMemory, using_allocator=using_allocator,
        get_current_stream=streams.get_current_stream, get_elapsed_time=streams.get_elapsed_time,
        is_available=lambda: True,
        alloc=alloc, get_allocator=get_allocator, set_allocator=set_allocator, get_device_id=lambda: CURRENT.device,
    )  # fmt: skip
    return made
