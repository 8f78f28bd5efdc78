"""Fractional max pooling on plain arrays: windows with randomly drawn distances (Graham, 2014)."""

from itertools import product
from math import prod

import numpy as np

from .conv import widen


def starts(xp, samples, n, kernel, points):
    """Returns where windows of `kernel` begin in `n` elements, (..., points), for `samples` (...) between 0 and 1.

    Window i begins at floor((i + u) · a) - floor(u · a), where a = (n - kernel) / (points - 1), and the last one at the
    end. The result depends on rounding in the samples' own dtype, so the computation uses that dtype.
    """
    dtype = samples.dtype.type
    last = n - kernel
    if points < 2:
        return xp.full((*samples.shape, points), last, np.int64)
    step = dtype(last) / dtype(points - 1)
    u = samples[..., None]
    begins = ((u + xp.arange(points).astype(samples.dtype)) * step).astype(np.int64) - (u * step).astype(np.int64)
    begins[..., -1] = last
    return begins


def fractional_max_pool(xp, x, samples, kernel, size):
    """Returns the maximum of each window and its index: `(values, indices)`, both (N, C, *size).

    `x` is (N, C, *S) and `samples` (N, C, dims): a number between 0 and 1 for each dimension; in two dimensions
    that of the width is first. Of equal maxima the first counts, of several nan the last.

    >>> import numpy as np
    >>> x = np.array([[[[5.0, 3.0, 4.0, 2.0]]]])
    >>> fractional_max_pool(np, x, np.array([[[0.5, 0.5]]]), (1, 2), (1, 2))
    (array([[[[5., 4.]]]]), array([[[[0, 2]]]]))
    """
    dims, shape = len(kernel), x.shape[2:]
    index = xp.zeros((*x.shape[:2], *(1,) * dims), np.int64)
    pitch = [prod(shape[d + 1 :]) for d in range(dims)]
    for d in range(dims):
        u = samples[: len(x), :, dims - 1 - d if dims == 2 else d]
        begins = starts(xp, u, shape[d], kernel[d], size[d]) * pitch[d]
        index = index + begins.reshape(*x.shape[:2], *[size[d] if e == d else 1 for e in range(dims)])
    wide = widen(xp, x).reshape(-1)
    there = index + xp.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * dims) * prod(shape)
    best, reach = xp.take(wide, there), xp.zeros(there.shape, np.int64)
    with np.errstate(all="ignore"):
        for tap in product(*map(range, kernel)):
            offset = sum(t * p for t, p in zip(tap, pitch))
            values = xp.take(wide[offset:], there)
            better = (values > best) | (values != values)
            xp.copyto(best, values, where=better)
            xp.copyto(reach, offset, where=better)
    return best.astype(x.dtype, copy=False), index + reach
