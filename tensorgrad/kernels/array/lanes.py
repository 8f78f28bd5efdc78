"""Half precision as PyTorch's loops round it: once for whole blocks of numbers, and at each step for what is left over.

A loop runs along a row of memory: one dimension, or several, along which the result and the operands have no gaps (one
operand may be a single number). Whole blocks of a row are computed in float32; the rest of it, and all of a row with
gaps, number by number, with every step rounded. PyTorch's threads divide long rows; here they are of one piece, as with
one thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.blocks import as_float32
from tensorgrad.rows.strides import order_of_operands

BLOCK = 32  # numbers of most loops, of which a vector of AVX-512 has 16


def by_steps(xp, steps: Callable, x):
    """`steps(rounded, x)` in float32, where it calls `rounded` for what a step gives; `x` is of half precision."""
    return as_float32(lambda xp, lifted: steps(lambda made: made.astype(x.dtype).astype(np.float32), lifted), xp, x)


def by_blocks(xp, once: Callable, steps: Callable, *operands, block: int = BLOCK):
    """Computes elementwise `once(*operands)` for whole blocks and `steps(rounded, *operands)` for the rest.

    Both are given arrays of float32 and return one; what they return is rounded. Operands are of one dtype.
    """
    if xp is not np:
        return as_float32(lambda xp, *lifted: once(*lifted), xp, *operands)
    dtype = operands[0].dtype

    def rounded(made):
        return made.astype(dtype).astype(F32)

    lifted = [x.astype(F32) for x in operands]
    with np.errstate(all="ignore"):
        out = np.asarray(once(*lifted)).astype(dtype)
        order = order_of_operands(out.shape, out.itemsize, *[(x.shape, x.strides, x.itemsize) for x in operands])
        there = out.transpose(order)
        run = _row([np.broadcast_to(x, out.shape).transpose(order) for x in operands])
        if not there.size or (run and not run % block):
            return out
        if not there.flags.c_contiguous:
            there, out = (made := there.copy()), made.transpose(np.argsort(order))
        rows = there.reshape(-1, run or there.size)
        whole = run - run % block
        rest = [np.broadcast_to(x, out.shape).transpose(order).reshape(rows.shape)[:, whole:] for x in lifted]
        rows[:, whole:] = steps(rounded, *rest)
    return out


def _row(operands: list[np.ndarray]) -> int:
    """How many numbers a loop takes in one go; 0 if there are gaps between them."""
    steps = [-1] * len(operands)  # of each operand; not known yet
    run = 1
    for d in reversed(range(operands[0].ndim)):
        n = operands[0].shape[d]
        if n == 1:
            continue
        for k, x in enumerate(operands):
            step = x.strides[d] // x.itemsize
            if steps[k] == -1 and step in (0, 1):
                steps[k] = step
            elif steps[k] == -1 or step != steps[k] * run:
                return run if run > 1 and steps.count(0) <= 1 else 0
        run *= n
    return run if steps.count(0) <= 1 else 0
