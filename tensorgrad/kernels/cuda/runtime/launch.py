"""Launches a program's functions: the arguments are packed into one block of memory, in the layout that the GPU reads.

CuPy makes a C number of each argument for every launch, which takes longer than the launch itself. Where the driver's
library is not found, or for arguments of other types, CuPy launches.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import Any

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import libraries

LETTERS: dict[type, str] = {  # a class of arguments -> its C type, as a letter of `struct`
    cupy.ndarray: "Q", np.int64: "q", np.uint64: "Q", np.int32: "i", np.uint32: "I", np.float32: "f", np.float64: "d",
    np.bool_: "?",
}  # fmt: skip


class Record(bytes):
    """A structure that a kernel takes by value; `array` is the same for CuPy."""

    array: np.ndarray


@cache
def _record_class(size: int) -> type:
    """Returns a class of records of this size, aligned as their largest members are: to eight bytes."""
    made = type(f"Record{size}", (Record,), {})
    LETTERS[made] = f"0q{size}s"
    return made


def record(array: np.ndarray) -> Record:
    """Returns a NumPy structure as an argument of a launch."""
    made = _record_class(array.nbytes)(array.tobytes())
    made.array = array
    return made


# From CU_LAUNCH_PARAM_*: what precedes the block's address and its size, and the end of the list.
_ADDRESS, _SIZE, _END = 1, 2, 0
_current_device, _current_stream = cupy.cuda.get_device_id, cupy.cuda.get_current_stream


def _launcher() -> Any:
    """Returns the driver's function that launches, or None if its library is not found."""
    driver = libraries.driver()
    if driver is None:
        return None
    function, pointer, number = driver.cuLaunchKernel, ctypes.c_void_p, ctypes.c_uint
    function.restype, function.argtypes = ctypes.c_int, [pointer, *[number] * 7, *[pointer] * 3]
    return function


class _Block:
    """Memory for the arguments of one launch, and the driver's description of it."""

    def __init__(self, size: int):
        self.memory = ctypes.create_string_buffer(size)
        self.size = ctypes.c_size_t(size)
        address, length = ctypes.addressof(self.memory), ctypes.addressof(self.size)
        self.described = (ctypes.c_void_p * 5)(_ADDRESS, address, _SIZE, length, _END)


class Layout:
    """Where the arguments of these classes lie in a block: each aligned to its size, as in C."""

    def __init__(self, classes: tuple):
        packer = struct.Struct("@" + "".join(LETTERS[each] for each in classes))
        self.pack_into, self.size = packer.pack_into, packer.size
        self.free: list[_Block] = []  # blocks that no thread is using

    def filled(self, arguments) -> _Block:
        """Returns a block with these arguments, to be given back to `free` after the launch."""
        try:
            block = self.free.pop()
        except IndexError:
            block = _Block(self.size)
        self.pack_into(block.memory, 0, *[a.data.ptr if a.__class__ is cupy.ndarray else a for a in arguments])
        return block


_layouts: dict[tuple, Layout | None] = {}


def layout(classes: tuple) -> Layout | None:
    """Returns the layout for arguments of these classes; None if there is another among them."""
    made = Layout(classes) if all(each in LETTERS for each in classes) else None
    return _layouts.setdefault(classes, made)


class Function:
    """A function of a program: `function(grid, block, arguments, shared_mem=bytes)`.

    It is compiled on first launch; CuPy caches the result on disk.
    """

    __slots__ = ("_addresses", "_launch", "raw")

    def __init__(self, raw):
        self.raw = raw  # CuPy's
        self._addresses: dict[int, int] = {}  # by device
        self._launch = _launcher()

    def __call__(self, grid, block, arguments, shared_mem=0):
        classes = tuple([a.__class__ for a in arguments])
        try:
            how = _layouts[classes]
        except KeyError:
            how = layout(classes)
        if how is None or self._launch is None:
            self._by_cupy(grid, block, arguments, shared_mem)
            return
        device = _current_device()
        address = self._addresses.get(device)
        if address is None:  # the first launch on this device compiles
            address = self._addresses[device] = self.raw.kernel.ptr
        x, y, z = (*grid, 1, 1)[:3]
        i, j, k = (*block, 1, 1)[:3]
        filled = how.filled(arguments)
        status = self._launch(address, x, y, z, i, j, k, shared_mem, _current_stream().ptr, None, filled.described)
        how.free.append(filled)
        if status:  # no context in this thread yet, which CuPy makes; or an error, which it names
            self._by_cupy(grid, block, arguments, shared_mem)

    def _by_cupy(self, grid, block, arguments, shared_mem):
        given = tuple([a.array if isinstance(a, Record) else a for a in arguments])
        self.raw(grid, block, given, shared_mem=shared_mem)
