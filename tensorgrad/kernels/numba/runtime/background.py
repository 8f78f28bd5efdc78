"""Gets kernels ready in the background; NumPy serves meanwhile.

A process of its own compiles them (compiler.py) and keeps them in the user's cache folder (cache.py); a thread of the
program loads them from there. It holds Python's lock for moments only.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from queue import Empty, SimpleQueue
from typing import Any

from tensorgrad.kernels.numba.runtime import hooks, loading
from tensorgrad.kernels.numba.runtime.compiler import Compiler, Failed, compiles_here
from tensorgrad.system import forks

_queue: SimpleQueue = SimpleQueue()
_thread: threading.Thread | None = None
_child = False  # in a forked child nothing is compiled: a lock of the compiler's may have been held at the fork


def _forked() -> None:
    global _child, _thread
    _child, _thread = True, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


_compiler = Compiler()


class Unusable(Failed):
    """No kernel may be used in this process."""


def compiled(kernel: str) -> Any:
    """The kernel "family.name", loaded from the cache; before that compiled, if it is not there. Raises: Failed."""
    from tensorgrad.kernels.numba.runtime import cache, internals

    if internals.untried():
        raise Unusable(internals.untried(), tried=False)
    with loading.LOCK:
        with loading.briefly():
            made = loading.cached(kernel)
        if made is None:
            family = kernel.rpartition(".")[0]
            reason = cache.refused(family, kernel)
            if reason is not None:
                raise Failed(f"it failed before, and is tried again in some days: {reason}", tried=False)
            _tell()
            where = cache.place()
            try:
                if compiles_here():
                    hooks.compile_here(kernel, where)
                else:
                    _compiler.compile(kernel, where)
            except Failed as failed:
                if failed.tried:
                    cache.remember(family, kernel, str(failed), failed.crash)
                raise
            with loading.briefly():
                made = loading.cached(kernel)
        if made is None:
            raise Failed("it was compiled, but is not in the cache", tried=False)
        return made


_told = False


_failure: str | None = None  # why no kernel is used in this process; None before that was looked at


def _check() -> None:
    """Has a small kernel tested once, before any is used. Raises: Unusable."""
    global _failure
    if _failure is None:
        from tensorgrad.kernels.numba.runtime import self_test

        try:
            loops = compiled("runtime.spin.wait")
        except Unusable:
            raise
        except Exception:  # then no threads share kernels; their own row says why
            _failure = ""
        else:
            _failure = self_test.failure(loops)
    if _failure:
        raise Unusable(_failure, tried=False)


def _tell() -> None:
    """Says once that kernels are being compiled, on a terminal, if there are none on this machine yet."""
    global _told
    if not _told and sys.stderr is not None and sys.stderr.isatty() and not loading.in_cache("runtime.spin.wait"):
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
    _requested.append(row)
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
            with loading.LOCK:  # it has nothing to do
                _compiler.close()
            row = _queue.get()
        try:
            _check()
            row.ready = compiled(row.kernel)
        except Exception as error:  # NumPy serves on
            if _compiler.ended:  # with the program: nothing has failed
                return
            _failed.append(row)
            if str(error) not in _warned:
                _warned.add(str(error))
                what = "compiled kernels are" if isinstance(error, Unusable) else f"the compiled kernel of {row.op} is"
                warnings.warn(f"tensorgrad: {what} not used: {error!s:.300}", stacklevel=1)


_requested: list[Any] = []  # rows
_failed: list[Any] = []  # those whose kernel could not be compiled
_warned: set[str] = set()


def wait() -> None:
    """Waits until everything that was requested is compiled, or cannot be (for tests and measurements)."""
    while any(
        row.ready is None and row not in _failed and _thread is not None and _thread.is_alive() for row in _requested
    ):
        time.sleep(0.01)
