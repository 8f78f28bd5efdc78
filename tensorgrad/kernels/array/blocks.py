"""Shared by many kernels: blocks that fit the cache, sums of long rows, polynomials, selection without branches."""

from functools import cache

import numpy as np

from tensorgrad.rows.kernel_tables import run_compiled

# Elements per block. Temporaries of this size stay in the second-level cache; with smaller blocks the ufunc calls cost
# more than the cache saves (float32: 16 Ki 1.5 ns per element of `erf`, 64 Ki 1.2, 256 Ki 1.25).
BLOCK = 1 << 16
LONG, _PIECE = 1 << 15, 4096  # elements of a row whose products are added up in pieces, and of a piece


def as_float32(kernel, xp, *arrays, **params):
    """Runs `kernel` in float32 on two-byte floats; the result has the first two-byte operand's dtype."""
    low = next(a.dtype for a in arrays if a is not None and a.dtype.itemsize == 2)
    lifted = (a.astype(np.float32) if a is not None and a.dtype.itemsize == 2 else a for a in arrays)
    with np.errstate(all="ignore"):
        return kernel(xp, *lifted, **params).astype(low)


def in_dtype(array, dtype):
    """The array in another dtype; large ones of two bytes are cast by a compiled kernel."""
    if array.dtype == dtype:
        return array
    made = run_compiled("to_copy", array.size, array, dtype)
    if made is NotImplemented:
        with np.errstate(all="ignore"):
            return array.astype(dtype)
    return made


def in_float64(kernel, xp, x):
    with np.errstate(all="ignore"):
        return kernel(xp, x.astype(np.float64)).astype(x.dtype)


def long_rows(xp, length):
    """Sets NumPy's buffer size for broadcast arithmetic on rows of `length`; `np.errstate` around it undoes this.

    NumPy merges broadcast operands in a buffer of 8192 elements. That is good for short rows; with rows of 512 and more
    the copying doubles the time, unless the buffer is too small for two of them.
    """
    if xp is np and 512 <= length < 8192:
        np.setbufsize(512)


def row_dot(xp, a, b):
    """Sum of products over the last dimension."""
    if xp is not np:
        return (a * b).sum(axis=-1)
    n = a.shape[-1]
    if n < LONG:
        return np.vecdot(a, b)
    # BLAS adds up a row in one go, which costs digits: of ten million float32 the sum has four. Those of pieces do not.
    whole = n - n % _PIECE
    pieces = (x[..., :whole].reshape(*x.shape[:-1], whole // _PIECE, _PIECE) for x in (a, b))
    return np.vecdot(*pieces).sum(-1) + np.vecdot(a[..., whole:], b[..., whole:])


def in_blocks(xp, kernel, arrays, *params):
    """Returns a new array filled by `kernel(xp, out, *arrays, *params)`, block by block when the arrays are large.

    All `arrays` have one shape and one dtype. The kernel receives at least one dimension, writes only to `out`, and may
    allocate temporaries, which the block size keeps in cache. Floating-point warnings are off.
    """
    first = arrays[0]
    shape = first.shape
    if not first.size:
        return xp.empty_like(first)
    with np.errstate(all="ignore"):
        few = first.size <= 1024 or (first.size <= BLOCK and all(a.flags.c_contiguous for a in arrays))
        if few or xp is not np:
            if not shape:  # operators turn 0-dim arrays into scalars, which cannot be written to
                arrays = [a.reshape(1) for a in arrays]
            out = xp.empty_like(arrays[0])
            kernel(xp, out, *arrays, *params)
            return out if shape else out.reshape(())
        turned = all(a.flags.f_contiguous for a in arrays)
        flat = [(a.T if turned else a).reshape(-1) for a in arrays]
        out = np.empty(first.size, first.dtype)
        for start in range(0, first.size, BLOCK):
            block = slice(start, start + BLOCK)
            kernel(xp, out[block], *(a[block] for a in flat), *params)
    return out.reshape(shape[::-1]).T if turned else out.reshape(shape)


@cache
def _boxed(values, dtype):
    return tuple(np.array(v, dtype) for v in values)


def table(xp, values, dtype):
    """Returns `values` as operands: floats, or 0-dim arrays for NumPy, which takes them in half the time."""
    return _boxed(values, dtype) if xp is np else values


def horner(xp, t, coefficients, out=None):
    """Evaluates the polynomial with `coefficients` (highest power first) at `t`."""
    c = table(xp, coefficients, t.dtype)
    p = xp.multiply(t, c[0], out)
    xp.add(p, c[1], p)
    for k in range(2, len(c)):
        xp.multiply(p, t, p)
        xp.add(p, c[k], p)
    return p


def ratio(xp, t, top, bottom):
    """`top(t) / bottom(t)`: coefficients highest power first, without the bottom's leading 1."""
    c = table(xp, bottom, t.dtype)
    q = xp.add(t, c[0])
    for k in range(1, len(c)):
        xp.multiply(q, t, q)
        xp.add(q, c[k], q)
    p = horner(xp, t, top)
    return xp.divide(p, q, p)


_SAME_SIZE_INT = {4: np.int32, 8: np.int64}


def select(xp, mask, a, b):
    """`where(mask, a, b)` for two arrays of one shape and dtype.

    NumPy's `where` branches on every element: with a random mask that takes ten times as long as selecting bits.
    """
    if xp is not np or mask.size < 4096 or a.shape != b.shape or a.dtype.itemsize not in _SAME_SIZE_INT:
        return xp.where(mask, a, b)
    integer = _SAME_SIZE_INT[a.dtype.itemsize]
    keep = mask.astype(integer)
    np.subtract(0, keep, out=keep)  # 0 or all ones
    other = np.ascontiguousarray(b).view(integer)
    chosen = np.ascontiguousarray(a).view(integer) ^ other
    chosen &= keep
    chosen ^= other
    return chosen.view(a.dtype)


def places_of(mask):
    """Returns `mask` as an index: integers if it is large, because indexing by a mask branches on every element too."""
    return mask.nonzero() if mask.ndim == 1 else mask


def fill(out, mask, function, *arrays):
    """`out[mask] = function(*arrays[mask])`, without the copies if the mask is true everywhere or nowhere."""
    if mask.all():
        out[...] = function(*arrays)
    elif mask.any():
        places = places_of(mask)
        out[places] = function(*(a[places] for a in arrays))
