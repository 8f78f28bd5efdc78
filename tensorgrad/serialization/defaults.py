"""What `torch.load` does where neither the file nor the call says it: the byte order, and how files are mapped."""

from __future__ import annotations

import mmap
from enum import Enum
from typing import Any


class LoadEndianness(Enum):
    """Byte orders: this machine's, and the two that there are.

    >>> import tensorgrad as torch
    >>> [order.name for order in torch.serialization.LoadEndianness]
    ['NATIVE', 'LITTLE', 'BIG']
    """

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_default: dict[str, Any] = {"endianness": None, "mmap": mmap.MAP_PRIVATE if hasattr(mmap, "MAP_PRIVATE") else None}


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order of files that do not name theirs; None, which is little, unless it was set.

    >>> import tensorgrad as torch
    >>> torch.serialization.get_default_load_endianness() is None
    True
    """
    return _default["endianness"]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets the byte order of files that do not name theirs. Raises: TypeError for anything else.

    >>> import tensorgrad as torch
    >>> torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG)
    >>> torch.serialization.get_default_load_endianness()
    <LoadEndianness.BIG: 3>
    >>> torch.serialization.set_default_load_endianness(None)
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _default["endianness"] = endianness


def get_default_mmap_options() -> int | None:
    """How `load(..., mmap=True)` maps files: `mmap.MAP_PRIVATE` unless it was set. (None on Windows.)

    >>> import mmap
    >>> import tensorgrad as torch
    >>> torch.serialization.get_default_mmap_options() == getattr(mmap, "MAP_PRIVATE", None)
    True
    """
    return _default["mmap"]


class set_default_mmap_options:
    """Sets how `load(..., mmap=True)` maps files, for a `with` block or from now on.

    Args:
        flags: `mmap.MAP_PRIVATE`: changes to the tensors never reach the file; or `mmap.MAP_SHARED`: they do.
            (Then the file's checksums no longer fit, and it can only be mapped again, not read.)

    Raises: ValueError for other flags, RuntimeError on Windows.

    >>> import mmap
    >>> import tensorgrad as torch
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
