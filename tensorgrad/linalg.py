"""`torch.linalg`: linear algebra under PyTorch's (and NumPy's) names. The ops are in `ops/`."""

from __future__ import annotations

from tensorgrad.guard import guarded as _guarded
from tensorgrad.kernels.array.linalg import LinAlgError
from tensorgrad.ops.cholesky import cholesky_ex
from tensorgrad.ops.cholesky import linalg_cholesky as cholesky
from tensorgrad.ops.decompose import eig, eigh, eigvals, eigvalsh, lstsq, matrix_rank, pinv, svdvals
from tensorgrad.ops.decompose import linalg_qr as qr
from tensorgrad.ops.decompose import linalg_svd as svd
from tensorgrad.ops.einsum import linalg_cross as cross
from tensorgrad.ops.einsum import multi_dot
from tensorgrad.ops.householder import householder_product
from tensorgrad.ops.ldl import ldl_factor, ldl_factor_ex, ldl_solve
from tensorgrad.ops.linalg import inv, inv_ex, solve, solve_ex, solve_triangular
from tensorgrad.ops.linalg import linalg_det as det
from tensorgrad.ops.linalg import linalg_slogdet as slogdet
from tensorgrad.ops.lu import linalg_lu as lu
from tensorgrad.ops.lu import linalg_lu_solve as lu_solve
from tensorgrad.ops.lu import lu_factor, lu_factor_ex
from tensorgrad.ops.matmul import matmul
from tensorgrad.ops.matrix_functions import (
    diagonal,
    matrix_exp,
    matrix_power,
    tensorinv,
    tensorsolve,
    vander,
    vecdot,
)
from tensorgrad.ops.matrix_norm import cond, matrix_norm, norm
from tensorgrad.ops.reduce import vector_norm

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq", "lu", "lu_factor",
    "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot",
    "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv",
    "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip

globals().update(_guarded({name: globals()[name] for name in __all__}, "tensorgrad.linalg", numpy_names=True))
