"""Linear algebra: determinants, inverses, systems of equations, decompositions.

Gradients follow M. Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation", 2008, and S. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions", 2010, with
conjugates where matrices are complex. Where a decomposition is not unique, a function of it must not depend on the
choice for its gradient to mean something.
"""

from __future__ import annotations

import math

from tensorgrad import dtypes
from tensorgrad.kernels.array import linalg as kernels
from tensorgrad.kernels.array.matmul import broadcast_lead, spoken
from tensorgrad.ops import (
    create,
    einsum,  # noqa: F401  a family of its own, loaded with this one
)
from tensorgrad.ops.kinds import FUNCTIONS, composite, export, op
from tensorgrad.ops.matmul import matmul, nt, tn, written
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor


def _conj(x: Tensor) -> Tensor:
    return x.conj() if x._array.dtype.kind == "c" else x


def _h(x: Tensor) -> Tensor:
    """The conjugate transpose."""
    return _conj(x.transpose(-2, -1))


def _real_part(x: Tensor) -> Tensor:
    return x.real if x._array.dtype.kind == "c" else x


def _matrices(x: Tensor) -> Tensor:
    """A number per matrix, shaped to multiply matrices."""
    return x.unsqueeze(-1).unsqueeze(-1)


def _eye(x: Tensor, n: int | None = None) -> Tensor:
    return create.eye(x._array.shape[-1] if n is None else n, dtype=x.dtype, device=x.device)


def _checked(name: str):
    def prepare(a, *rest):
        kernels.check_square(a, name)
        return (a, *rest)

    return prepare


def _real(dtype):
    return dtypes.from_numpy_dtype(dtype).to_real().numpy


# --- determinants --------------------------------------------------------------------------------------------------


def _det_gradient(g, input, out):
    factor = _matrices(g)
    if not input.is_meta and not bool((out != 0).all()):  # no inverse: the cofactors still exist
        return factor * _h(_adjugate(input))
    return factor * _h(_matrices(out) * inv(input))


det = op(
    "det(input)",
    "linalg.det",
    prepare=_checked("det"),
    input=_det_gradient,
    shape=lambda a: a.shape[:-2],
    backward_name="LinalgDetBackward0",
    doc="""The determinants of a stack of square matrices (*, n, n).

    Raises: RuntimeError for other shapes, and integers.

    >>> import tensorgrad as torch
    >>> torch.linalg.det(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """,
)
_adjugate = op("adjugate(input)", "linalg.adjugate", shape=lambda a: a.shape, where="")


def _slogdet_gradient(grads, input, sign, needs):
    g_sign, g_log = grads[0], grads[1]
    if input._array.dtype.kind != "c":
        if g_log is None:
            return [None]
        return [_matrices(g_log) * inv(input).transpose(-2, -1)]
    factor = 0 if g_log is None else g_log
    if g_sign is not None:
        factor = factor - (_conj(g_sign) * sign).imag * 1j
    return [_matrices(factor + sign * 0) * _h(inv(input))]


_slogdet = op(
    "slogdet_(input)",
    "linalg.slogdet",
    prepare=_checked("slogdet"),
    backward=_slogdet_gradient,
    wrt=("input",),
    outputs=("sign", "logabsdet"),
    differentiable_outputs=2,
    shape=lambda a: [(a.shape[:-2], a.dtype), (a.shape[:-2], _real(a.dtype))],
    backward_name="LinalgSlogdetBackward0",
    where="",
)


def _named(cls, results, out, function):
    return cls(*(results if out is None else written(function, out, tuple(results))))


def linalg_slogdet(A: Tensor, *, out=None):
    """Signs and log |det| of a stack of square matrices: the determinant without overflow.

    >>> import tensorgrad as torch
    >>> torch.linalg.slogdet(torch.eye(2)).logabsdet
    tensor(0.)
    """
    return _named(return_type("linalg_slogdet", "sign", "logabsdet"), _slogdet(A), out, linalg_slogdet)


