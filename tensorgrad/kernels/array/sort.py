"""Sorting and ops based on it, over plain arrays. `dim` is counted from the front; nan counts as the largest value.

Sorts are stable. NumPy's stable argsort merges; its plain sort of 64-bit integers is several times as fast (vector
instructions), so large 32-bit values are sorted as integers that hold the value's order above its position: the
position breaks ties, which makes the sort stable.
"""

from __future__ import annotations

from functools import cmp_to_key
from math import prod

import numpy as np

from tensorgrad.dtypes import scalar_type
from tensorgrad.kernels.array.blocks import BLOCK
from tensorgrad.kernels.array.reduce import I64, check_not_empty, pick, two_bytes

_FEW = 12  # number of largest elements that are searched for one after the other
_PACKED = 128  # elements per row from which packing pays
_HIGH = np.uint32(0x80000000)
_INSERTED = 16  # elements that C++'s sort inserts one by one


def _float_order(x):
    """Maps float32 to uint32 of the same order; both zeros are equal, every nan is the largest."""
    bits = (x + np.float32(0)).view(np.uint32)
    key = bits ^ ((bits >> 31) * np.uint32(0x7FFFFFFF) + _HIGH)
    nan = np.isnan(x)
    if nan.any():
        key[nan] = 0xFFFFFFFF
    return key


def _argsort_packed(x, descending):
    """A stable argsort along the last dimension of float32 or int32."""
    key = _float_order(x) if x.dtype.kind == "f" else x.view(np.uint32) ^ _HIGH
    if descending:
        key = ~key
    packed = key.astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= np.arange(x.shape[-1], dtype=np.uint64)
    packed.sort(axis=-1)
    packed &= np.uint64(0xFFFFFFFF)
    return packed.view(I64)


def _argsort_wide(x, descending):
    """A stable argsort of a large 64-bit array of one dimension: the fast unstable one, then equal ones reordered."""
    order = x.argsort()
    if descending:
        order = order[::-1]
    ordered = x[order]
    equal = ordered[1:] == ordered[:-1]
    if x.dtype.kind == "f":
        equal |= np.isnan(ordered[1:]) & np.isnan(ordered[:-1])
    if not equal.any():
        return np.ascontiguousarray(order)
    run = np.zeros(x.size, np.uint64)
    np.cumsum(~equal, out=run[1:])
    run <<= np.uint64(32)
    run |= order.astype(np.uint64)
    run.sort()
    run &= np.uint64(0xFFFFFFFF)
    return run.view(I64)


def _argsort(xp, x, descending):
    """A stable argsort along the last dimension of a C-contiguous array."""
    if xp is np and x.shape[-1] >= _PACKED:
        if x.dtype in (np.float32, np.int32):
            return _argsort_packed(x, descending)
        if x.ndim == 1 and x.size >= 4096 and x.dtype in (np.float64, np.int64):
            return _argsort_wide(x, descending)
    if not descending:
        return x.argsort(axis=-1, kind="stable") if xp is np else xp.argsort(x, axis=-1)
    # reverse, sort, reverse back: equal elements keep their order
    order = xp.argsort(xp.ascontiguousarray(x[..., ::-1]), axis=-1, kind="stable")
    return xp.ascontiguousarray((x.shape[-1] - 1 - order)[..., ::-1])


def _last(xp, x, dim):
    return xp.ascontiguousarray(x if dim == x.ndim - 1 else xp.moveaxis(x, dim, -1))


def _back(xp, x, dim):
    x = x if dim == x.ndim - 1 else xp.moveaxis(x, -1, dim)
    return xp.ascontiguousarray(x) if x.shape[dim] > 1 else x.copy()  # a single element may have any stride, even -1


def _sorted_last(xp, x, descending):
    """Returns values and indices along the last dimension of a C-contiguous array."""
    if xp is np and descending and x.shape[-1] < _PACKED and not two_bytes(x):  # reverse, sort, reverse back
        turned = x[..., ::-1]
        order = (x.shape[-1] - 1) - turned.argsort(-1, "stable")[..., ::-1]
        return np.sort(turned, -1, "stable")[..., ::-1], order
    order = _argsort(xp, x.astype(np.float32) if two_bytes(x) else x, descending)
    return pick(xp, x, order, x.ndim - 1, False), order


def sort(xp, x, dim, descending):
    """Returns sorted values, and their original indices."""
    if x.dtype.kind == "c":
        raise RuntimeError(" Sort does not support complex dtypes on CPU")
    if not x.ndim:
        return xp.array(x), xp.zeros((), I64)
    if xp is np and not descending and x.shape[dim] < _PACKED and not two_bytes(x):
        return np.sort(x, dim, "stable"), x.argsort(dim, "stable")
    values, order = _sorted_last(xp, _last(xp, x, dim), descending)
    return _back(xp, values, dim), _back(xp, order, dim)


