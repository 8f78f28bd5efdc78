"""Quantized tensors are made of floating-point numbers."""

from __future__ import annotations

import numpy as np

from tensorgrad import dtypes
from tensorgrad.storage.quantized import QuantizedArray, limits


def quantized(xp, input, scale, zero_point, axis, dtype):
    """The array of the integers that are nearest: clamp(round(input / scale + zero point)).

    `axis`: the dimension of the channels, -1 if there is one scale for all. What is not a number becomes the least.
    """
    kind = dtypes.BY_NAME[dtype]
    low, high = limits(kind)
    exact = zero_point.dtype.kind in "iu"  # else they are added before rounding, and need not be integers
    if axis < 0:
        scale, zero_point = float(scale), int(zero_point)
    elif exact:
        scale, zero_point = scale.astype(np.float64), zero_point.astype(np.int64)
    else:
        scale, zero_point = scale.astype(np.float32), zero_point.astype(np.float32)
    made = QuantizedArray(input, scale, zero_point, None if axis < 0 else axis, kind)
    inverse, zeros = np.float32(1) / made.along(made.scale, np.float32), made.along(made.zero_point, np.float64)
    if axis < 0:  # PyTorch multiplies and adds with one rounding; products of float32 are exact in float64
        found = input.astype(np.float64) * inverse.astype(np.float64) + zeros
    else:
        found = input.astype(np.float32, copy=False) * inverse + zeros
    found = np.rint(found.astype(np.float32))
    made.ints = np.fmin(np.fmax(found, low), high).astype(made.dtype[0])
    return made


def like(numbers: np.ndarray, array: QuantizedArray) -> QuantizedArray:
    """The numbers as integers that mean the same as those of an array with one scale."""
    scale, zero_point = np.asarray(array.scale), np.asarray(array.zero_point)
    return quantized(np, np.asarray(numbers), scale, zero_point, -1, array.kind.name)
