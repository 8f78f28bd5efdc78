"""Turns object files compiled elsewhere (build.py) into Python functions of this process.

On Linux with x86-64 they are loaded by objects.py, elsewhere by LLVM. LLVM ends the process if an object uses a name
that cannot be found, so every name is looked up first.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from tensorgrad.kernels.numba.runtime import internals, objects
from tensorgrad.system import forks

# Functions of Python's C API that entry points call (build.py); LLVM has each of them as PREFIX + name.
PREFIX = "tensorgrad_"
PYTHON = (
    "PyBool_FromLong", "PyBytes_FromStringAndSize", "PyErr_Clear", "PyErr_Occurred", "PyErr_SetString",
    "PyEval_RestoreThread", "PyEval_SaveThread", "PyFloat_AsDouble", "PyLong_AsLongLong", "PyLong_AsUnsignedLongLong",
    "PyLong_FromLongLong", "PyMem_RawFree", "PyMem_RawMalloc", "PyNumber_Index", "PyObject_CallObject",
    "PyObject_IsInstance", "PyObject_IsTrue", "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size",
    "Py_DecRef", "Py_IncRef",
)  # fmt: skip
_FASTCALL = 0x80
_lock = forks.lock()
_addresses: dict[str, int] = {}  # of the entries loaded so far


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


# Levels of processors that TENSORGRAD_CPU may name instead of this one, for files that other machines can use, too:
# LLVM's name and features, all of which the machine must have. The lowest first.
_V2 = "+cx16,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe"
LEVELS = {
    "x86-64-v2": ("x86-64-v2", _V2),
    "x86-64-v3": ("x86-64-v3", _V3),
    "x86-64-v4": ("x86-64-v4", f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"),
    "aarch64": ("generic", "+fp-armv8,+neon"),
}


LEVEL = ""  # of the kernels that are carried along (carried.py)


def level() -> str:
    """Returns the level of processors that kernels are for; "" if they are for this very processor."""
    return os.environ.get("TENSORGRAD_CPU") or LEVEL


def cpu() -> tuple[str, str]:
    """Returns the name and features of the processor that kernels are for, as LLVM calls them.

    Numba's environment variables take precedence.
    """
    return _cpu(level())


def _cpu(level: str) -> tuple[str, str]:
    name, features = LEVELS.get(level) or internals.host_cpu()
    if "+avx512f" in features.split(","):  # LLVM would use half of each register for what it vectorizes itself
        features += ",-prefer-256-bit"
    return os.environ.get("NUMBA_CPU_NAME") or name, os.environ.get("NUMBA_CPU_FEATURES", features)


def lacking(level: str) -> list[str]:
    """Returns the features of a level that this processor lacks."""
    found = _described() or internals.host_cpu()[1].replace("+", "").replace(",", " ")
    wanted = LEVELS[level][1].replace("+", "").split(",")
    return [feature for feature in wanted if not {feature, _IN_LINUX.get(feature)} & set(found.split(" "))]


def unusable() -> str:
    """Returns a sentence on why no kernel can be used here: an untried version, or the processor; "" if they can."""
    level = os.environ.get("TENSORGRAD_CPU", "")
    if level and level not in LEVELS:
        return f"TENSORGRAD_CPU={level} is none of {', '.join(LEVELS)}"
    if level and lacking(level):
        return f"this processor is not of the level TENSORGRAD_CPU={level}: it lacks {', '.join(lacking(level))}"
    return internals.untried()


_IN_LINUX = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "lzcnt": "abm", "bmi": "bmi1"}  # of LLVM's features
GIVEN = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")  # variables that name another processor


@cache
def _described() -> str:
    """Returns what Linux says of an x86-64 processor: its maker, its model and its features. Elsewhere ""."""
    if not objects.USABLE:
        return ""
    lines = []
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():  # what follows is the next one
                    break
                name, _, value = line.partition(":")
                if name.strip() in ("vendor_id", "cpu family", "model", "stepping", "flags"):
                    lines.append(f"{name.strip()}: {' '.join(sorted(value.split()))}")
    except OSError:
        return ""
    return "\n".join(lines) if len(lines) == 5 else ""


def _by_system(level: str) -> str:
    return "" if level or any(name in os.environ for name in GIVEN) else _described()


def processor(level: str) -> tuple[str, ...]:
    """Returns what tells the processors of a level from others, or for "" this very one: what the system says of it,
    since LLVM need not be imported for that, or else its name and features."""
    found = _by_system(level)
    return (found,) if found else _cpu(level)


def has(feature: str) -> bool:
    """Returns whether the processor that kernels are for has a feature ("avx")."""
    found = _by_system(level())
    return feature in found.split(" ") if found else f"+{feature}" in cpu()[1].split(",")


def arrays_are_known() -> bool:
    """Returns whether NumPy's arrays, and lists of them, have the memory layout that entry points and kernels read."""
    probe = np.arange(6, dtype=np.float32).reshape(2, 3)
    start = id(probe) + object.__basicsize__

    def word(place: int, kind: Any = ctypes.c_int64) -> int:
        return kind.from_address(place).value

    descr, listed = word(start + 40) + object.__basicsize__, [None, probe]
    return (
        word(start) == probe.ctypes.data
        and word(start + 8, ctypes.c_int32) == 2
        and (word(word(start + 16)), word(word(start + 16) + 8)) == probe.shape
        and (word(word(start + 24)), word(word(start + 24) + 8)) == probe.strides
        and descr - object.__basicsize__ == id(probe.dtype)
        and bytes((ctypes.c_char * 3).from_address(descr + 8)) == b"ff="
        and word(descr + 24) == 4
        and word(start + 48, ctypes.c_int32) & 0x501 == 0x501
        and word(id(probe) + 8) == id(np.ndarray)
        and word(word(id(listed) + object.__basicsize__ + 8) + 8) == id(probe)
    )


