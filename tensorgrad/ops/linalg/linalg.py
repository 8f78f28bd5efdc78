"""Linear algebra: determinants, inverses, systems of equations.

Gradients follow M. Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation", 2008, with conjugates where matrices are complex.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad import dtypes, return_types
from tensorgrad.dispatch.kernel_errors import unsupported
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.kernels.array import linalg as kernels
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.ops import create
from tensorgrad.ops.linalg.matmul import matmul, nt
from tensorgrad.ops.pointwise import conj
from tensorgrad.return_types import return_type
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose."""
    return conj(x.transpose(-2, -1))


def real_part(x: Tensor) -> Tensor:
    return x.real if x._array.dtype.kind == "c" else x


def _matrices(x: Tensor) -> Tensor:
    """Reshapes one scalar per matrix to broadcast against matrices."""
    return x.unsqueeze(-1).unsqueeze(-1)


def identity(x: Tensor, n: int | None = None) -> Tensor:
    return create.eye(x._array.shape[-1] if n is None else n, dtype=x.dtype, device=x.device)


def square(name: str):
    def prepare(a, *rest):
        kernels.check_square(a, name)
        return (a, *rest)

    return prepare


def real_dtype(dtype):
    return dtypes.from_numpy_dtype(dtype).to_real().numpy


# --- determinants --------------------------------------------------------------------------------------------------


def _det_gradient(g, input, out):
    factor = _matrices(g)
    if not input.is_meta and not bool((whole(out) != 0).all()):  # singular: no inverse, but the cofactors exist
        return factor * adjoint(_adjugate(input))
    return factor * adjoint(_matrices(out) * inv(input))


det = op(
    "det(input)",
    "linalg.det",
    batch="leading",
    prepare=square("det"),
    input=_det_gradient,
    jacobian="weights",
    shape=lambda a: a.shape[:-2],
    backward_name="LinalgDetBackward0",
    doc="""Computes the determinants of a stack of square matrices (*, n, n).

    For large matrices it may overflow or become 0, where `torch.slogdet` does neither.

    Raises:
        RuntimeError: For other shapes and for integers.

    >>> torch.det(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """,
)


def linalg_det(A: Tensor, *, out=None) -> Tensor:
    """Computes the determinants of a stack of square matrices (*, n, n).

    For large matrices it may overflow or become 0, where `slogdet` does neither.

    Raises:
        RuntimeError: If the matrices are not square, or the dtype is integral.

    >>> torch.linalg.det(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """
    return det(A, out=out)


_adjugate = op("adjugate(input)", "linalg.adjugate", batch="leading", shape=lambda a: a.shape, where=())


def _inverse_of(input: Tensor) -> Tensor:
    """The inverse; of a singular matrix what its factors give, infinities and nan, as in PyTorch."""
    inverse, info = _inverse(input)
    if failure(info) is None:
        return inverse
    packed, pivots, _ = OPS["lu_factor"].compiled.call(input, True)
    unit = create.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(input.shape)
    return OPS["lu_solve"].compiled.call(packed, pivots, unit, False)


def _slogdet_gradient(grads, input, sign, needs):
    g_sign, g_log = grads[0], grads[1]
    if input._array.dtype.kind != "c":
        if g_log is None:
            return [None]
        return [_matrices(g_log) * _inverse_of(input).transpose(-2, -1)]
    factor = 0 if g_log is None else g_log
    if g_sign is not None:
        factor = factor - (conj(g_sign) * sign).imag * 1j
    return [_matrices(factor + sign * 0) * adjoint(_inverse_of(input))]


def _slogdet_tangent(input_t, input, sign):
    relative = (_inverse_of(input).transpose(-2, -1) * input_t).sum((-2, -1))  # of the determinant: tr(A⁻¹ t)
    if not relative.is_complex():
        return sign.new_zeros(sign.shape), relative
    return sign * relative.imag * 1j, relative.real


_slogdet = op(
    "slogdet(input)",
    "linalg.slogdet",
    batch="leading",
    prepare=square("slogdet"),
    backward=_slogdet_gradient,
    jvp=_slogdet_tangent,
    wrt=("input",),
    outputs=("sign", "logabsdet"),
    differentiable_outputs=2,
    shape=lambda a: [(a.shape[:-2], a.dtype), (a.shape[:-2], real_dtype(a.dtype))],
    backward_name="LinalgSlogdetBackward0",
    where=(),
)


