"""Memory-mapped files."""

from __future__ import annotations

import os

import numpy as np


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
