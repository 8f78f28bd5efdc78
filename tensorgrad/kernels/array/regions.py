"""Pooling of boxes of images into grids of bins: region of interest (RoI) align and pool, on plain arrays.

An average over a bin, by bilinear samples or by whole pixels, is a weighted sum over rows times one over columns: the
samples are a grid. So a box is two small matrices, (bins, rows) and (bins, columns), its average two matrix products,
and its gradient two more with their transposes. Matrices are made for many boxes at once.

`boxes` is (K, 5): the index of the image, and x1, y1, x2, y2 in pixels of an image `1 / scale` as large.

Sources: K. He et al., "Mask R-CNN" (2017); R. Girshick, "Fast R-CNN" (2015); J. Dai et al., "R-FCN" (2016).
"""

from __future__ import annotations

import numpy as np

from .conv import widen

TOGETHER = 1 << 20  # entries of the matrices that are made at once

# --- matrices ------------------------------------------------------------------------------------------------------


def sampled(xp, start, length, size, bins, samples):
    """Returns matrices (K, bins, size) that average bilinear samples of `size` pixels in each bin of K intervals.

    Args:
        start, length: where the intervals begin and how long they are, (K,).
        samples: how many samples are taken in each bin; 0: one per pixel, rounded up.

    >>> import numpy as np
    >>> sampled(np, np.array([0.0]), np.array([2.0]), 3, 2, 1).tolist()
    [[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]]
    """
    dtype = start.dtype
    step = length / dtype.type(bins)
    counts = xp.ceil(step) if samples <= 0 else xp.full_like(step, samples)
    counts = xp.nan_to_num(counts, nan=0.0, posinf=0.0, neginf=0.0)
    most = int(counts.max()) if counts.size else 0
    matrices = xp.zeros((len(start), bins, size), dtype)
    if most <= 0:
        return matrices
    taken = xp.arange(most, dtype=dtype)[None, None, :]
    counts = counts[:, None, None]
    steps = step[:, None, None]
    first = xp.arange(bins, dtype=dtype)[None, :, None] * steps + start[:, None, None]
    at = first + (taken + dtype.type(0.5)) * steps / xp.maximum(counts, 1)
    valid = (taken < counts) & (at >= -1) & (at <= size)
    at = xp.where(valid, xp.clip(at, 0, size - 1), 0)
    low = xp.floor(at).astype(np.int64)
    high = xp.minimum(low + 1, size - 1)
    part = at - low
    weight = valid / xp.maximum(counts, 1)
    rows = xp.arange(len(start) * bins).reshape(len(start), bins, 1) * size
    flat = matrices.reshape(-1)
    xp.add.at(flat, (rows + low).reshape(-1), ((1 - part) * weight).astype(dtype, copy=False).reshape(-1))
    xp.add.at(flat, (rows + high).reshape(-1), (part * weight).astype(dtype, copy=False).reshape(-1))
    return matrices


def whole(xp, first, last, size):
    """Returns matrices (K, bins, size) that average whole pixels `first` to `last` (exclusive), both (K, bins).

    >>> import numpy as np
    >>> whole(np, np.array([[0, 1]]), np.array([[2, 1]]), 3).tolist()
    [[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]]
    """
    pixels = xp.arange(size)
    inside = (pixels >= first[..., None]) & (pixels < last[..., None])
    return inside / xp.maximum(last - first, 1)[..., None]


def _rounded(xp, x):
    """Rounds to whole numbers, halves away from zero (as C does)."""
    return xp.copysign(xp.floor(abs(x) + x.dtype.type(0.5)), x).astype(np.int64)


