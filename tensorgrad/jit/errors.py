"""What can go wrong with a program of TorchScript."""

from __future__ import annotations

from typing import Any, NamedTuple


class Error(Exception):
    """An exception that a program of TorchScript raises: `raise ValueError(...)` in scripted code.

    >>> issubclass(torch.jit.Error, Exception)
    True
    """

    __module__ = "torch.jit"


class Place(NamedTuple):
    """A line of a file of an archive, and the function it is in."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        inside = f", in {self.function}" if self.function else ""
        return f'"{self.file}", line {self.line}{inside}'


class ProgramError(RuntimeError):
    """The text of a program is not what PyTorch writes, or names something that has no meaning in it."""

    def __init__(self, problem: str, place: Place | None = None) -> None:
        super().__init__(problem if place is None else f"{problem} ({place})")


class Failure(RuntimeError):
    """An operation of a program failed. `lines` are the places that were being run, the innermost first."""

    def __init__(self, cause: BaseException, frame: list, place: Place, text: str) -> None:
        self.cause, self.lines, self.frame = cause, [(place, text)], frame
        super().__init__()

    def add(self, frame: list, place: Place, text: str) -> None:
        """Adds the place of a caller, whose variables are `frame`."""
        self.lines.append((place, text))
        self.frame = frame

    def __str__(self) -> str:
        return failed(self)


def failed(failure: Failure) -> str:
    """The message: where a program was, and what went wrong there."""
    lines = "".join(f"  File {place}\n    {text}\n    ~~~ <--- HERE\n" for place, text in reversed(failure.lines))
    what = f"{type(failure.cause).__name__}: {failure.cause}"
    if isinstance(failure.cause, Error):
        what = str(failure.cause)
    return (
        "The following operation failed in the TorchScript interpreter.\n"
        f"Traceback of TorchScript, serialized code (most recent call last):\n{lines}{what}"
    )


def outside(failure: Failure) -> Any:
    """The exception that a caller in Python gets."""
    kind = Error if isinstance(failure.cause, Error) else RuntimeError
    return kind(str(failure))
