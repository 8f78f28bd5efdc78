"""Running sums, products and extrema over plain arrays; `dim` is counted from the front, 0-dim arrays count as one
element."""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.array.reduce import I64, _two_bytes, spoken

_LOOP = 32  # a recurrence over fewer steps than this goes step by step


def _running(xp, name, x, dim, dtype):
    """`ufunc.accumulate`; integers in int64 unless a dtype was asked for, two-byte floats in float32."""
    if x.dtype.kind in "iub" and dtype is None:
        x = x.astype(I64)
    if not x.ndim:
        return xp.array(x)
    if _two_bytes(x):
        return _running(xp, name, x.astype(np.float32), dim, None).astype(x.dtype)
    if xp is np:
        return getattr(np, name).accumulate(x, dim, x.dtype)
    return {"add": xp.cumsum, "multiply": xp.cumprod}[name](x, axis=dim, dtype=x.dtype)


def cumsum(xp, x, dim, dtype):
    """The sum of each element and all before it."""
    return _running(xp, "add", x, dim, dtype)


def cumsum_reversed(xp, x, dim):
    """The sum of each element and all after it."""
    if not x.ndim:
        return xp.array(x)
    back = (slice(None),) * dim + (slice(None, None, -1),)
    return xp.ascontiguousarray(cumsum(xp, x[back], dim, None)[back])


def cumprod(xp, x, dim, dtype):
    """The product of each element and all before it."""
    return _running(xp, "multiply", x, dim, dtype)


def running_extreme(xp, x, dim, largest):
    """Largest (or smallest) element so far, and the last place that attained it; after a nan always nan."""
    name = "cummax" if largest else "cummin"
    if x.dtype.kind == "c":
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{spoken(x)}'")
    if not x.ndim:
        return xp.array(x), xp.zeros((), I64)
    if _two_bytes(x):
        values, index = running_extreme(xp, x.astype(np.float32), dim, largest)
        return values.astype(x.dtype), index
    values = (xp.maximum if largest else xp.minimum).accumulate(x, dim)
    attained = x == values
    if x.dtype.kind == "f":
        attained |= xp.isnan(x)
    places = xp.arange(x.shape[dim], dtype=I64).reshape((-1,) + (1,) * (x.ndim - 1 - dim))
    return values, xp.maximum.accumulate(xp.where(attained, places, 0), dim)


def logcumsumexp(xp, x, dim):
    """log of the running sum of exponentials."""
    if x.dtype.kind in "iub":
        raise NotImplementedError(f"\"logcumsumexp_out_cpu\" not implemented for '{spoken(x)}'")
    if not x.ndim:
        return xp.array(x)
    if _two_bytes(x):
        return logcumsumexp(xp, x.astype(np.float32), dim).astype(x.dtype)
    with np.errstate(all="ignore"):
        if x.dtype.kind != "c" and xp is np:
            return np.logaddexp.accumulate(x, dim)
        out = xp.array(x)
        moved = xp.moveaxis(out, dim, 0)
        for i in range(1, len(moved)):
            moved[i] = _add_logs(xp, moved[i - 1], moved[i])
        return out


def _add_logs(xp, a, b):
    """log(exp a + exp b), the larger one taken out."""
    top = xp.where(a.real >= b.real, a, b)
    low = xp.where(a.real >= b.real, b, a)
    return xp.where(xp.isinf(top.real), top, top + xp.log1p(xp.exp(low - top)))


def shift(xp, x, dim, by, fill):
    """Elements moved `by` places (1 or -1) along `dim`; `fill` comes in at the end."""
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
    """y[i] = b[i] + a[i] y[i-1], or, `backwards`, y[i] = b[i] + a[i] y[i+1]; no y before the first.

    Long ones in log2(n) passes over everything (Hillis and Steele, 1986): after pass s, y[i] covers 2^s terms.
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
            a[0] = 0  # nothing comes before the first
            step = 1
            while step < n:
                y[step:] = y[step:] + a[step:] * y[:-step]
                a[step:] = a[step:] * a[:-step]
                a[:step] = 0
                step *= 2
    if backwards:
        y = y[::-1]
    return xp.ascontiguousarray(xp.moveaxis(y, 0, dim))
