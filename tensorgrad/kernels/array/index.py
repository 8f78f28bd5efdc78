"""Gathering and scattering over plain arrays. Every kernel returns a new array.

Index arrays are int64 (or any integer), with shapes as in PyTorch's `gather` and `scatter`: `index` may be smaller than
the array in the dimensions that are not indexed, and only the elements it covers are read or written.
"""

import math
from functools import lru_cache

import numpy as np

from .blocks import BLOCK

# Indices up to this size use NumPy's own indexing, whose other index arrays are cached; larger ones flat positions.
_SMALL = 256
# Rows of a table that receive more gradients than this are summed one row at a time.
_MANY = 64
# PyTorch's loops over rows of half precision work in float32 on this many columns at a time; it rounds every product of
# the columns that are left.
_VECTORS = 64


def extremes(xp, index):
    """Returns the smallest and largest element as Python numbers, in the fastest way for the size."""
    if xp is np and index.size <= 64:
        values = index.ravel().tolist()
        return min(values), max(values)
    if xp is np and index.dtype == np.int64:
        high = int(index.view(np.uint64).max())  # one pass when no element is negative
        if high < 1 << 63:
            return 0, high
    return int(index.min()), int(index.max())


def checks_itself(xp, index, least, size, dim, error=IndexError):
    """Returns whether the device checks indices itself, raising `error` later, as the host would have to wait."""
    check = None if xp is np else getattr(xp, "check_indices", None)
    if check is None:
        return False
    check(index, least, size, dim, error)
    return True


def check_bounds(xp, index, size, dim):
    """Raises: RuntimeError if an index is outside [0, size)."""
    if not index.size or checks_itself(xp, index, 0, size, dim, RuntimeError):
        return
    low, high = extremes(xp, index)
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        raise RuntimeError(f"index {wrong} is out of bounds for dimension {dim} with size {size}")


def _linear(xp, shape, dim, index):
    """Returns positions in a contiguous array of `shape` for `index` along `dim`."""
    stride = 1
    strides = [0] * len(shape)
    for i in range(len(shape) - 1, -1, -1):
        strides[i] = stride
        stride *= shape[i]
    where = index * strides[dim] if strides[dim] != 1 else index
    for i, n in enumerate(index.shape):
        if i != dim and n > 1:
            steps = xp.arange(0, n * strides[i], strides[i]).reshape((n,) + (1,) * (index.ndim - 1 - i))
            where = where + steps
    return where


def _prepared(xp, x, dim, index):
    """Checks `index` and returns its positions in `x`; 0-dim operands count as one element."""
    shape = x.shape or (1,)
    check_bounds(xp, index, shape[dim], dim)
    return _linear(xp, shape, dim, index if index.ndim else index.reshape(1))


@lru_cache(maxsize=128)
def _ranges(shape, dim):
    """Returns the indices along each dimension of `shape`, so that they broadcast; None for `dim`."""
    ranges = [np.arange(n).reshape((n,) + (1,) * (len(shape) - 1 - i)) for i, n in enumerate(shape)]
    return (*ranges[:dim], None, *ranges[dim + 1 :])


def _indexing(xp, x, dim, index):
    """Returns a tuple of arrays to index `x` by if `index` is small; else None. Raises: RuntimeError as the check."""
    if xp is not np or index.size > _SMALL or not index.ndim or index.ndim != x.ndim:
        return None
    check_bounds(xp, index, x.shape[dim], dim)
    ranges = _ranges(index.shape, dim)
    return (*ranges[:dim], index, *ranges[dim + 1 :])


def gather(xp, x, dim, index):
    """Computes `out[i, j, ...] = x[index[i, j, ...], j, ...]` for `dim` 0, and so on; the shape is `index`'s."""
    at = _indexing(xp, x, dim, index)
    if at is not None:
        return x[at]
    where = _prepared(xp, x, dim, index)
    return x.reshape(-1).take(where).reshape(index.shape)


def _source(src, shape):
    """Returns the part of `src` that an `index` of `shape` covers; scalars and 0-dim arrays broadcast."""
    if not getattr(src, "ndim", 0) or src.shape == shape:
        return src
    return src[tuple(slice(0, n) for n in shape)]