def _topk_in_turn(x, k, largest):
    """Returns the indices of the k largest (or smallest) of each row: k times it finds the extreme one and erases it.

    NumPy finds extremes with vector instructions, and a partition costs as much as a dozen of them. Returns None if the
    erasing value itself is among the results, or, for the smallest, a nan.
    """
    limits = (-np.inf, np.inf) if x.dtype.kind == "f" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    eraser = limits[0] if largest else limits[1]
    order = np.empty((len(x), k), I64)
    step = max(1, BLOCK // x.shape[1])
    for first in range(0, len(x), step):
        left = x[first : first + step].copy()
        lines = np.arange(len(left))
        for turn in range(k):
            at = left.argmax(1) if largest else left.argmin(1)
            values = left[lines, at]
            if (values == eraser).any() or (not largest and (values != values).any()):
                return None
            left[lines, at] = eraser
            order[first : first + step, turn] = at
    return order


def topk(xp, x, k, dim, largest):
    """Returns the k largest (or smallest) elements in order, and their indices; ties at the end are arbitrary."""
    if x.dtype.kind in "cb":
        raise RuntimeError(
            " topk does not support complex dtypes on CPU" if x.dtype.kind == "c"
            else "topk does not support bool dtypes on CPU"
        )  # fmt: skip
    if not x.ndim:
        return xp.array(x), xp.zeros((), I64)
    x = _last(xp, x, dim)
    n = x.shape[-1]
    if xp is np and 0 < k <= _FEW and n >= 64 and x.size >= 4096 and x.dtype.kind in "if" and not two_bytes(x):
        found = _topk_in_turn(x.reshape(-1, n), k, largest)
        if found is not None:
            order = found.reshape((*x.shape[:-1], k))
            return _back(xp, pick(xp, x, order, x.ndim - 1, False), dim), _back(xp, order, dim)
    if n >= 64 and k * 4 <= n and not two_bytes(x):
        found = xp.argpartition(x, n - k if largest else k - 1, axis=-1) if k else xp.zeros(x.shape, I64)
        found = xp.sort(found[..., n - k :] if largest else found[..., :k], axis=-1)  # earlier ones first among equals
        values, order = _sorted_last(xp, pick(xp, x, found, x.ndim - 1, False), largest)
        order = pick(xp, found, order, x.ndim - 1, False)
    else:
        values, order = _sorted_last(xp, x, largest)
        values, order = values[..., :k], order[..., :k]
    return _back(xp, values, dim), _back(xp, order, dim)


def _one_of(xp, values, order, at, dim, keepdim):
    """Returns column `at` (an array of row positions, or a scalar) of sorted rows, as a reduction's two results."""
    if at.__class__ is int:
        values, order = values[..., at], order[..., at]
    else:
        values = pick(xp, values, at, values.ndim - 1, True)
        order = pick(xp, order, at, order.ndim - 1, True)
    if keepdim:
        values, order = xp.expand_dims(values, dim), xp.expand_dims(order, dim)
    return xp.array(values), xp.array(order)


def kthvalue(xp, x, dim, keepdim, k):
    """The k-th smallest element along `dim` (from 1), and its index."""
    if not 1 <= k <= (x.shape[dim] if x.ndim else 1):
        if x.ndim:
            check_not_empty("kthvalue", x, dim)
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    if not x.ndim:
        return xp.array(x), xp.zeros((), I64)
    _check_ordered("kthvalue_cpu", x)
    values, order = _sorted_last(xp, _last(xp, x, dim), False)
    return _one_of(xp, values, order, k - 1, dim, keepdim)


def _check_ordered(kernel, x):
    if x.dtype.kind in "cb":
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(x)}'")


