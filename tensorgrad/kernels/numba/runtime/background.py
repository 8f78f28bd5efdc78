"""Prepares compiled kernels in the background, while NumPy runs the ops.

A separate process compiles them (compiler.py) and stores them in the user's cache folder (cache.py); a thread of the
program loads them from there. That thread holds the GIL only for moments at a time.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from queue import Empty, SimpleQueue
from typing import Any

from tensorgrad.kernels.numba.runtime import hooks, loading
from tensorgrad.kernels.numba.runtime.compiler import Compiler, Failed, compiles_here
from tensorgrad.system import forks, threads

_queue: SimpleQueue = SimpleQueue()
_thread: threads.Running | None = None
_child = False  # a forked child compiles nothing: one of the compiler's locks may have been held at the fork


def _forked() -> None:
    global _child, _thread
    _child, _thread = True, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


_compiler = Compiler()


class Unusable(Failed):
    """No kernel can be used in this process."""


def compiled(kernel: str) -> Any:
    """Returns the kernel "family.name" from the cache, compiling it first if it is missing. Raises: Failed."""
    global _compiling
    from tensorgrad.kernels.numba.runtime import cache, native

    if native.unusable():
        raise Unusable(native.unusable(), tried=False)
    with loading.LOCK:
        with loading.briefly():
            made = loading.cached(kernel)
        if made is None:
            family = kernel.rpartition(".")[0]
            reason = cache.refused(family, kernel)
            if reason is not None:
                raise Failed(f"it failed before and will be retried in a few days: {reason}", tried=False)
            _announce()
            where = cache.place()
            _compiling = True
            try:
                if compiles_here():
                    hooks.compile_here(kernel, where)
                else:
                    _compiler.compile(kernel, where)
            except Failed as failed:
                if failed.tried:
                    cache.remember(family, kernel, str(failed), failed.crash)
                raise
            finally:
                _compiling = False
            with loading.briefly():
                made = loading.cached(kernel)
        if made is None:
            raise Failed("it was compiled but is not in the cache", tried=False)
        return made


_announced = False


_failure: str | None = None  # why no kernel is used in this process; "" if they work, None if not checked yet


def _check() -> None:
    """Tests a small kernel once, before any other is used. Raises: Unusable if it fails."""
    global _failure
    if _failure is None:
        from tensorgrad.kernels.numba.runtime import self_test

        try:
            loops = compiled("runtime.spin.wait")
        except Unusable:
            raise
        except Exception:  # then no threads share kernels; the row of spin_wait reports why
            _failure = ""
        else:
            _failure = self_test.failure(loops)
    if _failure:
        raise Unusable(_failure, tried=False)


def _announce() -> None:
    """Prints once, on a terminal, that kernels are being compiled, if this machine has none yet."""
    global _announced
    if not _announced and sys.stderr is not None and sys.stderr.isatty() and not loading.in_cache("runtime.spin.wait"):
        print(
            "tensorgrad: compiling kernels in the background (once); python -m tensorgrad.warmup does it ahead of time",
            file=sys.stderr,
        )
    _announced = True


def request(row: Any) -> None:
    """Queues a row's kernel to be compiled in the background. Returns immediately."""
    global _thread
    if _child or row.asked:
        return
    row.asked = True
    _requested.append(row)
    _queue.put(row)
    with _starting:
        if _thread is None or not _thread.alive:
            _thread = threads.start("tensorgrad compiler", _serve)


_FIRST, _FURTHER = 0.05, 0.005  # seconds that loading the first kernel takes, and every further one
_PATIENCE = 3  # times as long a call waits at most
_WINK = 2e-4  # seconds between two looks at it
_compiling = False  # whether the thread is waiting for a kernel to be compiled, which takes longer than any call


def hold(row: Any, seconds: float) -> None:
    """Waits while a requested kernel is being loaded from the cache, if NumPy would take longer: so many seconds."""
    loading = _FIRST if _failure is None else _FURTHER
    if seconds < loading:
        return
    end = time.perf_counter() + _PATIENCE * loading
    while row.ready is None and not _child and not _compiling and row not in _failed and time.perf_counter() < end:
        time.sleep(_WINK)


_starting = forks.lock()
_IDLE = 5.0  # seconds without work after which the compiler process is ended


def _serve() -> None:
    while True:
        try:
            row = _queue.get(timeout=_IDLE)
        except Empty:
            with loading.LOCK:  # no work left
                _compiler.close()
            row = _queue.get()
        try:
            _check()
            row.use(compiled(row.kernel))
        except Exception as error:  # NumPy keeps serving
            if _compiler.ended:  # the program is exiting: nothing has failed
                return
            _failed.append(row)
            if str(error) not in _warned:
                _warned.add(str(error))
                what = "compiled kernels are" if isinstance(error, Unusable) else f"the compiled kernel of {row.op} is"
                warnings.warn(f"tensorgrad: {what} not used: {error!s:.300}", stacklevel=1)


_requested: list[Any] = []  # rows
_failed: list[Any] = []  # the rows whose kernels could not be compiled
_warned: set[str] = set()


def wait() -> None:
    """Waits until every requested kernel is compiled or has failed (for tests and measurements)."""
    while any(row.ready is None and row not in _failed and _thread is not None and _thread.alive for row in _requested):
        time.sleep(0.01)
