"""What machine code needs from this process: functions of Python and of the system, objects, the layout of arrays.

It is compiled without knowing the process (by tools/kernels in the repository). The loader gives it the addresses of
all this (library.py).
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import time
from functools import cache
from typing import Any

import numpy as np

# Functions of Python's C API that entry points call; in the code each is PREFIX + name.
PREFIX = "tensorgrad_"
PYTHON = (
    "PyBool_FromLong", "PyBytes_FromStringAndSize", "PyDict_GetItemWithError", "PyDict_Next", "PyErr_Clear",
    "PyErr_Occurred", "PyErr_SetString", "PyEval_RestoreThread", "PyEval_SaveThread", "PyFloat_AsDouble",
    "PyLong_AsLongLong", "PyLong_AsUnsignedLongLong", "PyLong_FromLongLong", "PyMem_RawFree", "PyMem_RawMalloc",
    "PyNumber_Index", "PyObject_CallObject", "PyObject_IsInstance", "PyObject_IsTrue", "PyTuple_GetItem",
    "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size", "Py_DecRef", "Py_IncRef",
)  # fmt: skip
# Functions of the C library, and those that not every system has: code calls the latter if `system_numbers` say so.
C_LIBRARY = ("memcpy", "memmove", "memset")
IF_THERE = ("clock_gettime", "sched_yield", "usleep", "sched_getcpu", "sem_wait", "sem_post")
# On x86-64, Windows calls functions in its own way, and kernels all call as other systems do. So functions that Python
# calls are there twice (launch.py), and these are the names that kernels call through code which calls them that way.
WINDOWS = os.name == "nt"
CALLS, CALLED = "calls", (*(PREFIX + name for name in PYTHON), *C_LIBRARY)
HEAD = 16  # bytes of an object before its own, in CPython of 64 bits with the GIL: `object.__basicsize__`
_FASTCALL = 0x80


def keep(*objects: Any) -> None:
    """Never frees these objects: C holds their addresses, and reads them until after the interpreter has ended."""
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def raise_error(data: bytes) -> None:
    """Raises the exception of a kernel. `data` is a constant in its machine code."""
    kind, arguments, *_ = pickle.loads(data)
    raise kind(*(arguments or ()))


OBJECTS: dict[str, Any] = {"ndarray": np.ndarray, "TypeError": TypeError, "None": None, "raise": raise_error}


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# --- the system ---


@cache
def _c_library() -> Any:
    return ctypes.CDLL(None) if os.name == "posix" else ctypes.CDLL("ucrtbase")


def address_of(name: str) -> int:
    """Returns the address of a function of the C library, or 0."""
    try:
        return ctypes.cast(getattr(_c_library(), name), ctypes.c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


# The numbers that tell code what the system has, by their place: its clock (-1: none), and whether a thread can give
# way to others, can tell its processor, and can sleep on a semaphore in memory, which `sem_init` fills in.
CLOCK, CAN_YIELD, CAN_TELL, CAN_SLEEP = range(4)


def _found_numbers() -> list[int]:
    if os.name != "posix":
        return [-1, 0, 0, 0]
    there = {name: bool(address_of(name)) for name in IF_THERE}
    clock = getattr(time, "CLOCK_MONOTONIC", -1) if there["clock_gettime"] else -1
    sleeps = sys.platform == "linux" and there["sem_wait"] and there["sem_post"]
    return [clock, there["sched_yield"] and there["usleep"], there["sched_getcpu"], sleeps]


@cache
def system_numbers() -> Any:
    """Returns them where code finds them; made at the first use, as WebAssembly has no ctypes to make them with."""
    made = (ctypes.c_int64 * 4)(*_found_numbers())
    keep(made)
    return made


# --- what code finds by its name ---


def arrays_are_known() -> bool:
    """Returns whether NumPy's arrays, and lists of them, have the memory layout that entry points and kernels read."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little" or object.__basicsize__ != HEAD:
        return False
    probe = np.arange(6, dtype=np.float32).reshape(2, 3)
    start = id(probe) + HEAD

    def word(place: int, kind: Any = ctypes.c_int64) -> int:
        return kind.from_address(place).value

    descr, listed = word(start + 40) + HEAD, [None, probe]
    return (
        word(start) == probe.ctypes.data
        and word(start + 8, ctypes.c_int32) == 2
        and (word(word(start + 16)), word(word(start + 16) + 8)) == probe.shape
        and (word(word(start + 24)), word(word(start + 24) + 8)) == probe.strides
        and descr - HEAD == id(probe.dtype)
        and bytes((ctypes.c_char * 3).from_address(descr + 8)) == b"ff="
        and word(descr + 24) == 4
        and word(start + 48, ctypes.c_int32) & 0x501 == 0x501
        and word(id(probe) + 8) == id(np.ndarray)
        and word(word(id(listed) + HEAD + 8) + 8) == id(probe)
    )


@cache
def addresses() -> dict[str, int]:
    """Returns the addresses of all names that code may use. Those that the system lacks are 0.

    Raises: RuntimeError if arrays are not laid out as kernels expect, or a function that they need is missing.
    """
    if not arrays_are_known():
        raise RuntimeError("NumPy's arrays are not laid out as compiled kernels expect")
    found = {PREFIX + name: id(held) for name, held in OBJECTS.items()}
    for name in PYTHON:
        found[PREFIX + name] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    found |= {PREFIX + "system": ctypes.addressof(system_numbers())}
    found |= {name: address_of(name) for name in C_LIBRARY}
    missing = [name for name, address in found.items() if not address]
    if missing:
        raise RuntimeError(f"names missing from this process: {', '.join(missing)}")
    return found | {name: address_of(name) for name in IF_THERE}


# --- Python functions of machine code ---


def words(address: int, count: int) -> list[int]:
    """Returns the 64-bit numbers at an address."""
    return list((ctypes.c_int64 * count).from_address(address))


def function(address: int, name: str) -> Any:
    """Returns a Python function for machine code at an address that takes arguments as METH_FASTCALL does."""
    text = name.encode()
    method = _Method(text, address, _FASTCALL, None)
    keep(text, method)  # Python reads both when it frees the function, after all modules are cleared
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return make(ctypes.addressof(method), None, None)