def median(xp, x, dim, keepdim, ignore_nan):
    """The lower middle element along `dim`, and its index. Any nan is the median, unless `ignore_nan`."""
    if x.ndim:
        check_not_empty("nanmedian" if ignore_nan else "median", x, dim)
    _check_ordered("median_out", x)
    if not x.ndim:
        return xp.array(x), xp.zeros((), I64)
    x = _last(xp, x, dim)
    values, order = _sorted_last(xp, x, False)
    n = x.shape[-1]
    at = (n - 1) // 2
    if x.dtype.kind not in "iu" and n:
        nan = xp.isnan(values[..., -1])
        if nan.any():
            known = n - xp.isnan(values).sum(axis=-1)
            at = xp.maximum((known - 1) // 2, 0) if ignore_nan else xp.where(nan, xp.minimum(known, n - 1), at)
    return _one_of(xp, values, order, at, dim, keepdim)


def median_all(xp, x, ignore_nan):
    """The lower middle of all elements; nan if there are none."""
    if not x.size and x.dtype.kind in "cb":
        return xp.full((), np.nan).astype(x.dtype)
    _check_ordered("median_cpu", x)
    flat = x.reshape(-1)
    if x.dtype.kind not in "iu":
        nan = xp.isnan(flat)
        if ignore_nan:
            flat = flat[~nan]
        elif nan.any():
            return xp.full((), np.nan, x.dtype)
        if not flat.size:
            return xp.full((), np.nan, x.dtype)
    elif not flat.size:
        return xp.full((), np.iinfo(x.dtype).min, x.dtype)
    at = (flat.size - 1) // 2
    return xp.array(xp.partition(flat, at)[at])


def mode(xp, x, dim, keepdim):
    """The most frequent element along `dim` (the smallest of them), and its last index."""
    if not x.ndim:
        return xp.array(x), xp.zeros((), I64)
    if x.dtype.kind == "c":
        raise NotImplementedError(f"\"mode_cpu\" not implemented for '{scalar_type(x)}'")
    check_not_empty("mode", x, dim)
    values, order = _sorted_last(xp, _last(xp, x, dim), False)
    new = xp.ones(values.shape, bool)
    xp.not_equal(values[..., 1:], values[..., :-1], new[..., 1:])
    indices = xp.arange(values.shape[-1])
    length = indices - xp.maximum.accumulate(xp.where(new, indices, 0), -1)
    return _one_of(xp, values, order, length.argmax(axis=-1), dim, keepdim)


# --- search --------------------------------------------------------------------------------------------------------


def searchsorted(xp, boundaries, x, sorter, right):
    """Returns the first index before which (after equal ones, if `right`) each element keeps `boundaries` sorted."""
    side = "right" if right else "left"
    if sorter is not None and sorter.size and not (sorter.min() >= 0 and sorter.max() < boundaries.shape[-1]):
        raise RuntimeError("torch.searchsorted(): sorter index out of range")
    if two_bytes(boundaries) or two_bytes(x):
        boundaries, x = boundaries.astype(np.float32), x.astype(np.float32)
    if boundaries.ndim == 1:
        if sorter is not None:
            boundaries = boundaries[sorter]
        return xp.asarray(xp.searchsorted(boundaries, x, side)).astype(I64)
    out = xp.empty(x.shape, I64)
    if x.size:
        rows = boundaries.reshape(prod(boundaries.shape[:-1]), boundaries.shape[-1])  # which may have no elements
        wanted = x.reshape(rows.shape[0], -1)
        flat = out.reshape(wanted.shape)
        orders = None if sorter is None else sorter.reshape(rows.shape)
        for i in range(rows.shape[0]):
            row = rows[i] if orders is None else rows[i][orders[i]]
            flat[i] = xp.searchsorted(row, wanted[i], side)
    return out


_FEW_TESTS = 10  # from how many tests on sorting takes less than comparing with each


def isin(xp, elements, test, invert):
    """Which elements are among `test`."""
    if 0 < test.size < _FEW_TESTS:
        found = elements == test.reshape(-1)[0]
        for i in range(1, test.size):
            found |= elements == test.reshape(-1)[i]
        return xp.asarray(xp.logical_not(found) if invert else found)
    return xp.asarray(xp.isin(elements, test, invert=invert)).reshape(elements.shape)


# --- sets and counts -----------------------------------------------------------------------------------------------


def unique(xp, x, with_inverse):
    """Returns the sorted distinct elements, each element's index among them (if requested), and their counts.

    Each nan counts separately.
    """
    flat = x.reshape(-1)
    if not with_inverse and x.dtype.kind != "c" and not two_bytes(x):
        values = xp.sort(flat)
        new = xp.ones(flat.shape, bool)
        xp.not_equal(values[1:], values[:-1], new[1:])
        return values[new], xp.empty(0, I64), _run_lengths(xp, new)
    if x.dtype.kind == "c":
        found, inverse, counts = xp.unique(flat, return_inverse=True, return_counts=True)
        return found, inverse.reshape(x.shape), counts
    values, order = _sorted_last(xp, flat, False)
    new = xp.ones(flat.shape, bool)
    xp.not_equal(values[1:], values[:-1], new[1:])
    inverse = xp.empty(flat.shape, I64)
    inverse[order] = xp.cumsum(new) - 1
    return values[new], inverse.reshape(x.shape), _run_lengths(xp, new)


def _run_lengths(xp, new):
    starts = xp.flatnonzero(new)
    return xp.diff(xp.append(starts, new.size)).astype(I64)


def unique_dim(xp, x, dim):
    """`unique` of the slices along `dim`, in lexicographic order."""
    n = x.shape[dim]
    if not x.size:
        if n and any(s == 0 for i, s in enumerate(x.shape) if i != dim):
            raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
        return xp.array(x), xp.zeros(n, I64), xp.zeros(n, I64)
    rows = xp.ascontiguousarray(xp.moveaxis(x, dim, 0)).reshape(n, -1)
    if two_bytes(rows):
        rows = rows.astype(np.float32)
    order = xp.lexsort(rows.T[::-1]) if rows.dtype.kind != "f" or not xp.isnan(rows).any() else _by_rows(xp, rows)
    ordered = rows[order]
    new = xp.ones(n, bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    inverse = xp.empty(n, I64)
    inverse[order] = xp.cumsum(new) - 1
    kept = xp.take(x, order[new], axis=dim)
    return xp.ascontiguousarray(kept), inverse, _run_lengths(xp, new)


def _by_rows(xp, rows):
    """The lexicographic order of rows with nan, which PyTorch takes for equal to every number.

    That is not an order, so the result depends on the algorithm: as C++'s, few rows are inserted one after the other.
    """
    listed = rows.tolist()

    def compare(i, j):
        for a, b in zip(listed[i], listed[j]):
            if a < b:
                return -1
            if a > b:
                return 1
        return 0

    if len(listed) > _INSERTED:
        return xp.asarray(sorted(range(len(listed)), key=cmp_to_key(compare)), dtype=I64)
    order: list[int] = []
    for i in range(len(listed)):
        at = len(order)
        if order and compare(i, order[0]) < 0:
            at = 0
        while at and compare(i, order[at - 1]) < 0:
            at -= 1
        order.insert(at, i)
    return xp.asarray(order, dtype=I64)


def unique_consecutive(xp, x, dim):
    """Returns the first of each run of equal elements, the run of each element, and the lengths of the runs.

    With `dim`, these are runs of equal slices.
    """
    if dim is None:
        flat = x.reshape(-1)
        new = xp.ones(flat.shape, bool)
        xp.not_equal(flat[1:], flat[:-1], new[1:])
        return flat[new], (xp.cumsum(new) - 1).reshape(x.shape).astype(I64), _run_lengths(xp, new)
    rows = xp.moveaxis(x, dim, 0)
    n = rows.shape[0]
    new = xp.ones(n, bool)
    new[1:] = (rows[1:] != rows[:-1]).reshape(max(n - 1, 0), -1).any(axis=1)
    kept = xp.ascontiguousarray(xp.take(x, xp.flatnonzero(new), axis=dim))
    return kept, (xp.cumsum(new) - 1).astype(I64), _run_lengths(xp, new)


def bincount(xp, x, weights, minlength):
    """Counts each number from 0 on, or sums its weights."""
    if weights is None:
        return xp.bincount(x.reshape(-1), minlength=minlength).astype(I64)
    summed = xp.bincount(x.reshape(-1), weights=weights.astype(np.float64), minlength=minlength)
    return summed.astype(weights.dtype if weights.dtype == np.float32 else np.float64)


def histc(xp, x, bins, low, high):
    """Counts in equal bins over [low, high], or over the range of the data if both are equal; the last is closed."""
    if x.dtype.itemsize == 2:
        return histc(xp, x.astype(np.float32), bins, low, high).astype(x.dtype)
    flat = x.reshape(-1)
    if low == high and flat.size:
        low, high = flat.min().item(), flat.max().item()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    low, high = x.dtype.type(low), x.dtype.type(high)
    if low == high:
        low, high = low - 1, high + 1
    flat = flat[(flat >= low) & (flat <= high)]
    at = ((flat - low) / (high - low) * bins).astype(I64)
    return xp.bincount(xp.minimum(at, bins - 1), minlength=bins).astype(x.dtype)


def histogram(xp, x, edges, weight, density):
    """Counts (or sums of weights) between consecutive `edges`, the last bin closed; `density` normalizes them."""
    flat = x.reshape(-1)
    weight = None if weight is None else weight.reshape(-1)
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    at = xp.minimum(xp.searchsorted(edges, flat[inside], "right"), len(edges) - 1) - 1
    weight = None if weight is None else weight[inside].astype(np.float64)
    hist = xp.bincount(at, weights=weight, minlength=len(edges) - 1).astype(x.dtype)
    if density:
        with np.errstate(all="ignore"):
            hist = hist / (hist.sum() * xp.diff(edges))
    return hist.astype(x.dtype, copy=False)
