"""`torch.linalg`: linear algebra under PyTorch's (and NumPy's) names. The ops are in `ops/`."""

from __future__ import annotations

from tensorgrad.kernels.array.linalg import LinAlgError
from tensorgrad.ops.decompose import (
    cond,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    lstsq,
    matrix_norm,
    matrix_rank,
    norm,
    pinv,
    svdvals,
)
from tensorgrad.ops.decompose import linalg_qr as qr
from tensorgrad.ops.decompose import linalg_svd as svd
from tensorgrad.ops.einsum import linalg_cross as cross
from tensorgrad.ops.einsum import multi_dot
from tensorgrad.ops.linalg import (
    cholesky_ex,
    det,
    diagonal,
    inv,
    inv_ex,
    matrix_exp,
    matrix_power,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
    vander,
    vecdot,
)
from tensorgrad.ops.linalg import linalg_cholesky as cholesky
from tensorgrad.ops.linalg import linalg_slogdet as slogdet
from tensorgrad.ops.matmul import matmul
from tensorgrad.ops.reduce import vector_norm

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "inv", "inv_ex", "lstsq", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm",
    "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve",
    "vander", "vecdot", "vector_norm",
]  # fmt: skip
