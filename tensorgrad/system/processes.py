"""Starts Python processes with the options that this process was started with.

With `python -I` the user has disabled the PYTHON* variables and user site packages for the whole program, so the
processes that it starts must ignore them, too.
"""

from __future__ import annotations

import sys

__all__ = ["has_python", "python"]


def has_python() -> bool:
    """Returns whether there is an interpreter to start: not in a program that embeds Python, or was frozen into a file.

    >>> from tensorgrad.system.processes import has_python
    >>> has_python()
    True
    """
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def python(*arguments: str) -> list[str]:
    """Returns the command that runs Python with these arguments and the options of this process (-I, -E, -s, -W, …).

    Raises: RuntimeError if there is no interpreter: in a program that embeds Python, or was frozen into one file.

    >>> from tensorgrad.system.processes import python
    >>> python("-c", "pass")[-2:]
    ['-c', 'pass']
    """
    if not has_python():
        raise RuntimeError("cannot find a Python interpreter to start (sys.executable)")
    import subprocess

    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    if sys.pycache_prefix is not None:  # also affects files, but is not among the flags
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [sys.executable, *options, *arguments]
