"""How the package's commands (`python -m tensorgrad.coverage`, ...) say what they do, and exit."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable


def run(main: Callable[[list[str]], int]) -> None:
    """Exits the process with the result of `main` for the command line's arguments.

    For `--help` alone it prints the docstring of the file instead.

    If the output is a pipe that was closed (`| head`), it exits quietly, as standard commands do.

    >>> from tensorgrad.system.command import run
    >>> run(lambda arguments: 0)
    Traceback (most recent call last):
        ...
    SystemExit: 0
    """
    try:
        if sys.argv[1:] in (["-h"], ["--help"]):
            print(inspect.cleandoc(sys.modules[main.__module__].__doc__ or ""))
            status = 0
        else:
            status = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports an error at exit
        status = 141  # the status that a shell reports for SIGPIPE
    sys.exit(status)
