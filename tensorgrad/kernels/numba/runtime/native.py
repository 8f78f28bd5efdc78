"""Machine code in this process: objects that were compiled elsewhere (build.py) become functions of Python.

LLVM ends the process when an object names something that it does not find, so every name is looked up first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tensorgrad.system import forks

# Functions of Python's own interface that entry points call (build.py); to LLVM each is known as PREFIX + name.
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
_kept: list[Any] = []  # what machine code holds the address of


def raise_error(data: bytes) -> None:
    """Raises what a kernel raises. `data` is a constant of its machine code."""
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


def cpu() -> tuple[str, str]:
    """The processor's name and features, as LLVM calls them; Numba's variables of the environment overrule it."""
    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    given = os.environ.get("NUMBA_CPU_FEATURES")
    return name, llvm.get_host_cpu_features().flatten() if given is None else given


def has(feature: str) -> bool:
    """Whether the processor that code is made for has a feature ("avx")."""
    return f"+{feature}" in cpu()[1].split(",")


def machine(name: str, features: str) -> Any:
    """What makes machine code for this process."""
    with contextlib.suppress(Exception):  # newer versions need no such call, and say so
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=name, features=features, opt=3, codemodel="jitdefault", jit=True,
        reloc="static" if target.name.startswith("x86") else "default",
    )  # fmt: skip


def arrays_are_known() -> bool:
    """Whether NumPy's arrays lie in memory as entry points read them."""
    probe = np.arange(6, dtype=np.float32).reshape(2, 3)
    start = id(probe) + object.__basicsize__

    def word(place: int, kind: Any = ctypes.c_int64) -> int:
        return kind.from_address(place).value

    descr = word(start + 40) + object.__basicsize__
    return (
        word(start) == probe.ctypes.data
        and word(start + 8, ctypes.c_int32) == 2
        and (word(word(start + 16)), word(word(start + 16) + 8)) == probe.shape
        and (word(word(start + 24)), word(word(start + 24) + 8)) == probe.strides
        and descr - object.__basicsize__ == id(probe.dtype)
        and bytes((ctypes.c_char * 3).from_address(descr + 8)) == b"ff="
        and word(descr + 24) == 4
        and word(start + 48, ctypes.c_int32) & 0x501 == 0x501
    )


@cache
def _engine() -> Any:
    """LLVM's loader; one for all objects."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not arrays_are_known():
        raise RuntimeError("NumPy's arrays are not laid out as compiled kernels expect")
    for name in PYTHON:
        llvm.add_symbol(PREFIX + name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    for name, held in OBJECTS.items():
        llvm.add_symbol(PREFIX + name, id(held))
    made = machine(*cpu())
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), made)


def load(data: bytes, entry: str, names: list[str]) -> int:
    """The address of an object's entry. Raises: RuntimeError if it names something that is not there."""
    with _lock:
        engine = _engine()
        missing = [name for name in names if not llvm.address_of_symbol(name)]
        if missing:
            raise RuntimeError(f"not found in this process: {', '.join(missing)}")
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        return engine.get_function_address(entry)


def function(address: int, name: str) -> Any:
    """The function of Python whose machine code, taking arguments as METH_FASTCALL does, is at an address."""
    method = _Method(name.encode(), address, _FASTCALL, None)
    _kept.append(method)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return make(ctypes.addressof(method), None, None)
