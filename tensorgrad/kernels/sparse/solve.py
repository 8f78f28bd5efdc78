"""Linear equations with a sparse matrix, solved by SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.kernels.sparse.convert import coo, csr
from tensorgrad.kernels.sparse.lines import transposed


def solve(a: Any, b: np.ndarray, transpose: bool) -> np.ndarray:
    """x with a @ x = b, or aᴴ @ x = b, for a square CSR matrix and one or several right sides, the columns of b.

    Raises: ImportError without SciPy, RuntimeError if the matrix is singular.
    """
    try:
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu
    except ImportError:
        raise ImportError("sparse.spsolve needs SciPy: pip install scipy") from None
    if not a.shape[0]:
        return np.zeros_like(b)
    by_columns = csr(transposed(coo(a)))  # the rows of the transpose are the columns that SciPy wants
    dtype = a.dtype if a.dtype.char in "fdFD" else np.dtype(np.float64)
    parts = by_columns.values.astype(dtype, copy=False), by_columns.plain, by_columns.compressed
    try:
        found = splu(csc_array(parts, shape=a.shape)).solve(np.ascontiguousarray(b, dtype), "H" if transpose else "N")
    except RuntimeError as error:
        raise RuntimeError(f"spsolve: the matrix of shape {list(a.shape)} is singular ({error})") from None
    return found.astype(b.dtype, copy=False)
