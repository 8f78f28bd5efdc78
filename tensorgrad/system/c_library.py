"""What ctypes is needed for on the way of every program, and what takes its place where Python cannot call C.

In WebAssembly, and in a Python that was built without it, ctypes is absent or refuses every call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

__all__ = ["address", "c_library", "thread_time"]

try:
    from time import thread_time
except ImportError:  # a process of one thread
    thread_time = process_time


def c_library() -> Any:
    """Returns the C library of a system with POSIX's functions; None if it cannot be called.

    >>> from tensorgrad.system.c_library import c_library
    >>> library = c_library()
    """
    if os.name != "posix":
        return None
    try:
        import ctypes

        return ctypes.CDLL(None)
    except (ImportError, OSError):
        return None


def _address_by_numpy(block: np.ndarray) -> int:
    return block.__array_interface__["data"][0]


def _address() -> Callable[[np.ndarray], int]:
    """A function that finds where a block of bytes begins: by ctypes if it is there, which is several times as fast."""
    try:
        from ctypes import addressof, c_char

        c_byte = c_char.from_buffer
        addressof(c_byte(bytearray(1)))
    except (ImportError, AttributeError, OSError):
        return _address_by_numpy
    return lambda block: addressof(c_byte(block.data))


address = _address()
