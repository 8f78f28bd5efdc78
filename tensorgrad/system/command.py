"""How the commands of the package (`python -m tensorgrad.coverage`, ...) end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def run(main: Callable[[list[str]], int]) -> None:
    """Ends the process with what `main` returns for the command line's arguments.

    A reader of the output who has seen enough (`| head`) ends it quietly, as the shell's own commands do.

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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain as it exits
        status = 141  # what a shell reports of a program that a closed pipe ended
    sys.exit(status)
