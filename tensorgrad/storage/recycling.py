"""Reuses the memory of large arrays, if the C library is glibc.

glibc returns every freed block above a certain size to the system, only to request it again a moment later; the system
then hands out zero-filled pages one by one. For arrays of 10 million elements that takes longer than adding
them. Two thresholds of glibc's allocator control this (`man 3 mallopt`). They are raised when the first op is called
or the first file loaded, so that the process keeps up to `KEPT` bytes; they apply to the whole process, including
NumPy's own arrays. Once the process has been idle for some seconds, a thread releases the memory.

`TENSORGRAD_RECYCLE=0` leaves the allocator unchanged, and so does setting any of glibc's own variables
(`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES`, …). `release()` releases the memory. On other systems both do nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from tensorgrad.system import cgroups, forks, threads
from tensorgrad.system.c_library import c_library

__all__ = ["KEPT", "memory", "release", "start"]

KEPT = 1 << 30  # bytes, but no more than an eighth of the memory available to the process
IN_CHILD = 1 << 26  # bytes in a forked child, which has no thread to release them, and is often one of several
IDLE = 5.0  # seconds over which CPU time is measured
BUSY = 0.02  # as a fraction of IDLE: a process that uses less CPU time is idle
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # their values in <malloc.h>
_OTHERS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")
_lock = forks.lock()


class _State:
    kept: int | None = None  # the value of the thresholds; 0: they were left unchanged; None: not yet decided


def _glibc() -> Any:
    """The C library, if it is glibc."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):  # Windows lacks this function, other C libraries this name
        return None
    return c_library() if name and name.startswith("glibc") else None


def memory(root: str = "/") -> int:
    """Returns the memory available to this process in bytes: the machine's, or less if control groups limit it.

    `root` is the folder that contains /proc and /sys.

    >>> from tensorgrad.storage import recycling
    >>> recycling.memory() > 0
    True
    """
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(physical, cgroups.memory(root) or physical)


def start() -> bool:
    """Raises the allocator's thresholds, unless the environment prevents it. Returns whether they are raised.

    Called with the first op or the first file that is loaded; calling it again has no effect.
    """
    with _lock:
        if _State.kept is None:
            _State.kept = _raised()
        return bool(_State.kept)


def _raised() -> int:
    if os.environ.get("TENSORGRAD_RECYCLE") == "0" or any(name in os.environ for name in _OTHERS):
        return 0
    library = _glibc()
    if library is None:
        return 0
    kept = min(KEPT, memory() // 8)
    # If the mmap threshold is rejected (some versions allow at most 32 MiB), use that limit.
    larger = library.mallopt(_MMAP_THRESHOLD, kept) or library.mallopt(_MMAP_THRESHOLD, 1 << 25)
    if not (larger and library.mallopt(_TRIM_THRESHOLD, kept)):
        return 0
    with contextlib.suppress(RuntimeError):  # threads cannot be started, or not any longer
        threads.start("tensorgrad memory", _watch, library)
    os.register_at_fork(after_in_child=lambda: library.mallopt(_TRIM_THRESHOLD, min(kept, IN_CHILD)))
    return kept


def _watch(library: Any) -> None:
    """Releases memory once whenever the process becomes idle; runs in a thread."""
    idle = True
    while True:
        before = time.process_time()
        time.sleep(IDLE)
        was_idle, idle = idle, time.process_time() - before < BUSY * IDLE
        if idle and not was_idle:
            library.malloc_trim(0)


def release() -> bool:
    """Returns the memory kept for later arrays to the system. Returns whether there was any.

    >>> from tensorgrad.storage import recycling
    >>> recycling.release() in (True, False)
    True
    """
    library = _glibc()
    return bool(library is not None and library.malloc_trim(0))
