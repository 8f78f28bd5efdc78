"""Cross-entropy of logits (N, C) with class indices: one pass over each row forward, one backward.

As kernels/array/loss.py does for batches that are not small, forward keeps the softmax. The samples of a batch (vmap)
have kernels of their own, which also take their sums and means.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32, I64
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.array.index import extremes
from tensorgrad.kernels.array.loss import is_small
from tensorgrad.kernels.compiled.casts import bits, code, is_half
from tensorgrad.kernels.compiled.functions import F, log
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.two_bytes import STORAGES, Storage
from tensorgrad.kernels.compiled.softmax import row_shares

_TARGETS, _NUMBER = "int64[::1]", "Array(float32, 0, 'C')"
_CLASSES = 32  # shorter rows make few vectors: NumPy, which takes many rows at a time, is faster
_FEW_ROWS = 1024  # but not if there are only so many rows


def _counted(x, target, weight, smoothing, reduction, ignore_index) -> int | None:
    """Returns how many targets count; None if the kernels do not support these logits (or this softmax) and targets."""
    if weight is not None or smoothing or code(x) is None or x.ndim != 2 or not x.size or target.dtype is not I64:
        return None
    if not target.flags.c_contiguous or target.shape != x.shape[:1] or is_small(np, x, None, 0.0, reduction):
        return None
    low, high = extremes(np, target)
    if low >= 0 and high < x.shape[1] and not low <= ignore_index <= high:
        return target.size
    counted = target[target != ignore_index]
    return counted.size if not counted.size or (counted.min() >= 0 and counted.max() < x.shape[1]) else None


def _loop(stored: Storage):
    scratch, read = stored.scratch, stored.read

    @shared(f"void({stored.matrix}, {_TARGETS}, int64, {MATRIX}, float32[::1], boolean, int64, int64)")
    def loop(x, target, ignored, shares, losses, brain, first, last):
        held = scratch(x.shape[1])
        for n in range(first, last):
            row = read(x[n], held, brain)
            top, total = row_shares(row, shares[n])
            losses[n] = F(0.0)
            if target[n] != ignored:
                losses[n] = log(total) - (row[target[n]] - top)

    return loop


def _cross_entropy():
    loops = [_loop(stored) for stored in STORAGES]

    @shared(f"void({MATRIX}, {_TARGETS}, int64, boolean, {MATRIX}, {_NUMBER}, int64, int64)")
    def few(x, target, ignored, mean, slopes, loss, first, last):
        """Computes the loss (nan for wrong targets), and its gradient: softmax minus the targets' unit vectors."""
        total, count, rows = F(0.0), 0, x.shape[0]
        for n in range(rows):
            row, to = x[n], slopes[n]
            if target[n] == ignored:
                to[:] = F(0.0)
                continue
            top, exps = row_shares(row, to)
            count += 1
            if target[n] < 0 or target[n] >= row.size:
                total = F(np.nan)
            else:
                total += log(exps) - (row[target[n]] - top)
                to[target[n]] -= F(1.0)
        if mean and count < rows:  # the gradient is divided by the number of all
            for n in range(rows):
                for i in range(x.shape[1]):
                    slopes[n, i] *= F(rows) / F(count)
        loss[()] = total / F(count) if mean else total

    def kernel(x, target, weight, ignore_index, smoothing, reduction):
        if is_small(np, x, weight, smoothing, reduction):
            slopes, loss = np.empty(x.shape, F32), np.empty((), F32)
            thread_pool.run(few, 1, (x, target, ignore_index, reduction == "mean", slopes, loss), 0)
            return (loss, slopes) if loss.item() < math.inf else NotImplemented
        if x.ndim != 2 or x.shape[1] < _CLASSES:
            return NotImplemented
        count = _counted(x, target, weight, smoothing, reduction, ignore_index)
        if count is None:
            return NotImplemented
        shares, losses, half = np.empty(x.shape, F32), np.empty(len(x), F32), is_half(x)
        given = (bits(x), target, ignore_index, shares, losses, x.dtype.char == "E")
        thread_pool.run(loops[half], len(x), given, 5 * x.size)
        if half:  # each loss, their sum and their mean are rounded
            losses = in_dtype(losses, x.dtype)
        if reduction == "none":
            return losses, shares
        total = losses.astype(F32, copy=False).sum()
        if half:
            with np.errstate(all="ignore"):
                total = total.astype(x.dtype)
                return np.asarray(total / x.dtype.type(count) if reduction == "mean" else total, x.dtype), shares
        if reduction == "mean":
            total = total / F(count) if count else F(np.nan)
        return np.asarray(total), shares

    return kernel


def _grad_loop(stored: Storage):
    scratch, place, write = stored.scratch, stored.place, stored.write

    @shared(f"void(float32[::1], {MATRIX}, {_TARGETS}, int64, {stored.matrix}, boolean, int64, int64)")
    def loop(g, shares, target, ignored, out, brain, first, last):
        results = scratch(shares.shape[1])
        for n in range(first, last):
            row, to = shares[n], place(out[n], results)
            if target[n] == ignored:
                to[:] = F(0.0)
            else:
                slope = g[n] if g.size > 1 else g[0]
                for i in range(row.size):
                    to[i] = row[i] * slope
                to[target[n]] -= slope
            write(to, out[n], brain)

    return loop