def named(cls, results, out, function):
    return store_out(function.__name__, out, cls(results))


def linalg_slogdet(A: Tensor, *, out=None) -> return_types.linalg_slogdet:
    """Returns `sign` and `logabsdet` (*,) of square matrices (*, n, n): det = sign · exp(logabsdet), without overflow.

    >>> torch.linalg.slogdet(torch.eye(2)).logabsdet
    tensor(0.)
    """
    return named(return_type("linalg_slogdet"), _slogdet(A), out, linalg_slogdet)


@composite()
def slogdet(input: Tensor, *, out=None) -> return_types.slogdet:
    """Alias of `torch.linalg.slogdet`.

    >>> torch.slogdet(torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    torch.return_types.slogdet(
    sign=tensor(-1.),
    logabsdet=tensor(1.7918))
    """
    return named(return_type("slogdet"), _slogdet(input), out, slogdet)


@composite()
def logdet(input: Tensor) -> Tensor:
    """Computes the logarithms of determinants; NaN where they are negative.

    >>> torch.logdet(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(1.7918)
    """
    sign, log = _slogdet(input)
    if input.is_complex():
        return log + sign.log()
    return log.masked_fill(sign < 0, math.nan) if not input.is_meta else log


# --- inverses and equations ----------------------------------------------------------------------------------------

_inverse = op(
    "inverse(input)",
    "lu.inv",
    strides="columns rows",
    batch="leading",
    prepare=square("inv"),
    backward=lambda grads, inverse: [-matmul(adjoint(inverse), nt(grads[0], conj(inverse)))],
    jvp=lambda input_t, inverse: -matmul(matmul(inverse, input_t), inverse),
    wrt=("input",),
    outputs=("inverse", "info"),
    shape=lambda a: [(a.shape, a.dtype), (a.shape[:-2], np.int32)],
    backward_name="LinalgInvExBackward0",
    where=(),
)


def failure(info: Tensor) -> tuple[str, int] | None:
    """Returns the first matrix that `info` reports as failed, as named in messages, and its flag; None if none did."""
    if info.is_meta:
        return None
    info = whole(info)
    found = info._storage.to_host(info._array)
    if not found.any():
        return None
    found = found.reshape(-1)
    i = int((found != 0).argmax())
    return (f"(Batch element {i}): " if info._array.ndim else ""), int(found[i])


def _check_inverted(info: Tensor, name: str = "inv") -> None:
    failed = failure(info)
    if failed:
        raise kernels.LinAlgError(
            f"linalg.{name}: {failed[0]}The diagonal element {failed[1]} is zero, the inversion could not be completed "
            "because the input matrix is singular."
        )


