"""Products of all elements or of rows, which NumPy takes one element at a time. (Its other reductions are quick.)"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba import pool
from tensorgrad.kernels.numba.functions import F, compiled
from tensorgrad.kernels.numba.pointwise import suits
from tensorgrad.kernels.numba.rows import _ANY_ORDER, _MATRIX

_PART = 16384  # elements whose product is one thread's: fixed, so that results do not depend on threads


@njit(error_model="numpy", fastmath=_ANY_ORDER)
def _product(row):
    total = F(1.0)
    for i in range(row.size):
        total *= row[i]
    return total


def _prod():
    @compiled(f"void({_MATRIX}, float32[::1], int64, int64)")
    def loop(x, out, first, last):
        for n in range(first, last):
            out[n] = _product(x[n])

    def products(rows):
        out = np.empty(len(rows), F32)
        pool.run(loop, len(rows), (rows, out), rows.size)
        return out

    def kernel(x, dim, keepdim, dtype):
        if not suits(x) or not x.size:
            return NotImplemented
        if dim is None or len(dim) == x.ndim:
            flat = x.reshape(-1)
            whole = flat.size - flat.size % _PART
            parts = [products(a) for a in (flat[:whole].reshape(-1, _PART), flat[whole:].reshape(1, -1)) if a.size]
            return products(np.concatenate(parts).reshape(1, -1)).reshape((1,) * x.ndim if keepdim else ())
        if dim != (x.ndim - 1,):
            return NotImplemented
        found = products(x.reshape(-1, x.shape[-1]))
        return found.reshape(*x.shape[:-1], 1) if keepdim else found.reshape(x.shape[:-1])

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"prod": _prod}
