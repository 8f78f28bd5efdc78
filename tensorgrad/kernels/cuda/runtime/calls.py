"""Calls C libraries from Python: signatures in a table, status codes as RuntimeError, one handle per thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import cupy

from tensorgrad.kernels.cuda.runtime import libraries
from tensorgrad.system.per_thread import PerThread

# The letters of signatures. "p": any pointer or handle; "i", "l", "z": int, 64-bit int, size_t; "d": double.
LETTERS: dict[str, Any] = {
    "p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_int64, "z": ctypes.c_size_t, "d": ctypes.c_double,
}  # fmt: skip


class Refused(RuntimeError):
    """A call returned a status other than success."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class Functions:
    """The functions of one library by name, made on first use. `in_c` of one is the C function, which returns a status.

    `signatures` are strings of LETTERS; every function returns a status, where 0 is success. `words` describes a
    status.
    """

    def __init__(self, library: str, signatures: dict[str, str], words):
        self._library, self._signatures, self.words = library, signatures, words

    def __getattr__(self, name: str):
        function = getattr(libraries.load(self._library), name)
        function.restype, function.argtypes = ctypes.c_int, [LETTERS[letter] for letter in self._signatures[name]]
        words = self.words

        def call(*arguments, about: Any = ""):
            status = function(*arguments)
            if status:
                shown = about() if callable(about) else about
                raise Refused(f"{name}{f' of {shown}' if shown else ''}: {words(status)}", status)

        call.in_c = function  # type: ignore[attr-defined]
        setattr(self, name, call)
        return call


class Handles(PerThread):
    """A library's handles in this thread, one per device, made on first use.

    A handle has a `stream` (initially None), and `follow(stream)` switches it to another.
    """

    def __init__(self, make: Callable[[], Any]):
        self._make = make
        self._of: dict[int, Any] = {}

    def current(self) -> Any:
        """Returns the handle of the current device, set to CuPy's current stream."""
        device = cupy.cuda.get_device_id()
        found = self._of.get(device)
        if found is None:
            found = self._of[device] = self._make()
        stream = cupy.cuda.get_current_stream().ptr
        if stream != found.stream:
            found.follow(stream)
        return found
