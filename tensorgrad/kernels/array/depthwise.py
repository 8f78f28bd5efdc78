"""Convolutions with few channels per group (above all depthwise ones) on plain arrays.

Such a convolution has only tiny matrix products, and writing out all windows costs more than the arithmetic. Only the
taps of one row of the kernel are written out here, as shifted copies of the padded images, each channel as one long
line. A product with the weights gives a line of sums for every row of the kernel, and these lines are added up, each
shifted by its row's offset in the image: a shifted line is a slice of it.

Shapes and parameters are those of `conv.py`; the stride is 1.
"""

from itertools import product
from math import prod

import numpy as np

# Bytes of lines at a time. Larger pieces leave the cache, smaller ones cost more in calls.
PIECE_BYTES = 1 << 22


def suits(xp, x_shape, w_shape, stride, groups):
    """Returns whether a convolution has few enough channels per group, enough points, and stride 1."""
    if xp is not np or groups == 1 or any(s != 1 for s in stride) or prod(w_shape[2:]) == 1:
        return False
    return w_shape[1] * (w_shape[0] // groups) <= 4 and x_shape[0] * prod(x_shape[2:]) >= 64


def conv(x, w, bias, out, padding, dilation, groups):
    """Fills `out` (N, O, *P) with the convolution of `x` (N, C, *S) and `w`, plus `bias` (O,) or None."""
    own = w.shape[0] // groups
    points = out.shape[2:]
    # (groups, rows of the kernel and outputs, inputs and taps of a row)
    rows = prod(w.shape[2:-1])
    weights = w.reshape(groups, own, w.shape[1], rows, -1).transpose(0, 1, 3, 2, 4).reshape(groups, own * rows, -1)
    shift = None if bias is None else bias.reshape(groups, own, 1)
    out = out.reshape(out.shape[0], groups, own, *points)
    for images, some, lines, size in _lines(x, w.shape, padding, dilation, groups):
        offsets = _row_offsets(w.shape, dilation, size)
        length = lines.shape[2] - offsets[-1]
        sums = (weights[some] @ lines).reshape(-1, own, rows, lines.shape[2])
        total = sums[:, :, 0, :length]
        for row in range(1, rows):
            np.add(total, sums[:, :, row, offsets[row] : offsets[row] + length], out=total)
        if shift is not None:
            total += shift[some]
        count = images.stop - images.start
        out[images, some] = _points_of(total, count, points, size).transpose(2, 0, 1, *range(3, 3 + len(points)))


def grad_weight(g, x, w_shape, padding, dilation, groups):
    """The gradient of `conv` for its weights, from `g` (N, O, *P) and `x` (N, C, *S)."""
    own, points = w_shape[0] // groups, g.shape[2:]
    rows = prod(w_shape[2:-1])
    total = np.zeros((groups, rows, own, w_shape[1] * w_shape[-1]), g.dtype)
    g = g.reshape(g.shape[0], groups, own, *points)
    for images, some, lines, size in _lines(x, w_shape, padding, dilation, groups):
        offsets = _row_offsets(w_shape, dilation, size)
        length = lines.shape[2] - offsets[-1]
        count = images.stop - images.start
        spread = np.zeros((lines.shape[0], own, length), g.dtype)  # the gradient, with its rows spaced as those of x
        _points_of(spread, count, points, size)[...] = g[images, some].transpose(1, 2, 0, *range(3, 3 + len(points)))
        for row, offset in enumerate(offsets):
            total[some, row] += spread @ lines[:, :, offset : offset + length].swapaxes(1, 2)
    total = total.reshape(groups, rows, own, w_shape[1], w_shape[-1]).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(total).reshape(w_shape)


def _lines(x, w_shape, padding, dilation, groups):
    """Yields `(images, some, lines, size)`: slices of images and of groups, and their lines for a row's taps.

    `lines` is (groups, C / groups * taps of a row, length): the padded images (of `size`), each channel's
    concatenated, once for every tap and beginning at that tap.
    """
    batch, inner, taps = x.shape[0], w_shape[1], w_shape[-1]
    size = tuple(n + 2 * p for n, p in zip(x.shape[2:], padding))
    inside = (..., *[slice(p, p + n) for n, p in zip(x.shape[2:], padding)])
    x = x.reshape(batch, groups, inner, *x.shape[2:])
    rows = inner * taps + w_shape[0] // groups * prod(w_shape[2:-1])
    fitting = max(1, PIECE_BYTES // (rows * prod(size) * x.dtype.itemsize))  # images of a group, or groups of an image
    count = min(batch, fitting)
    width = min(groups, max(1, fitting // count))
    reach = (taps - 1) * dilation[-1]
    lines = np.empty((width, inner, taps, count * prod(size)), x.dtype)
    lines[:, :, 0] = 0  # the borders of the images remain 0
    images = lines[:, :, 0].reshape(width, inner, count, *size)[inside]  # type: ignore[index]
    for first in range(0, batch, count):
        last = min(first + count, batch)
        length = (last - first) * prod(size) - reach
        for group in range(0, groups, width):
            some = slice(group, min(group + width, groups))
            here = some.stop - some.start
            source = x[first:last, some]
            images[:here, :, : last - first] = source.transpose(1, 2, 0, *range(3, source.ndim))
            for tap in range(1, taps):
                shift = tap * dilation[-1]
                lines[:here, :, tap, :length] = lines[:here, :, 0, shift : shift + length]
            yield slice(first, last), some, lines[:here, :, :, :length].reshape(here, inner * taps, length), size


def _row_offsets(w_shape, dilation, size):
    """Returns the offset of each row of the kernel from the first in a line of images of `size`."""
    pitch = [prod(size[axis + 1 :]) for axis in range(len(size) - 1)]
    steps = [range(0, k * d * p, d * p) for k, d, p in zip(w_shape[2:-1], dilation, pitch)]
    return [sum(offset) for offset in product(*steps)]


def _points_of(line, count, points, size):
    """Views the output points in lines (groups, channels, length) over `count` images of `size`."""
    pitch = [prod(size[axis:]) * line.itemsize for axis in range(len(size) + 1)]
    shape = (*line.shape[:2], count, *points)
    return np.lib.stride_tricks.as_strided(line, shape, (*line.strides[:2], *pitch))
