"""Rounding to the values that integers with a scale and a zero point stand for, and its derivatives."""

from __future__ import annotations

from tensorgrad.kernels.array.matmul import widened


def _along(values, like, axis: int):
    """Returns a value for each index of a dimension, or one for all, so that it meets those of `like`."""
    if axis < 0:
        return values.reshape(())
    return values.reshape([-1 if d == axis else 1 for d in range(like.ndim)])


def _integers(xp, x, scale, zero_point, axis: int):
    """The integers before they are clamped, the scales, and the zero points. Computed in float32, or in float64."""
    kind = x.dtype
    scale = _along(scale, x, axis).astype(kind)
    exact = zero_point.dtype.kind in "iu"
    zero = _along(zero_point, x, axis).astype(kind)
    scaled = x * (1 / scale)
    return (xp.rint(scaled) + zero if exact else xp.rint(scaled + zero)), scale, zero


def fake_quantize(xp, input, scale, zero_point, quant_min, quant_max, axis):
    """(clamp(integers) - zero point) * scale; what is not a number becomes the least."""
    x = widened(input)
    found, scale, zero = _integers(xp, x, scale, zero_point, axis)
    made = (xp.fmin(xp.fmax(found, quant_min), quant_max) - zero) * scale
    return made.astype(input.dtype, copy=False)


def learnable(xp, input, scale, zero_point, quant_min, quant_max, axis, grad_factor):
    """The same with a zero point that was learned: it is rounded and clamped first."""
    return fake_quantize(xp, input, scale, _whole(xp, zero_point, quant_min, quant_max), quant_min, quant_max, axis)


def _whole(xp, zero_point, quant_min, quant_max):
    rounded = xp.rint(widened(zero_point)) if zero_point.dtype.kind not in "iu" else zero_point
    return xp.clip(rounded, quant_min, quant_max).astype("int64")


def inside(xp, input, scale, zero_point, quant_min, quant_max, axis):
    """1 where nothing is clamped, else 0."""
    found, _, _ = _integers(xp, widened(input), scale, zero_point, axis)
    return ((found >= quant_min) & (found <= quant_max)).astype(input.dtype)


def scale_terms(xp, input, scale, zero_point, quant_min, quant_max, axis):
    """How much each result changes with its scale."""
    x = widened(input)
    found, scale, zero = _integers(xp, x, scale, _whole(xp, zero_point, quant_min, quant_max), axis)
    kept = xp.fmin(xp.fmax(found, quant_min), quant_max)
    out = (found < quant_min) | (found > quant_max)
    made = xp.where(out, kept - zero, ((kept - zero) * scale - x) / scale)
    return made.astype(input.dtype, copy=False)