@cache
def _symbols() -> dict[str, int]:
    """Returns the addresses of the names that begin with PREFIX."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not arrays_are_known():
        raise RuntimeError("NumPy's arrays are not laid out as compiled kernels expect")
    symbols = {name: id(held) for name, held in OBJECTS.items()}
    for name in PYTHON:
        symbols[name] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    return {PREFIX + name: address for name, address in symbols.items()}


@cache
def _loader() -> internals.Loader:
    """Returns LLVM's loader, of which a process has one."""
    return internals.Loader(*cpu(), _symbols())


def load(data: bytes, entry: str, names: list[str]) -> int:
    """Loads an object and returns its entry's address. Raises: RuntimeError if it uses a name that is not there.

    The name of an entry stands for what it was compiled from: it is loaded once.
    """
    with _lock:
        if entry in _addresses:
            return _addresses[entry]
        if objects.USABLE:
            addresses = {name: _symbols().get(name) or objects.address_of(name) for name in names}
            missing = [name for name, address in addresses.items() if not address]
        else:
            missing = _loader().missing(names)
        if missing:
            raise RuntimeError(f"names missing from this process: {', '.join(missing)}")
        if objects.USABLE:
            with suppress(objects.Unknown):
                _addresses[entry] = objects.load(data, entry, addresses)
        if entry not in _addresses:
            _addresses[entry] = _loader().load(data, entry)
        return _addresses[entry]


def words(address: int, count: int) -> list[int]:
    """Returns the 64-bit numbers at an address."""
    return list((ctypes.c_int64 * count).from_address(address))


def function(address: int, name: str) -> Any:
    """Returns a Python function for machine code at an address that takes arguments as METH_FASTCALL does."""
    text = name.encode()
    method = _Method(text, address, _FASTCALL, None)
    for each in (text, method):  # Python reads both when it frees the function, after all modules are cleared
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return make(ctypes.addressof(method), None, None)
