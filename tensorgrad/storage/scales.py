"""Scales and zero points: which integers stand for a range of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_SMALLEST_SCALE = np.float32(6.1e-5)
_NOT_A_NUMBER = -(2**31)  # what a zero point is that is not a number


def chosen(
    lowest: Any, highest: Any, quant_min: int, quant_max: int, symmetric: bool = False, trained: bool = False
) -> tuple[Any, Any]:
    """The scales and zero points with which integers from `quant_min` to `quant_max` reach from `lowest` to `highest`.

    Zero is in each range, and has an integer of its own. The zero point follows from one end or the other, whichever
    seems to be the more exact. PyTorch does this in two ways, which differ where it lies between two integers.

    Args:
        lowest, highest: the ends of one range, or arrays of them.
        quant_min, quant_max: the range of the integers.
        symmetric: whether ranges to both sides of zero are made as long on both, with zero in the middle.
        trained: whether it is done as in training: with the scale in float32, and an error at each end that grows with
            both of its terms. Else the scale is float64, and the error is their difference.
    """
    kind, sign = (np.float32, 1) if trained else (np.float64, -1)
    low, high, steps = np.float32(lowest), np.float32(highest), quant_max - quant_min
    with np.errstate(all="ignore"):
        on_both_sides = (low < 0) & (high > 0) & symmetric
        if symmetric:
            half = steps // 2
            below, above = abs(low / np.float32(half + 1)), abs(high / np.float32(half))
            reach = np.float64(_where(below < above, above, below))
            low = np.float32(_where(on_both_sides, -(half + 1) * reach, low))
            high = np.float32(_where(on_both_sides, half * reach, high))
        low, high = _where(low > 0, np.float32(0), low), _where(high < 0, np.float32(0), high)
        scale = kind((np.float64(high) - low) / steps)
        scale = _where(np.isinf(1 / np.float32(scale)), kind(0.1), scale)
        small = scale < _SMALLEST_SCALE
        if np.any(small):
            least, more = _SMALLEST_SCALE * np.float32(steps), _SMALLEST_SCALE / np.float32(scale)
            ends = _where(high == 0, -least, low * more), _where(low == 0, least, high * more)
            low, high = _where(small, ends[0], low), _where(small, ends[1], high)
            scale = _where(small, kind(_SMALLEST_SCALE), scale)
        divisor = np.float64(scale)
        below, above = low / divisor, high / divisor
        from_low = abs(quant_min) + sign * abs(below) < abs(quant_max) + sign * abs(above)
        zero = _where(from_low, quant_min - below, quant_max - above)
        zero = np.rint(_where(on_both_sides, (quant_min + quant_max) / 2, zero))
        zero = _where(zero < quant_min, quant_min, _where(zero > quant_max, quant_max, zero))
        return scale, _where(zero == zero, zero, _NOT_A_NUMBER)


def chosen_for_one(lowest: Any, highest: Any, quant_min: int, quant_max: int) -> tuple[float, int]:
    """What `chosen` gives for one range, as numbers. Raises: RuntimeError if one of its ends is not a number.

    A model asks this for each product, which may take no longer: Python's numbers are several times as fast as NumPy's.
    """
    if not lowest <= highest:
        raise RuntimeError("In ChooseQuantizationParams, min should be less than or equal to max")
    low, high = min(float(np.float32(lowest)), 0.0), max(float(np.float32(highest)), 0.0)
    scale = (high - low) / (quant_max - quant_min)
    if not float(_SMALLEST_SCALE) <= scale < math.inf:
        made, zero_point = chosen(lowest, highest, quant_min, quant_max)
        return float(made), int(zero_point)
    below, above = low / scale, high / scale
    from_low = abs(quant_min) - abs(below) < abs(quant_max) - abs(above)
    zero_point = round(quant_min - below if from_low else quant_max - above)
    return scale, min(max(zero_point, quant_min), quant_max)


def _where(condition: Any, a: Any, b: Any) -> Any:
    """`numpy.where`, which is slow for one number."""
    if condition.__class__ is np.ndarray:
        return np.where(condition, a, b)
    return a if condition else b
