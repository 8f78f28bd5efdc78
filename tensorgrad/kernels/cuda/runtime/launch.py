"""Launches a program's functions: the arguments are packed into one block of memory, in the layout that the GPU reads.

CuPy's kernels make a C number of each argument for every launch, which takes longer than the launch itself; its binding
of the driver's function does not. For arguments of other types, and without that binding, CuPy's kernel launches.

Most launches of a training step differ only in their arrays from those of the step before. `Function.prepared` packs
everything else once; such a launch then takes a third of the time of one whose arguments are all given.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import Any

import cupy
import numpy as np

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
    """Returns CuPy's binding of the driver's function that launches, or None if there is none.

    It takes numbers only, and raises an error unless the launch was queued.
    """
    return getattr(getattr(cupy.cuda, "driver", None), "launchKernel", None)


class _Block:
    """Memory for the arguments of one launch, as words of eight bytes, and the driver's description of it."""

    __slots__ = ("_described", "address", "memory", "size")

    def __init__(self, size: int):
        self.memory = (ctypes.c_uint64 * max(1, -(-size // 8)))()
        self.size = ctypes.c_size_t(size)
        address, length = ctypes.addressof(self.memory), ctypes.addressof(self.size)
        self._described = (ctypes.c_void_p * 5)(_ADDRESS, address, _SIZE, length, _END)
        self.address = ctypes.addressof(self._described)


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
        try:
            self._launch(address, x, y, z, i, j, k, shared_mem, _current_stream().ptr, 0, filled.address)
        except RuntimeError:  # no context in this thread yet, which CuPy's kernel makes; or an error, which it names
            self._by_cupy(grid, block, arguments, shared_mem)
        how.free.append(filled)

    def prepared(self, grid, block, arguments, shared_mem=0) -> Prepared:
        """Returns a launch with these arguments, where ARRAY stands for an array that is given to each call."""
        return Prepared(self, grid, block, arguments, shared_mem)

    def _by_cupy(self, grid, block, arguments, shared_mem):
        given = tuple([a.array if isinstance(a, Record) else a for a in arguments])
        self.raw(grid, block, given, shared_mem=shared_mem)


ARRAY = object()  # the place of an array among the arguments of a prepared launch


class Part:
    """Some elements of a temporary array, for prepared launches: made in a fraction of the time of an array."""

    __slots__ = ("array", "count", "ptr", "start")

    def __init__(self, array, start: int, count: int):
        self.array, self.start, self.count = array, start, count
        self.ptr = array.data.ptr + start * array.itemsize

    @property
    def data(self) -> Part:
        """Itself, which has the address (`ptr`), as the data of an array does."""
        return self


class Prepared:
    """A launch whose arguments are fixed but for the arrays: `prepared(*arrays)`, in their order as arguments."""

    __slots__ = ("_block", "_free", "_function", "_grid", "_heads", "_layout", "_places", "_shared", "_template")

    def __init__(self, function: Function, grid, block, arguments, shared_mem: int):
        self._function, self._grid, self._block, self._shared = function, grid, block, shared_mem
        self._template = arguments
        classes = tuple([cupy.ndarray if a is ARRAY else a.__class__ for a in arguments])
        self._layout = layout(classes)
        self._heads: dict[int, tuple] = {}  # by device: the launch's arguments up to the stream
        self._free: list[_Block] = []  # blocks that no thread is using
        if self._layout is not None:
            letters = [LETTERS[each] for each in classes]
            starts = [struct.calcsize("@" + "".join(letters[:i]) + "0Q") for i in range(len(letters))]
            self._places = [start // 8 for start, a in zip(starts, arguments) if a is ARRAY]

    def __call__(self, *arrays):
        head = self._heads.get(_current_device())
        if head is None:
            self._first(arrays)
            return
        try:
            filled = self._free.pop()
        except IndexError:
            filled = self._filled()
        words = filled.memory
        for place, a in zip(self._places, arrays):
            words[place] = a.data.ptr
        try:
            self._function._launch(*head, _current_stream().ptr, 0, filled.address)
        except RuntimeError:
            self._function._by_cupy(self._grid, self._block, self._given(arrays), self._shared)
        self._free.append(filled)

    def _first(self, arrays) -> None:
        """Launches as any function does, which compiles; after that the address is known."""
        function = self._function
        function(self._grid, self._block, self._given(arrays), self._shared)
        address = function._addresses.get(_current_device())
        if address is not None and self._layout is not None:
            sizes = (*self._grid, 1, 1)[:3], (*self._block, 1, 1)[:3]
            self._heads[_current_device()] = address, *sizes[0], *sizes[1], self._shared

    def _given(self, arrays) -> tuple:
        some = iter([a.array[a.start : a.start + a.count] if a.__class__ is Part else a for a in arrays])
        return tuple([next(some) if a is ARRAY else a for a in self._template])

    def _filled(self) -> _Block:
        """Returns a new block with all arguments but the arrays."""
        how: Any = self._layout
        made = _Block(how.size)
        how.pack_into(made.memory, 0, *[0 if a is ARRAY else a for a in self._template])
        return made
