"""Cholesky decompositions A = L Lᴴ of positive-definite matrices, and solvers that use them.

Gradients follow S. Smith, "Differentiation of the Cholesky algorithm", 1995, in the matrix form of I. Murray,
"Differentiation of the Cholesky decomposition", 2016, with conjugates where matrices are complex.
"""

from __future__ import annotations

import numpy as np

from tensorgrad import return_types
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.kernels.array import linalg as kernels
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.ops.linalg.linalg import adjoint, check_system, failure, named, solve_triangles, square
from tensorgrad.ops.linalg.matmul import matmul, nt, tn
from tensorgrad.ops.pointwise import conj
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor


def _cholesky_gradient(grads, L, upper):
    factor, g = (adjoint(L), adjoint(grads[0])) if upper else (L, grads[0])
    phi = tn(conj(factor), g).tril()
    middle = (phi + adjoint(phi.tril(-1))) * 0.5  # L⁻ᴴ Φ(Lᴴ g) L⁻¹, made Hermitian
    half = solve_triangles(adjoint(factor), middle, True, False)
    return [adjoint(solve_triangles(adjoint(factor), adjoint(half), True, False))]


def _cholesky_tangent(input_t, L, upper):
    factor = adjoint(L) if upper else L
    half = solve_triangles(factor, input_t, False, False)
    middle = adjoint(solve_triangles(factor, adjoint(half), False, False))  # L⁻¹ t L⁻ᴴ
    made = matmul(factor, middle.tril() - middle.diagonal(0, -2, -1).diag_embed() * 0.5)
    return adjoint(made) if upper else made


_factor = op(
    "cholesky_factor(input, upper: bool)",
    "linalg.cholesky",
    strides="columns rows",
    batch="leading",
    prepare=square("cholesky"),
    backward=_cholesky_gradient,
    jvp=_cholesky_tangent,
    wrt=("input",),
    outputs=("L", "info"),
    shape=lambda a, upper: [(a.shape, a.dtype), (a.shape[:-2], np.int32)],
    backward_name="LinalgCholeskyExBackward0",
    where=(),
)


def _check_info(info: Tensor, name: str = "cholesky") -> None:
    failed = failure(info)
    if failed:
        raise kernels.LinAlgError(
            f"linalg.{name}: {failed[0]}The factorization could not be completed because the input is not "
            f"positive-definite (the leading minor of order {failed[1]} is not positive-definite)."
        )


def linalg_cholesky(input: Tensor, *, upper: bool = False, out=None) -> Tensor:
    """Computes the Cholesky factor of positive-definite matrices A (*, n, n): the lower triangular L of A = L Lᴴ.

    With `upper`, returns Lᴴ instead.

    Raises:
        torch.linalg.LinAlgError: If A is not positive-definite.

    >>> torch.linalg.cholesky(torch.tensor([[4.0]]))
    tensor([[2.]])
    """
    result, info = _factor(input, upper)
    _check_info(info)
    return store_out("linalg_cholesky", out, result)


def cholesky_ex(
    input: Tensor, *, upper: bool = False, check_errors: bool = False, out=None
) -> return_types.linalg_cholesky_ex:
    """Like `torch.linalg.cholesky`, but returns which leading minor is not positive-definite instead of raising.

    The order of that minor is 0 if there is none; otherwise the factor is valid only up to it.

    Raises:
        torch.linalg.LinAlgError: If `check_errors` is True and a matrix is not positive-definite.

    >>> torch.linalg.cholesky_ex(-torch.eye(2)).info
    tensor(1, dtype=torch.int32)
    """
    results = _factor(input, upper)
    if check_errors:
        _check_info(results[1], "cholesky_ex")
    return named(return_type("linalg_cholesky_ex"), results, out, cholesky_ex)


@composite()
def cholesky(input: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """Alias of `torch.linalg.cholesky`, with `upper` by position.

    >>> torch.cholesky(torch.tensor([[4.0]]))
    tensor([[2.]])
    """
    return store_out("cholesky", out, linalg_cholesky(input, upper=upper))


def _from_factor(xp, b, factor, upper):
    """Returns X of A X = B, given the Cholesky factor of A."""
    lead = np.broadcast_shapes(b.shape[:-2], factor.shape[:-2])
    b = xp.broadcast_to(b, lead + b.shape[-2:])
    other = factor.conj().swapaxes(-1, -2)
    lower, higher = (other, factor) if upper else (factor, other)
    return kernels.solve_triangular(xp, higher, kernels.solve_triangular(xp, lower, b, False, False), True, False)


def _factor_gradient(g_matrix, L, upper):
    """Returns the gradient by L of a function of A = L Lᴴ (Lᴴ L if `upper`), given the gradient by A."""
    both = g_matrix + adjoint(g_matrix)
    return matmul(L, both) if upper else matmul(both, L)


def _product_tangent(L_t, L, upper):
    """Returns the tangent of A = L Lᴴ (Lᴴ L if `upper`), given that of L."""
    half = tn(conj(L), L_t) if upper else nt(L_t, conj(L))
    return half + adjoint(half)


_cholesky_solve = op(
    "cholesky_solve(B, L, upper: bool)",
    _from_factor,
    strides="columns",
    batch="leading",
    B=lambda g, L, upper: _cholesky_solve(g, L, upper),
    L=lambda g, L, out, upper: _factor_gradient(-nt(_cholesky_solve(g, L, upper), conj(out)), L, upper),
    jvp=lambda B_t, L_t, L, out, upper: _cholesky_solve(B_t - matmul(_product_tangent(L_t, L, upper), out), L, upper),
    shape=lambda b, factor, upper: (*matmul_kernels.broadcast_lead(b.shape[:-2], factor.shape[:-2]), *b.shape[-2:]),
    backward_name="CholeskySolveBackward0",
    where=(),
)
_cholesky_inverse = op(
    "cholesky_inverse(L, upper: bool)",
    lambda xp, factor, upper: _from_factor(xp, xp.eye(factor.shape[-1], dtype=factor.dtype), factor, upper),
    strides="columns",
    batch="leading",
    L=lambda g, L, out, upper: _factor_gradient(-matmul(matmul(out, g), out), L, upper),
    jvp=lambda L_t, L, out, upper: -matmul(matmul(out, _product_tangent(L_t, L, upper)), out),
    shape=lambda factor, upper: factor.shape,
    backward_name="CholeskyInverseBackward0",
    where=(),
)


@composite()
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """Solves A X = B for X, where B is `input` and A = L Lᴴ (Lᴴ L if `upper`) is given by its Cholesky factor `input2`.

    Raises:
        RuntimeError: If the shapes or dtypes do not fit.

    >>> torch.cholesky_solve(torch.tensor([[8.0]]), torch.tensor([[2.0]]))
    tensor([[2.]])
    """
    check_system("cholesky_solve", input, input2)
    result = _cholesky_solve(input, input2, upper)
    return store_out("cholesky_solve", out, result)


@composite()
def cholesky_inverse(input: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """Computes the inverse of A = L Lᴴ (Lᴴ L if `upper`) from its Cholesky factor.

    Raises:
        RuntimeError: If the matrices are not square.

    >>> torch.cholesky_inverse(torch.tensor([[2.0]]))
    tensor([[0.2500]])
    """
    kernels.check_square(input._array, "cholesky_inverse")
    result = _cholesky_inverse(input, upper)
    return store_out("cholesky_inverse", out, result)
