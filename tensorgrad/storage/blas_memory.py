"""The memory that OpenBLAS multiplies matrices in, claimed before it is missing.

OpenBLAS gives every thread that multiplies a buffer of 32 MiB (mostly untouched) with its first product, and keeps it.
If the process has a limit of memory (`ulimit -v`) and not as much is left, OpenBLAS ends the process without an
exception. So the buffer is claimed with the first op. From then on only NumPy's own arrays are requested, and
where there is no room for one, there is a MemoryError.
"""

from __future__ import annotations

import os

import numpy as np

from tensorgrad.system import forks

__all__ = ["left", "start"]

BUFFER = 33 << 20  # bytes, and a little more
_SIDE = 128  # of matrices for which every kernel of OpenBLAS needs the buffer; a product takes 30 µs
_lock = forks.lock()
_started: list[bool] = []


def left() -> float:
    """Returns how many bytes the process may still map; infinity without a limit, or where there are none.

    >>> from tensorgrad.storage import blas_memory
    >>> blas_memory.left() > 0
    True
    """
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return float("inf")
        with open("/proc/self/statm", "rb") as file:
            return limit - int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, AttributeError, OSError, ValueError):
        return float("inf")


def start() -> None:
    """Claims the buffer, unless there is no room for it. Called with the first op; again, it has no effect."""
    with _lock:
        if not _started and left() > BUFFER:
            _started.append(True)
            square = np.ones((_SIDE, _SIDE), np.float32)
            np.matmul(square, square)
