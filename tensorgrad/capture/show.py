"""Prints what the compiled functions of a program do: their graphs, their effects, and what they read.

    python -m tensorgrad.capture show program.py [arguments ...]

The program runs as under `python -m tensorgrad.run`. Each function or module that it passes to `torch.compile` is
recorded when it is first called, and printed; or the reason is, why it cannot be recorded. With `explain` in the place
of `show`, the program runs as ever, and what is printed at its end is what became of each: plans, their launches and
guards, or why it stayed eager.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad.capture.recorder import ReadError
from tensorgrad.capture.recording import record
from tensorgrad.nn import Module
from tensorgrad.rows.switches import LOCAL

USAGE = "usage: python -m tensorgrad.capture show|explain program.py [arguments ...]"


def shown(function: Any) -> Any:
    """A function that does what `function` does, and prints at its first call what that is.

    >>> from tensorgrad.capture.show import shown
    >>> double = shown(lambda x: 2 * x)
    >>> double(torch.ones(2))
    <lambda>(Tensor [2] torch.float32)
    def forward(self, x):
        mul = torch.mul(x, 2);  x = None
        return mul
    <BLANKLINE>
    effects:
        none
    <BLANKLINE>
    from outside:
        nothing
    tensor([2., 2.])
    """
    if isinstance(function, Module):
        function.forward = _at_first(function.forward, type(function).__name__)
        return function
    return functools.wraps(function)(_at_first(function, getattr(function, "__qualname__", repr(function))))


def _at_first(function: Callable, name: str) -> Callable:
    seen = False

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        if seen or LOCAL.transforms:
            return function(*args, **kwargs)
        seen = True
        given = [*map(_described, args), *(f"{key}={_described(value)}" for key, value in kwargs.items())]
        print(f"{name}({', '.join(given)})")
        recording = record(function, *args, on_read="note", **kwargs)
        print(recording)
        return recording.result

    return call


def _described(value: Any) -> str:
    if isinstance(value, tensorgrad.Tensor):
        return f"{type(value).__name__} {list(value.shape)} {value.dtype}"
    return repr(value) if isinstance(value, int | float | bool | str | None) else type(value).__name__


def main(arguments: list[str]) -> int:
    """Runs the program that the arguments name, and prints what its compiled functions do."""
    if len(arguments) < 2 or arguments[0] not in ("show", "explain"):
        print(USAGE, file=sys.stderr)
        return 2
    from tensorgrad import run

    if arguments[0] == "explain":
        return _explain(arguments[1:])
    before = tensorgrad.compile

    def compile(model: Any = None, **options: Any) -> Any:
        return shown(model) if model is not None else lambda function: shown(function)

    tensorgrad.compile = compile
    try:
        return run.main(arguments[1:])
    except (ReadError, NotImplementedError) as error:
        print(f"not recorded: {error}")
        return 1
    finally:
        tensorgrad.compile = before


def _explain(arguments: list[str]) -> int:
    """Runs a program, and says what became of the regions that it made."""
    from tensorgrad import run
    from tensorgrad.capture import region

    made: list[region.Region] = []  # held, so that they are there at the end
    region.MADE.append(made.append)
    try:
        return run.main(arguments)
    finally:
        region.MADE.pop()
        for each in made:
            print(each.explain())
