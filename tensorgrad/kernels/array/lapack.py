"""BLAS and LAPACK routines for single matrices that NumPy lacks: SciPy's, if SciPy is installed."""

from __future__ import annotations

import functools

import numpy as np

from tensorgrad.system import blas as own_blas

MANY = 16  # matrices per column from which on one step for all of them beats one call of a routine for each


@functools.cache
def routine(name: str, dtype):
    """Returns the routine `name` (without its first letter, which stands for the dtype), or None without SciPy.

    >>> import numpy as np
    >>> getrf = routine("getrf", np.dtype("float32"))
    >>> 0 if getrf is None else getrf(np.eye(2, dtype="float32"))[2]
    0
    """
    try:
        from scipy.linalg import blas, lapack
    except ImportError:
        return None
    own_blas.reapply()  # SciPy brings a library of its own, with threads of its own
    name = "sdcz"["fdFD".index(dtype.char)] + name
    return getattr(lapack, name, None) or getattr(blas, name)


def one_by_one(xp, name: str, dtype, count: int, columns: int):
    """Returns the routine `name` if it exists and calling it once per matrix is faster than one step for all."""
    return routine(name, dtype) if xp is np and 0 < count < MANY * columns else None