@composite()
def inverse(input: Tensor, *, out=None) -> Tensor:
    """Computes the inverses of a stack of square matrices (*, n, n).

    To multiply by an inverse, use `torch.linalg.solve`: it is faster and more accurate.

    Raises:
        torch.linalg.LinAlgError: If a matrix is singular.
        RuntimeError: If the matrices are not square.

    >>> torch.inverse(torch.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    result, info = _inverse(input)
    _check_inverted(info)
    return store_out("inverse", out, result)


def inv(A: Tensor, *, out=None) -> Tensor:
    """Computes the inverses of a stack of square matrices (*, n, n).

    To multiply by an inverse, use `torch.linalg.solve`: it is faster and more accurate.

    Raises:
        torch.linalg.LinAlgError: If a matrix is singular.
        RuntimeError: If the matrices are not square.

    >>> torch.linalg.inv(torch.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    return inverse(A, out=out)


def inv_ex(A: Tensor, *, check_errors: bool = False, out=None) -> return_types.linalg_inv_ex:
    """Like `torch.linalg.inv`, but returns which pivot of each matrix is zero (from 1; 0: none) instead of raising.

    Raises:
        torch.linalg.LinAlgError: If `check_errors` is True and a matrix is singular.

    >>> torch.linalg.inv_ex(torch.zeros(2, 2)).info
    tensor(1, dtype=torch.int32)
    """
    results = _inverse(A)
    if check_errors:
        _check_inverted(results[1], "inv_ex")
    return named(return_type("linalg_inv_ex"), results, out, inv_ex)


def _solve_gradient(grads, A, result):
    by_b = _solve(adjoint(A), grads[0])[0]
    return [-nt(by_b, conj(result)), by_b]


_solve = op(
    "solve_matrices(A, B)",
    "lu.solve",
    strides="columns rows",
    batch="leading",
    backward=_solve_gradient,
    jvp=lambda A_t, B_t, A, result: _solve(A, B_t - matmul(A_t, result))[0],
    wrt=("A", "B"),
    outputs=("result", "info"),
    shape=lambda a, b: [
        ((*matmul_kernels.broadcast_lead(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), a.dtype),
        (a.shape[:-2], np.int32),
    ],
    backward_name="LinalgSolveExBackward0",
    where=(),
)


def solve_matrices(A: Tensor, B: Tensor) -> Tensor:
    """Returns X of A X = B for matrices of matching shapes. Raises: torch.linalg.LinAlgError if A is singular."""
    result, info = _solve(A, B)
    _check_solved(info)
    return result


def _check_solved(info: Tensor, name: str = "solve") -> None:
    failed = failure(info)
    if failed:
        raise kernels.LinAlgError(
            f"torch.linalg.{name}: {failed[0]}The solver failed because the input matrix is singular."
        )


def is_vector(A: Tensor, B: Tensor) -> bool:
    """Returns whether `B` is a stack of vectors rather than of matrices."""
    a, b = A._array.shape, B._array.shape
    return len(b) == 1 or (len(a) - 1 == len(b) and b == a[:-1])


def check_same_dtype(name: str, A: Tensor, B: Tensor) -> None:
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"linalg.{name}: Expected A and B to have the same dtype, but found A of type {scalar_type(A)} and B "
            "of type "
            f"{scalar_type(B)} instead"
        )


def check_equation(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    a, b = A._array.shape, B._array.shape
    if a[-1] != (b[-2] if left else b[-1]):
        side = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"linalg.{name}: Incompatible shapes of A and B for the equation {side} ({a[-2]}x{a[-1]} and "
            f"{b[-2]}x{b[-1]})"
        )


def _solved(A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    """Returns the solution and the flags of `solve`, after all checks."""
    kernels.check_square(A._array, "solve")
    if not B.ndim:
        kernels.check_matrices(B._array, "solve", "B")
    check_same_dtype("solve", A, B)
    vector = left and is_vector(A, B)
    b = B.unsqueeze(-1) if vector else B
    kernels.check_matrices(b._array, "solve", "B")
    check_equation("solve", A, b, left)
    matmul_kernels.broadcast_lead(A._array.shape[:-2], b._array.shape[:-2])
    if left:
        result, info = _solve(A, b)
        return (result.squeeze(-1) if vector else result), info
    result, info = _solve(A.transpose(-2, -1), b.transpose(-2, -1))
    return result.transpose(-2, -1), info


def solve(A: Tensor, B: Tensor, *, left: bool = True, out=None) -> Tensor:
    """Solves A X = B (X A = B if not `left`) for X, for stacks of square matrices.

    A is (*, n, n) and B (*, n, k) (or (*, k, n)), or a stack of vectors (*, n); X has the shape of B.

    Args:
        A: the matrices.
        B: the right sides.
        left: whether A is on the left.

    Raises:
        torch.linalg.LinAlgError: If A is singular.
        RuntimeError: If the shapes or dtypes do not fit.

    >>> torch.linalg.solve(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000])
    """
    result, info = _solved(A, B, left)
    _check_solved(info)
    return store_out("solve", out, result)


def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out=None
) -> return_types.linalg_solve_ex:
    """Like `torch.linalg.solve`, but returns which pivot of each A is zero (from 1; 0: none) instead of raising.

    Raises:
        torch.linalg.LinAlgError: If `check_errors` is True and A is singular.

    >>> torch.linalg.solve_ex(torch.zeros(2, 2), torch.ones(2)).info
    tensor(1, dtype=torch.int32)
    """
    results = _solved(A, B, left)
    if check_errors:
        _check_solved(results[1], "solve_ex")
    return named(return_type("linalg_solve_ex"), results, out, solve_ex)


def _triangle(x: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    k = 1 if unitriangular else 0
    return x.triu(k) if upper else x.tril(-k)


solve_triangles = op(
    "solve_triangular(A, B, upper: bool, unitriangular: bool)",
    "linalg.solve_triangular",
    strides="columns",
    batch="leading",
    A=lambda g, A, out, upper, unitriangular: (
        -_triangle(nt(solve_triangles(adjoint(A), g, not upper, unitriangular), conj(out)), upper, unitriangular)
    ),
    B=lambda g, A, upper, unitriangular: solve_triangles(adjoint(A), g, not upper, unitriangular),
    jvp=lambda A_t, B_t, A, out, upper, unitriangular: solve_triangles(
        A, B_t - matmul(_triangle(A_t, upper, unitriangular), out), upper, unitriangular
    ),
    shape=lambda a, b, upper, unitriangular: (
        (*matmul_kernels.broadcast_lead(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]),
        a.dtype,
    ),
    backward_name="LinalgSolveTriangularBackward0",
    where=(),
)


def solve_triangular(
    input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out=None
) -> Tensor:
    """Solves A X = B (X A = B if not `left`) for X, reading only one triangle of A, which is `input`.

    With `unitriangular`, the diagonal of A counts as ones.

    Raises:
        RuntimeError: If the shapes or dtypes do not fit.

    >>> torch.linalg.solve_triangular(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([[4.0], [2.0]]), upper=True)
    tensor([[1.],
            [2.]])
    """
    kernels.check_square(input._array, "solve_triangular")
    kernels.check_matrices(B._array, "solve_triangular", "B")
    check_same_dtype("solve_triangular", input, B)
    check_equation("solve_triangular", input, B, left)
    if left:
        result = solve_triangles(input, B, upper, unitriangular)
    else:
        matrices, right = input.transpose(-2, -1), B.transpose(-2, -1)
        result = solve_triangles(matrices, right, not upper, unitriangular).transpose(-2, -1)
    return store_out("solve_triangular", out, result)


def check_system(name: str, b: Tensor, A: Tensor) -> None:
    """Checks the arguments of functions that take the right-hand side first. Raises: RuntimeError."""
    x, y = A._array, b._array
    if y.ndim < 2:
        raise RuntimeError(
            f"torch.{name}: Expected b to have at least 2 dimensions, but it has {y.ndim} dimensions instead"
        )
    if x.ndim < 2:
        raise RuntimeError(
            f"torch.{name}: Expected A to have at least 2 dimensions, but it has {x.ndim} dimensions instead"
        )
    if A.dtype is not b.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {scalar_type(y)} and A of type "
            f"{scalar_type(x)} instead."
        )
    if x.shape[-2] != x.shape[-1]:
        raise RuntimeError(
            f"A must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices"
        )
    if x.shape[-1] != y.shape[-2]:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {x.shape[-2]} by {x.shape[-1]} but each b matrix "
            f"is {y.shape[-2]} by {y.shape[-1]}"
        )
    matmul_kernels.broadcast_lead(x.shape[:-2], y.shape[:-2])
    if x.dtype.kind not in "fc" or x.dtype.itemsize == 2:
        unsupported(name, x)


@composite()
def triangular_solve(
    input: Tensor, A: Tensor, upper=True, transpose=False, unitriangular=False, *, out=None
) -> return_types.triangular_solve:
    """The older form of `torch.linalg.solve_triangular`: returns the solution and a copy of A.

    >>> torch.triangular_solve(torch.tensor([[4.0]]), torch.tensor([[2.0]])).solution
    tensor([[2.]])
    """
    check_system("triangular_solve", input, A)
    matrices, upper = (A.transpose(-2, -1), not upper) if transpose else (A, upper)
    lead = matmul_kernels.broadcast_lead(A._array.shape[:-2], input._array.shape[:-2])
    copy = A.expand((*lead, *A._array.shape[-2:])).transpose(-2, -1).clone(memory_format="contiguous")
    copy = copy.transpose(-2, -1)  # column by column, as LAPACK leaves it
    results = solve_triangles(matrices, input, upper, unitriangular), copy
    cls = return_type("triangular_solve")
    return named(cls, results, out, triangular_solve)
