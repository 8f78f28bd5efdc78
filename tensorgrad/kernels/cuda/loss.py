"""Cross-entropy and negative log-likelihood of class indices, with their gradients. Nothing here waits for the GPU.

Forward keeps the logits (which the graph keeps anyway) and one number per row, but no softmax. A class index out of
range cannot raise here: its loss is nan.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from tensorgrad.kernels.cuda.reduce import sum_
from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.launch import ARRAY

THREADS = 256
SHORT = 1024  # classes up to which one warp takes a row
ONE_BLOCK = 1 << 16  # losses up to which one block sums all of them
MOST_BLOCKS = 2**31 - 1
I64 = np.dtype("int64")


class Kept(NamedTuple):
    """What the gradient needs from the forward pass."""

    logsums: Any
    divisor: Any  # the sum of the weights that count


class _Rows:
    """Logits (N, C, …) as rows; `ready` is False if the kernels do not support them."""

    def __init__(self, x, target, weight):
        self.dtype = program.NAME[x.dtype]
        self.ready = self.dtype in program.NUMBER and x.ndim > 0 and x.size > 0 and target.dtype == I64
        if not self.ready:
            return
        self.number = program.NUMBER[self.dtype]
        self.x, self.target = cupy.ascontiguousarray(x), cupy.ascontiguousarray(target)
        self.classes = x.shape[1] if x.ndim > 1 else x.shape[0]
        self.length = math.prod(x.shape[2:])
        self.n = x.size // self.classes
        self.ready = target.size == self.n and (weight is None or weight.size == self.classes)
        self.weight: Any = None if weight is None else cupy.ascontiguousarray(weight.astype(self.number, copy=False))

    def launch(self, name, grid, block, arrays, *numbers):
        """Runs a function of loss.cu on arrays (or None), then numbers."""
        given = [a for a in arrays if a is not None]
        _prepared(name, self.dtype, grid, block, tuple([a is not None for a in arrays]), numbers)(*given)

    def workspace(self, *shape):
        return cupy.empty(shape, self.number)

    @property
    def elementwise(self) -> int:
        """Returns the number of blocks for one thread per row."""
        return -(-self.n // THREADS)


@lru_cache(maxsize=4096)
def _prepared(name, dtype, grid, block, there: tuple, numbers: tuple):
    """Prepares a launch on arrays, which may be missing, and these numbers."""
    given = *[ARRAY if each else np.int64(0) for each in there], *numbers
    return program.function("loss", name, dtype).prepared((min(grid, MOST_BLOCKS),), (block,), given)


def _threads(classes: int) -> int:
    """Returns up to 512 threads, each with at least two packs of a row."""
    return min(512, max(32, 1 << (classes // 16).bit_length()))


def _total(rows: _Rows, losses, weights, mean: bool):
    """Returns (the reduced loss, the sum of the weights)."""
    if losses.size > ONE_BLOCK:
        losses, weights = (sum_(a, None, False, None).reshape(1) for a in (losses, weights))
    out, divisor = cupy.empty((), rows.x.dtype), rows.workspace(1)
    n = np.int64(losses.size)
    threads = 1024 if losses.size > 32 else 32
    rows.launch("total", 1, threads, (losses, weights, out, divisor), n, n, np.bool_(mean))
    return out, divisor


# --- cross-entropy --------------------------------------------------------------------------------------------------


def cross_entropy(x, target, weight, ignore_index, smoothing, reduction):
    """Returns (loss, what the gradient needs)."""
    rows = _Rows(x, target, weight)
    if not rows.ready or (smoothing and weight is not None):  # that needs the sum of all weights, from the GPU
        return NotImplemented
    losses, weights, logsums = rows.workspace(rows.n), rows.workspace(rows.n), rows.workspace(rows.n)
    arrays = rows.x, rows.target, rows.weight, losses, weights, logsums
    numbers = (np.int64(ignore_index), rows.number(smoothing), rows.number(rows.classes))
    if rows.length > 1:
        sizes = (np.int64(rows.n), np.int64(rows.classes), np.int64(rows.length))
        rows.launch("columns", rows.elementwise, THREADS, arrays, *sizes, *numbers)
    else:
        short = rows.classes <= SHORT
        threads = THREADS if short else _threads(rows.classes)
        lanes = 32 if short else threads
        grid = -(-rows.n * lanes // threads)
        two = np.int64(rows.n), np.int64(rows.classes)
        rows.launch("rows", grid, threads, arrays, *two, *numbers, np.int32(lanes))
    if reduction == "none":
        return losses.reshape(target.shape).astype(x.dtype, copy=False), Kept(logsums, None)
    loss, divisor = _total(rows, losses, weights, reduction == "mean")
    return loss, Kept(logsums, divisor if reduction == "mean" else None)


def cross_entropy_backward(g, x, kept, target, weight, ignore_index, label_smoothing, reduction):
    """Computes the gradient of the logits."""
    if kept.__class__ is not Kept:
        return NotImplemented
    rows = _Rows(x, target, weight)
    gx = cupy.empty(rows.x.shape, rows.x.dtype)
    g = cupy.ascontiguousarray(g if g.dtype == gx.dtype else g.astype(gx.dtype))
    arrays, sizes = (g, rows.x, kept.logsums, rows.target, rows.weight, kept.divisor, gx), (
        np.int64(rows.n), np.int64(rows.classes)
    )  # fmt: skip
    numbers = (np.int64(ignore_index), rows.number(label_smoothing), rows.number(rows.classes), np.bool_(g.size > 1))
    if rows.length > 1:
        rows.launch("columns_grad", rows.elementwise, THREADS, arrays, *sizes, np.int64(rows.length), *numbers)
    else:
        rows.launch("rows_grad", rows.n, _threads(rows.classes), arrays, *sizes, *numbers)
    return gx


# --- negative log-likelihood ----------------------------------------------------------------------------------------


def nll(logs, target, weight, ignore_index, reduction):
    """Returns (loss, weight of each element)."""
    rows = _Rows(logs, target, weight)
    if not rows.ready:
        return NotImplemented
    losses, weights = (cupy.empty(target.shape, logs.dtype) for _ in range(2))
    wide = rows.workspace(2, rows.n)
    sizes = (np.int64(v) for v in (rows.n, rows.classes, rows.length, ignore_index))
    arrays = rows.x, rows.target, rows.weight, losses, weights, wide[0], wide[1]
    rows.launch("nll", rows.elementwise, THREADS, arrays, *sizes)
    if reduction == "none":
        return losses, weights
    return _total(rows, wide[0], wide[1], reduction == "mean")[0], weights


def nll_grad(g, target, weights, shape, ignore_index):
    """Computes the gradient of the log-likelihoods: `g` is per element, or one for all."""
    if (
        g.dtype != weights.dtype
        or program.NAME[g.dtype] not in program.NUMBER
        or target.dtype != I64
        or not math.prod(shape)
    ):
        return NotImplemented
    g, target, weights = (cupy.ascontiguousarray(a) for a in (g, target, weights))
    gx = cupy.zeros(shape, g.dtype)
    classes = shape[1] if len(shape) > 1 else shape[0]
    sizes = [np.int64(v) for v in (target.size, classes, math.prod(shape[2:]), ignore_index)]
    launch = program.function("loss", "nll_grad", program.NAME[g.dtype])
    grid = min(-(-target.size // THREADS), MOST_BLOCKS)
    launch((grid,), (THREADS,), (g, target, weights, gx, *sizes, np.bool_(g.size > 1)))
    return gx
