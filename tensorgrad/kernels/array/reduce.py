"""Reductions over plain arrays. `dim` is None (everything), a tuple, or one dimension; counted from the front."""

from __future__ import annotations

import numpy as np

from tensorgrad.dtypes import F32

I64 = np.dtype("int64")


def sum_(xp, x, dim, keepdim, dtype):
    """The sum; integers and booleans in int64, two-byte floats accumulated in float32."""
    if x.dtype is F32:
        return xp.add.reduce(x, dim, None, None, keepdim)
    if x.dtype.kind in "iub":
        return xp.add.reduce(x, axis=dim, keepdims=keepdim, dtype=I64)
    if x.dtype.itemsize == 2:
        return xp.add.reduce(x.astype(np.float32), axis=dim, keepdims=keepdim).astype(x.dtype)
    return xp.add.reduce(x, axis=dim, keepdims=keepdim)
