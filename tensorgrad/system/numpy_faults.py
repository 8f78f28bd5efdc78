"""What NumPy computes wrongly, found by asking it (docs/robustness.md in the repository, "Found in NumPy", has more).

Up to NumPy 2.4, `np.negative(x, out=y)`, and `isnan`, `isinf` and `isfinite` alike, write wrong values into a `y` with
gaps between its elements, depending on the distance between those of `x`. Without `out`, and for arrays without gaps,
they are right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_COUNT = 40  # more than fill the longest loop over vector registers


def _writes_wrongly(name: str) -> bool:
    function = getattr(np, name)
    for dtype, step in (("f4", 1), ("f4", 4), ("f8", 1), ("f8", 8)):
        x = np.zeros((_COUNT, step), dtype)
        x[:, 0] = np.arange(_COUNT)
        x[1::3], x[2::7] = np.inf, np.nan
        right = function(np.ascontiguousarray(x[:, 0]))
        out = np.zeros((_COUNT, 2), right.dtype)
        function(x[:, 0], out=out[:, 0])
        if out[:, 0].tobytes() != right.tobytes():
            return True
    return False


# The functions that must not be given an `out` with gaps. Empty if this NumPy is right.
WRONG_INTO_GAPS = frozenset(name for name in ("negative", "isnan", "isinf", "isfinite") if _writes_wrongly(name))


def negative(xp: Any, x: Any, out: Any) -> Any:
    """Writes -x into `out`, and returns it."""
    if "negative" in WRONG_INTO_GAPS and xp is np and not (x.flags.c_contiguous and out.flags.c_contiguous):
        out[...] = np.negative(x)
        return out
    return xp.negative(x, out)
