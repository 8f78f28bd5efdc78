"""Memory-mapped files, and memory that forked processes share."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np


class SharedMemory(mmap.mmap):
    """Memory that a process shares with those that it forks from now on; freed when the last of them drops it."""


def shared_bytes(wanted: int) -> np.ndarray:
    """Returns `wanted` bytes of shared memory, which are zero.

    Raises: NotImplementedError on systems whose processes cannot be forked.
    """
    if not hasattr(os, "fork"):
        raise NotImplementedError("share_memory_: only forked processes share tensors, and this system has no fork")
    return np.frombuffer(SharedMemory(-1, max(wanted, 1)), np.uint8)[:wanted]


def is_shared(array: Any) -> bool:
    """Returns whether an array's memory is shared with forked processes."""
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return isinstance(array, SharedMemory)


def mapped_file(filename: str, wanted: int, shared: bool) -> np.ndarray:
    """Maps the first `wanted` bytes of a file, which are read on demand.

    With `shared`, writes go to the file, which is created or extended as needed.

    Raises: RuntimeError if the file is missing or too short, or the size is negative.
    """
    if wanted < 0:
        raise RuntimeError(f"unable to mmap {wanted} bytes from file <{filename}>: size must not be negative")
    if not wanted:  # no file is needed
        return np.empty(0, np.uint8)
    try:
        present = _prepare_file(filename, wanted, shared)
    except OSError as error:
        mode = "read-write" if shared else "read-only"
        raise RuntimeError(
            f"unable to open file <{filename}> in {mode} mode: {error.strerror} ({error.errno})"
        ) from None
    if present < wanted:
        raise RuntimeError(f"file <{filename}> size <{present}> is smaller than the required mapping size <{wanted}>")
    mapped = np.memmap(filename, np.uint8, "r+" if shared else "c", 0, (wanted,))
    return mapped.view(np.ndarray)


def _prepare_file(filename: str, wanted: int, shared: bool) -> int:
    """The size of the file in bytes, after extending it to at least `wanted` if it is to be shared."""
    if not shared:
        return os.stat(filename).st_size
    with open(filename, "ab"):  # creates the file if needed
        pass
    present = os.stat(filename).st_size
    if present < wanted:
        os.truncate(filename, wanted)
    return max(present, wanted)
