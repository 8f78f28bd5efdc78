"""Joining plain arrays. The results are new C-contiguous arrays."""

from __future__ import annotations

import numpy as np

from tensorgrad.rows.kernel_tables import run_compiled
from tensorgrad.storage.fresh import fresh

_LARGE = 8192  # elements of the first array from which on threads may share the work


def cat(xp, arrays, dim):
    """Concatenates arrays of one dtype, with equal sizes except in `dim`, along it."""
    if xp is np and arrays[0].size >= _LARGE:
        made = run_compiled("joined", sum([x.size for x in arrays]), arrays, dim)
        if made is not NotImplemented:
            return made
    joined = xp.concatenate(arrays, dim)
    if joined.ndim in (4, 5) and all(map(_channels_last, arrays)):
        return xp.moveaxis(xp.array(xp.moveaxis(joined, 1, -1), order="C"), -1, 1)
    return _in_c_order(xp, joined, arrays)


def _channels_last(x):
    """Returns whether images are stored channels-last, as in torch.channels_last, and are not contiguous as well."""
    s = x.strides
    return s[1] == x.itemsize and x.shape[1] > 1 and s[1] < s[-1] <= min(s[2:]) and max(s[2:]) <= s[0]


def stack(xp, arrays, dim):
    """Stacks arrays of one dtype and shape along a new dimension."""
    if not dim and arrays[0].ndim:  # without checking each array
        joined = xp.concatenate(arrays).reshape(len(arrays), *arrays[0].shape)
        return _in_c_order(xp, joined, arrays)
    index = (slice(None),) * dim + (None,)
    return _in_c_order(xp, xp.concatenate([x[index] for x in arrays], dim), arrays)


def _in_c_order(xp, joined, arrays):
    # NumPy keeps the order of its inputs if all are transposed alike
    return joined if joined.flags.c_contiguous else xp.array(joined, order="C")


def _address(x):
    return x.__array_interface__["data"][0]


def _dense(shape, strides, itemsize):
    """Returns whether an array has no gaps, and no element twice."""
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride != itemsize:
                return False
            itemsize *= size
    return True


def whole_of(parts, dim, stacked):
    """Returns the array that has these parts side by side along `dim`, if they lie so in NumPy's memory; else None.

    `stacked`: each part is without that dimension.

    >>> import numpy as np
    >>> from tensorgrad.kernels.array.join import whole_of
    >>> x = np.arange(8).reshape(2, 4)
    >>> whole_of([x[:, :2], x[:, 2:]], 1, False).tolist()
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    first = parts[0]
    block, dtype, strides = first.base, first.dtype, first.strides
    if block.__class__ is not np.ndarray or not block.flags.carray or not first.size or len(parts) == 1:
        return None
    after = dim if stacked else dim + 1
    lead, rest = first.shape[:dim], first.shape[after:]
    places = [_address(x) for x in parts]
    pitch, at, size = places[1] - places[0] if stacked else strides[dim], places[0], 0
    for x, place in zip(parts, places, strict=True):
        shape, count = x.shape, 1 if stacked else x.shape[dim]
        if place != at or x.base is not block or x.dtype is not dtype or x.strides != strides:
            return None
        if shape[:dim] != lead or shape[after:] != rest:
            return None
        at, size = at + count * pitch, size + count
    shape, strides = (*lead, size, *rest), (*strides[:dim], pitch, *strides[after:])
    if not _dense(shape, strides, dtype.itemsize):
        return None
    return np.ndarray(shape, dtype, block, places[0] - _address(block), strides)


def beside(arrays):
    """Allocates an array like each of these, if they are equal parts of one array in NumPy's memory; else returns None.

    The new ones then lie in one block as these do, so that joining them is free (`whole_of`).

    >>> import numpy as np
    >>> from tensorgrad.kernels.array.join import beside, whole_of
    >>> x = np.zeros((2, 4))
    >>> a, b = beside([x[:, :2], x[:, 2:]])
    >>> a[:], b[:] = 1, 2
    >>> whole_of([a, b], 1, False).tolist()
    [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]
    """
    whole = whole_of(arrays, 0, True)
    if whole is None:
        return None
    block, strides = fresh(whole.size, whole.dtype), whole.strides
    return [np.ndarray(x.shape, x.dtype, block, i * strides[0], strides[1:]) for i, x in enumerate(arrays)]


def block_diag(xp, arrays):
    """Places matrices of one dtype along the diagonal of one matrix of zeros."""
    rows, columns = sum(x.shape[0] for x in arrays), sum(x.shape[1] for x in arrays)
    out = xp.zeros((rows, columns), arrays[0].dtype)
    row = column = 0
    for x in arrays:
        out[row : row + x.shape[0], column : column + x.shape[1]] = x
        row, column = row + x.shape[0], column + x.shape[1]
    return out
