"""New memory for results. Large ones begin at a cache line, which the C library's blocks do not.

Otherwise every other store of a vector register touches two lines: sums of two arrays of a million numbers then take
1.12 times as long, of ten million 1.25 times.
"""

from __future__ import annotations

import numpy as np

LINE = 64  # bytes
LARGE = 65536  # elements, from which on finding the beginning of a line costs nothing in comparison


def fresh(size: int, dtype: np.dtype) -> np.ndarray:
    """Returns an uninitialized array of one dimension.

    >>> import numpy as np
    >>> from tensorgrad.storage.fresh import fresh
    >>> fresh(100_000, np.dtype(np.float32)).ctypes.data % 64
    0
    """
    if size < LARGE:
        return np.empty(size, dtype)
    length = size * dtype.itemsize
    block = np.empty(length + LINE, np.uint8)
    start = -block.__array_interface__["data"][0] % LINE
    return block[start : start + length].view(dtype)
