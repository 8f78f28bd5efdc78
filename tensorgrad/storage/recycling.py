"""Memory of large arrays is kept for the next ones, where the C library is glibc.

glibc gives every freed block of some size back to the system, and asks for it anew a moment later; the system then
hands out pages one by one and fills each with zeros. For arrays of 10 million elements that takes longer than adding
them. Two thresholds of glibc's allocator decide about it (`man 3 mallopt`). They are raised when tensorgrad is
imported, so that up to `KEPT` bytes stay with the process; they hold for all of it, NumPy's own arrays included.

`TENSORGRAD_RECYCLE=0` leaves the allocator as it is, and so does whoever sets glibc's own variables
(`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES`, …). `release()` gives back what is kept. On other systems both do nothing.
"""

from __future__ import annotations

import os

__all__ = ["KEPT", "release", "start"]

KEPT = 1 << 30  # bytes, but no more than an eighth of the machine's memory
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # their numbers in <malloc.h>
_OTHERS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")


def _glibc():
    """The C library, if it is glibc."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):  # Windows has no such function, other libraries no such name
        return None
    if not name or not name.startswith("glibc"):
        return None
    import ctypes

    return ctypes.CDLL(None)


def start() -> bool:
    """Raises the allocator's thresholds, unless the environment is against it. Returns whether that was done."""
    if os.environ.get("TENSORGRAD_RECYCLE") == "0" or any(name in os.environ for name in _OTHERS):
        return False
    library = _glibc()
    if library is None:
        return False
    kept = min(KEPT, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)
    # An mmap threshold that is refused (some versions take at most 32 MiB) is asked for at that.
    larger = library.mallopt(_MMAP_THRESHOLD, kept) or library.mallopt(_MMAP_THRESHOLD, 1 << 25)
    return bool(larger and library.mallopt(_TRIM_THRESHOLD, kept))


def release() -> bool:
    """Gives the memory that is kept for later arrays back to the system. Returns whether there was any.

    >>> from tensorgrad.storage import recycling
    >>> recycling.release() in (True, False)
    True
    """
    library = _glibc()
    return bool(library is not None and library.malloc_trim(0))