def scatter(xp, x, dim, index, src):
    """Returns a copy of `x` with `src` written at `index` along `dim`; the last of several values remains."""
    at = _indexing(xp, x, dim, index)
    if at is not None:
        out = x.copy()
        out[at] = _source(src, index.shape)
        return out
    where = _prepared(xp, x, dim, index)
    out = xp.array(x, order="C")
    out.reshape(-1)[where] = _source(src, index.shape if index.ndim else (1,))
    return out


def _accumulate_flat(xp, flat, where, values):
    """Adds `flat[where] += values` with repeats, in place: the one-dimensional `add.at` is a tight loop in NumPy."""
    where = where.reshape(-1)
    if getattr(values, "ndim", 0) and values.size == where.size:
        values = xp.ascontiguousarray(values).reshape(-1)
    xp.add.at(flat, where, values)


def scatter_add(xp, x, dim, index, src):
    """Returns a copy of `x` with `src` added at `index` along `dim`."""
    at = None if x.dtype.itemsize == 2 else _indexing(xp, x, dim, index)
    if at is not None:
        out = x.copy()
        np.add.at(out, at, _source(src, index.shape))
        return out
    where = _prepared(xp, x, dim, index)
    src = _source(src, index.shape if index.ndim else (1,))
    if half_precision(x.dtype):
        out = xp.array(x, dtype=np.float32, order="C")
        _accumulate_flat(xp, out.reshape(-1), where, xp.asarray(src, dtype=np.float32))
        return out.astype(x.dtype)
    out = xp.array(x, order="C")
    _accumulate_flat(xp, out.reshape(-1), where, src)
    return out


def _reduce_flat(xp, flat, where, values, reduce):
    if reduce in ("sum", "mean"):
        _accumulate_flat(xp, flat, where, values)
        return
    ufunc = {"prod": xp.multiply, "amax": xp.maximum, "amin": xp.minimum}[reduce]
    ufunc.at(flat, where.reshape(-1), xp.ascontiguousarray(xp.broadcast_to(values, where.shape)).reshape(-1))


def _start_of(reduce, dtype):
    """Returns the neutral element of a reduction in `dtype`."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.kind == "b":
        return reduce == "amin"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if reduce == "amax" else np.iinfo(dtype).max
    return -np.inf if reduce == "amax" else np.inf


def scatter_reduce(xp, x, dim, index, src, reduce, include_self=True):
    """Returns a copy of `x` with `src` reduced into it at `index` along `dim`.

    `reduce` is "sum", "prod", "mean", "amax" or "amin". Without `include_self` the old values of written elements are
    ignored. Means of integers are rounded down.
    """
    if half_precision(x.dtype):
        lifted = scatter_reduce(
            xp, x.astype(np.float32), dim, index, xp.asarray(src, dtype=np.float32), reduce, include_self
        )
        return lifted.astype(x.dtype)
    where = _prepared(xp, x, dim, index)
    src = _source(src, index.shape if index.ndim else (1,))
    out = xp.array(x, order="C")
    flat = out.reshape(-1)
    with np.errstate(all="ignore"):
        if not include_self:
            flat[where] = _start_of(reduce, x.dtype)
        _reduce_flat(xp, flat, where, src, reduce)
        if reduce == "mean":
            count = xp.bincount(where.reshape(-1), minlength=flat.size)
            count += include_self
            xp.maximum(count, 1, out=count)
            if x.dtype.kind in "iu":
                xp.floor_divide(flat, count.astype(x.dtype), out=flat)
            else:
                xp.divide(flat, count.astype(flat.real.dtype), out=flat)
    return out


def half_precision(dtype) -> bool:
    """Whether it is float16 or bfloat16."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def sums_dtype(xp, dtype):
    """The dtype of a sum to which terms of `dtype` are added one by one.

    It is `dtype`, as in PyTorch: in half precision every addition is rounded. Only a device's own library may not add
    so; its sums are float32's.
    """
    return np.dtype(np.float32) if xp is not np and half_precision(dtype) else dtype


def terms(x):
    """`x` as terms of sums: NumPy adds float32 to half precision, which rounds as much, faster than the latter."""
    return x.astype(np.float32) if half_precision(x.dtype) else x


