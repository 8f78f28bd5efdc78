"""How a process of this program's Python is started: with the options that this one was started with.

Who runs `python -I` has refused the variables PYTHON* and the user's own packages for the whole program: the processes
that it starts must refuse them, too.
"""

from __future__ import annotations

import subprocess
import sys

__all__ = ["python"]


def python(*arguments: str) -> list[str]:
    """The command that runs this Python with these arguments, and with the options of this process (-I, -E, -s, -W, …).

    Raises: RuntimeError where no interpreter is known: in a program that embeds Python, or was frozen into one file.

    >>> from tensorgrad.system.processes import python
    >>> python("-c", "pass")[-2:]
    ['-c', 'pass']
    """
    if not sys.executable or getattr(sys, "frozen", False):
        raise RuntimeError("no Python interpreter is known that could be started (sys.executable)")
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    if sys.pycache_prefix is not None:  # the one that decides about files and is not among them
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [sys.executable, *options, *arguments]
