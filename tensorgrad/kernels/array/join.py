"""Joining plain arrays. The results are new C-contiguous arrays."""

from __future__ import annotations


def cat(xp, arrays, dim):
    """Concatenates arrays of one dtype, with equal sizes except in `dim`, along it."""
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


def block_diag(xp, arrays):
    """Places matrices of one dtype along the diagonal of one matrix of zeros."""
    rows, columns = sum(x.shape[0] for x in arrays), sum(x.shape[1] for x in arrays)
    out = xp.zeros((rows, columns), arrays[0].dtype)
    row = column = 0
    for x in arrays:
        out[row : row + x.shape[0], column : column + x.shape[1]] = x
        row, column = row + x.shape[0], column + x.shape[1]
    return out
