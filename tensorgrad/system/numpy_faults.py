"""What NumPy computes wrongly, found by asking it (docs/robustness.md in the repository, "Found in NumPy", has more).

Up to NumPy 2.4, `np.negative(x, out=y)`, and `isnan`, `isinf` and `isfinite` alike, write wrong values into a `y` with
gaps between its elements, depending on the distance between those of `x`. Without `out`, and for arrays without gaps,
they are right.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

_COUNT = 40  # more than fill the longest loop over vector registers

# The functions that some NumPy writes wrongly into gaps.
SUSPECTS = frozenset(("negative", "isnan", "isinf", "isfinite"))


@cache  # asked when such an `out` is first given, not when the package is imported
def writes_wrongly_into_gaps(name: str) -> bool:
    """Returns whether a suspect must not be given an `out` with gaps in this NumPy."""
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


def negative(xp: Any, x: Any, out: Any) -> Any:
    """Writes -x into `out`, and returns it."""
    gaps = xp is np and not (x.flags.c_contiguous and out.flags.c_contiguous)
    if gaps and writes_wrongly_into_gaps("negative"):
        out[...] = np.negative(x)
        return out
    return xp.negative(x, out)
