"""Gets kernels ready in the background; NumPy serves meanwhile.

A process of its own compiles them (compiler.py) and keeps them in the user's cache folder (cache.py); a thread of the
program loads them from there. It holds Python's lock for moments only.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tensorgrad.kernels.numba.runtime.compiler import Compiler, Failed, compiles_here
from tensorgrad.system import forks

_lock = forks.lock()
_queue: SimpleQueue = SimpleQueue()
_thread: threading.Thread | None = None
_child = False  # in a forked child nothing is compiled: a lock of the compiler's may have been held at the fork


def _forked() -> None:
    global _child, _thread
    _child, _thread = True, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def cache_folder() -> Path | None:
    """Where compiled kernels are kept: TENSORGRAD_CACHE, or the user's cache folder; None if there is none."""
    from tensorgrad.kernels.numba.runtime import cache

    return cache.folder()


_SHORT = 5e-4  # seconds that the thread keeps Python's lock while another waits for it
_made: dict[str, Any] = {}  # kernels that are loaded, by name
_compiler = Compiler()


@contextmanager
def _briefly() -> Iterator[None]:
    """Lets other threads have Python's lock soon while this one imports and loads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SHORT))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _load(kernel: str, library: Any) -> Any:
    """A kernel whose functions are in a library. Raises: Missing if one is not."""
    from tensorgrad.kernels.numba.runtime import launch

    family, _, name = kernel.rpartition(".")
    with launch.taking_from(library):
        made = importlib.import_module(f"tensorgrad.kernels.numba.{family}").KERNELS[name]()
    _made[kernel] = made
    return made


def _cached(kernel: str) -> Any:
    """The kernel as the cache has it; None if it has not."""
    from tensorgrad.kernels.numba.runtime import cache, launch

    family, _, name = kernel.rpartition(".")
    if kernel in _made:
        return _made[kernel]
    library = cache.read(family)
    if name not in library.proven:
        return None
    try:
        return _load(kernel, library)
    except launch.Missing:
        return None


def compiled(kernel: str) -> Any:
    """The kernel "family.name", loaded from the cache; before that compiled, if it is not there. Raises: Failed."""
    from tensorgrad.kernels.numba.runtime import cache

    with _lock:
        with _briefly():
            made = _cached(kernel)
        if made is None:
            family = kernel.rpartition(".")[0]
            reason = cache.refused(family, kernel)
            if reason is not None:
                raise Failed(f"it failed before, and is tried again in some days: {reason}", tried=False)
            _tell(cache)
            where = cache.place()
            try:
                if compiles_here():
                    compile_into(kernel, where)
                else:
                    _compiler.compile(kernel, where)
            except Failed as failed:
                if failed.tried:
                    cache.remember(family, kernel, str(failed), failed.crash)
                raise
            with _briefly():
                made = _cached(kernel)
        if made is None:
            raise Failed("it was compiled, but is not in the cache", tried=False)
        return made


_libraries: dict[str, Any] = {}  # what this process has compiled, by family


def compile_into(kernel: str, where: Path) -> None:
    """Compiles a kernel, compares its results with NumPy's, and puts it into the cache: what the process does."""
    from tensorgrad.kernels.numba.runtime import cache, verify

    family, _, name = kernel.rpartition(".")
    if where not in cache.places():
        cache.use(where)
    with _lock, cache.lock(where, family):
        library = cache.read(family)
        if name in library.proven:
            return
        known = _libraries.setdefault(family, library)
        known.parts = library.parts | known.parts
        known.proven |= library.proven
        made = _load(kernel, known)
        verify.check(kernel, made)
        known.proven.add(name)
        cache.write(known, where)
        cache.prune(where)


def made(kernel: str) -> Any:
    """A kernel beside one that is being compiled: of the same family, and compiled with it if need be."""
    return _made.get(kernel) or _load(kernel, _libraries[kernel.rpartition(".")[0]])


def in_cache(kernel: str) -> bool:
    """Whether a kernel only has to be loaded."""
    from tensorgrad.kernels.numba.runtime import cache

    family, _, name = kernel.rpartition(".")
    return name in cache.read(family).proven


_told = False


def _tell(cache: Any) -> None:
    """Says once that kernels are being compiled, to who sits before a terminal, if there are none on this machine."""
    global _told
    if not _told and sys.stderr is not None and sys.stderr.isatty() and not in_cache("runtime.spin.wait"):
        print(
            "tensorgrad: compiling kernels in the background, once; python -m tensorgrad.warmup does it ahead",
            file=sys.stderr,
        )
    _told = True


def request(row: Any) -> None:
    """Has a row's kernel compiled in the background. Returns at once."""
    global _thread
    if _child or row.asked:
        return
    row.asked = True
    _queue.put(row)
    with _starting:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_serve, name="tensorgrad compiler", daemon=True)
            _thread.start()


_starting = forks.lock()
_IDLE = 5.0  # seconds after which the compiler's process is ended


def _serve() -> None:
    while True:
        try:
            row = _queue.get(timeout=_IDLE)
        except Empty:
            with _lock:  # nobody is waiting for it
                _compiler.close()
            row = _queue.get()
        try:
            row.ready = compiled(row.kernel)
        except Exception as error:  # NumPy serves on
            if _compiler.ended:  # with the program: nothing has failed
                return
            _failed.append(row)
            if str(error) not in _warned:
                _warned.add(str(error))
                warnings.warn(f"tensorgrad: the compiled kernel of {row.op} is not used: {error!s:.300}", stacklevel=1)


_failed: list[Any] = []  # the rows whose kernel could not be compiled
_warned: set[str] = set()


def wait() -> None:
    """Waits until everything that was requested is compiled, or cannot be (for tests and measurements)."""
    from tensorgrad.kernels.numba.table import ROWS

    while any(
        row.asked and row.ready is None and row not in _failed and _thread is not None and _thread.is_alive()
        for row in ROWS
    ):
        time.sleep(0.01)
