"""Starts Python processes with the options that this process was started with.

With `python -I` the user has disabled the PYTHON* variables and user site packages for the whole program, so the
processes that it starts must ignore them, too.
"""

from __future__ import annotations

import subprocess
import sys

__all__ = ["python"]


def python(*arguments: str) -> list[str]:
    """Returns the command that runs Python with these arguments and the options of this process (-I, -E, -s, -W, …).

    Raises: RuntimeError if there is no interpreter: in a program that embeds Python, or was frozen into one file.

    >>> from tensorgrad.system.processes import python
    >>> python("-c", "pass")[-2:]
    ['-c', 'pass']
    """
    if not sys.executable or getattr(sys, "frozen", False):
        raise RuntimeError("cannot find a Python interpreter to start (sys.executable)")
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    if sys.pycache_prefix is not None:  # also affects files, but is not among the flags
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [sys.executable, *options, *arguments]
