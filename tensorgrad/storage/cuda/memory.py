"""The GPU's memory as it is given out: how much is in use and was at most, what happens when there is none left, and
what queued work still needs."""

from __future__ import annotations

import weakref
from typing import Any

UNIT = 512  # CuPy's pool gives out multiples of this many bytes


class AcceleratorError(RuntimeError):
    """What a device beside the CPU complains about.

    >>> import tensorgrad as torch
    >>> issubclass(torch.OutOfMemoryError, torch.AcceleratorError)
    True
    """


class OutOfMemoryError(AcceleratorError):
    """The GPU has no room for a tensor. What was there before still is, and the program can go on.

    >>> import tensorgrad as torch
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
    """What one GPU's memory was asked for.

    CuPy's pool keeps no peak, and adds up what is in use by walking over all its blocks. So that is done only where the
    peak may have been passed: when more was given out since the last time than was missing then (`enough`).
    """

    __slots__ = ("enough", "failures", "forgotten", "given", "peak", "requests", "reserved_peak")

    def __init__(self) -> None:
        self.given = self.enough = 0  # bytes given out in all; how many it may become before the peak is looked at
        self.peak = self.reserved_peak = 0
        self.requests = self.failures = self.forgotten = 0

    def settle(self, pool) -> int:
        """Looks at what is in use, and returns it. The GPU must be the current one."""
        used = int(pool.used_bytes())
        self.peak = max(self.peak, used)
        self.reserved_peak = max(self.reserved_peak, int(pool.total_bytes()))
        self.enough = self.given + self.peak - used
        return used

    def reset_peak(self, pool) -> None:
        """Lets the peaks start from what is in use now."""
        self.peak = self.reserved_peak = 0
        self.settle(pool)

    def reset_sums(self) -> None:
        """Lets what adds up over time start from nothing."""
        self.requests, self.failures, self.forgotten = 0, 0, self.given


COUNTS: list[Count] = []  # one for each GPU
_in_use: list[tuple[Any, Any]] = []  # (event, what must live until it has come)
_CUDA: Any = None  # cupy.cuda


def install(cupy, cards: int) -> None:
    """Puts the counting, and PyTorch's words for lack of memory, in front of CuPy's pool."""
    global _CUDA
    _CUDA = cupy.cuda
    COUNTS[:] = [Count() for _ in range(cards)]
    cupy.cuda.set_allocator(_allocator(cupy, cupy.get_default_memory_pool()))


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
    """A second attempt, after everything that can be was given back. Raises: OutOfMemoryError if it fails, too."""
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
    """A number of bytes as PyTorch says it: 20.00 MiB."""
    if size <= 1024:
        return f"{size} bytes"
    for power, unit in ((1, "KiB"), (2, "MiB")):
        if size <= 1024 ** (power + 1):
            return f"{size / 1024**power:.2f} {unit}"
    return f"{size / 1024**3:.2f} GiB"


# --- what queued work still needs ------------------------------------------------------------------------------------


def keep_until_done(thing, stream=None) -> None:
    """Keeps memory alive until everything queued in a stream (the current one) is done.

    CuPy gives memory that nobody holds to the next who asks in the stream it was made in: other streams, and copies
    from pinned memory, are not waited for.
    """
    release_finished()
    stream = stream or _CUDA.get_current_stream()
    with _CUDA.Device(None if stream.device_id < 0 else stream.device_id):
        event = stream.record(_CUDA.Event(disable_timing=True))
    _in_use.append((event, thing))


def used_by(storage, memory, stream) -> None:
    """Lets a storage's memory live on, when the storage goes, until a stream has done what it then has to do."""
    weakref.finalize(storage, keep_until_done, memory, stream).atexit = False


def release_finished() -> None:
    """Lets go of what no queued work needs any more."""
    _in_use[:] = [pair for pair in _in_use if not pair[0].done]
