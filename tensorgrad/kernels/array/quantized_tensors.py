"""Quantized tensors are made of floating-point numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad import dtypes
from tensorgrad.storage.quantized import QuantizedArray, limits

_SMALLEST_SCALE = 6.1e-5


def chosen(lowest: Any, highest: Any, quant_min: int, quant_max: int) -> tuple[float, int]:
    """The scale and zero point with which integers from `quant_min` to `quant_max` reach from `lowest` to `highest`.

    Zero is in the range, and has an integer of its own. Raises: RuntimeError if one is not a number.
    """
    lowest, highest = min(float(lowest), 0.0), max(float(highest), 0.0)
    if not lowest <= highest:  # nan
        raise RuntimeError("In ChooseQuantizationParams, min should be less than or equal to max")
    scale = (highest - lowest) / (quant_max - quant_min)
    if scale < _SMALLEST_SCALE:
        if np.float32(scale) == 0 or np.isinf(np.float32(1) / np.float32(scale)):
            scale = 0.1
        else:
            old, scale = scale, float(np.float32(_SMALLEST_SCALE))
            if lowest == 0:
                highest = float(np.float32(scale * (quant_max - quant_min)))
            elif highest == 0:
                lowest = float(np.float32(-scale * (quant_max - quant_min)))
            else:
                lowest, highest = float(np.float32(lowest * scale / old)), float(np.float32(highest * scale / old))
    below, above = lowest / scale, highest / scale
    nearer = abs(quant_min) - abs(below) < abs(quant_max) - abs(above)
    initial = quant_min - below if nearer else quant_max - above
    return scale, int(min(max(np.rint(initial), quant_min), quant_max))


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
