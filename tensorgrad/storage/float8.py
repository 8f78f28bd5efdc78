"""Rounds values to the 8-bit floating-point types as PyTorch does, where the package ml_dtypes does otherwise."""

from __future__ import annotations

import numpy as np

_LARGEST = 448.0  # of float8_e4m3fn, which has no infinity


def rounded(array, dtype: np.dtype, order: str = "K"):
    """Returns the values in an 8-bit type: by way of float32, and too large ones become the largest in float8_e4m3fn.

    >>> torch.tensor([1.06, 1e6]).to(torch.float8_e4m3fn)  # needs the package ml_dtypes
    tensor([  1., 448.], dtype=torch.float8_e4m3fn)
    """
    if array.dtype == dtype:
        return array.astype(dtype, order=order)
    if array.dtype.kind in "fV" and array.dtype.itemsize == 1 and dtype.kind == "b":
        return array.astype(np.float32, order=order).astype(dtype, order=order)
    values = array.astype(np.float32, order=order)
    name = dtype.name
    if name == "float8_e4m3fn":
        values = np.clip(values, -_LARGEST, _LARGEST)
    elif name == "float8_e8m0fnu":  # powers of two, without a sign
        values = np.abs(values)
    made = np.asarray(values.astype(dtype, order=order))
    if name == "float8_e5m2":
        bits = made.view(np.uint8)
        np.bitwise_or(bits, 3, out=bits, where=np.isnan(values))
    elif name == "float8_e8m0fnu":
        made.view(np.uint8)[values == 0] = 0
    return made
