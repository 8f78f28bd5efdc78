"""Puts machine code into this process's memory. No page of it can ever be written and executed at once.

The memory is written first; then its code is made executable and what it reads is made read-only, for good. Code stays
where it is until the process ends: threads may run it even after Python has.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from functools import cache
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled.runtime.native import keep


class Refused(RuntimeError):
    """The system does not let memory become code."""


def place(code: bytes, fixed: np.ndarray, written: int, page: int, moved: np.ndarray) -> int:
    """Returns the address of code in memory.

    Args:
        code: the code and its constants.
        fixed: what it reads that depends on addresses: 64-bit numbers, on pages after the code.
        written: bytes that it may write, zeros, on pages after that.
        page: bytes of a page, as the code was linked for.
        moved: the places in `fixed` to which the address is added.

    Raises: Refused.
    """
    ends = _up(len(code), page), _up(len(code), page) + _up(8 * len(fixed), page)
    total = ends[1] + _up(written, page)
    if page % mmap.PAGESIZE:
        raise Refused(f"its pages are of {mmap.PAGESIZE} bytes")
    address = _reserved(total)
    fixed[moved] += address  # (a copy: `library.placed` made it)
    ctypes.memmove(address, code, len(code))
    ctypes.memmove(address + ends[0], fixed.ctypes.data, 8 * len(fixed))
    _protect(address, ends[0], True)
    if ends[1] > ends[0]:
        _protect(address + ends[0], ends[1] - ends[0], False)
    _fetch_again(address, len(code))
    return address


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


if os.name == "nt":
    _COMMIT, _READ_WRITE, _READ, _EXECUTE_READ = 0x3000, 0x04, 0x02, 0x20

    @cache
    def _windows(name: str) -> Any:
        function = getattr(ctypes.WinDLL("kernel32", use_last_error=True), name)  # type: ignore[attr-defined]
        function.restype = ctypes.c_void_p
        return function

    def _reserved(size: int) -> int:
        found = _windows("VirtualAlloc")(None, ctypes.c_size_t(size), _COMMIT, _READ_WRITE)
        if not found:
            raise Refused("the system has no memory for it")
        return int(found)

    def _protect(address: int, size: int, executable: bool) -> None:
        mode, before = _EXECUTE_READ if executable else _READ, ctypes.c_uint32()
        done = _windows("VirtualProtect")(ctypes.c_void_p(address), ctypes.c_size_t(size), mode, ctypes.byref(before))
        if not done:
            raise Refused("the system does not let memory become code")

else:

    @cache
    def _mprotect() -> Any:
        function = ctypes.CDLL(None, use_errno=True).mprotect
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        return function

    def _reserved(size: int) -> int:
        try:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise Refused(str(error)) from None
        keep(memory)
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def _protect(address: int, size: int, executable: bool) -> None:
        if _mprotect()(address, size, mmap.PROT_READ | (mmap.PROT_EXEC if executable else 0)):
            raise Refused("the system does not let memory become code")


def _fetch_again(address: int, size: int) -> None:
    """Has the processor read code anew that may be in its instruction cache. Those of x86 notice by themselves."""
    if platform.machine() in ("x86_64", "AMD64"):
        return
    start, end = ctypes.c_void_p(address), ctypes.c_void_p(address + size)
    if os.name == "nt":
        kernel = _windows("FlushInstructionCache")
        kernel(ctypes.c_void_p(-1), start, ctypes.c_size_t(size))
    elif sys.platform == "darwin":
        ctypes.CDLL(None).sys_icache_invalidate(start, ctypes.c_size_t(size))
    else:
        for name in (None, "libgcc_s.so.1"):
            try:
                clear = ctypes.CDLL(name).__clear_cache
            except (OSError, AttributeError):
                continue
            clear(start, end)
            return
        # Without it: Linux itself does so when it makes a page executable that was written.
