"""Memory of large arrays is kept for the next ones, where the C library is glibc.

glibc gives every freed block of some size back to the system, and asks for it anew a moment later; the system then
hands out pages one by one and fills each with zeros. For arrays of 10 million elements that takes longer than adding
them. Two thresholds of glibc's allocator decide about it (`man 3 mallopt`). They are raised when the first op is called
or the first file loaded, so that up to `KEPT` bytes stay with the process; they hold for all of it, NumPy's own arrays
included. Once the process has been idle for some seconds, a thread gives back what is kept.

`TENSORGRAD_RECYCLE=0` leaves the allocator as it is, and so does whoever sets glibc's own variables
(`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES`, …). `release()` gives back what is kept. On other systems both do nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any

from tensorgrad.system import cgroups, forks

__all__ = ["KEPT", "memory", "release", "start"]

KEPT = 1 << 30  # bytes, but no more than an eighth of the memory that the process may use
IN_CHILD = 1 << 26  # bytes in a forked child, which has no thread that would give them back, and often has sisters
IDLE = 5.0  # seconds over which the processor's time is measured
BUSY = 0.02  # of them: a process that uses less is idle
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # their numbers in <malloc.h>
_OTHERS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")
_lock = forks.lock()


class _State:
    kept: int | None = None  # what the thresholds were set to; 0: they were left alone; None: not yet asked


def _glibc() -> Any:
    """The C library, if it is glibc."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):  # Windows has no such function, other libraries no such name
        return None
    if not name or not name.startswith("glibc"):
        return None
    import ctypes

    return ctypes.CDLL(None)


def memory(root: str = "/") -> int:
    """The bytes that this process may use: the machine's memory, or less where it is in control groups with limits.

    `root` is where /proc and /sys are found.

    >>> from tensorgrad.storage import recycling
    >>> recycling.memory() > 0
    True
    """
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(physical, cgroups.memory(root) or physical)


def start() -> bool:
    """Raises the allocator's thresholds, unless the environment is against it. Returns whether they are raised.

    The first op that is called does it, or the first file that is loaded; calling it again changes nothing.
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
    # An mmap threshold that is refused (some versions take at most 32 MiB) is asked for at that.
    larger = library.mallopt(_MMAP_THRESHOLD, kept) or library.mallopt(_MMAP_THRESHOLD, 1 << 25)
    if not (larger and library.mallopt(_TRIM_THRESHOLD, kept)):
        return 0
    with contextlib.suppress(RuntimeError):  # no thread can be started, or not any more
        threading.Thread(target=_watch, args=(library,), name="tensorgrad memory", daemon=True).start()
    os.register_at_fork(after_in_child=lambda: library.mallopt(_TRIM_THRESHOLD, min(kept, IN_CHILD)))
    return kept


def _watch(library: Any) -> None:
    """What the thread does: gives memory back once whenever the process becomes idle."""
    idle = True
    while True:
        before = time.process_time()
        time.sleep(IDLE)
        was_idle, idle = idle, time.process_time() - before < BUSY * IDLE
        if idle and not was_idle:
            library.malloc_trim(0)


def release() -> bool:
    """Gives the memory that is kept for later arrays back to the system. Returns whether there was any.

    >>> from tensorgrad.storage import recycling
    >>> recycling.release() in (True, False)
    True
    """
    library = _glibc()
    return bool(library is not None and library.malloc_trim(0))
