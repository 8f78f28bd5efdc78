"""Views of plain arrays. None of these copies."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided


def restrided(xp, x, shape, strides):
    """The array's memory under another shape and strides (bytes), from the same first element.

    The caller guarantees that these stay inside the memory. The result is writable if `x` is.
    """
    if xp is np:
        if x.flags.c_contiguous and x.size:
            return np.ndarray(shape, x.dtype, x, 0, strides)  # five times as quick as as_strided
        return as_strided(x, shape, strides)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def expand(xp, x, size):
    """Dimensions of size 1 repeated without copying (stride 0), and new ones in front."""
    lead = len(size) - x.ndim
    strides = tuple(
        0 if i < lead or x.shape[i - lead] != n else x.strides[i - lead] for i, n in enumerate(size)
    )
    return restrided(xp, x, size, strides)
