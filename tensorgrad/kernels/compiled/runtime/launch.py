"""The decorators of compiled functions: they find the machine code that the package carries (library.py).

A kernel is a function of arrays and numbers, and last of the range of the work to do. One launcher, machine code, too
(tools/kernels/entries.py in the repository), starts all kernels: it writes the arguments to a mailbox (mailbox.py), and
all threads read them from there without the GIL. The code that divides work among threads is compiled once for all
kernels (spin.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled.runtime import library, native


def identity(value: Any) -> str:
    """Names a function the same way in every process: by its position in the source and what its closure holds.

    What it reads from its module is part of the family's sources. Raises: TypeError if the closure holds anything but
    numbers, strings and functions, whose name could change.
    """
    value = getattr(value, "py_func", None) or getattr(value, "_defn", value)  # of Numba's functions
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        inside = ", ".join(f"{name}={identity(cell.cell_contents)}" for name, cell in cells)
        return f"{value.__module__}.{value.__qualname__}:{value.__code__.co_firstlineno}({inside})"
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple):
        return f"tuple ({', '.join(map(identity, value))})"
    if isinstance(value, frozenset):
        return f"frozenset ({', '.join(sorted(map(identity, value)))})"
    raise TypeError(f"the closure of a compiled function cannot hold {type(value).__name__}: {value!r:.80}")


def _address(function: Any, signature: str, kind: str, **options: Any) -> int:
    """Returns the address of a function's machine code."""
    return library.address(f"{identity(function)} {signature} {kind}", function, signature, kind, **options)


LAUNCHER = "launcher"
_functions: tuple[Any, ...] | None = None  # of the launcher


def _launcher() -> tuple[Any, ...]:
    """Returns the functions that call shared and plain kernels, run a list of launches, and compare objects."""
    global _functions
    if library.COMPILER is not None:
        return None, lambda *given: None, None, None
    if _functions is None:
        addresses = native.words(library.image().address(LAUNCHER), 8)[4 * native.WINDOWS :]
        _functions = tuple(map(native.function, addresses, ("launch", "call", "replay", "same")))
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
    """Returns the function that makes a row's kernel, after loading the kernel's loops."""

    def make() -> Callable:
        for loop in loops:
            loop()
        return kernel

    return make


# --- lists of launches ------------------------------------------------------------------------------------------------
# A list is an array of 64-bit numbers, which `replay` reads (tools/kernels/entries.py): how many arrays it takes, how
# many numbers the arguments of all launches are, how many of these are addresses, how many launches there are, and
# whether they keep the GIL. For each array: which of NumPy's flags matter, their values, its dtype's address, its
# dimensions, shape and strides. Then the numbers, each launch's after one for an error; for each address, its place
# among them, the array and an offset in bytes; for each launch, the address of its code, the place of its numbers, and
# its length.

_FLAGS = 0x501  # row-major, aligned, writeable
_TUPLE, _TRUTH, _FLOAT, _SIGNED, _UNSIGNED, _ARRAY = range(6)  # kinds of arguments, as the records of kernels say them
_TAKES, _KINDS = 2, 5  # words of a record: how many arguments, and where their kinds begin
_ENDLESS = 1 << 56  # elements of an array of which only the address is known
_STORED = -2  # dimensions of an array whose memory is asked for in words of two bytes


def address(array: np.ndarray) -> int:
    """Where an array's first element is."""
    return int(array.__array_interface__["data"][0])


def numbers_of(kernel: Shared, arguments: tuple) -> list[Any]:
    """The numbers that the launcher unpacks arguments to, with an array itself in the place of its address."""
    # (The words of kinds are four for each argument; those of a tuple's items follow it.)
    found: list[Any] = []
    place = kernel.address + 8 * _KINDS

    def unpack(values: tuple) -> None:
        nonlocal place
        for value in values:
            kind, dims, *_ = native.words(place, 4)
            place += 32
            if kind == _TUPLE:
                unpack(value)
            elif kind == _ARRAY:
                found.append(value)
                memory = (value.nbytes // 2, 2) if dims == _STORED else (_ENDLESS, value.itemsize)
                found.extend(memory if dims < 0 else (*value.shape, *value.strides))
            elif kind == _FLOAT:
                found.append(int(np.float64(value).view(np.int64)))
            else:
                found.append(int(value) if kind != _UNSIGNED else int(np.uint64(value).view(np.int64)))

    unpack(arguments)
    return found


def listed(
    arrays: list[np.ndarray], launches: list[tuple[Shared, int, list[Any]]], keeps_gil: bool = False
) -> np.ndarray:
    """The list of launches: (kernel, length, numbers), with (index of an array, offset) in the place of an address.

    `arrays` are like those that it is going to be run on.
    """
    checks: list[int] = []
    for a in arrays:
        flags = int(a.flags.num) & _FLAGS
        checks += [_FLAGS, flags, id(a.dtype), a.ndim, *a.shape, *a.strides]
    numbers: list[int] = []
    patches: list[int] = []
    runs: list[int] = []
    for kernel, length, given in launches:
        numbers.append(0)
        runs += [native.words(kernel.address, 1)[0], len(numbers), length]
        for number in given:
            if number.__class__ is tuple:
                patches += [len(numbers), *number]
            numbers.append(0 if number.__class__ is tuple else number)
    head = [len(arrays), len(numbers), len(patches) // 3, len(launches), int(keeps_gil)]
    return np.array([*head, *checks, *numbers, *patches, *runs], np.int64)


def replay() -> Any:
    """The function (address of a list, *arrays) that runs it, and returns whether the arrays were like those it is for.

    If not, or if a kernel failed, what the launches write to is undefined.
    """
    return _launcher()[2]


def same() -> Any:
    """The function (address of a list) that says whether all is as the list says (identities.py)."""
    return _launcher()[3]