def _pixels(xp, start, stop, bins, size, inclusive):
    """Returns the first and the last pixel (exclusive) of each bin of intervals between whole pixels, (K, bins)."""
    first = _rounded(xp, start)
    step = xp.maximum(_rounded(xp, stop) - first + inclusive, 1).astype(start.dtype)[:, None] / start.dtype.type(bins)
    number = xp.arange(bins + 1, dtype=start.dtype)
    last = size if inclusive else size - 1  # PyTorch's `ps_roi_pool` leaves out the last row and column
    low = xp.floor(number[:-1] * step).astype(np.int64) + first[:, None]
    high = xp.ceil(number[1:] * step).astype(np.int64) + first[:, None]
    return xp.clip(low, 0, last), xp.clip(high, 0, last)


def _matrices(xp, boxes, shape, scale, bins, how, samples, aligned):
    """Returns the matrices of rows and of columns of some boxes, in the dtype of `boxes`."""
    factor = boxes.dtype.type(scale)
    made = []
    for axis, (low, high) in enumerate(((2, 4), (1, 3))):
        if how == "pixels":
            first, last = _pixels(xp, boxes[:, low] * factor, boxes[:, high] * factor, bins[axis], shape[axis], 0)
            made.append(whole(xp, first, last, shape[axis]).astype(boxes.dtype))
            continue
        shift = boxes.dtype.type(0.5 if aligned else 0)
        start, stop = boxes[:, low] * factor - shift, boxes[:, high] * factor - shift
        length = stop - start if aligned else xp.maximum(stop - start, 1)
        made.append(sampled(xp, start, length, shape[axis], bins[axis], samples))
    return made