@composite()
def slogdet(input: Tensor):
    """`torch.linalg.slogdet`."""
    return return_type("slogdet", "sign", "logabsdet")(*_slogdet(input))


@composite()
def logdet(input: Tensor) -> Tensor:
    """The logarithms of determinants: nan where they are negative."""
    sign, log = _slogdet(input)
    if input.is_complex():
        return log + sign.log()
    return log.masked_fill(sign < 0, math.nan) if not input.is_meta else log


# --- inverses and equations ----------------------------------------------------------------------------------------

inv = op(
    "inverse(input)",
    "linalg.inv",
    prepare=_checked("inv"),
    input=lambda g, out: -matmul(_h(out), nt(g, _conj(out))),
    shape=lambda a: a.shape,
    backward_name="LinalgInvExBackward0",
    doc="""The inverses of a stack of square matrices (*, n, n).

    Raises: torch.linalg.LinAlgError for a singular matrix, RuntimeError for other shapes.

    >>> import tensorgrad as torch
    >>> torch.linalg.inv(torch.tensor([[2.0]]))
    tensor([[0.5000]])
    """,
)

_solve = op(
    "solve_matrices(A, B)",
    "linalg.solve",
    A=lambda g, A, out: -nt(_solve(_h(A), g), _conj(out)),
    B=lambda g, A: _solve(_h(A), g),
    shape=lambda a, b: ((*broadcast_lead(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), a.dtype),
    backward_name="LinalgSolveExBackward0",
    where="",
)


def _is_vector(A: Tensor, B: Tensor) -> bool:
    """Whether `B` is a stack of vectors rather than of matrices."""
    a, b = A._array.shape, B._array.shape
    return len(b) == 1 or (len(a) - 1 == len(b) and b == a[:-1])


def _same_dtype(name: str, A: Tensor, B: Tensor) -> None:
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"linalg.{name}: Expected A and B to have the same dtype, but found A of type {spoken(A._array)} and B of type "
            f"{spoken(B._array)} instead"
        )


def _check_equation(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    a, b = A._array.shape, B._array.shape
    if a[-1] != (b[-2] if left else b[-1]):
        side = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"linalg.{name}: Incompatible shapes of A and B for the equation {side} ({a[-2]}x{a[-1]} and {b[-2]}x{b[-1]})"
        )


def solve(A: Tensor, B: Tensor, *, left: bool = True, out=None) -> Tensor:
    """X of A X = B (of X A = B if not `left`) for stacks of square matrices; B may also be a stack of vectors.

    Raises: torch.linalg.LinAlgError for a singular A, RuntimeError for shapes or dtypes that do not fit.

    >>> import tensorgrad as torch
    >>> torch.linalg.solve(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000])
    """
    kernels.check_square(A._array, "solve")
    if not B.ndim:
        kernels.check_matrices(B._array, "solve", "B")
    _same_dtype("solve", A, B)
    vector = left and _is_vector(A, B)
    b = B.unsqueeze(-1) if vector else B
    kernels.check_matrices(b._array, "solve", "B")
    _check_equation("solve", A, b, left)
    broadcast_lead(A._array.shape[:-2], b._array.shape[:-2])
    result = _solve(A, b) if left else _solve(A.transpose(-2, -1), b.transpose(-2, -1)).transpose(-2, -1)
    result = result.squeeze(-1) if vector else result
    return result if out is None else written(solve, out, result)


