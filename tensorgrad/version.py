"""Which version this is, and which version of PyTorch it follows."""

from __future__ import annotations

from typing import Any

FOLLOWS = "2.13.0"  # the PyTorch that is the specification

cuda: str | None  # found out when it is asked for, see below
hip = None
git_version = "tensorgrad"
debug = False


class TorchVersion(str):
    """A version as text that compares as a version: `torch.__version__ >= (1, 6)`, `> "1.10"`.

    >>> from tensorgrad.version import TorchVersion
    >>> TorchVersion("2.13.0") > "2.9", TorchVersion("2.13.0") >= (2, 13)
    (True, True)
    """

    __slots__ = ()

    def _order(self, other: Any) -> int:
        mine, theirs = _numbers(self), _numbers(other)
        length = max(len(mine), len(theirs))
        mine, theirs = mine + (0,) * (length - len(mine)), theirs + (0,) * (length - len(theirs))
        return (mine > theirs) - (mine < theirs)

    def __gt__(self, other: Any) -> bool:
        return self._order(other) > 0

    def __lt__(self, other: Any) -> bool:
        return self._order(other) < 0

    def __ge__(self, other: Any) -> bool:
        return self._order(other) >= 0

    def __le__(self, other: Any) -> bool:
        return self._order(other) <= 0

    def __eq__(self, other: Any) -> bool:
        return str.__eq__(self, other) is True or (bool(_numbers(other)) and self._order(other) == 0)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)


def _numbers(version: Any) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 13, 0) of "2.13.0+cpu" and of (2, 13, 0)."""
    parts = version.partition("+")[0].split(".") if isinstance(version, str) else version
    numbers: list[int] = []
    for part in parts if isinstance(parts, list | tuple) else ():
        if not str(part).isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


__version__ = TorchVersion(FOLLOWS)


def __getattr__(name: str):
    if name == "cuda":  # the version of CUDA that CuPy runs on; None where tensors cannot be put on GPUs
        from tensorgrad.cuda.devices import module_or_none

        cupy = module_or_none()
        number = 0 if cupy is None else cupy.cuda.runtime.runtimeGetVersion()
        return f"{number // 1000}.{number % 1000 // 10}" if number else None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
