"""The threads of NumPy's BLAS, the library that multiplies matrices for it.

NumPy has no function that sets their number, but the libraries have, each by a name of its own. Whatever names there
are in the library that NumPy has loaded are called.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from tensorgrad.system import forks
from tensorgrad.system.processes import WEBASSEMBLY

__all__ = ["LOCK", "Library", "found_in", "libraries", "reapply", "set_threads", "why_not"]


class Library(NamedTuple):
    """A BLAS that this process has loaded."""

    name: str
    set_threads: Callable[[int], Any]
    threads: Callable[[], int]


# The modules whose library it is. SciPy brings another one, which counts once a program has imported it.
_USERS = ("numpy._core._multiarray_umath", "scipy.linalg._fblas")
LOCK = forks.lock(whole=True)
_limit: list[int] = []  # the number last set


def _names() -> Iterator[tuple[str, str, str, str]]:
    """Yields a library's name, and those of its functions that set and return the number, and that describe it."""
    for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "", "_64", "64")):
        name = f"{prefix}openblas_{{}}{suffix}".format
        yield "OpenBLAS", name("set_num_threads"), name("get_num_threads"), name("get_config")
    yield "MKL", "MKL_Set_Num_Threads", "MKL_Get_Max_Threads", ""
    yield "FlexiBLAS", "flexiblas_set_num_threads", "flexiblas_get_num_threads", ""
    yield "BLIS", "bli_thread_set_num_threads", "bli_thread_get_num_threads", ""


def found_in(handle: Any) -> Library | None:
    """Returns the BLAS whose functions `handle`, a library of ctypes, has; None if it has none that is known."""
    for name, setter, getter, description in _names():
        if hasattr(handle, setter) and hasattr(handle, getter):
            version = _version(getattr(handle, description)) if description and hasattr(handle, description) else ""
            return Library(f"{name} {version}".strip(), getattr(handle, setter), getattr(handle, getter))
    if hasattr(handle, "BLASSetThreading") and hasattr(handle, "BLASGetThreading"):  # Accelerate's, from macOS 15 on
        # It has two states: 1 is one thread, 0 as many as it likes.
        alone, states = handle.BLASGetThreading, handle.BLASSetThreading
        return Library("Accelerate", lambda n: states(int(n == 1)), lambda: 1 if alone() else os.cpu_count() or 1)
    return None


def _version(describe: Any) -> str:
    """Returns the version in a description such as "OpenBLAS 0.3.31  DYNAMIC_ARCH Haswell MAX_THREADS=64"."""
    import ctypes

    describe.restype = ctypes.c_char_p
    words = (describe() or b"").decode(errors="replace").split()
    return words[1] if len(words) > 1 and words[1][:1].isdigit() else ""


@cache
def _of(user: str) -> Library | None:
    """Returns the BLAS of a module that is loaded."""
    file = getattr(sys.modules[user], "__file__", None)
    found = (found_in(handle) for handle in _handles(file)) if file else iter(())
    return next(filter(None, found), None)


def _handles(file: str) -> Iterator[Any]:
    """Yields the libraries in which a module's functions may be. All are loaded: nothing new is."""
    import ctypes

    try:
        if os.name == "posix":
            yield ctypes.CDLL(file)  # functions are looked for in all the libraries that the module depends on, too
        else:
            yield from _loaded_in_windows()
    except OSError:  # a module without a file of its own
        return


def _loaded_in_windows() -> Iterator[Any]:
    import ctypes

    windows: Any = ctypes
    kernel = windows.WinDLL("kernel32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    modules, size = (ctypes.c_void_p * 4096)(), ctypes.c_uint32()
    listed = kernel.K32EnumProcessModules
    listed.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p]
    if listed(kernel.GetCurrentProcess(), modules, ctypes.sizeof(modules), ctypes.byref(size)):
        for module in modules[: size.value // ctypes.sizeof(ctypes.c_void_p)]:
            yield ctypes.CDLL("", handle=module)


def libraries() -> list[Library]:
    """Returns the BLAS of NumPy, and SciPy's if a program has imported that, as far as their threads can be set.

    >>> from tensorgrad.system import blas
    >>> all(library.threads() >= 1 for library in blas.libraries())
    True
    """
    return [library for user in _USERS if user in sys.modules and (library := _of(user)) is not None]


def set_threads(n: int) -> bool:
    """Sets the number of threads of all these libraries. Returns whether NumPy's is one of them.

    >>> from tensorgrad.system import blas
    >>> isinstance(blas.set_threads(torch.get_num_threads()), bool)
    True
    """
    with LOCK:
        _limit[:] = [n]
        for library in libraries():
            if library.threads() != n:
                library.set_threads(n)
        return _of(_USERS[0]) is not None


def reapply() -> None:
    """Sets the number last set once more: after SciPy has been imported."""
    if _limit:
        set_threads(_limit[0])


def why_not() -> str:
    """Returns why NumPy's library cannot be set; "" if NumPy has none, or there is one thread anyway."""
    if sys.platform in WEBASSEMBLY:
        return ""
    import numpy

    told = getattr(numpy.__config__, "CONFIG", {}).get("Build Dependencies", {}).get("blas", {})
    if not told.get("found", True):
        return ""
    if told.get("name") == "accelerate":
        return "Accelerate has a function for it from macOS 15 on; set VECLIB_MAXIMUM_THREADS before Python starts"
    return (
        f"its BLAS ({told.get('name', 'unknown')}) has no function for it that is known; set the variable that it "
        "reads, such as OMP_NUM_THREADS, before Python starts"
    )
