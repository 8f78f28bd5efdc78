"""Elementwise maxima and minima, clamping, and replacement of NaN and infinities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kinds import alias, composite, export, pointwise
from tensorgrad.errors import SHORT_MAX, SHORT_MIN, check_is_number, check_number, invalid_combination
from tensorgrad.tensor import Tensor

maximum = pointwise("maximum(input, other)", "pointwise.maximum", numbers=(), in_place=False,
                    input=lambda g, input, other: _share(g, input == other, input < other),
                    other=lambda g, input, other: _share(g, input == other, input > other),
                    doc="The elementwise maximum; NaN if either is NaN. Ties split the gradient evenly.")  # fmt: skip
minimum = pointwise("minimum(input, other)", "pointwise.minimum", numbers=(), in_place=False,
                    input=lambda g, input, other: _share(g, input == other, input > other),
                    other=lambda g, input, other: _share(g, input == other, input < other),
                    doc="The elementwise minimum; NaN if either is NaN. Ties split the gradient evenly.")  # fmt: skip
fmax = pointwise("fmax(input, other)", "pointwise.fmax", numbers=(), in_place=False,
                 input=lambda g, input, other: g.masked_fill(~((input >= other) | (other != other)), 0),
                 other=lambda g, input, other: g.masked_fill((input >= other) | (other != other), 0),
                 doc="The elementwise maximum; if one element is NaN, the other.")  # fmt: skip
fmin = pointwise("fmin(input, other)", "pointwise.fmin", numbers=(), in_place=False,
                 input=lambda g, input, other: g.masked_fill(~((input <= other) | (other != other)), 0),
                 other=lambda g, input, other: g.masked_fill((input <= other) | (other != other), 0),
                 doc="The elementwise minimum; if one element is NaN, the other.")  # fmt: skip
clamp_min = pointwise("clamp_min(input, min)", "pointwise.maximum",
                      input=lambda g, input, min: g.masked_fill(~(input >= min), 0),
                      min=lambda g, input, min: g.masked_fill(~(input < min), 0),
                      doc="input limited to values of at least `min` (a number or tensor).")  # fmt: skip
clamp_max = pointwise("clamp_max(input, max)", "pointwise.minimum",
                      input=lambda g, input, max: g.masked_fill(~(input <= max), 0),
                      max=lambda g, input, max: g.masked_fill(~(input > max), 0),
                      doc="input limited to values of at most `max` (a number or tensor).")  # fmt: skip
_clamp_between = pointwise("clamp_between(input, min, max)", "pointwise.clamp_between", where=(), in_place=False,
                           backward_name="ClampBackward1",
                           input=lambda g, input, min, max: g.masked_fill(~((input >= min) & (input <= max)), 0),
                           min=lambda g, input, min, max: g.masked_fill(~((min < max) & (input < min)), 0),
                           max=lambda g, input, min, max: g.masked_fill(~((input > max) | (max < min)), 0))  # fmt: skip
clamp_grad: Callable = pointwise("clamp_grad(grad, input, low: number, high: number)", "pointwise.clamp_grad", where=(),
                       in_place=False,
                       grad=lambda g, input, low, high: clamp_grad(g, input, low, high))  # fmt: skip


def _share(g, tie, loses):
    """Ties give each side half of the gradient; the loser gets none."""
    return (g / 2).where(tie, g).masked_fill(loses, 0)


def _prepare_clamp(x, low, high):
    """Casts x to the dtype of the result and converts the limits to Python numbers of its category."""
    if x.dtype is dtypes.F32 and low.__class__ in _REAL_OR_NONE and high.__class__ in _REAL_OR_NONE:
        return x, low, high
    if dtypes.from_numpy_dtype(x.dtype) in dtypes.QUANTIZED:
        return x, low, high
    if x.dtype.kind == "c" or low.__class__ is complex or high.__class__ is complex:
        raise NotImplementedError("clamp is not supported for complex types")
    dtype = dtypes.result_type_of([v for v in (x, low, high) if v is not None])
    if dtype is dtypes.bool:
        raise NotImplementedError("\"clamp_scalar_cpu\" not implemented for 'Bool'")
    low, high = (None if v is None else _limit(v, dtype) for v in (low, high))
    return x if x.dtype == dtype.numpy else x.astype(dtype.numpy), low, high


def _limit(value, dtype):
    """Converts a limit to a number that fits the dtype: as in PyTorch, negative ones wrap for unsigned integers."""
    if dtype.category == dtypes.FLOATING:
        return float(value)
    check_number(value, dtype)
    return int(value) if dtype.is_signed or value >= 0 else int(value) % (dtypes.iinfo(dtype).max + 1)


_FEW = 4096  # elements of which several passes cost less than finding the function that makes one
_REAL_OR_NONE = {float, int, type(None)}
_clamp = pointwise("clamp(input, min: number = None, max: number = None)", "pointwise.clamp", where=(), in_place=False,
                   prepare=_prepare_clamp,
                   input=lambda g, input, min, max: clamp_grad(g, input, min, max))  # fmt: skip


def _as_numbers(*limits):
    """A number, and a tensor without dimensions as one. Raises: TypeError for another tensor."""
    numbers = [v.item() if isinstance(v, Tensor) and not v._array.ndim and not v._requires_grad else v for v in limits]
    if any(isinstance(v, Tensor) for v in numbers):
        raise invalid_combination("clamp", "expected min and max to be two numbers or two tensors")
    return numbers


@composite()
def clamp(input: Tensor, min=None, max=None, *, out=None) -> Tensor:
    """Limits the elements of `input` to [min, max]. The limits are numbers or tensors, and one may be omitted.

    Where `min` is greater than `max`, the result is `max`.

    Args:
        min, max: two numbers, or two tensors that broadcast with `input`; None for no limit.

    Raises:
        RuntimeError: If both limits are omitted.

    >>> torch.clamp(torch.tensor([-2.0, 0.5, 3.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if max is None:
            return clamp_min(input, min, out=out)
        if min is None:
            return clamp_max(input, max, out=out)
        if isinstance(min, Tensor) and isinstance(max, Tensor):
            return _clamp_between(input, min, max, out=out)
        min, max = _as_numbers(min, max)
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if not (min.__class__ in _REAL_OR_NONE and max.__class__ in _REAL_OR_NONE):
        check_is_number(0 if min is None else min, "min")
        check_is_number(0 if max is None else max, "max")
        for limit in (min, max):
            if limit.__class__ is complex and input._array.dtype.kind != "c":
                check_number(limit, dtypes.float64)
    return _clamp(input, min, max, out=out)


@composite("method", "function")
def clamp_(self: Tensor, min=None, max=None) -> Tensor:
    """Limits this tensor to [min, max] in place."""
    array = self._array
    real = min.__class__ in _REAL_OR_NONE and max.__class__ in _REAL_OR_NONE and (min is not None or max is not None)
    real = real and SHORT_MIN <= (min or 0) <= SHORT_MAX and SHORT_MIN <= (max or 0) <= SHORT_MAX
    if real and array.dtype is dtypes.F32 and inplace.writable(self) and array.size < _FEW:
        self._storage.bump()
        if min is not None:  # the limit first: of equal zeros the second is taken
            np.maximum(float(min), array, out=array)
        if max is not None:
            np.minimum(float(max), array, out=array)
        return self
    return inplace.replace(self, clamp, (min, max), {})


def _prepare_nan_to_num(x, nan, posinf, neginf):
    if x.dtype.kind in "iub":
        return x, nan, posinf, neginf
    limits = dtypes.finfo(dtypes.from_numpy_dtype(x.dtype))
    given = ((nan, 0.0), (posinf, limits.max), (neginf, limits.min))
    return x, *(default if value is None else value for value, default in given)


nan_to_num = pointwise("nan_to_num(input, nan: float = None, posinf: float = None, neginf: float = None)",
                       "pointwise.nan_to_num", prepare=_prepare_nan_to_num,
                       input=lambda g, input: g.masked_fill(~input.isfinite(), 0),
                       doc="Replaces NaN (by default with 0) and infinities (with the dtype's limits).")  # fmt: skip

alias("clip", clamp, in_place_of="clamp")
export("clip_", clamp_, "function")
