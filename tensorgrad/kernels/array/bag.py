"""Rows in bags: `bags` (K) assigns the K rows of a matrix to `count` bags, in ascending order."""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.array.blocks import BLOCK
from tensorgrad.kernels.array.index import add_rows, half_precision, sums_dtype, terms


def bag_numbers(xp, starts, length, whole):
    """Returns the bag of each of `length` rows, where bag k begins at `starts[k]` and ends where the next one begins.

    The last bag ends at `length` or, unless it is `whole`, before the last entry of `starts`.
    """
    ends = xp.concatenate([starts[1:], xp.full(1, length, starts.dtype)]) if whole else starts[1:]
    sizes = ends - (starts if whole else starts[:-1])
    return xp.repeat(xp.arange(len(sizes), dtype=starts.dtype), sizes.tolist() if xp is not np else sizes)


def bag_sum(xp, rows, bags, count, weights, ties_up=False):
    """The sum of each bag's rows, times their `weights` (K) if given; (count, width). Empty bags give 0.

    Sums of half precision are taken in float32, one row after another, and rounded; those to bfloat16 with `ties_up`
    away from zero where they lie in the middle between two numbers.
    """
    if half_precision(rows.dtype):
        wide = rows.astype(np.float32)
        if weights is not None:
            wide *= weights.astype(np.float32)[:, None]
        out = xp.zeros((count, rows.shape[1]), np.float32)
        add_rows(xp, out, bags, wide)
        return _rounded(xp, out, rows.dtype, ties_up)
    sizes = xp.bincount(bags, minlength=count)
    size = _common_size(sizes)
    if size:
        weights = xp.ones((1, 1, size), rows.dtype) if weights is None else weights.reshape(count, 1, size)
        return xp.matmul(weights, rows.reshape(count, size, -1)).reshape(count, -1)
    if weights is not None:
        rows = rows * weights[:, None]
    out = xp.zeros((count, rows.shape[1]), rows.dtype)
    used = sizes.nonzero()[0]
    if len(used):
        out[used] = xp.add.reduceat(rows, (xp.cumsum(sizes) - sizes)[used], 0)
    return out


def _rounded(xp, sums, dtype, ties_up):
    """float32 sums in half precision; see `bag_sum`."""
    if not ties_up or xp is not np or dtype == np.float16:
        return sums.astype(dtype)
    bits = sums.view(np.uint32) + np.uint32(1 << 15)
    return (bits >> np.uint32(16)).astype(np.uint16).view(dtype)


def _sizes(xp, starts, length):
    """Returns how many of `length` rows are in each bag."""
    return xp.concatenate([starts[1:], xp.full(1, length, starts.dtype)]) - starts


def lookup(xp, table, indices, starts, mean):
    """The sums (or means) of the rows of `table` (V, width) at each bag's indices: (bags, width).

    `indices` is (bags, n), or flat and split into bags at `starts`. Empty bags give 0.
    """
    half = half_precision(table.dtype)
    if starts is None and half:
        starts = xp.arange(0, indices.size, max(indices.shape[1], 1)) if indices.size else xp.zeros(len(indices), int)
        indices = indices.reshape(-1)
    if starts is None:
        return _lookup_even(xp, table, indices, mean)
    rows = table.take(indices, 0)
    sizes = _sizes(xp, starts, len(rows))
    bags = xp.repeat(xp.arange(len(sizes)), sizes if xp is np else sizes.tolist())
    out = bag_sum(xp, rows, bags, len(sizes), None, True)
    return xp.divide(out, xp.maximum(sizes, 1).astype(out.dtype)[:, None], out) if mean else out


def _lookup_even(xp, table, indices, mean):
    """`lookup` for bags of one size, a few at a time, so that their rows stay in cache until they are summed."""
    (count, n), width = indices.shape, table.shape[1]
    if not indices.size or not width:
        return xp.zeros((count, width), table.dtype)
    out = xp.empty((count, 1, width), table.dtype)
    ones = xp.full((1, 1, n), 1 / n if mean else 1, table.dtype)
    step = max(1, BLOCK // (n * width)) if xp is np else count
    for bag in range(0, count, step):
        some = slice(bag, bag + step)
        xp.matmul(ones, table.take(indices[some].reshape(-1), 0).reshape(-1, n, width), out=out[some])
    return out.reshape(count, width)


def lookup_max(xp, table, indices):
    """The largest of the rows of `table` (V, width) at each row of `indices` (bags, n), column by column.

    Also returns the indices of the rows they are from, the first of equal ones. A nan is larger than everything.
    """
    (count, n), width = indices.shape, table.shape[1]
    rows = table.take(indices.reshape(-1), 0)
    wide = rows.astype(np.float32) if rows.dtype.itemsize == 2 else rows
    at = wide.reshape(count, n, width).argmax(1)
    at += xp.arange(0, count * n, n)[:, None]
    return rows.reshape(-1).take(at * width + xp.arange(width)), indices.reshape(-1).take(at)


def lookup_grad(xp, g, indices, starts, count, mean):
    """The gradient of `lookup` for a table of `count` rows."""
    sizes = indices.shape[1] if starts is None else _sizes(xp, starts, indices.size)
    if mean and half_precision(g.dtype):
        factor = (1 / xp.maximum(xp.asarray(sizes), 1)).astype(g.dtype)
        g = g * (factor[:, None] if factor.ndim else factor)
    elif mean:
        g = g * (1 / max(sizes, 1)) if starts is None else g / xp.maximum(sizes, 1).astype(g.dtype)[:, None]
    if xp is not np and starts is not None:
        sizes = sizes.tolist()
    table = xp.zeros((count, g.shape[1]), sums_dtype(xp, g.dtype))
    add_rows(xp, table, indices.reshape(-1), xp.repeat(terms(g), sizes, 0))
    return table.astype(g.dtype, copy=False)


def bag_extreme(xp, rows, bags, count, largest):
    """The largest or smallest of each bag's rows, column by column, (count, width); infinite for empty bags."""
    sizes = xp.bincount(bags, minlength=count)
    out = xp.full((count, rows.shape[1]), -np.inf if largest else np.inf, rows.dtype)
    used = sizes.nonzero()[0]
    if len(used):
        ufunc = xp.maximum if largest else xp.minimum
        out[used] = ufunc.reduceat(rows, (xp.cumsum(sizes) - sizes)[used], 0)
    return out


def bag_argmax(xp, rows, bags, count):
    """The index of the row with the largest element in each bag and column, the first if there are several.

    (count, width), -1 in empty bags. A nan is larger than everything.
    """
    sizes = xp.bincount(bags, minlength=count)
    starts = xp.cumsum(sizes) - sizes
    size = _common_size(sizes)
    if size:
        return rows.reshape(count, size, -1).argmax(1) + starts[:, None]
    out = xp.full((count, rows.shape[1]), -1, np.int64)
    used = sizes.nonzero()[0]
    if len(used):
        largest = xp.maximum.reduceat(rows, starts[used], 0)
        place = xp.cumsum(sizes > 0)[bags] - 1  # among the bags that have rows
        found = (rows == largest[place]) | (rows != rows)
        at = xp.where(found, xp.arange(len(rows))[:, None], len(rows))
        out[used] = xp.minimum.reduceat(at, starts[used], 0)
    return out


def _common_size(sizes) -> int:
    """The number of rows in every bag; 0 if they differ."""
    size = int(sizes[0]) if len(sizes) else 0
    return size if size and bool((sizes == size).all()) else 0
