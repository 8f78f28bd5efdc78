"""Starts Python processes with the options that this process was started with, and with variables of their own.

With `python -I` the user has disabled the PYTHON* variables and user site packages for the whole program, so the
processes that it starts must ignore them, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tensorgrad.system import forks

__all__ = ["environment", "has_python", "python", "require_processes", "started_with"]

WEBASSEMBLY = ("emscripten", "wasi")  # `sys.platform` in a browser, and where WebAssembly is run by itself
_CHANGES = forks.lock()  # of the environment: without it, a process would start with the variables of another thread's
if hasattr(os, "register_at_fork"):
    # A process that is forked within `started_with` never leaves it, but its other threads may start processes, too.
    os.register_at_fork(after_in_child=_CHANGES._at_fork_reinit)


def has_python() -> bool:
    """Returns whether there is an interpreter to start: not in a program that embeds Python, or was frozen into a file.

    >>> from tensorgrad.system.processes import has_python
    >>> has_python()
    True
    """
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def require_processes(what: str) -> None:
    """Raises: RuntimeError, with what needs them, if this system has no processes: in WebAssembly.

    >>> from tensorgrad.system.processes import require_processes
    >>> require_processes("DataLoader(num_workers=2)")
    """
    if sys.platform in WEBASSEMBLY:
        raise RuntimeError(f"{what} needs other processes, and there are none in WebAssembly ({sys.platform})")


def python(*arguments: str) -> list[str]:
    """Returns the command that runs Python with these arguments and the options of this process (-I, -E, -s, -W, …).

    Raises: RuntimeError if there is no interpreter: in a program that embeds Python, or was frozen into one file.

    >>> from tensorgrad.system.processes import python
    >>> python("-c", "pass")[-2:]
    ['-c', 'pass']
    """
    require_processes("this function")
    if not has_python():
        raise RuntimeError("cannot find a Python interpreter to start (sys.executable)")
    import subprocess

    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    if sys.pycache_prefix is not None:  # also affects files, but is not among the flags
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [sys.executable, *options, *arguments]


def environment() -> dict[str, str]:
    """Returns a copy of the environment, without what another thread gives to its processes at this moment.

    >>> from tensorgrad.system.processes import environment
    >>> "PATH" in environment()
    True
    """
    with _CHANGES:
        return dict(os.environ)


@contextmanager
def started_with(given: Mapping[str, str]) -> Iterator[None]:
    """Adds variables to the environment of the processes that `multiprocessing` starts within, as it takes none itself.

    One thread at a time is within. Afterwards these variables are as before; no other one is touched.

    >>> import os
    >>> from tensorgrad.system.processes import started_with
    >>> with started_with({"ANSWER": "42"}):
    ...     os.environ["ANSWER"]
    '42'
    >>> "ANSWER" in os.environ
    False
    """
    process = os.getpid()
    _CHANGES.acquire()
    try:
        before = {name: os.environ.get(name) for name in given}
        try:
            os.environ.update(given)
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
    finally:
        if os.getpid() == process:  # not held in a fork
            _CHANGES.release()
