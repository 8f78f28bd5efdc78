"""Images as columns of windows and back, on plain arrays (N, C, H, W) of any number of spatial dimensions."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from tensorgrad.kernels.array.conv import widen


def blocks_of(size, kernel, dilation, padding, stride):
    """Returns how many windows fit along each dimension."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    )


def _taps(kernel, dilation, stride, points):
    """Yields each position in the window: its number, and the slices of the padded image at that position."""
    for number, tap in enumerate(product(*map(range, kernel))):
        yield (
            number,
            tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, dilation, points, stride, strict=True)
            ),
        )


def unfold(xp, x, kernel, dilation, padding, stride):
    """Returns the windows of `x` (N, C, *S) as columns: (N, C · taps, windows)."""
    points = blocks_of(x.shape[2:], kernel, dilation, padding, stride)
    if any(padding):
        padded = xp.zeros((*x.shape[:2], *[n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)]), x.dtype)
        padded[(..., *[slice(p, p + n) for n, p in zip(x.shape[2:], padding, strict=True)])] = x
        x = padded
    out = xp.empty((*x.shape[:2], prod(kernel), *points), x.dtype)
    for number, here in _taps(kernel, dilation, stride, points):
        out[:, :, number] = x[(..., *here)]
    return out.reshape(x.shape[0], x.shape[1] * prod(kernel), prod(points))


def fold(xp, columns, size, kernel, dilation, padding, stride):
    """The transpose of `unfold`: adds columns (N, C · taps, windows) up at their original positions, (N, C, *size)."""
    points = blocks_of(size, kernel, dilation, padding, stride)
    channels = columns.shape[1] // prod(kernel)
    wide = widen(xp, columns).reshape(columns.shape[0], channels, prod(kernel), *points)
    total = xp.zeros((columns.shape[0], channels, *[n + 2 * p for n, p in zip(size, padding, strict=True)]), wide.dtype)
    with np.errstate(all="ignore"):
        for number, here in _taps(kernel, dilation, stride, points):
            total[(..., *here)] += wide[:, :, number]
    inside = total[(..., *[slice(p, p + n) for n, p in zip(size, padding, strict=True)])]
    return xp.ascontiguousarray(inside).astype(columns.dtype, copy=False)
