"""Numbers beside elements of half precision (float16, bfloat16).

PyTorch computes `x * 0.3` in float32 and rounds once: the number keeps the digits that the dtype of `x` lacks. Its sums
and comparisons round the number first, as all other ops do here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.dtypes import F32, NUMBERS

# Ops of an array and a number that are computed so.
IN_FLOAT32 = frozenset(("mul", "div", "rdiv", "div_floor", "div_trunc", "floor_divide"))


class Float32Number(np.ndarray):
    """A number of float32 as a 0-dimensional array: a ufunc of it and an array of half precision rounds once.

    NumPy alone would return float32.
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        plain = [value.view(np.ndarray) if isinstance(value, Float32Number) else value for value in inputs]
        if out:
            return getattr(ufunc, method)(*plain, out=out, casting="unsafe", **options)
        result = getattr(ufunc, method)(*plain, **options)
        halves = [value.dtype for value in plain if value.dtype.itemsize == 2]
        return result.astype(halves[0]) if halves and result.dtype is F32 else result


def number_in_float32(array: Any, number: Any, dtype: Any) -> Float32Number | None:
    """Returns the second operand for an array of half precision; None if the operands are not such ones.

    Args:
        array: The first operand.
        number: A Python number, or an array; one without dimensions is a number, too.
        dtype: What both are promoted to.
    """
    if array.__class__ is not np.ndarray or array.dtype != dtype:
        return None
    if number.__class__ not in NUMBERS:
        if number.__class__ is not np.ndarray or number.ndim or number.dtype.kind not in "fV":
            return None
    elif number.__class__ is complex:
        return None
    with np.errstate(over="ignore"):
        return np.asarray(number).astype(np.float32).view(Float32Number)
