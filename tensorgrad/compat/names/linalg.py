"""`torch.linalg`: linear algebra under PyTorch's (and NumPy's) names. The ops are in `ops/`."""

from __future__ import annotations

from tensorgrad.dispatch.guard import guarded as _guarded
from tensorgrad.kernels.array.linalg import LinAlgError
from tensorgrad.ops.linalg.cholesky import cholesky_ex
from tensorgrad.ops.linalg.cholesky import linalg_cholesky as cholesky
from tensorgrad.ops.linalg.decompose import eig, eigh, eigvals, eigvalsh, lstsq, matrix_rank, pinv, svdvals
from tensorgrad.ops.linalg.decompose import linalg_qr as qr
from tensorgrad.ops.linalg.decompose import linalg_svd as svd
from tensorgrad.ops.linalg.einsum import linalg_cross as cross
from tensorgrad.ops.linalg.einsum import multi_dot
from tensorgrad.ops.linalg.householder import householder_product
from tensorgrad.ops.linalg.ldl import ldl_factor, ldl_factor_ex, ldl_solve
from tensorgrad.ops.linalg.linalg import inv, inv_ex, solve, solve_ex, solve_triangular
from tensorgrad.ops.linalg.linalg import linalg_det as det
from tensorgrad.ops.linalg.linalg import linalg_slogdet as slogdet
from tensorgrad.ops.linalg.lu import linalg_lu as lu
from tensorgrad.ops.linalg.lu import linalg_lu_solve as lu_solve
from tensorgrad.ops.linalg.lu import lu_factor, lu_factor_ex
from tensorgrad.ops.linalg.matmul import matmul
from tensorgrad.ops.linalg.matrix_functions import (
    diagonal,
    matrix_exp,
    matrix_power,
    tensorinv,
    tensorsolve,
    vander,
    vecdot,
)
from tensorgrad.ops.linalg.matrix_norm import cond, matrix_norm, norm
from tensorgrad.ops.reduce import vector_norm

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq", "lu", "lu_factor",
    "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot",
    "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv",
    "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip

globals().update(_guarded({name: globals()[name] for name in __all__}, "tensorgrad.linalg", numpy_names=True))
