"""Values of types that NumPy lacks, in its own: what ml_dtypes cannot do with them, NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np


def wide(array: Any, order: Any = "K") -> Any:
    """The same values as complex64 (of complex32) or float32 (of bfloat16 and float8); other arrays as they are."""
    if array.dtype.kind == "W":
        return array.astype(np.complex64, order=order)
    return array.astype(np.float32, order=order) if array.dtype.kind == "V" and array.dtype.names is None else array


def real_part(array: Any) -> Any:
    """The real parts of complex numbers; other arrays as they are."""
    array = wide(array) if array.dtype.kind == "W" else array
    return array.real if array.dtype.kind == "c" else array
