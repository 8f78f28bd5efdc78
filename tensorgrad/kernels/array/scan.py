"""Cumulative sums, products and extrema over plain arrays.

`dim` is counted from the front; 0-dim arrays count as one element.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tensorgrad.dtypes import scalar_type
from tensorgrad.kernels.array.reduce import I64, two_bytes

_PIECE = 1 << 14  # elements accumulated at a time: in double precision they fit the first caches
_SUM_PIECE = 1 << 16  # the same for cumulative sums, which need fewer passes
_STEPS = 16  # steps of a cumulative sum per product: more cost more multiplications, fewer more sums of sums
_SOME = 1024  # elements from which such products pay
_LOOP = 32  # a recurrence over fewer steps than this goes step by step


def _running(xp, name, x, dim, dtype):
    """`ufunc.accumulate`; integers in int64 unless a dtype is given."""
    if x.dtype.kind in "iub" and dtype is None:
        x = x.astype(I64)
    if not x.ndim:
        return xp.array(x)
    if not x.flags.c_contiguous:  # the result is row-major, whatever the input's order
        x = xp.ascontiguousarray(x)
    if xp is not np:
        return {"add": xp.cumsum, "multiply": xp.cumprod}[name](x, axis=dim, dtype=x.dtype)
    if x.dtype.kind in "iub":
        return getattr(np, name).accumulate(x, dim, x.dtype)
    if name == "add" and x.dtype.kind == "f" and x.size >= _SOME:
        return _running_sum(x, dim)
    return _in_double(getattr(np, name), x, dim, getattr(np, name).identity)


def _running_sum(x, dim, backwards=False):
    """Computes the cumulative sum of floats in double precision.

    It takes `_STEPS` steps at a time as a product with a triangle of ones.

    A sum that depends on the previous one takes ten times as long as an addition; the products are independent.
    """
    length, after = x.shape[dim], math.prod(x.shape[dim + 1 :])
    given, out = x.reshape(-1, length, after), np.empty(x.shape, x.dtype)
    filled = out.reshape(given.shape)
    if backwards:
        given, filled = given[:, ::-1], filled[:, ::-1]
    wide = min(after, _SUM_PIECE // _STEPS)
    steps = min(length, max(1, _SUM_PIECE // (wide * _STEPS)) * _STEPS)
    many = max(1, _SUM_PIECE // (steps * wide))  # rows at a time
    for row in range(0, len(given), many):
        for column in range(0, after, wide):
            last: Any = 0.0
            for step in range(0, length, steps):
                here = slice(row, row + many), slice(step, step + steps), slice(column, column + wide)
                last = _sum_piece(given[here], last, filled[here])
            if not np.isfinite(last).all():  # infinity times the triangle's zeros is nan: these one by one
                here = slice(row, row + many), slice(None), slice(column, column + wide)
                filled[here] = _from(np.add, given[here].astype(np.float64), 1, 0.0)
    return out


def _sum_piece(x, before, out):
    """Computes cumulative sums over dimension 1 of `x` (rows, steps, after), continuing `before` (rows, after) or 0.

    Writes them to `out` and returns the last one.
    """
    whole = x.shape[1] - x.shape[1] % _STEPS
    if whole:
        summed = _sum_lines if x.shape[2] == 1 else _sum_planes
        before = summed(x[:, :whole], before, out[:, :whole])
    if whole < x.shape[1]:
        triangle, rest = _triangle(x.shape[1] - whole), x[:, whole:].astype(np.float64)
        sums = triangle @ rest if x.shape[2] > 1 else (rest[:, :, 0] @ triangle.T)[:, :, None]
        sums += before if before.__class__ is float else before[:, None]
        out[:, whole:] = sums
        before = sums[:, -1]
    return before


def _sum_lines(x, before, out):
    """`_sum_piece` for one column: the sum before each part is an additional row of the product."""
    rows, parts = x.shape[0], x.shape[1] // _STEPS
    wide = np.empty((rows, parts, _STEPS + 1))
    wide[:, :, :-1] = x.reshape(rows, parts, _STEPS)
    starts = wide[:, :, -1]
    totals = (wide.reshape(-1, _STEPS + 1)[:, :-1] @ np.ones(_STEPS)).reshape(rows, parts)
    starts[:, :1], starts[:, 1:] = before, totals[:, :-1]
    np.add.accumulate(starts, 1, None, starts)
    out[:, :, 0] = (wide.reshape(-1, _STEPS + 1) @ _triangle_and_start()).reshape(rows, -1)
    return starts[:, -1:] + totals[:, -1:]


def _sum_planes(x, before, out):
    """`_sum_piece` for many columns."""
    parts = (x.shape[0], x.shape[1] // _STEPS, _STEPS, x.shape[2])
    sums = _triangle(_STEPS) @ x.astype(np.float64).reshape(parts)
    starts = np.empty((*parts[:2], parts[3]))  # the sum before each part
    starts[:, 0] = before
    starts[:, 1:] = sums[:, :-1, -1]
    np.add.accumulate(starts, 1, None, starts)
    np.add(sums, starts[:, :, None], out=out.reshape(parts), casting="same_kind")
    return starts[:, -1] + sums[:, -1, -1]


@lru_cache(maxsize=_STEPS)
def _triangle(n):
    """Returns a matrix whose product with a column of n numbers is their cumulative sum."""
    ones = np.tril(np.ones((n, n)))
    ones.flags.writeable = False
    return ones


@lru_cache(maxsize=1)
def _triangle_and_start():
    """Returns a matrix that maps a row of numbers and the sum before them to the cumulative sum."""
    ones = np.vstack((_triangle(_STEPS).T, np.ones(_STEPS)))
    ones.flags.writeable = False
    return ones


def _in_double(ufunc, x, dim, start):
    """Runs `ufunc.accumulate` from `start` in double precision, as PyTorch does, in pieces that fit the cache."""
    wide = np.result_type(x.dtype, np.float64) if x.dtype.kind != "V" else np.float64
    if x.size <= _PIECE:
        return _from(ufunc, x.astype(wide), dim, start).astype(x.dtype)
    length, after = x.shape[dim], math.prod(x.shape[dim + 1 :])
    given, out = x.reshape(-1, length, after), np.empty(x.shape, x.dtype)
    filled = out.reshape(given.shape)
    many = max(1, _PIECE // (length * after))  # rows at a time, or else steps of one row
    steps = length if many > 1 else max(1, _PIECE // after)
    for row in range(0, len(given), many):
        last = start
        for step in range(0, length, steps):
            here = slice(row, row + many), slice(step, step + steps)
            piece = _from(ufunc, given[here].astype(wide), 1, last)
            filled[here] = piece
            last = piece[:, -1].copy()
    return out


def _from(ufunc, x, dim, start):
    """Runs `ufunc.accumulate` in place on `x`, after combining its first elements with `start`."""
    if x.size:
        first = x[(slice(None),) * dim + (0, ...)]
        ufunc(start, first, first)
        ufunc.accumulate(x, dim, None, x)
    return x


def cumsum(xp, x, dim, dtype):
    """The sum of each element and all before it."""
    return _running(xp, "add", x, dim, dtype)


def cumsum_reversed(xp, x, dim):
    """The sum of each element and all after it."""
    if not x.ndim:
        return xp.array(x)
    if xp is np and x.dtype.kind == "f" and x.size >= _SOME:
        return _running_sum(x, dim, True)
    back = (slice(None),) * dim + (slice(None, None, -1),)
    return xp.ascontiguousarray(cumsum(xp, x[back], dim, None)[back])


def cumprod(xp, x, dim, dtype):
    """The product of each element and all before it."""
    return _running(xp, "multiply", x, dim, dtype)


def running_extreme(xp, x, dim, largest):
    """The largest (or smallest) element so far, and the last index that attained it; after a nan always nan."""
    name = "cummax" if largest else "cummin"
    if not x.ndim:
        return xp.array(x), xp.zeros((), I64)
    if x.dtype.kind == "c":
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{scalar_type(x)}'")
    if not x.flags.c_contiguous:
        x = xp.ascontiguousarray(x)
    if two_bytes(x):
        values, index = running_extreme(xp, x.astype(np.float32), dim, largest)
        return values.astype(x.dtype), index
    values = (xp.maximum if largest else xp.minimum).accumulate(x, dim)
    attained = x == values
    if x.dtype.kind == "f":
        attained |= xp.isnan(x)
    places = xp.arange(x.shape[dim], dtype=I64).reshape((-1,) + (1,) * (x.ndim - 1 - dim))
    return values, xp.maximum.accumulate(xp.where(attained, places, 0), dim)


def logcumsumexp(xp, x, dim):
    """The logarithm of the cumulative sum of exponentials."""
    if x.dtype.kind in "iub":
        raise NotImplementedError(f"\"logcumsumexp_out_cpu\" not implemented for '{scalar_type(x)}'")
    if not x.ndim:
        return xp.array(x)
    if not x.flags.c_contiguous:
        x = xp.ascontiguousarray(x)
    if two_bytes(x):
        return logcumsumexp(xp, x.astype(np.float32), dim).astype(x.dtype)
    with np.errstate(all="ignore"):
        if x.dtype.kind != "c" and xp is np:
            return _in_double(np.logaddexp, x, dim, -np.inf)
        if x.dtype.kind != "c":
            return xp.logaddexp.accumulate(x, dim)
        out = xp.array(x)
        moved = xp.moveaxis(out, dim, 0)
        last = xp.full(moved.shape[1:], -math.inf, x.dtype)
        for i in range(len(moved)):
            last = moved[i] = _add_logs(xp, moved[i], last)
        return out


def _add_logs(xp, a, b):
    """log(exp a + exp b) of complex numbers, with the larger one factored out; nan if either is nan.

    Two infinite ones have no difference: for exp(-inf) = 0 any logarithm will do, exp(inf) is added directly.
    """
    less = a.real < b.real
    low, top = xp.where(less, a, b), xp.where(less, b, a)
    total = xp.log1p(xp.exp(low - top)) + top
    endless = xp.isinf(low.real) & (low.real == top.real)
    total = xp.where(endless, xp.where(low.real < 0, low, xp.log(xp.exp(low) + xp.exp(top))), total)
    return xp.where(xp.isnan(a) | xp.isnan(b), xp.asarray(complex(math.nan, math.nan), a.dtype), total)


def shift(xp, x, dim, by, fill):
    """Moves elements by `by` positions (1 or -1) along `dim`; `fill` enters at the end."""
    out = xp.empty_like(x, order="C") if xp is np else xp.empty_like(x)
    if not x.ndim:
        out[...] = fill
        return out
    lead = (slice(None),) * dim
    if by > 0:
        out[(*lead, slice(1, None))] = x[(*lead, slice(0, -1))]
        out[(*lead, slice(0, 1))] = fill
    else:
        out[(*lead, slice(0, -1))] = x[(*lead, slice(1, None))]
        out[(*lead, slice(-1, None))] = fill
    return out


def recurrence(xp, b, a, dim, backwards):
    """Computes y[i] = b[i] + a[i] y[i-1], or, if `backwards`, y[i] = b[i] + a[i] y[i+1]; y is 0 before the first.

    Long ones take log2(n) passes over the data (Hillis and Steele, 1986): after pass s, y[i] covers 2^s terms.
    """
    if not b.ndim:
        return xp.array(b)
    y = xp.array(xp.moveaxis(b, dim, 0), order="C")  # steps are contiguous
    a = xp.ascontiguousarray(xp.moveaxis(a, dim, 0))
    if backwards:
        y, a = y[::-1], a[::-1]
    n = y.shape[0]
    with np.errstate(all="ignore"):
        if n <= _LOOP or y.size > 64 * n:
            for i in range(1, n):
                y[i] += a[i] * y[i - 1]
        else:
            a = xp.array(a)
            a[0] = 0  # there is nothing before the first
            step = 1
            while step < n:
                y[step:] = y[step:] + a[step:] * y[:-step]
                a[step:] = a[step:] * a[:-step]
                a[:step] = 0
                step *= 2
    if backwards:
        y = y[::-1]
    return xp.ascontiguousarray(xp.moveaxis(y, 0, dim))