def _blocks(xp, boxes, shape, scale, bins, how, samples, aligned):
    """Yields for each box that touches its image: its number, the image, the rows and columns that it touches (slices),
    and the parts of its two matrices for these."""
    size = max(1, bins[0] * shape[0] + bins[1] * shape[1])
    step = max(1, TOGETHER // size)
    for begin in range(0, len(boxes), step):
        some = boxes[begin : begin + step]
        matrices = _matrices(xp, some, shape, scale, bins, how, samples, aligned)
        ranges = [_touched(xp, matrix) for matrix in matrices]
        for k in range(len(some)):
            rows, columns = (slice(int(lows[k]), int(highs[k])) for lows, highs in ranges)
            if rows.stop == rows.start or columns.stop == columns.start:
                continue
            yield begin + k, int(some[k, 0]), rows, columns, matrices[0][k][:, rows], matrices[1][k][:, columns]


def _touched(xp, matrices):
    """Returns the first and the last pixel (exclusive) with a weight in each matrix."""
    used = (matrices != 0).any(axis=1)
    size = used.shape[1]
    first, last = used.argmax(axis=1), size - used[:, ::-1].argmax(axis=1)
    return xp.where(used.any(axis=1), first, 0), xp.where(used.any(axis=1), last, 0)


# --- averages ------------------------------------------------------------------------------------------------------


def roi_align(xp, x, boxes, scale, height, width, samples, aligned):
    """Averages bilinear samples in `height` x `width` bins of K boxes of images (N, C, H, W): (K, C, height, width).

    >>> import numpy as np
    >>> x = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> roi_align(np, x, np.array([[0, 0.0, 0.0, 2.0, 2.0]]), 1.0, 1, 1, 2, False).tolist()
    [[[[5.0]]]]
    """
    wide, where = widen(xp, x), widen(xp, boxes)
    out = xp.zeros((len(boxes), x.shape[1], height, width), wide.dtype)
    channels_last = xp.ascontiguousarray(wide.transpose(0, 2, 3, 1))
    for k, image, rows, columns, down, across in _blocks(
        xp, where, x.shape[2:], scale, (height, width), "samples", samples, aligned
    ):
        part = xp.matmul(across, channels_last[image, rows, columns])  # (rows, width, C)
        mean = down @ part.reshape(len(part), -1)
        out[k] = mean.reshape(height, width, -1).transpose(2, 0, 1)
    return out.astype(x.dtype, copy=False)


def roi_align_grad(xp, g, boxes, scale, height, width, samples, aligned, shape):
    """Returns the gradient of `roi_align` for its images of `shape`.

    >>> import numpy as np
    >>> boxes = np.array([[0, 0.0, 0.0, 1.0, 1.0]])
    >>> roi_align_grad(np, np.ones((1, 1, 1, 1)), boxes, 1.0, 1, 1, 1, True, (1, 1, 2, 2)).tolist()
    [[[[1.0, 0.0], [0.0, 0.0]]]]
    """
    wide, where = widen(xp, g), widen(xp, boxes)
    total = xp.zeros((shape[0], shape[2], shape[3], shape[1]), wide.dtype)
    for k, image, rows, columns, down, across in _blocks(
        xp, where, shape[2:], scale, (height, width), "samples", samples, aligned
    ):
        part = xp.matmul(across.T, xp.ascontiguousarray(wide[k].transpose(1, 2, 0)))  # (height, columns, C)
        spread = down.T @ part.reshape(height, -1)
        total[image, rows, columns] += spread.reshape(-1, part.shape[1], shape[1])
    return xp.ascontiguousarray(total.transpose(0, 3, 1, 2)).astype(g.dtype, copy=False)


def position_sensitive(xp, x, boxes, scale, height, width, samples, how):
    """Averages each bin of boxes over channels of its own, (K, C / (height * width), height, width).

    Args:
        how: "samples" (as `roi_align`) or "pixels" (whole ones).

    >>> import numpy as np
    >>> x = np.arange(4.0).reshape(1, 4, 1, 1) * np.ones((1, 4, 3, 3))
    >>> position_sensitive(np, x, np.array([[0, 0.0, 0.0, 2.0, 2.0]]), 1.0, 2, 2, 1, "pixels").tolist()
    [[[[0.0, 1.0], [2.0, 3.0]]]]
    """
    wide, where = widen(xp, x), widen(xp, boxes)
    channels = x.shape[1] // (height * width)
    out = xp.zeros((len(boxes), channels, height, width), wide.dtype)
    binned = wide.reshape(len(x), channels, height, width, *x.shape[2:])
    for k, image, rows, columns, down, across in _blocks(
        xp, where, x.shape[2:], scale, (height, width), how, samples, True
    ):
        for i, part in _bins_of_rows(xp, down, rows):
            mean = xp.einsum("y,cwyx->cwx", down[i, part[0]], binned[image, :, i, :, part[1], columns])
            out[k, :, i] = xp.einsum("cwx,wx->cw", mean, across)
    return out.astype(x.dtype, copy=False)


def position_sensitive_grad(xp, g, boxes, scale, height, width, samples, how, shape):
    """Returns the gradient of `position_sensitive` for its images of `shape`.

    >>> import numpy as np
    >>> boxes = np.array([[0, 0.0, 0.0, 1.0, 1.0]])
    >>> position_sensitive_grad(np, np.ones((1, 1, 1, 1)), boxes, 1.0, 1, 1, 1, "pixels", (1, 1, 2, 2)).tolist()
    [[[[1.0, 0.0], [0.0, 0.0]]]]
    """
    wide, where = widen(xp, g), widen(xp, boxes)
    total = xp.zeros((shape[0], g.shape[1], height, width, *shape[2:]), wide.dtype)
    for k, image, rows, columns, down, across in _blocks(
        xp, where, shape[2:], scale, (height, width), how, samples, True
    ):
        spread = wide[k][..., None] * across  # (C, height, width, columns)
        for i, part in _bins_of_rows(xp, down, rows):
            total[image, :, i, :, part[1], columns] += spread[:, i, :, None] * down[i, part[0]][:, None]
    return total.reshape(shape).astype(g.dtype, copy=False)


def _bins_of_rows(xp, down, rows):
    """Yields the number of each bin, and the rows that it touches: within `down`, and within the image."""
    first, last = _touched(xp, down[:, None])
    for i in range(len(down)):
        if last[i] > first[i]:
            low, high = int(first[i]), int(last[i])
            yield i, (slice(low, high), slice(rows.start + low, rows.start + high))


# --- maxima --------------------------------------------------------------------------------------------------------


def roi_pool(xp, x, boxes, scale, height, width):
    """Returns the maxima of `height` x `width` bins of boxes, and their indices within the image plane (int32; -1 for
    empty bins, whose value is 0): both (K, C, height, width).

    >>> import numpy as np
    >>> x, boxes = np.arange(9.0).reshape(1, 1, 3, 3), np.array([[0, 0.0, 0.0, 1.0, 1.0]])
    >>> values, indices = roi_pool(np, x, boxes, 1.0, 1, 1)
    >>> values.tolist(), indices.tolist()
    ([[[[4.0]]]], [[[[4]]]])
    """
    where = widen(xp, boxes)
    factor = where.dtype.type(scale)
    rows = _pixels(xp, where[:, 2] * factor, where[:, 4] * factor, height, x.shape[2], 1)
    columns = _pixels(xp, where[:, 1] * factor, where[:, 3] * factor, width, x.shape[3], 1)
    values = xp.zeros((len(boxes), x.shape[1], height, width), x.dtype)
    indices = xp.full(values.shape, -1, np.int32)
    for k in range(len(boxes)):
        top, bottom = int(rows[0][k].min(initial=0)), int(rows[1][k].max(initial=0))
        if bottom <= top:
            continue
        plane = x[int(where[k, 0]), :, top:bottom]
        for j in range(width):
            left, right = int(columns[0][k, j]), int(columns[1][k, j])
            if right <= left:
                continue
            # The first maximum in reading order: the first column in each row, then the first row.
            column = plane[:, :, left:right].argmax(axis=2)
            best = xp.take_along_axis(plane[:, :, left:right], column[..., None], axis=2)[..., 0]
            for i in range(height):
                low, high = int(rows[0][k, i]) - top, int(rows[1][k, i]) - top
                if high > low:
                    row = best[:, low:high].argmax(axis=1)[:, None] + low
                    values[k, :, i, j] = xp.take_along_axis(best, row, axis=1)[:, 0]
                    at = xp.take_along_axis(column, row, axis=1)[:, 0]
                    indices[k, :, i, j] = (row[:, 0] + top) * x.shape[3] + left + at
    return values, indices


def roi_pool_grad(xp, g, indices, images, shape):
    """Returns the gradient of `roi_pool` for its images of `shape`: `g`, added up at `indices` of `images`.

    >>> import numpy as np
    >>> roi_pool_grad(np, np.ones((1, 1, 1, 1)), np.array([[[[2]]]]), np.array([0]), (1, 1, 2, 2)).tolist()
    [[[[0.0, 0.0], [1.0, 0.0]]]]
    """
    wide = widen(xp, g)
    total = xp.zeros(shape, wide.dtype)
    at, found = _places(xp, indices, images, shape)
    xp.add.at(total.reshape(-1), at, wide[found])
    return total.astype(g.dtype, copy=False)


def roi_pool_gather(xp, x, indices, images):
    """Returns the elements of images (N, C, H, W) at `indices`; 0 where there is none.

    >>> import numpy as np
    >>> roi_pool_gather(np, np.arange(4.0).reshape(1, 1, 2, 2), np.array([[[[2, -1]]]]), np.array([0])).tolist()
    [[[[2.0, 0.0]]]]
    """
    out = xp.zeros(indices.shape, x.dtype)
    at, found = _places(xp, indices, images, x.shape)
    out[found] = x.reshape(-1)[at]
    return out


def _places(xp, indices, images, shape):
    """Returns flat indices into all images, and which bins have one."""
    planes = images.astype(np.int64)[:, None] * shape[1] + xp.arange(shape[1])
    found = indices >= 0
    return (planes[:, :, None, None] * (shape[2] * shape[3]) + indices)[found], found
