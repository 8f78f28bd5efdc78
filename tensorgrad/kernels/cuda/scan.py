"""Cumulative sums along any dimension, in one launch. A few very long rows are left to CuPy, which splits them."""

from __future__ import annotations

import math

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import program

THREADS = 256
MOST_BLOCKS = 2**31 - 1
FEW, LONG = 64, 1 << 16  # fewer rows that are longer would leave most of a GPU idle
I64 = np.dtype("int64")


def _running_sum(x, dim, dtype, backwards):
    floating = program.NAME[x.dtype] in program.NUMBER
    if not x.ndim or not x.size or not (floating or program.NAME[x.dtype] in program.WHOLE):
        return NotImplemented
    if not floating and dtype is not None and x.dtype != I64:
        return NotImplemented
    x = cupy.ascontiguousarray(x)
    n, inner, outer = x.shape[dim], math.prod(x.shape[dim + 1 :]), math.prod(x.shape[:dim])
    if outer * inner < FEW and n > LONG:
        return NotImplemented
    out = cupy.empty(x.shape, x.dtype if floating else I64)
    settings = {"OUT": "T"} if floating else {"OUT": "long long", "WHOLE": 1}
    name = "rows" if inner == 1 else "columns"
    launch = program.function("scan", name, program.NAME[x.dtype], **settings)
    grid = min(outer if inner == 1 else -(-outer * inner // THREADS), MOST_BLOCKS)
    sizes = (np.int64(v) for v in ((outer, n) if inner == 1 else (outer, n, inner)))
    launch((grid,), (THREADS,), (x, out, *sizes, np.bool_(backwards)))
    return out


def cumsum(x, dim, dtype):
    """Sums each element and all before it; integers in int64."""
    return _running_sum(x, dim, dtype, False)


def cumsum_reversed(x, dim):
    """Sums each element and all after it."""
    return _running_sum(x, dim, None, True)
