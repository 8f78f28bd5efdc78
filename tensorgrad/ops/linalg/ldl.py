"""LDL decompositions of symmetric and Hermitian matrices, definite or not, and the solution of equations with them."""

from __future__ import annotations

import numpy as np

from tensorgrad import return_types
from tensorgrad.dispatch.kinds import op
from tensorgrad.dispatch.no_derivative import no_derivative
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.kernels.array import linalg as checks
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.ops.linalg.linalg import check_system, failure, named, square
from tensorgrad.ops.linalg.lu import one_rank
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

_factor = op(
    "ldl_factor(input, hermitian: bool)",
    "ldl.ldl_factor",
    strides="columns rows rows",
    batch="leading",
    prepare=square("ldl_factor_ex"),
    backward=no_derivative("linalg_ldl_factor_ex"),
    wrt=("input",),
    outputs=("LD", "pivots", "info"),
    shape=lambda a, hermitian: [(a.shape, a.dtype), (a.shape[:-1], np.int32), (a.shape[:-2], np.int32)],
    where=(),
)


def _check_info(name: str, info: Tensor) -> None:
    """Raises: RuntimeError naming the first matrix whose D has a zero block."""
    failed = failure(info)
    if failed:
        batch, i = failed
        raise RuntimeError(
            f"torch.linalg.{name}: {batch}D[{i},{i}] is zero and using it on ldl_solve would result in a division by "
            "zero. To have the factorization all the same call linalg.ldl_factor_ex(A)"
        )


def ldl_factor_ex(
    input: Tensor, *, hermitian: bool = False, check_errors: bool = False, out=None
) -> return_types.linalg_ldl_factor_ex:
    """Like `torch.linalg.ldl_factor`, but returns which block of D is zero (from 1; 0: none) instead of raising.

    Raises:
        RuntimeError: If the matrices are not square, or if `check_errors` is True and a block is zero.

    >>> torch.linalg.ldl_factor_ex(torch.zeros(2, 2)).info
    tensor(1, dtype=torch.int32)
    """
    results = _factor(input, hermitian)
    if check_errors:
        _check_info("ldl_factor_ex", results[2])
    return named(return_type("linalg_ldl_factor_ex"), results, out, ldl_factor_ex)


def ldl_factor(input: Tensor, *, hermitian: bool = False, out=None) -> return_types.linalg_ldl_factor:
    """Computes the packed decomposition L D Lᵀ (L D Lᴴ if `hermitian`) of symmetric matrices, with pivoting.

    Only the lower triangle of `input` (*, n, n) is read. D has blocks of one and two rows; negative pivots mark the
    latter (see `kernels/array/ldl.py` for the format, which is LAPACK's). Not differentiable.

    Raises:
        RuntimeError: If the matrices are not square, or D has a zero block.

    >>> torch.linalg.ldl_factor(torch.tensor([[4.0, 2.0], [2.0, 3.0]]))
    torch.return_types.linalg_ldl_factor(
    LD=tensor([[4.0000, 0.0000],
            [0.5000, 2.0000]]),
    pivots=tensor([1, 2], dtype=torch.int32))
    """
    packed, pivots, info = _factor(input, hermitian)
    _check_info("ldl_factor", info)
    return named(return_type("linalg_ldl_factor"), (packed, pivots), out, ldl_factor)


_solve = op(
    "ldl_solve(LD, pivots, B, hermitian: bool)",
    "ldl.ldl_solve",
    strides="columns",
    batch=lambda LD, pivots, B, hermitian, size, mapped: _solve(
        *one_rank({"LD": (LD, 2), "pivots": (pivots, 1), "B": (B, 2)}, size, mapped), hermitian
    ),
    backward=no_derivative("linalg_ldl_solve"),
    wrt=("LD", "B"),
    shape=lambda a, pivots, b, hermitian: (*matmul_kernels.broadcast_lead(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]),
    where=(),
)


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out=None) -> Tensor:
    """Solves A X = B for X, with B (*, n, k) and A given by `torch.linalg.ldl_factor`. Not differentiable.

    Raises:
        RuntimeError: If shapes or dtypes do not fit, or pivots are not integers or are out of range.

    >>> LD, pivots = torch.linalg.ldl_factor(torch.tensor([[4.0, 2.0], [2.0, 3.0]]))
    >>> torch.linalg.ldl_solve(LD, pivots, torch.tensor([[8.0], [8.0]]))
    tensor([[1.],
            [2.]])
    """
    a, p = LD._array, pivots._array
    checks.check_square(a, "ldl_solve")
    if a.shape[:-1] != p.shape:
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(p.shape)} instead"
        )
    if p.dtype.kind not in "iu":
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {scalar_type(p)}")
    check_system("linalg.ldl_solve", B, LD)
    if not pivots.is_meta and p.size:
        every = whole(pivots)
        _check_range(every._storage.to_host(every._array), a.shape[-1])
    result = _solve(LD, pivots, B, hermitian)
    return store_out("ldl_solve", out, result)


def _check_range(pivots, n: int) -> None:
    """Raises: RuntimeError for a pivot that is out of range."""
    words = "Pivots given to ldl_solve must all satisfy |pivot|"
    if abs(pivots).max() > n:
        raise RuntimeError(f"{words} <= LD.size(-2). Did you properly pass the result of ldl_factor?")
    if abs(pivots).min() < 1:
        raise RuntimeError(f"{words} >= 1. Did you properly pass the result of ldl_factor?")
