"""NumPy's floating-point errors, ignored for a while, at a third of the price of `np.errstate(all="ignore")`.

A small op takes a microsecond, and so did `np.errstate`, which builds a new state each time. This sets one that was
built before. With a NumPy that keeps its state in another way, it is `np.errstate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy._core import umath

_STATE: Any = getattr(umath, "_extobj_contextvar", None)
_MAKE: Any = getattr(umath, "_make_extobj", None)
_IGNORE = None if _STATE is None or _MAKE is None else _MAKE(all="ignore")


class _Ignored:
    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _STATE.set(_IGNORE)

    def __exit__(self, *_: object) -> None:
        _STATE.reset(self._token)


def _by_numpy() -> Any:
    return np.errstate(all="ignore")


# Ignores division by zero, overflow and the like within a `with` block.
ignored: Any = _by_numpy if _IGNORE is None else _Ignored
