"""NumPy's floating-point errors, ignored for a while, at a third of the price of `np.errstate(all="ignore")`.

A small op takes a microsecond, and so did `np.errstate`, which builds a new state each time. This sets one that was
built before. With a NumPy that keeps its state in another way, it is `np.errstate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ignored: Any
try:
    from numpy._core.umath import _extobj_contextvar, _make_extobj  # type: ignore[attr-defined]
except ImportError:

    def ignored() -> Any:
        """Ignores division by zero, overflow and the like within a `with` block."""
        return np.errstate(all="ignore")

else:
    _IGNORE = _make_extobj(all="ignore")

    class ignored:
        """Ignores division by zero, overflow and the like within a `with` block.

        >>> import numpy as np
        >>> from tensorgrad.system.float_errors import ignored
        >>> with ignored():
        ...     print(np.float32(1) / np.float32(0))
        inf
        """

        __slots__ = ("_token",)

        def __enter__(self) -> None:
            self._token = _extobj_contextvar.set(_IGNORE)

        def __exit__(self, *_: object) -> None:
            _extobj_contextvar.reset(self._token)
