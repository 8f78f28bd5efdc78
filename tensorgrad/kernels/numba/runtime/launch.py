"""Loads compiled functions from a library of machine code (cache.py), or compiles them and adds them to it.

A kernel is a function of arrays and numbers, and last of the range of the work to do. One launcher, machine code, too
(build.py), starts all kernels: it writes the arguments to a mailbox (mailbox.py), and all threads read them from there
without the GIL. The code that divides work among threads is compiled once for all kernels (spin.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from tensorgrad.kernels.numba.runtime import internals, native
from tensorgrad.kernels.numba.runtime.cache import Library, Part
from tensorgrad.kernels.numba.runtime.language import COMPILING
from tensorgrad.kernels.numba.runtime.unsuited import Unsuited


class Missing(Unsuited):
    """A function that the library does not have yet."""


_library: Library | None = None
COMPILED: list[str] = []  # the functions that this process has compiled
_made: dict[str, Part] = {}  # the same, for other families that need them, too


@contextmanager
def taking_from(library: Library) -> Iterator[None]:
    """Takes functions made inside the block from this library. The caller holds `loading.LOCK`."""
    global _library
    before, _library = _library, library
    try:
        yield
    finally:
        _library = before


def identity(value: Any) -> str:
    """Names a function the same way in every process: by its position in the source and what its closure holds.

    What it reads from its module is part of the family's key. Raises: TypeError if the closure holds anything but
    numbers, strings and functions, whose name could change.
    """
    value = internals.python_function(value)
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        inside = ", ".join(f"{name}={identity(cell.cell_contents)}" for name, cell in cells)
        return f"{value.__module__}.{value.__qualname__}:{value.__code__.co_firstlineno}({inside})"
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple | frozenset):
        return (
            f"{type(value).__name__} ({', '.join(sorted(map(identity, value)))})"
            if isinstance(value, frozenset)
            else f"tuple ({', '.join(map(identity, value))})"
        )
    raise TypeError(f"the closure of a compiled function cannot hold {type(value).__name__}: {value!r:.80}")


def _address(function: Any, signature: str, kind: str, **options: Any) -> int:
    """Returns the address of a function's machine code."""
    name = f"{identity(function)} {signature} {kind}"
    if _library is None:
        raise Missing(name)
    part = _library.parts.get(name)
    if part is None:
        if not COMPILING:
            raise Missing(name)
        from tensorgrad.kernels.numba.runtime import build

        if name in _made:
            part = _library.parts[name] = _made[name]
            return native.load(part.data, part.entry, part.names)
        entry = f"tensorgrad_{hashlib.sha256((_library.key + name).encode()).hexdigest()[:24]}"
        data, names = build.built(function, signature, kind, entry, **options)
        part = _library.parts[name] = _made[name] = Part(entry, names, data)
        COMPILED.append(name)
    return native.load(part.data, part.entry, part.names)


_LAUNCHER = "launcher"
_functions: tuple[Any, Any] | None = None  # of the launcher


def _launcher() -> tuple[Any, Any]:
    """Returns the functions that call shared and plain kernels (build.py). Each library has their machine code."""
    global _functions
    part = None if _library is None else _library.parts.get(_LAUNCHER)
    if part is None and _library is not None and COMPILING:
        if _LAUNCHER not in _made:
            from tensorgrad.kernels.numba.runtime import build, cache

            entry = f"tensorgrad_{hashlib.sha256((cache.key('runtime.native') + _LAUNCHER).encode()).hexdigest()[:24]}"
            data, names = build.launcher(entry)
            _made[_LAUNCHER] = Part(entry, names, data)
        part = _library.parts[_LAUNCHER] = _made[_LAUNCHER]
    if _functions is None:
        if part is None:
            raise Missing(_LAUNCHER)
        addresses = native.words(native.load(part.data, part.entry, part.names), 2)
        _functions = native.function(addresses[0], "launch"), native.function(addresses[1], "call")
    return _functions


class Shared:
    """A compiled kernel whose ranges several threads may run (thread_pool.run).

    launch(address, arguments, length, mailbox, workers) runs it over 0 ... length, in this thread and `workers` others;
    `mailbox` belongs to the first of them. It returns flags of what happened (mailbox.py). Without workers it raises
    what the kernel raises. Arguments that the kernel does not take raise a TypeError.
    """

    __slots__ = ("__name__", "address", "launch")

    def __init__(self, address: int, name: str):
        self.address, self.__name__ = address, name
        self.launch = _launcher()[0]


def shared(signature: str, product: bool = False, calls: tuple = ()) -> Callable[[Callable], Shared]:
    """Decorates a kernel of arrays and numbers that takes a range of the work last: "void(..., int64, int64)".

    `product`: it multiplies blocks of matrices, whose loops go through many arrays at once. The compiler then takes
    twice as long for the machine code, which is up to 1.4 times as fast; other kernels are as fast without.
    `calls`: compiled functions in its closure that it only calls. Kernels that differ in nothing else share the work of
    the compiler up to LLVM IR; their machine code is the same as without.
    """
    options = {"product": product, "calls": calls}
    return lambda function: Shared(_address(function, signature, "shared", **options), function.__name__)


def plain(signature: str) -> Callable[[Callable], Callable]:
    """Decorates a compiled function that Python calls; it runs without the GIL."""
    return lambda function: partial(_launcher()[1], _address(function, signature, "plain"))


class Native:
    """A compiled C function, given by its address."""

    __slots__ = ("address",)

    def __init__(self, address: int):
        self.address = address


def of_numbers(signature: str) -> Callable[[Callable], Native]:
    """Decorates a compiled C function that takes and returns int64."""
    return lambda function: Native(_address(function, signature, "native"))


def with_loops(kernel: Callable, *loops: Callable) -> Callable[[], Callable]:
    """Returns the function that makes a row's kernel, after compiling the kernel's loops."""

    def make() -> Callable:
        for loop in loops:
            loop()
        return kernel

    return make
