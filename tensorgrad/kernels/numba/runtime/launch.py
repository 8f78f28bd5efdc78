"""How compiled functions come to be: from a library of machine code (cache.py), or from the compiler, which adds to it.

A kernel is a function of arrays and numbers and, at the end, of the range of the work to do. What starts it is machine
code, too (build.py): it leaves the arguments in a mailbox (mailbox.py), and all threads take them from there without
asking for Python's lock. What divides the work among the threads is compiled once for all kernels (spin.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np

from tensorgrad.kernels.numba.runtime import internals, native
from tensorgrad.kernels.numba.runtime.cache import Library, Part
from tensorgrad.kernels.numba.runtime.language import COMPILING
from tensorgrad.kernels.numba.runtime.unsuited import Unsuited


class Missing(Unsuited):
    """A function that the library does not hold yet."""


_library: Library | None = None
COMPILED: list[str] = []  # the functions that this process has compiled


@contextmanager
def taking_from(library: Library) -> Iterator[None]:
    """Functions that are asked for meanwhile come from this library. The caller holds `loading.LOCK`."""
    global _library
    before, _library = _library, library
    try:
        yield
    finally:
        _library = before


def identity(value: Any) -> str:
    """A name for a function that is the same in every process: where it stands, and what it has taken from around it.

    What it reads of its module is part of the family's key. Raises: TypeError for a closure over anything else than
    numbers, texts and functions, whose name could change.
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
    raise TypeError(f"a compiled function cannot be kept whose closure holds {type(value).__name__}: {value!r:.80}")


def _address(function: Any, signature: str, kind: str, **options: Any) -> int:
    """The address of a function's machine code."""
    name = f"{identity(function)} {signature} {kind}"
    if _library is None:
        raise Missing(name)
    part = _library.parts.get(name)
    if part is None:
        if not COMPILING:
            raise Missing(name)
        from tensorgrad.kernels.numba.runtime import build

        entry = f"tensorgrad_{hashlib.sha256((_library.key + name).encode()).hexdigest()[:24]}"
        data, names = build.built(function, signature, kind, entry, **options)
        part = _library.parts[name] = Part(entry, names, data)
        COMPILED.append(name)
    return native.load(part.data, part.entry, part.names)


class Shared:
    """A compiled kernel whose ranges several threads may do (thread_pool.run).

    launch(address, arguments, length, mailbox, workers) runs it over 0 ... length, in this thread and `workers` others,
    of which `mailbox` is the first one's; it returns what has happened (mailbox.py). Without workers it raises
    what the kernel raises. Arguments that the kernel does not take are a TypeError.
    """

    __slots__ = ("__name__", "address", "launch")

    def __init__(self, address: int, name: str):
        self.address, self.__name__ = address, name
        self.launch = native.function(address, name)


def shared(signature: str) -> Callable[[Callable], Shared]:
    """A compiled kernel that takes arrays and numbers, and a range of the work: "void(..., int64, int64)"."""
    return lambda function: Shared(_address(function, signature, "shared"), function.__name__)


def plain(signature: str) -> Callable[[Callable], Callable]:
    """A compiled function that Python calls; it holds no lock meanwhile."""
    return lambda function: native.function(_address(function, signature, "plain"), function.__name__)


class Native:
    """A compiled function of C, by its address."""

    __slots__ = ("address",)

    def __init__(self, address: int):
        self.address = address


def of_numbers(signature: str) -> Callable[[Callable], Native]:
    """A compiled function of C, which takes and returns int64."""
    return lambda function: Native(_address(function, signature, "native"))


def with_loops(kernel: Callable, *loops: Callable) -> Callable[[], Callable]:
    """What makes the kernel of a row: has its loops compiled first."""

    def make() -> Callable:
        for loop in loops:
            loop()
        return kernel

    return make