def _triangle(x: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    k = 1 if unitriangular else 0
    return x.triu(k) if upper else x.tril(-k)


_solve_triangular = op(
    "solve_triangular_(A, B, upper: bool, unitriangular: bool)",
    "linalg.solve_triangular",
    A=lambda g, A, out, upper, unitriangular: -_triangle(
        nt(_solve_triangular(_h(A), g, not upper, unitriangular), _conj(out)), upper, unitriangular
    ),
    B=lambda g, A, upper, unitriangular: _solve_triangular(_h(A), g, not upper, unitriangular),
    shape=lambda a, b, upper, unitriangular: ((*broadcast_lead(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), a.dtype),
    backward_name="LinalgSolveTriangularBackward0",
    where="",
)


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out=None
) -> Tensor:
    """X of A X = B (X A = B if not `left`), reading only the upper or the lower triangle of A.

    With `unitriangular` the diagonal of A counts as ones. Raises: RuntimeError for shapes that do not fit.
    """
    kernels.check_square(A._array, "solve_triangular")
    kernels.check_matrices(B._array, "solve_triangular", "B")
    _same_dtype("solve_triangular", A, B)
    _check_equation("solve_triangular", A, B, left)
    if left:
        result = _solve_triangular(A, B, upper, unitriangular)
    else:
        result = _solve_triangular(A.transpose(-2, -1), B.transpose(-2, -1), not upper, unitriangular).transpose(-2, -1)
    return result if out is None else written(solve_triangular, out, result)


@composite("function method", name="triangular_solve")
def _triangular_solve(b: Tensor, A: Tensor, upper=True, transpose=False, unitriangular=False):
    """The older form of `torch.linalg.solve_triangular`: returns the solution and a copy of A."""
    made = _solve_triangular(A.transpose(-2, -1), b, not upper, unitriangular) if transpose else (
        _solve_triangular(A, b, upper, unitriangular)
    )
    return return_type("triangular_solve", "solution", "cloned_coefficient")(made, A.clone())


def _cholesky_gradient(g, out, upper):
    factor, g = (_h(out), _h(g)) if upper else (out, g)
    phi = tn(_conj(factor), g).tril()
    diagonal = _real_part(phi.diagonal(0, -2, -1)).diag_embed()
    lower = phi.tril(-1)
    middle = (lower + _h(lower) + diagonal) * 0.5  # L⁻ᴴ Φ(Lᴴ g) L⁻¹, made Hermitian
    half = _solve_triangular(_h(factor), middle, True, False)
    return _h(_solve_triangular(_h(factor), _h(half), True, False))


cholesky_factor = op(
    "cholesky_factor(input, upper: bool)",
    "linalg.cholesky",
    prepare=_checked("cholesky"),
    input=_cholesky_gradient,
    shape=lambda a, upper: a.shape,
    backward_name="LinalgCholeskyExBackward0",
    where="",
)


def linalg_cholesky(A: Tensor, *, upper: bool = False, out=None) -> Tensor:
    """The lower triangular L with A = L Lᴴ (its conjugate transpose if `upper`) of positive-definite matrices.

    Raises: torch.linalg.LinAlgError unless A is positive-definite.

    >>> import tensorgrad as torch
    >>> torch.linalg.cholesky(torch.tensor([[4.0]]))
    tensor([[2.]])
    """
    result = cholesky_factor(A, upper)
    return result if out is None else written(linalg_cholesky, out, result)


@composite()
def cholesky(input: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """`torch.linalg.cholesky`."""
    return linalg_cholesky(input, upper=upper, out=out)


@composite()
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """X of A X = B, where A = L Lᴴ is given by its Cholesky factor."""
    half = _solve_triangular(_h(L) if upper else L, B, False, False)
    result = _solve_triangular(L if upper else _h(L), half, True, False)
    return result if out is None else written(cholesky_solve, out, result)


@composite()
def cholesky_inverse(L: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """The inverse of A = L Lᴴ from its Cholesky factor."""
    result = cholesky_solve(_eye(L).expand(L.shape), L, upper)
    return result if out is None else written(cholesky_inverse, out, result)


def _flagged(name: str, function, *fields):
    """The `_ex` form of a function, which returns a flag instead of raising."""

    def checked(*arguments, check_errors: bool = False, out=None, **keywords):
        shape = arguments[0]._array.shape[:-2]
        try:
            result, failed = function(*arguments, **keywords), 0
        except kernels.LinAlgError as error:
            if check_errors:
                raise
            words = str(error)
            failed = next((int(w) for w in words.replace(".", " ").split() if w.isdigit()), 1)
            like = arguments[1] if name == "solve_ex" else arguments[0]
            result = create.full(tuple(like._array.shape), math.nan, dtype=like.dtype, device=like.device)
        info = create.full(tuple(shape), failed, dtype=dtypes.int32, device=arguments[0].device)
        results = (result, info)
        return return_type(f"linalg_{name}", *fields)(*(results if out is None else written(checked, out, results)))

    checked.__name__ = checked.__qualname__ = name
    checked.__doc__ = f"`torch.linalg.{name[:-3]}` with a flag, 0 for success, instead of an error unless `check_errors`."
    return checked


inv_ex = _flagged("inv_ex", inv, "inverse", "info")
cholesky_ex = _flagged("cholesky_ex", linalg_cholesky, "L", "info")
solve_ex = _flagged("solve_ex", solve, "result", "info")


@composite()
def matrix_power(input: Tensor, n: int, *, out=None) -> Tensor:
    """The n-th power of square matrices, by repeated squaring; of their inverses for negative n.

    Raises: TypeError for a power that is no integer, RuntimeError for matrices that are not square.
    """
    if not hasattr(n, "__index__"):
        raise TypeError(f"linalg_matrix_power(): argument 'n' (position 2) must be int, not {type(n).__name__}")
    a = input._array
    kernels.check_matrices(a, "matrix_power")
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_power: A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices"
        )
    result = None
    square = inv(input) if n < 0 else input
    rest = abs(n)
    while rest:
        if rest & 1:
            result = square if result is None else matmul(result, square)
        rest >>= 1
        square = matmul(square, square) if rest else square
    if result is None:
        result = _eye(input).expand(input.shape).clone()
    elif result is input:
        result = input.clone()
    return result if out is None else written(matrix_power, out, result)


# --- decompositions ------------------------------------------------------------------------------------------------


def _qr_gradient(grads, Q, R, mode, input_shape, needs):
    g_q, g_r = grads[0], grads[1]
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
            "linalg.qr(A, mode='reduced') if you are going to require gradients"
        )
    m, n = input_shape[-2:]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    k = min(m, n)
    rest = None
    if m < n:  # A = Q [R₁ R₂]: the second part goes straight through
        square, g_rest = R[..., :k], None if g_r is None else g_r[..., k:]
        g_square = None if g_r is None else g_r[..., :k]
        if g_rest is not None:
            rest = matmul(Q, g_rest)
            extra = nt(g_rest, _conj(R[..., k:]))
            g_q = matmul(Q, extra) if g_q is None else g_q + nt(rest, _conj(R[..., k:])) * 0 + 0 * g_q + g_q * 0 + g_q
        return [_wide_qr(g_q, g_square, g_r, Q, R, square, k)]
    return [_square_qr(g_q, g_r, Q, R)]


def _square_qr(g_q, g_r, Q, R):
    """(gQ + Q·sym(M)) R⁻ᴴ with M = R gRᴴ - gQᴴ Q and sym its lower triangle mirrored."""
    m = None if g_r is None else nt(R, _conj(g_r))
    if g_q is not None:
        part = tn(_conj(g_q), Q)
        m = -part if m is None else m - part
    lower = m.tril(-1)
    symmetric = lower + _h(lower) + _real_part(m.diagonal(0, -2, -1)).diag_embed()
    total = matmul(Q, symmetric)
    total = total if g_q is None else total + g_q
    return _h(_solve_triangular(R, _h(total), True, False))


def _wide_qr(g_q, g_square, g_r, Q, R, square, k):
    raise NotImplementedError


_qr = op(
    "qr_(input, mode: str)",
    "linalg.qr",
    backward=_qr_gradient,
    wrt=("input",),
    outputs=("Q", "R"),
    differentiable_outputs=2,
    shape=lambda a, mode: _qr_shapes(a, mode),
    backward_name="LinalgQrBackward0",
    where="",
)


def _qr_shapes(a, mode):
    m, n = a.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    q = (0,) if mode == "r" else (*a.shape[:-2], m, k)
    return [(q, a.dtype), ((*a.shape[:-2], min(m, n) if mode == "r" else k, n), a.dtype)]
