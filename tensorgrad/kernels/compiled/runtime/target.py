"""What kernels are compiled for: a level of processors.

A process uses one level. Kernels are compiled for each (by tools/kernels in the repository) into a file that the
package carries (library.py): the size of registers is in the code and in the arrangement of its operands, but not in
the order of sums, and results are equal to the last bit.
"""

from __future__ import annotations

import importlib
import os
import platform
from functools import cache
from typing import NamedTuple

__all__ = ["FOLDER", "LEVELS", "Level", "chosen", "current", "file_of", "here", "use"]

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "images")
VARIABLE = "TENSORGRAD_CPU"  # names a level, instead of the best that there is a file for


class Level(NamedTuple):
    """A level. `needs`: the features, as NumPy calls them, that a processor must have; one of the groups is enough."""

    machine: str
    lanes: int  # float32 numbers per register
    registers: int
    needs: tuple[tuple[str, ...], ...]


_V3 = ("X86_V3",), ("AVX2", "FMA3", "F16C")  # NumPy's names since 2.4, and before
_V4 = ("X86_V4",), ("AVX512_SKX",)
# The best first. Each serves all systems.
LEVELS = {
    "x86-64-v4": Level("x86_64", 16, 32, _V4),
    "x86-64-v3": Level("x86_64", 8, 16, _V3),
    "aarch64": Level("aarch64", 4, 32, (("ASIMD",), ("NEON",))),
}


@cache
def _features() -> dict[str, bool]:
    """Returns what NumPy has found out about this processor."""
    return dict(getattr(importlib.import_module("numpy._core._multiarray_umath"), "__cpu_features__", {}))


@cache
def here() -> list[str]:
    """Returns the levels that this machine can run, the best first."""
    machine = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}.get(platform.machine(), platform.machine())
    return [
        name
        for name, level in LEVELS.items()
        if level.machine == machine and any(all(_features().get(feature) for feature in group) for group in level.needs)
    ]


def file_of(level: str) -> str:
    """Returns the file of a level's kernels."""
    return os.path.join(FOLDER, f"{level}.kernels")


_used: str | None = None


def use(level: str | None) -> None:
    """Sets the level, before any kernel is imported (tools/kernels in the repository). None: what fits this process."""
    global _used
    _used = level


def chosen() -> str:
    """Returns the name of this process's level.

    Raises: LookupError, with a sentence on why there is none.
    """
    if _used is not None:
        return _used
    named, found = os.environ.get(VARIABLE), here()
    if named and named not in LEVELS:
        raise LookupError(f"{VARIABLE}={named} is none of {', '.join(LEVELS)}")
    if named and named not in found:
        raise LookupError(f"this processor is not of the level {VARIABLE}={named}")
    if not found:
        raise LookupError("there are none for this processor")
    there = [name for name in ([named] if named else found) if os.path.isfile(file_of(name))]
    if not there:
        raise LookupError(
            f"this copy of the package has none ({os.path.basename(file_of(named or found[0]))}); in the "
            "repository, `make kernels` makes them"
        )
    use(there[0])
    return there[0]


def current() -> Level:
    """Returns this process's level. Without kernels it is the best that the machine has, or the lowest."""
    try:
        return LEVELS[chosen()]
    except LookupError:
        return LEVELS[(here() or ["aarch64"])[0]]
