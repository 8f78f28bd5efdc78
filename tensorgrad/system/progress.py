"""What a long call is doing, said while it lasts: on a terminal in one line, which is gone at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tensorgrad.system.per_thread import PerThread

_ERASED = "\r\x1b[K"  # to the beginning of the line, and nothing in it


class _Current(PerThread):
    line: _Line | None = None  # of the call that runs in this thread


class _Line:
    def __init__(self, call: str, verbose: bool | None) -> None:
        self.call, self.verbose = call, verbose
        self.file: TextIO | None = None if verbose is False else sys.stderr
        if self.file is not None and (self.file.closed or not (verbose or self.file.isatty())):
            self.file = None

    def show(self, step: str) -> None:
        if self.file is not None:
            text = f"{self.call}: {step}"
            self.file.write(f"{text}\n" if self.verbose else f"{_ERASED}{text[:79]}")
            self.file.flush()

    def end(self) -> None:
        if self.file is not None and not self.verbose:
            self.file.write(_ERASED)
            self.file.flush()


_CURRENT = _Current()


@contextmanager
def progress(call: str, verbose: bool | None = None) -> Iterator[None]:
    """Lets `say` tell the steps of a call on standard error.

    Args:
        call: its name. A call inside of another one belongs to it.
        verbose: whether each step has a line of its own, on whatever standard error is, or None: on a terminal one line
            shows the current step, and is gone at the end. With False nothing is said.

    >>> from tensorgrad.system.progress import progress, say
    >>> with progress("export", verbose=False):
    ...     say("running the model")
    """
    if _CURRENT.line is not None:
        yield
        return
    line = _CURRENT.line = _Line(call, verbose)
    try:
        yield
    finally:
        _CURRENT.line = None
        line.end()


def say(step: str) -> None:
    """Tells what the call is doing now; nothing if nobody listens.

    >>> from tensorgrad.system.progress import say
    >>> say("writing the file")
    """
    if _CURRENT.line is not None:
        _CURRENT.line.show(step)
