"""The GPU's memory: usage counters, out-of-memory errors, and keeping memory alive for queued work."""

from __future__ import annotations

import weakref
from typing import Any

from tensorgrad.errors import AcceleratorError
from tensorgrad.storage.cuda.capture import PRIVATE, RUNNING, current

UNIT = 512  # CuPy's pool allocates multiples of this many bytes


class OutOfMemoryError(AcceleratorError):
    """The GPU has too little memory for a tensor. Existing tensors are unaffected, and the program can continue.

    >>> def largest_batch(run, size):
    ...     while size > 1:
    ...         try:
    ...             return run(size)
    ...         except torch.cuda.OutOfMemoryError:
    ...             size //= 2
    >>> largest_batch(lambda size: size, 64)
    64
    """


class Count:
    """Memory statistics of one GPU.

    CuPy's pool records no peak, and computes the memory in use by walking over all its blocks. So this is done only if
    the peak may have been exceeded: if more was allocated since the last time than was missing then (`enough`).
    """

    __slots__ = ("enough", "failures", "forgotten", "given", "peak", "requests", "reserved_peak")

    def __init__(self) -> None:
        self.given = self.enough = 0  # bytes allocated in total; the total at which to check the peak again
        self.peak = self.reserved_peak = 0
        self.requests = self.failures = self.forgotten = 0

    def settle(self, pool) -> int:
        """Updates the statistics and returns the bytes in use. The GPU must be the current one."""
        used = sum(int(each.used_bytes()) for each in (pool, *PRIVATE))
        self.peak = max(self.peak, used)
        self.reserved_peak = max(self.reserved_peak, reserved(pool))
        self.enough = self.given + self.peak - used
        return used

    def counted(self, size: int, pool) -> None:
        """Counts an allocation."""
        self.requests += 1
        self.given += (size + UNIT - 1) & -UNIT
        if self.given > self.enough:
            self.settle(pool)

    def reset_peak(self, pool) -> None:
        """Resets the peaks to what is in use now."""
        self.peak = self.reserved_peak = 0
        self.settle(pool)

    def reset_sums(self) -> None:
        """Resets the statistics that accumulate over time."""
        self.requests, self.failures, self.forgotten = 0, 0, self.given


LIMITS: dict[int, int] = {}  # GPU -> the most bytes that all pools together may hold


def share_limits(cupy) -> None:
    """Divides each GPU's limit among CuPy's pools: each may grow into what the others do not hold."""
    for index, limit in LIMITS.items():
        with cupy.cuda.Device(index):
            pools = [cupy.get_default_memory_pool(), *PRIVATE]
            held = [int(pool.total_bytes()) for pool in pools]
            for pool, own in zip(pools, held, strict=True):
                pool.set_limit(size=max(1, limit - sum(held) + own) if limit else 0)  # 0: none


def reserved(pool) -> int:
    """Returns the bytes that the current GPU's pools hold, used or not."""
    return sum(int(each.total_bytes()) for each in (pool, *PRIVATE))


COUNTS: list[Count] = []  # one for each GPU
_in_use: list[tuple[Any, Any]] = []  # (event, object to keep alive until the event has completed)
_CUDA: Any = None  # cupy.cuda


def install(cupy, cards: int) -> None:
    """Adds memory statistics and PyTorch's out-of-memory errors to CuPy's pool."""
    global _CUDA
    _CUDA = cupy.cuda
    COUNTS[:] = [Count() for _ in range(cards)]
    cupy.cuda.set_allocator(_allocator(cupy, cupy.get_default_memory_pool()))


def allocator_of_captures(cupy):
    """Returns an allocator that takes memory for captured work from the graph's pool, and all other as before.

    It is in use only while something is captured.
    """
    before = cupy.cuda.get_allocator()

    def allocate(size: int):
        found = current()
        if found is None:
            return before(size)
        return from_pool(cupy, found.pool.memory, size)

    return allocate, before


def from_pool(cupy, pool, size: int):
    """Allocates from a pool of its own, and counts it."""
    try:
        memory = pool.malloc(size)
    except cupy.cuda.memory.OutOfMemoryError:
        memory = _again(cupy, pool, size)
    COUNTS[memory.device_id].counted(size, cupy.get_default_memory_pool())
    return memory


def _allocator(cupy, pool):
    malloc, only = pool.malloc, COUNTS[0] if len(COUNTS) == 1 else None

    def allocate(size: int):
        try:
            memory = malloc(size)
        except cupy.cuda.memory.OutOfMemoryError:
            memory = _again(cupy, pool, size)
        count = only or COUNTS[memory.device_id]
        count.requests += 1
        given = count.given = count.given + ((size + UNIT - 1) & -UNIT)
        if given > count.enough:
            count.settle(pool)
        return memory

    return allocate


def _again(cupy, pool, size: int):
    """Retries after releasing all memory that can be released. Raises: OutOfMemoryError if this fails, too."""
    release_finished()
    COUNTS[cupy.cuda.runtime.getDevice()].settle(pool)
    pool.free_all_blocks()
    try:
        return pool.malloc(size)
    except cupy.cuda.memory.OutOfMemoryError:
        raise OutOfMemoryError(_story(cupy, pool, size)) from None


def _story(cupy, pool, size: int) -> str:
    index = cupy.cuda.runtime.getDevice()
    COUNTS[index].failures += 1
    free, total = cupy.cuda.runtime.memGetInfo()
    used, held, limit = pool.used_bytes(), pool.total_bytes(), pool.get_limit()
    allowed = f"{text(limit)} allowed; " if limit else ""
    return (
        f"CUDA out of memory. Tried to allocate {text(size)}. GPU {index} has a total capacity of {text(total)} of "
        f"which {text(free)} is free. {allowed}Of the allocated memory {text(used)} is allocated by tensors, and "
        f"{text(held - used)} is reserved but unallocated."
    )


def text(size: int) -> str:
    """Formats a number of bytes as PyTorch does: 20.00 MiB."""
    if size <= 1024:
        return f"{size} bytes"
    for power, unit in ((1, "KiB"), (2, "MiB")):
        if size <= 1024 ** (power + 1):
            return f"{size / 1024**power:.2f} {unit}"
    return f"{size / 1024**3:.2f} GiB"


# --- memory needed by queued work ------------------------------------------------------------------------------------


def keep_until_done(thing, stream=None) -> None:
    """Keeps memory alive until everything queued in a stream (by default the current one) is done.

    CuPy reuses freed memory for the next allocation in the stream that it was allocated in: it does not wait for other
    streams, nor for copies from pinned memory.
    """
    if RUNNING:
        found = current()
        if found is not None:
            found.kept.append(thing)
            return
    release_finished()
    stream = stream or _CUDA.get_current_stream()
    with _CUDA.Device(None if stream.device_id < 0 else stream.device_id):
        event = stream.record(_CUDA.Event(disable_timing=True))
    _in_use.append((event, thing))


def used_by(storage, memory, stream) -> None:
    """Keeps a storage's memory alive after the storage until the work then queued in a stream is done."""
    weakref.finalize(storage, keep_until_done, memory, stream).atexit = False


def release_finished() -> None:
    """Releases the objects that no queued work needs any longer."""
    _in_use[:] = [pair for pair in _in_use if not pair[0].done]