def scaled_terms(xp, x, factor):
    """`factor * x` as terms of sums in half precision; `factor` is rounded to the dtype of `x`.

    Products of whole vectors are added unrounded.
    """
    made = x.astype(np.float32) * xp.asarray(factor).astype(x.dtype).astype(np.float32)
    left = made[..., made.shape[-1] // _VECTORS * _VECTORS :] if made.ndim else made
    left[...] = left.astype(x.dtype)
    return made


def add_rows(xp, table, rows, g):
    """Adds `table[rows[k]] += g[k]`, repeats included, in place; `table` (V, E) contiguous, `g` (K, E).

    Every sum is taken in the order of k, and rounded to the dtype of the table after every addition. The first
    gradients of many distinct rows are added together, then the second of those that have two, and so on, up to `_MANY`
    steps; the few rows with more are summed one by one.
    """
    if not rows.size or not table.size:
        return
    if xp is not np or rows.size * table.shape[1] < 512:
        xp.add.at(table, rows, g)
        return
    if table.shape[1] == 1:  # NumPy adds up neighbours in pairs
        np.add.at(table.reshape(-1), rows, g.reshape(-1))
        return
    order = rows.argsort(kind="stable")
    ordered = rows[order]
    starts = np.concatenate(([0], (ordered[1:] != ordered[:-1]).nonzero()[0] + 1))
    counts = np.diff(starts, append=rows.size)
    by_count = counts.argsort(kind="stable")[::-1]
    starts, counts = starts[by_count], counts[by_count]
    targets = ordered[starts]
    often = int(np.searchsorted(-counts, -_MANY, side="left"))
    for start, count, row in zip(starts[:often].tolist(), counts[:often].tolist(), targets[:often].tolist()):
        at = order[start : start + count]
        table[row] = _sum_of_rows(table[row], g.take(at, 0))
    step = max(1, BLOCK // table.shape[1])  # this many sums stay in cache until they are complete
    for first in range(often, counts.size, step):
        some = slice(first, first + step)
        begin, count, target = starts[some], counts[some], targets[some]
        total = table.take(target, 0)
        np.add(total, g.take(order[begin], 0), out=total, casting="unsafe")
        # the rows with more than r gradients are the first `active[r - 1]`
        active = np.searchsorted(-count, -np.arange(1, count[0]), side="left")
        for r, n in enumerate(active.tolist(), 1):
            np.add(total[:n], g.take(order[begin[:n] + r], 0), out=total[:n], casting="unsafe")
        table[target] = total


def _sum_of_rows(start, g):
    """`start` (E) plus the rows of `g` (K, E), one after another."""
    if not half_precision(start.dtype):
        return np.add.reduce(np.concatenate((start[None], g)), 0)
    total = start.copy()
    for row in g:
        np.add(total, row, out=total, casting="unsafe")
    return total


def index_add(xp, x, dim, index, src, alpha=1):
    """Returns a copy of `x` with `alpha * src` added: slice k of `src` along `dim` to slice `index[k]` of `x`."""
    shape = x.shape or (1,)
    index = index.reshape(-1)
    check_bounds(xp, index, shape[dim], dim)
    if half_precision(x.dtype):
        # PyTorch takes these for a `scatter_add`, which rounds once
        once = alpha == 1 and len(shape) > 1 and dim in (0, len(shape) - 1) and index.dtype == np.int64
        if once or xp is not np:
            lifted = index_add(xp, x.astype(np.float32), dim, index, src.astype(np.float32), alpha)
            return lifted.astype(x.dtype)
        src = terms(src) if alpha == 1 else _scaled_slices(xp, src.reshape(src.shape or (1,)), dim, alpha)
    elif alpha != 1:
        src = xp.asarray(src * (np.array(alpha).astype(src.dtype)[()] if src.dtype.kind in "iu" else alpha))
    src = src.reshape(shape[:dim] + (index.size,) + shape[dim + 1 :])
    if len(shape) == 1:
        out = xp.array(x.reshape(shape))
        xp.add.at(out, index, src if half_precision(out.dtype) else src.astype(out.dtype, copy=False))
        return out.reshape(x.shape)
    out = xp.array(x, order="C")
    if not src.size:  # nothing to add, and no strides to compute with
        return out
    if dim == 0:
        width = math.prod(shape[1:])
        add_rows(xp, out.reshape(shape[0], width), index, src.reshape(index.size, width))
        return out
    where = _linear(xp, shape, dim, xp.broadcast_to(index.reshape((-1,) + (1,) * (len(shape) - 1 - dim)), src.shape))
    _accumulate_flat(xp, out.reshape(-1), where, src)
    return out


def _scaled_slices(xp, src, dim, alpha):
    """`scaled_terms` of slices along `dim`: what follows `dim` are the columns."""
    after = math.prod(src.shape[dim + 1 :])
    return scaled_terms(xp, xp.ascontiguousarray(src).reshape(-1, after), alpha).reshape(src.shape)


def _normalised(xp, x, indices):
    """Checks integer index arrays and makes them non-negative; bool masks and None (a whole dimension) are kept."""
    found, dim = [], 0
    for index in indices:
        if index is None:
            found.append(slice(None))
            dim += 1
        elif index.dtype == bool:
            found.append(index)
            dim += index.ndim
        else:
            size = x.shape[dim]
            if index.size and not checks_itself(xp, index, -size, size, dim):
                low, high = extremes(xp, index)
                if not size:
                    raise IndexError("index is out of bounds for dimension with size 0")
                if low < -size or high >= size:
                    wrong = high if high >= size else low
                    raise IndexError(f"index {wrong} is out of bounds for dimension {dim} with size {size}")
            found.append(index)
            dim += 1
    return tuple(found)


def index_put(xp, x, indices, values, accumulate=False):
    """Returns a copy of `x` with `values` written to (or, with `accumulate`, added at) `x[indices]`.

    `indices` holds an integer or bool array, or None for a whole dimension, per leading dimension.
    """
    at = _normalised(xp, x, indices)
    out = x.copy() if xp is np else xp.array(x, order="C")
    if not accumulate:
        out[at] = values
        return out
    if xp is np and values.size <= _SMALL:
        np.add.at(out, at, values)
        return out
    if sums_dtype(xp, x.dtype) != x.dtype:
        return index_put(xp, x.astype(np.float32), indices, values.astype(np.float32), True).astype(x.dtype)
    values = terms(values)
    single = at[0] if at and not isinstance(at[0], slice) and at[0].dtype != bool else None
    if len(at) == 1 and single is not None and x.ndim > 1:
        rows = single.reshape(-1)
        rows = xp.where(rows < 0, rows + x.shape[0], rows)
        width = math.prod(x.shape[1:])
        g = xp.ascontiguousarray(xp.broadcast_to(values, single.shape + x.shape[1:])).reshape(rows.size, width)
        add_rows(xp, out.reshape(x.shape[0], width), rows, g)
        return out
    # positions through the same indexing, so that one flat accumulation handles every mixture of indices
    positions = xp.arange(x.size).reshape(x.shape)[at]
    values = xp.broadcast_to(values, positions.shape)
    _accumulate_flat(xp, out.reshape(-1), xp.asarray(positions), values)
    return out


def one_hot(xp, index, classes):
    """Adds a last dimension of `classes` zeros, with a 1 at `index`, which must be valid."""
    out = xp.zeros(index.shape + (classes,), index.dtype)
    out.reshape(-1)[index.reshape(-1) + xp.arange(0, index.size * classes, classes)] = 1
    return out


def embedding_grad(xp, g, index, num_rows, padding_idx=None, dtype=None):
    """Computes the gradient of an embedding's table: row `index[k]` gets the sum of its `g[k]`, `padding_idx` nothing.

    `g` is `index.shape + (width,)`; the result (num_rows, width) in `dtype`, which is `g`'s by default.
    """
    dtype = dtype or g.dtype
    width = g.shape[-1]
    rows = index.reshape(-1)
    g2 = g.reshape(rows.size, width)
    if padding_idx is not None:
        kept = rows != padding_idx
        if not kept.all():
            kept = kept.nonzero()
            rows, g2 = rows[kept], g2[kept]
    table = xp.zeros((num_rows, width), sums_dtype(xp, dtype))
    add_rows(xp, table, rows, terms(g2))
    return table.astype(dtype, copy=False)
