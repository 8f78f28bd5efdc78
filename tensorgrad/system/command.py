"""How the package's commands (`python -m tensorgrad.coverage`, ...) exit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def run(main: Callable[[list[str]], int]) -> None:
    """Exits the process with the result of `main` for the command line's arguments.

    If the output is a pipe that was closed (`| head`), it exits quietly, as standard commands do.

    >>> from tensorgrad.system.command import run
    >>> run(lambda arguments: 0)
    Traceback (most recent call last):
        ...
    SystemExit: 0
    """
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports an error at exit
        status = 141  # the status that a shell reports for SIGPIPE
    sys.exit(status)