def _cross_entropy_grad():
    loops = [_grad_loop(stored) for stored in STORAGES]

    @shared(f"void({_NUMBER}, {MATRIX}, boolean, {MATRIX}, int64, int64)")
    def few(g, slopes, mean, out, first, last):
        """As kernels/array/loss.py does for small batches, whose slopes were computed forward."""
        rows = slopes.shape[0]
        slope = F(np.float64(g[()]) / np.float64(rows)) if mean else g[()]
        for n in range(rows):
            for i in range(slopes.shape[1]):
                out[n, i] = slopes[n, i] * slope

    def kernel(g, x, shares, target, weight, ignore_index, smoothing, reduction):
        if g.dtype is F32 and not g.ndim and suits(shares) and is_small(np, shares, weight, smoothing, reduction):
            out = np.empty(shares.shape, F32)
            thread_pool.run(few, 1, (g, shares, reduction == "mean", out), 0)
            return out
        count = _counted(shares, target, weight, smoothing, reduction, ignore_index) if suits(shares) else None
        half = is_half(g)
        if count is None or (g.dtype is not F32 and not half):
            return NotImplemented
        dtype = g.dtype
        if reduction == "mean":
            with np.errstate(all="ignore"):
                g = (g.astype(F32) / F(count)).astype(dtype)
        slopes = np.ascontiguousarray(g, F32).reshape(-1)
        if slopes.size not in (1, len(target)):
            return NotImplemented
        out = np.empty(shares.shape, dtype)
        given = (slopes, shares, target, ignore_index, bits(out), dtype.char == "E")
        thread_pool.run(loops[half], len(out), given, out.size)
        return out

    return kernel


# --- the samples of a batch ------------------------------------------------------------------------------------------


def _suit(x, target):
    """Whether the kernels support logits (samples, elements, C) and targets (samples, elements), both maybe of one."""
    return (
        suits(x) and 2 <= x.ndim <= 3 and x.size and target.__class__ is np.ndarray and target.dtype is I64
        and target.flags.c_contiguous and (x.shape[-1] >= _CLASSES or target.size <= _FEW_ROWS)
    )  # fmt: skip


def _of_batch():
    @shared(f"void({MATRIX}, {_TARGETS}, UniTuple(int64, 3), {MATRIX}, float32[::1], int64[::1], int64, int64)")
    def loop(x, target, numbers, shares, losses, wrong, first, last):
        elements, ignored, mean = numbers
        for sample in range(first, last):
            loss, count = F(0.0), 0
            for n in range(sample * elements, (sample + 1) * elements):
                row = x[n]
                top, total = row_shares(row, shares[n])
                if target[n] != ignored:
                    if target[n] < 0 or target[n] >= row.size:
                        wrong[0] = 1
                        continue
                    count += 1
                    loss += log(total) - (row[target[n]] - top)
            if mean != 0:
                loss = loss / F(count) if count > 0 else F(np.nan)
            losses[sample] = loss

    def kernel(x, target, ignore_index, reduction):
        if not _suit(x, target):
            return NotImplemented
        samples = len(x)
        flat, wrong = x.reshape(-1, x.shape[-1]), np.zeros(1, I64)
        shares, losses = np.empty(flat.shape, F32), np.empty(samples, F32)
        numbers = (target.size // samples, ignore_index, int(reduction == "mean"))
        thread_pool.run(loop, samples, (flat, target.reshape(-1), numbers, shares, losses, wrong), 5 * x.size)
        return NotImplemented if wrong[0] else (losses, shares)

    return kernel


def _of_batch_grad():
    @shared(f"void(float32[::1], {MATRIX}, {_TARGETS}, UniTuple(int64, 3), {MATRIX}, int64, int64)")
    def loop(g, shares, target, numbers, out, first, last):
        elements, ignored, mean = numbers
        for sample in range(first, last):
            slope, count = g[sample if g.size > 1 else 0], 0
            for n in range(sample * elements, (sample + 1) * elements):
                count += target[n] != ignored
            if mean != 0 and count > 0:
                slope = slope / F(count)
            for n in range(sample * elements, (sample + 1) * elements):
                row, to = shares[n], out[n]
                if target[n] == ignored:
                    to[:] = F(0.0)
                else:
                    for i in range(row.size):
                        to[i] = row[i] * slope
                    to[target[n]] -= slope

    def kernel(g, x, shares, target, ignore_index, reduction):
        if not (_suit(x, target) and suits(shares) and suits(g)) or g.size not in (1, len(x)):
            return NotImplemented
        out = np.empty(shares.shape, F32)
        numbers = (target.size // len(x), ignore_index, int(reduction == "mean"))
        thread_pool.run(loop, len(x), (g.reshape(-1), shares, target.reshape(-1), numbers, out), x.size)
        return out.reshape(x.shape)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_grad,
    "of_batch": _of_batch,
    "of_batch_backward": _of_batch_grad,
}
