"""Cross-entropy of logits (N, C) with class indices: one pass over each row forward, one backward.

As kernels/array/loss.py does for batches that are not small, forward keeps the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32, I64
from tensorgrad.kernels.array.index import extremes
from tensorgrad.kernels.array.loss import is_small
from tensorgrad.kernels.numba.functions import F
from tensorgrad.kernels.numba.layout import suits
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.launch import shared
from tensorgrad.kernels.numba.softmax import MATRIX, row_exps, row_largest

_TARGETS = "int64[::1]"
_CLASSES = 32  # shorter rows make few vectors: NumPy, which takes many rows at a time, is faster


def _counted(x, target, weight, smoothing, reduction, ignore_index) -> int | None:
    """Returns how many targets count; None if the kernels do not support these logits (or this softmax) and targets."""
    if weight is not None or smoothing or not suits(x) or x.ndim != 2 or not x.size or target.dtype is not I64:
        return None
    if not target.flags.c_contiguous or target.shape != x.shape[:1] or is_small(np, x, None, 0.0, reduction):
        return None
    low, high = extremes(np, target)
    if low >= 0 and high < x.shape[1] and not low <= ignore_index <= high:
        return target.size
    counted = target[target != ignore_index]
    return counted.size if not counted.size or (counted.min() >= 0 and counted.max() < x.shape[1]) else None


def _cross_entropy():
    @shared(f"void({MATRIX}, {_TARGETS}, int64, {MATRIX}, float32[::1], int64, int64)")
    def loop(x, target, ignored, shares, losses, first, last):
        for n in range(first, last):
            row, to = x[n], shares[n]
            top = row_largest(row)
            total = row_exps(row, top, to)
            scale = F(1.0) / total
            for i in range(to.size):
                to[i] *= scale
            losses[n] = F(0.0)
            if target[n] != ignored:
                losses[n] = F(math.log(total)) - (row[target[n]] - top)

    def kernel(x, target, weight, ignore_index, smoothing, reduction):
        if x.ndim != 2 or x.shape[1] < _CLASSES:
            return NotImplemented
        count = _counted(x, target, weight, smoothing, reduction, ignore_index)
        if count is None:
            return NotImplemented
        shares, losses = np.empty(x.shape, F32), np.empty(len(x), F32)
        thread_pool.run(loop, len(x), (x, target, ignore_index, shares, losses), 5 * x.size)
        if reduction == "none":
            return losses, shares
        total = losses.sum()
        if reduction == "mean":
            total = total / F(count) if count else F(np.nan)
        return np.asarray(total), shares

    return kernel


def _cross_entropy_grad():
    @shared(f"void(float32[::1], {MATRIX}, {_TARGETS}, int64, {MATRIX}, int64, int64)")
    def loop(g, shares, target, ignored, out, first, last):
        for n in range(first, last):
            row, to = shares[n], out[n]
            if target[n] == ignored:
                to[:] = F(0.0)
            else:
                slope = g[n] if g.size > 1 else g[0]
                for i in range(row.size):
                    to[i] = row[i] * slope
                to[target[n]] -= slope

    def kernel(g, x, shares, target, weight, ignore_index, smoothing, reduction):
        count = _counted(shares, target, weight, smoothing, reduction, ignore_index)
        if count is None or g.dtype is not F32:
            return NotImplemented
        if reduction == "mean":
            with np.errstate(all="ignore"):
                g = g / F(count)
        slopes = np.ascontiguousarray(g, F32).reshape(-1)
        if slopes.size not in (1, len(target)):
            return NotImplemented
        out = np.empty(shares.shape, F32)
        thread_pool.run(loop, len(out), (slopes, shares, target, ignore_index, out), out.size)
        return out

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_grad,
}
