"""Reordering, repeating, masking and padding plain arrays. The results are new arrays."""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.layouts import made_in_order
from tensorgrad.rows.strides import order_of_copy


def flip(xp, x, dims):
    """Reverses the elements along `dims`."""
    index = [slice(None)] * x.ndim
    for d in dims if x.ndim else ():
        index[d] = slice(None, None, -1)
    if x.flags.c_contiguous:
        return xp.array(x[tuple(index)], order="C")
    made = dense_like(xp, x)
    made[...] = x[tuple(index)]
    return made


def dense_like(xp, x):
    """Allocates an array of the same shape without gaps, in the order of its strides."""
    if x.flags.c_contiguous:
        return xp.empty(x.shape, x.dtype)
    return made_in_order(lambda shape: xp.empty(shape, x.dtype), x.shape, order_of_copy(x))


def roll(xp, x, shifts, dims):
    """Shifts the elements along `dims` (or, without dims, through all of them), wrapping around."""
    if not x.size or not x.ndim:
        return xp.array(x)
    return xp.roll(x, shifts, dims) if dims else xp.roll(x, shifts[0])


def repeat(xp, x, repeats):
    """Repeats the array `repeats[d]` times along each dimension d."""
    return xp.tile(x, repeats)


def tril(xp, x, diagonal):
    """The elements on and below a diagonal of the last two dimensions; 0 above."""
    return _masked(xp, x, xp.tri(*x.shape[-2:], k=diagonal, dtype=bool))


def triu(xp, x, diagonal):
    """The elements on and above a diagonal of the last two dimensions; 0 below."""
    return _masked(xp, x, xp.tri(*x.shape[-2:], k=diagonal - 1, dtype=bool), inverted=True)


def _masked(xp, x, mask, inverted=False):
    zero = np.zeros((), x.dtype) if xp is np else xp.zeros((), x.dtype)
    return xp.where(mask, zero, x) if inverted else xp.where(mask, x, zero)


def tril_indices(xp, row, col, offset):
    """Rows and columns of the elements on and below a diagonal."""
    return xp.stack(xp.nonzero(xp.tri(row, col, offset, dtype=bool)))


def triu_indices(xp, row, col, offset):
    """Rows and columns of the elements on and above a diagonal."""
    return xp.stack(xp.nonzero(~xp.tri(row, col, offset - 1, dtype=bool)))


# --- padding ---------------------------------------------------------------------------------------------------------


def padded_shape(shape, pads):
    """The shape with `pads[d]` = (before, after) additional elements (fewer, if negative) in each dimension d."""
    return tuple([n + a + b for n, (a, b) in zip(shape, pads)])


def _inner(shape, pads):
    """Returns slices of the part of the array that is kept, and of its position in the result."""
    kept = tuple([slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(shape, pads)])
    there = tuple([slice(max(a, 0), max(a, 0) + n + min(a, 0) + min(b, 0)) for n, (a, b) in zip(shape, pads)])
    return kept, there


def pad_constant(xp, x, pads, value):
    """Pads with `value`; negative pads crop."""
    shape = padded_shape(x.shape, pads)
    zero = value == 0 and (value.__class__ is complex or math.copysign(1, value) > 0)
    out = xp.zeros(shape, x.dtype) if zero else xp.full(shape, value, x.dtype)
    kept, there = _inner(x.shape, pads)
    out[there] = x[kept]
    return out


def _line(n, before, after, mode):
    """Returns the sources of a padded line of n elements: those before it, the range that is kept, those after."""
    if mode == "circular":  # the elements left after cropping are the ones repeated
        start, stop = max(-before, 0), n + min(after, 0)
        left, right = np.arange(-max(before, 0), 0), np.arange(max(after, 0))
        return left + stop, start, stop, right + start
    left, right = np.arange(-before, min(0, n + after)), np.arange(max(n, -before), n + after)
    start, stop = max(-before, 0), n + min(after, 0)
    if mode == "reflect":
        return -left, start, max(start, stop), 2 * (n - 1) - right
    return np.zeros_like(left), start, max(start, stop), np.full_like(right, n - 1)


def pad_around(xp, x, pads, mode):
    """Pads with the array's own elements; negative pads crop.

    `mode`: mirrored ("reflect"), the outermost repeated ("replicate"), or wrapped around ("circular").
    """
    out = x
    for d, (before, after) in enumerate(pads):
        if before or after:
            left, start, stop, right = _line(out.shape[d], before, after, mode)
            out = out.take(xp.asarray(np.concatenate((left, np.arange(start, stop), right))), d)
    return xp.array(out, order="C") if out is x else out


def pad_around_grad(xp, g, pads, mode, shape):
    """The gradient of `pad_around`: every element sums the gradients of all its copies."""
    for d in range(len(pads) - 1, -1, -1):
        before, after = pads[d]
        if not (before or after):
            continue
        left, start, stop, right = _line(shape[d], before, after, mode)
        lead = (slice(None),) * d
        whole = xp.zeros((*g.shape[:d], shape[d], *g.shape[d + 1 :]), g.dtype)
        a, b = len(left), len(left) + stop - start
        whole[(*lead, slice(start, stop))] = g[(*lead, slice(a, b))]
        for strip, source in ((g[(*lead, slice(0, a))], left), (g[(*lead, slice(b, None))], right)):
            if not len(source):
                continue
            if mode == "replicate":
                whole[(*lead, slice(source[0], source[0] + 1))] += strip.sum(d, keepdims=True)
            else:
                whole[(*lead, xp.asarray(source))] += strip
        g = whole
    return g
