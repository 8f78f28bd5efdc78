"""Loads object files (ELF) into this process on Linux with x86-64, without LLVM.

Importing LLVM takes 30 ms and 40 MB, more than all that most programs load. Our objects are simple: LLVM makes them for
code that may lie anywhere, so all that is left to fill in are addresses of 64 bits. What is not of this kind is refused
with `Unknown`, and LLVM loads it (native.py). A damaged object is refused with `Damaged`: it would crash LLVM.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from functools import cache
from typing import Any, NamedTuple

USABLE = sys.platform == "linux" and platform.machine() == "x86_64" and ctypes.sizeof(ctypes.c_void_p) == 8

# From the ELF standard and its supplement for x86-64.
_MAGIC = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_BITS, _SYMBOLS, _WITH_ADDENDS, _ZEROS, _WITHOUT, _UNWIND = 1, 2, 4, 8, 9, 0x70000001  # kinds of sections
_WRITABLE, _LOADED, _PER_THREAD = 1, 2, 0x400  # flags of sections
_UNDEFINED = 0  # instead of the number of a symbol's section
_ADDRESS = 1  # the relocation R_X86_64_64
_SECTION, _SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_RELOCATION, _ADDRESS_OF = struct.Struct("<QQq"), struct.Struct("<Q")


class Unknown(Exception):
    """An object has a part that is not known here, or the system does not let memory become code."""


class Damaged(RuntimeError):
    """An object is incomplete, or refers to something that is not there."""


@cache
def _protect() -> Any:
    """Returns the system's function that sets what may be done with memory."""
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def address_of(name: str) -> int:
    """Returns the address of a function of this process, or 0."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def load(data: bytes, entry: str, addresses: dict[str, int]) -> int:
    """Loads an object and returns the address of its symbol `entry`.

    Args:
        data: the object file.
        entry: the symbol's name.
        addresses: the addresses of all names that the object uses but does not define.

    Raises:
        Unknown, Damaged: see there.
    """
    try:
        return _load(data, entry, addresses)
    except OSError as error:  # there is no memory
        raise Unknown(str(error)) from None
    except (struct.error, ValueError, LookupError, OverflowError) as error:
        raise Damaged(f"a compiled kernel is damaged: {type(error).__name__}: {error}") from None


def _load(data: bytes, entry: str, addresses: dict[str, int]) -> int:
    if data[: len(_MAGIC)] != _MAGIC or struct.unpack_from("<HH", data, 16) != (_RELOCATABLE, _X86_64):
        raise ValueError("it is no object file for x86-64")
    (table,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    sections = [_Section(*_SECTION.unpack_from(data, table + n * size)) for n in range(count)]
    places, fixed, end = _laid_out(sections)
    memory = mmap.mmap(-1, max(end, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for number, place in places.items():
        if sections[number].kind == _BITS:
            memory[place : place + sections[number].length] = sections[number].of(data)

    [table_of_symbols] = [each for each in sections if each.kind == _SYMBOLS]
    texts = sections[table_of_symbols.link].of(data)
    symbols, entries = [], []
    for name, _, _, where, value, _ in _SYMBOL.iter_unpack(table_of_symbols.of(data)):
        text = texts[name : texts.index(b"\0", name)].decode()
        if where in places:
            if value > sections[where].length:
                raise ValueError(f"{text} lies outside its section")
            symbols.append(start + places[where] + value)
            entries += [symbols[-1]] if text == entry else []
        elif where == _UNDEFINED and text:  # the first symbol has no name, and no use
            symbols.append(addresses[text])
        else:  # of other places nothing is used
            symbols.append(None)
    for each in sections:
        if each.target in places and each.kind in (_WITH_ADDENDS, _WITHOUT):
            for at, info, addend in _RELOCATION.iter_unpack(each.of(data)):
                symbol = symbols[info >> 32]
                if each.kind == _WITHOUT or info & 0xFFFFFFFF != _ADDRESS or symbol is None:
                    raise Unknown(f"a relocation of kind {info & 0xFFFFFFFF}")
                if at + 8 > sections[each.target].length:
                    raise ValueError("a relocation outside its section")
                _ADDRESS_OF.pack_into(memory, places[each.target] + at, symbol + addend & (1 << 64) - 1)
    [address] = entries  # exactly one
    if fixed and _protect()(start, fixed, mmap.PROT_READ | mmap.PROT_EXEC):
        raise Unknown("the system does not let memory become code")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # stays to the end: threads may run it after Python has ended
    return address


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    length: int
    link: int
    target: int
    alignment: int
    size_of_entries: int

    def of(self, data: bytes) -> bytes:
        """Returns what the section contains. Raises: ValueError if the data ends before."""
        if self.offset + self.length > len(data):
            raise ValueError("it is incomplete")
        return data[self.offset : self.offset + self.length]


def _laid_out(sections: list[_Section]) -> tuple[dict[int, int], int, int]:
    """Places the sections that are loaded: code and constants first, what is written on pages of its own.

    Returns:
        The place of each by its number, the length of the first part, and that of both. Raises: Unknown.
    """
    places: dict[int, int] = {}
    end = fixed = 0
    for written in (0, _WRITABLE):
        for number, each in enumerate(sections):
            if each.flags & _LOADED and each.flags & _WRITABLE == written and each.kind != _UNWIND:
                if each.kind not in (_BITS, _ZEROS) or each.flags & _PER_THREAD or each.alignment > mmap.PAGESIZE:
                    raise Unknown(f"a section of kind {each.kind}")
                places[number] = _up(end, max(each.alignment, 1))
                end = places[number] + each.length
        if not written:
            fixed = end = _up(end, mmap.PAGESIZE)
    return places, fixed, end


def _up(size: int, unit: int) -> int:
    """Returns the first multiple of a unit that is not less than the size."""
    return -(-size // unit) * unit
