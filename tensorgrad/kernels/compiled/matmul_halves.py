"""Products of bfloat16 and float16 matrices, computed in float32 and rounded once.

For a few rows, such as a decoder's token, the weights become float32 in registers while they are read: half as many
bytes as float32 has. For more rows, blocks of the weights become float32 and stay in a cache for the float32 product.
Threads share the rows of the weights. Numbers of 16 bits are given to machine code as uint16.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.compiled import casts
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.small_weights import (
    PARTS,
    ROWS,
    bfloat16_dots,
    float16_dots,
    of_bfloat16,
    of_float16,
    to_bfloat16,
    to_float16,
)
from tensorgrad.rows.kernel_tables import run_kernel
from tensorgrad.storage.fresh import fresh

_FEW = 6  # rows up to which reading weights of 16 bits again costs less than making them float32
_SMALL = 4096  # weights below which NumPy does the work
_AT_A_TIME = 1 << 18  # weights that become float32 at a time
_BITS, _ROW = "uint16[::1]", "float32[::1]"
_BRAIN = {"e": False, "E": True}  # NumPy's letters of float16, and of ml_dtypes' bfloat16
_U16 = np.dtype(np.uint16)
_NO_BIAS = np.empty(0, _U16)


def _few(dots, wide, rounded):
    """Makes the loop over blocks of weights."""

    @inner
    def rest(x, at, w, start, first, depth, begun):
        for k in range(first, depth):
            begun += x[at + k] * wide(w[start + k])
        return begun

    @shared(f"void({_ROW}, {_BITS}, {_BITS}, {_BITS}, UniTuple(int64, 3), int64, int64)", product=True)
    def loop(x, w, bias, out, sizes, first, last):
        """Computes out[m, n] = bias[n] + Σₖ x[m, k] w[n, k] for blocks of ROWS rows n of the weights."""
        rows, columns, depth = sizes
        sums = np.empty(ROWS, np.float32)
        count = depth // PARTS
        for block in range(first, last):
            start = min(block * ROWS, columns - ROWS)  # the last block overlaps the one before it
            for m in range(rows):
                dots(x, m * depth, w, start * depth, depth, count, sums, 0)
                for r in range(ROWS):
                    n = start + r
                    total = sums[r]
                    if count * PARTS < depth:
                        total = rest(x, m * depth, w, n * depth, count * PARTS, depth, total)
                    out[m * columns + n] = rounded(total + wide(bias[n]) if bias.size else total)

    return loop


@lru_cache(maxsize=1)
def loops() -> tuple:
    """The loops for few rows: of float16 and of bfloat16."""
    casts.loops()
    return _few(float16_dots, of_float16, to_float16), _few(bfloat16_dots, of_bfloat16, to_bfloat16)


def _kind(array) -> bool | None:
    """Whether an array is of bfloat16, or else float16; None if it is neither, or cannot be read as it is."""
    kind = _BRAIN.get(array.dtype.char)
    return kind if kind is not None and array.__class__ is np.ndarray and array.flags.c_contiguous else None


def linear(x, w, bias):
    """Computes `x @ wᵀ + bias`, with numbers of 16 bits."""
    brain = _kind(w)
    if brain is None or _kind(x) is not brain or w.ndim != 2 or w.size < _SMALL or not x.size:
        return NotImplemented
    columns, depth = w.shape
    if x.shape[-1] != depth or columns < ROWS or depth < PARTS:
        return NotImplemented
    if bias is not None and (_kind(bias) is not brain or bias.shape != (columns,)):
        return NotImplemented
    rows = x.size // depth
    if rows <= _FEW:
        out = fresh(rows * columns, _U16)
        given = (x.reshape(-1).astype(F32), w.reshape(-1).view(_U16),
                 _NO_BIAS if bias is None else bias.view(_U16), out, (rows, columns, depth))  # fmt: skip
        thread_pool.run(loops()[brain], -(-columns // ROWS), given, w.size * max(1, rows // 2))
        return out.view(x.dtype).reshape(*x.shape[:-1], columns)
    numbers, added = in_dtype(x.reshape(rows, depth), F32), None if bias is None else bias.astype(F32)
    made = fresh(rows * columns, F32).reshape(rows, columns)
    step = max(ROWS, _AT_A_TIME // depth)
    for first in range(0, columns, step):
        last = min(first + step, columns)
        some = None if added is None else added[first:last]
        made[:, first:last] = run_kernel("linear", numbers, in_dtype(w[first:last], F32), some)
    return in_dtype(made, x.dtype).reshape(*x.shape[:-1], columns)


def times_transposed(a, b, inner_a, inner_b):
    """Computes the product of a matrix, or a stack of them, and a matrix whose inner dimension is contiguous."""
    if inner_a != -1 or b.ndim != 2 or a.ndim < 2:
        return NotImplemented
    return linear(a, b if inner_b == -1 else b.T, None)
