"""Defaults of `torch.load` for what neither the file nor the call specifies: byte order and memory mapping."""

from __future__ import annotations

import mmap
from enum import Enum
from typing import Any


class LoadEndianness(Enum):
    """Byte orders: that of this machine, and the two explicit ones.

    >>> [order.name for order in torch.serialization.LoadEndianness]
    ['NATIVE', 'LITTLE', 'BIG']
    """

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_default: dict[str, Any] = {"endianness": None, "mmap": mmap.MAP_PRIVATE if hasattr(mmap, "MAP_PRIVATE") else None}


def get_default_load_endianness() -> LoadEndianness | None:
    """Returns the byte order assumed for files that do not specify theirs; None, which means little, unless set.

    >>> torch.serialization.get_default_load_endianness() is None
    True
    """
    return _default["endianness"]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets the byte order assumed for files that do not specify theirs.

    Raises:
        TypeError: If it is not a byte order.

    >>> torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG)
    >>> torch.serialization.get_default_load_endianness()
    <LoadEndianness.BIG: 3>
    >>> torch.serialization.set_default_load_endianness(None)
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _default["endianness"] = endianness


def get_default_mmap_options() -> int | None:
    """Returns the flags with which `load(..., mmap=True)` maps files: `mmap.MAP_PRIVATE` unless set. (None on Windows.)

    >>> import mmap
    >>> torch.serialization.get_default_mmap_options() == getattr(mmap, "MAP_PRIVATE", None)
    True
    """
    return _default["mmap"]


class set_default_mmap_options:
    """Sets the flags with which `load(..., mmap=True)` maps files; also a context manager.

    Args:
        flags: With `mmap.MAP_PRIVATE`, changes to the tensors never reach the file; with `mmap.MAP_SHARED`, they do.
            (The file's checksums are then wrong, and it can only be mapped again, not read.)

    Raises:
        ValueError: For other flags.
        RuntimeError: On Windows.

    >>> import mmap
    >>> with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
    ...     torch.serialization.get_default_mmap_options() == mmap.MAP_SHARED
    True
    """

    def __init__(self, flags: int):
        if get_default_mmap_options() is None:
            raise RuntimeError("Changing the default mmap options is currently not supported for Windows")
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                f"but got {flags}"
            )
        self.prev = _default["mmap"]
        _default["mmap"] = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _default["mmap"] = self.prev
