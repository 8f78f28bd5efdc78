"""New memory for tensors. Large ones begin at a cache line, which the C library's blocks do not.

Otherwise every vector register of 64 bytes that is loaded or stored touches two lines: sums of two arrays of a million
numbers then take 1.12 times as long, of ten million 1.25 times.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np

from tensorgrad.storage import huge_pages
from tensorgrad.system.c_library import address, thread_time

LINE = 64  # bytes
PAGE = 4096  # bytes, or more
LARGE = 65536  # elements, from which on finding the beginning of a line costs nothing in comparison
_ABSURD = 1 << 48  # elements that no memory holds: NumPy raises the error
_BYTE = np.dtype(np.uint8)


def fresh(size: int, dtype: np.dtype) -> np.ndarray:
    """Returns an uninitialized array of one dimension.

    >>> import numpy as np
    >>> from tensorgrad.storage.fresh import fresh
    >>> fresh(100_000, np.dtype(np.float32)).ctypes.data % 64
    0
    """
    return np.empty(size, dtype) if size < LARGE else aligned(size, dtype)


def aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """Returns an uninitialized array of one dimension that begins at a cache line, whatever its size.

    Products read their factors many times: from other places they take up to 1.2 times as long.

    >>> import numpy as np
    >>> from tensorgrad.storage.fresh import aligned
    >>> aligned(100, np.dtype(np.float32)).ctypes.data % 64
    0
    """
    block = np.empty(size * dtype.itemsize + LINE, _BYTE)
    return np.ndarray(size, dtype, block, -address(block) % LINE)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an uninitialized row-major array.

    >>> import numpy as np
    >>> from tensorgrad.storage.fresh import empty
    >>> empty((300, 301), np.dtype(np.float32)).ctypes.data % 64
    0
    """
    size = prod(shape)
    if LARGE <= size < _ABSURD:
        return aligned(size, dtype).reshape(shape)
    return np.empty(shape, dtype)


def copied(array: np.ndarray, dtype: np.dtype | None = None, order: Literal["K", "C"] = "K") -> np.ndarray:
    """Returns a copy, as np.array does.

    >>> import numpy as np
    >>> from tensorgrad.storage.fresh import copied
    >>> copied(np.zeros((300, 300))).ctypes.data % 64
    0
    """
    if array.size < LARGE or not (order == "C" or array.flags.c_contiguous):
        return np.array(array, dtype, order=order)
    made = fresh(array.size, array.dtype if dtype is None else dtype).reshape(array.shape)
    made[...] = array
    return made


def map_zeros(array: Any) -> None:
    """Lets the system provide the memory of an array of zeros at once, if it is large and one of NumPy's.

    Linux maps each page of such memory when it is first used: to one page of zeros if it is read, and again, to a page
    of its own, when it is written. An array that is read and then written takes half as long if it is written first.

    >>> import numpy as np
    >>> from tensorgrad.storage.fresh import map_zeros
    >>> map_zeros(np.zeros(1_000_000))
    """
    if array.__class__ is np.ndarray and array.size >= LARGE and array.flags.c_contiguous:
        start = thread_time()
        array.reshape(-1)[:: PAGE // array.itemsize] = 0
        huge_pages.took(array.nbytes, thread_time() - start)
