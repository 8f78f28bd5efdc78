"""Decompositions of matrices, and what is made of them: QR, singular values, eigenvalues, pseudo-inverse, rank, norms.

Gradients follow M. Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation", 2008, and S. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions", 2010, with
conjugates where matrices are complex. Where a decomposition is not unique, a function of it must not depend on the
choice for its gradient to mean something.
"""

from __future__ import annotations

import math
from typing import Any

from tensorgrad import dtypes
from tensorgrad.kernels.array import linalg as kernels
from tensorgrad.kernels.array.matmul import spoken
from tensorgrad.ops import create
from tensorgrad.ops.errors import wrap_dim
from tensorgrad.ops.kinds import FUNCTIONS, composite, op
from tensorgrad.ops.linalg import (
    adjoint,
    check_same_dtype,
    identity,
    inv,
    is_vector,
    named,
    real_dtype,
    real_part,
    solve_matrices,
    solve_triangles,
    square,
)
from tensorgrad.ops.matmul import matmul, nt, tn, written
from tensorgrad.ops.pointwise import conj
from tensorgrad.ops.reduce import vector_norm
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor

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
    if m >= n:
        return [_square_qr(g_q, g_r, Q, R)]
    # A = [A₁ A₂] with A₁ = Q R₁ square and R₂ = Qᴴ A₂
    g_r = R * 0 if g_r is None else g_r
    second = g_r[..., m:]
    through = nt(matmul(Q, R[..., m:]), conj(second))
    first = _square_qr(through if g_q is None else g_q + through, g_r[..., :m], Q, R[..., :m])
    return [FUNCTIONS["cat"]([first, matmul(Q, second)], -1)]


def _square_qr(g_q, g_r, Q, R):
    """(gQ + Q·sym(M)) R⁻ᴴ with M = R gRᴴ - gQᴴ Q and sym its lower triangle mirrored."""
    m: Any = None if g_r is None else nt(R, conj(g_r))
    if g_q is not None:
        part = tn(conj(g_q), Q)
        m = -part if m is None else m - part
    lower = m.tril(-1)
    symmetric = lower + adjoint(lower) + real_part(m.diagonal(0, -2, -1)).diag_embed()
    total = matmul(Q, symmetric)
    total = total if g_q is None else total + g_q
    return adjoint(solve_triangles(R, adjoint(total), True, False))


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


def _check_factored(A: Tensor, name: str) -> None:
    kernels.check_matrices(A._array, name)
    kernels.check_floating(A._array, name)


def linalg_qr(A: Tensor, mode: str = "reduced", *, out=None):
    """A = Q R with orthonormal columns in Q and an upper triangular R; `mode` is "reduced", "complete" or "r" (R only).

    Raises: RuntimeError for another mode, or fewer than two dimensions.

    >>> import tensorgrad as torch
    >>> q, r = torch.linalg.qr(torch.ones(3, 2))
    >>> q.shape, r.shape
    (torch.Size([3, 2]), torch.Size([2, 2]))
    """
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    _check_factored(A, "qr")
    return named(return_type("linalg_qr", "Q", "R"), _qr(A, mode), out, linalg_qr)


@composite()
def qr(input: Tensor, some: bool = True, *, out=None):
    """`torch.linalg.qr`, complete unless `some`.

    >>> import tensorgrad as torch
    >>> q, r = torch.linalg.qr(torch.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> torch.allclose(q @ r, torch.tensor([[3.0, 1.0], [4.0, 2.0]]), atol=1e-6)
    True
    """
    _check_factored(input, "qr")
    return named(return_type("qr", "Q", "R"), _qr(input, "reduced" if some else "complete"), out, qr)


def _svd_gradient(grads, input, U, S, Vh, full, needs):
    """Of the reduced decomposition A = U S Vᴴ, from the gradients of U, S and Vᴴ."""
    g_u, g_s, g_vh = grads[0], grads[1], grads[2]
    m, n = input._array.shape[-2:]
    k = min(m, n)
    if full and m != n:
        U, Vh = U[..., :k], Vh[..., :k, :]
        g_u = None if g_u is None else g_u[..., :k]
        g_vh = None if g_vh is None else g_vh[..., :k, :]
    if g_u is None and g_vh is None:
        return [None if g_s is None else matmul(U * g_s.unsqueeze(-2), Vh)]
    s_row, s_column = S.unsqueeze(-2), S.unsqueeze(-1)
    gap = (s_row - s_column) * (s_row + s_column)
    gap = gap + identity(gap)
    middle = 0
    diagonal = None if g_s is None else g_s
    if g_u is not None:
        inside = tn(conj(U), g_u)
        middle = ((inside - adjoint(inside)) / gap) * s_row
        if inside.is_complex():
            turned = (inside.diagonal(0, -2, -1).imag / S) * 1j
            diagonal = turned if diagonal is None else diagonal + turned
    if g_vh is not None:
        inside = nt(Vh, conj(g_vh))
        middle = middle + s_column * ((inside - adjoint(inside)) / gap)
    if diagonal is not None:
        middle = middle + diagonal.diag_embed()
    result = matmul(matmul(U, middle), Vh)
    if g_u is not None and m > k:
        scaled = g_u / s_row
        result = result + matmul(scaled - matmul(U, tn(conj(U), scaled)), Vh)
    if g_vh is not None and n > k:
        scaled = g_vh / s_column
        result = result + matmul(U, scaled - matmul(nt(scaled, conj(Vh)), Vh))
    return [result]


def _svd_shapes(a, full):
    (m, n), lead = a.shape[-2:], a.shape[:-2]
    k = min(m, n)
    return [
        ((*lead, m, m if full else k), a.dtype),
        ((*lead, k), real_dtype(a.dtype)),
        ((*lead, n if full else k, n), a.dtype),
    ]


_svd = op(
    "svd_(input, full: bool)",
    "linalg.svd",
    backward=_svd_gradient,
    wrt=("input",),
    outputs=("U", "S", "Vh"),
    differentiable_outputs=3,
    shape=_svd_shapes,
    backward_name="LinalgSvdBackward0",
    where="",
)


def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver=None, out=None):
    """A = U diag(S) Vh with orthonormal columns in U and rows in Vh, and S descending.

    Raises: RuntimeError for fewer than two dimensions, or integers.
    """
    _check_factored(A, "svd")
    return named(return_type("linalg_svd", "U", "S", "Vh"), _svd(A, full_matrices), out, linalg_svd)


@composite()
def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out=None):
    """The older form of `torch.linalg.svd`: returns V instead of Vh, and zeros for both unless `compute_uv`."""
    _check_factored(input, "svd")
    u, s, vh = _svd(input, not some)
    results = (u, s, adjoint(vh))
    if not compute_uv:
        m, n = input._array.shape[-2:]
        lead = input._array.shape[:-2]
        results = (input.new_zeros((*lead, m, m)), s, input.new_zeros((*lead, n, n)))
    return named(return_type("svd", "U", "S", "V"), results, out, svd)


def svdvals(A: Tensor, *, driver=None, out=None) -> Tensor:
    """The singular values, descending."""
    _check_factored(A, "svdvals")
    result = _svd(A, False)[1]
    return result if out is None else written(svdvals, out, result)


def _eigh_gradient(grads, L, V, needs):
    g_l, g_v = grads[0], grads[1]
    middle: Any = None
    if g_v is not None:
        gap = L.unsqueeze(-2) - L.unsqueeze(-1)
        inside = tn(conj(V), g_v)
        inside = (inside - adjoint(inside)) * 0.5 / (gap + identity(gap))  # only turns of the vectors count
        middle = inside - inside.diagonal(0, -2, -1).diag_embed()
    if g_l is not None:
        middle = g_l.diag_embed() + (0 if middle is None else middle)
    if middle.dtype is not V.dtype:
        middle = middle.to(V.dtype)
    return [matmul(matmul(V, middle), adjoint(V))]


_eigh = op(
    "eigh_(input, uplo: str)",
    "linalg.eigh",
    prepare=square("eigh"),
    backward=_eigh_gradient,
    wrt=("input",),
    outputs=("L", "V"),
    differentiable_outputs=2,
    shape=lambda a, uplo: [(a.shape[:-1], real_dtype(a.dtype)), (a.shape, a.dtype)],
    backward_name="LinalgEighBackward0",
    where="",
)


def _check_uplo(uplo: str) -> str:
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    return uplo.upper()


def eigh(A: Tensor, UPLO: str = "L", *, out=None):
    """Eigenvalues (real, ascending) and orthonormal eigenvectors of Hermitian matrices, of which one triangle is read.

    Raises: RuntimeError for matrices that are not square.
    """
    return named(return_type("linalg_eigh", "eigenvalues", "eigenvectors"), _eigh(A, _check_uplo(UPLO)), out, eigh)


def eigvalsh(A: Tensor, UPLO: str = "L", *, out=None) -> Tensor:
    """The eigenvalues of Hermitian matrices, ascending."""
    result = _eigh(A, _check_uplo(UPLO))[0]
    return result if out is None else written(eigvalsh, out, result)


def _eig_gradient(grads, L, V, needs):
    g_l, g_v = grads[0], grads[1]
    if g_v is None:
        middle = g_l.diag_embed()
    else:
        gap = conj(L.unsqueeze(-2) - L.unsqueeze(-1))
        inside = tn(conj(V), g_v)
        along = inside.diagonal(0, -2, -1).real.unsqueeze(-2)
        middle = (inside - tn(conj(V), V) * along) / (gap + identity(gap))
        middle = middle - middle.diagonal(0, -2, -1).diag_embed()
        middle = middle if g_l is None else middle + g_l.diag_embed()
    return [solve_matrices(adjoint(V), matmul(middle, adjoint(V)))]


_eig = op(
    "eig_(input)",
    "linalg.eig",
    prepare=square("eig"),
    backward=_eig_gradient,
    wrt=("input",),
    outputs=("L", "V"),
    differentiable_outputs=2,
    shape=lambda a: [
        (a.shape[:-1], dtypes.from_numpy_dtype(a.dtype).to_complex().numpy),
        (a.shape, dtypes.from_numpy_dtype(a.dtype).to_complex().numpy),
    ],
    backward_name="LinalgEigBackward0",
    where="",
)


def eig(A: Tensor, *, out=None):
    """Eigenvalues and eigenvectors of square matrices, both complex, in no particular order."""
    return named(return_type("linalg_eig", "eigenvalues", "eigenvectors"), _eig(A), out, eig)


def eigvals(A: Tensor, *, out=None) -> Tensor:
    """The eigenvalues of square matrices, complex."""
    result = _eig(A)[0]
    return result if out is None else written(eigvals, out, result)


def _pinv_gradient(g, input, out):
    """For P = A⁺: -Pᴴ g Pᴴ + (I - A P) gᴴ P Pᴴ + Pᴴ P gᴴ (I - P A)."""
    p, ph, gh = out, adjoint(out), adjoint(g)
    first = matmul(gh, matmul(p, ph))
    first = first - matmul(input, matmul(p, first))
    second = matmul(matmul(ph, p), gh)
    second = second - matmul(matmul(second, p), input)
    return first + second - matmul(ph, matmul(g, ph))


_pinv = op(
    "pinv_(input, atol: any, rtol: any, hermitian: bool)",
    "linalg.pinv",
    input=_pinv_gradient,
    shape=lambda a, atol, rtol, hermitian: (*a.shape[:-2], a.shape[-1], a.shape[-2]),
    backward_name="LinalgPinvBackward0",
    where="",
)


def _tolerances(A: Tensor, atol, rtol):
    """Absolute and relative tolerance, a number or an array (…, 1): max(m, n) · eps of the largest value by default."""
    if rtol is None:
        rtol = 0.0 if atol is not None else max(A._array.shape[-2:]) * dtypes.finfo(A.dtype).eps
    atol = 0.0 if atol is None else atol
    return tuple(t.unsqueeze(-1)._array if isinstance(t, Tensor) else t for t in (atol, rtol))


def pinv(A: Tensor, *args, atol=None, rtol=None, hermitian: bool = False, rcond=None, out=None) -> Tensor:
    """The Moore–Penrose pseudo-inverse; singular values not above max(atol, rtol · largest) count as zero.

    Raises: RuntimeError for fewer than two dimensions, or integers.
    """
    rtol = rcond if rcond is not None else args[0] if args else rtol
    array = A._array
    if array.ndim < 2 or array.dtype.kind in "biu":
        raise RuntimeError(
            f"linalg.pinv({spoken(array)}{{{list(array.shape)}}}): expected a tensor with 2 or more dimensions of "
            "float, "
            "double, cfloat or cdouble types"
        )
    if not array.size:
        result = A.transpose(-2, -1).clone()
    else:
        result = _pinv(A, *_tolerances(A, atol, rtol), hermitian)
    return result if out is None else written(pinv, out, result)


@composite()
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`torch.linalg.pinv`."""
    return pinv(input, rtol=rcond)


def matrix_rank(A: Tensor, *args, atol=None, rtol=None, hermitian: bool = False, tol=None, out=None) -> Tensor:
    """How many singular values are above max(atol, rtol · largest)."""
    atol = tol if tol is not None else args[0] if args else atol
    _check_factored(A, "matrix_rank")
    values = eigvalsh(A.detach()).abs() if hermitian else svdvals(A.detach())
    if not values._array.shape[-1]:
        result = values.sum(-1).to(dtypes.int64)
    else:
        if rtol is None:
            rtol = 0.0 if atol is not None else max(A._array.shape[-2:]) * dtypes.finfo(A.dtype).eps
        limit = values.amax(-1, True) * (rtol.unsqueeze(-1) if isinstance(rtol, Tensor) else rtol)
        if atol is not None:
            floor = atol.unsqueeze(-1) if isinstance(atol, Tensor) else create.full((), atol, dtype=values.dtype)
            limit = limit.maximum(floor.to(limit.device))
        result = (values > limit).sum(-1)
    return result if out is None else written(matrix_rank, out, result)


def lstsq(A: Tensor, B: Tensor, rcond=None, *, driver=None, out=None):
    """X that minimises ‖A X - B‖, with residuals, rank and singular values where the driver finds them."""
    _check_factored(A, "lstsq")
    check_same_dtype("lstsq", A, B)
    vector = is_vector(A, B)
    b = B.unsqueeze(-1) if vector else B
    m, n = A._array.shape[-2:]
    if b._array.shape[-2] != m:
        raise RuntimeError("torch.linalg.lstsq: input.size(-2) should match other.size(-2)")
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    solution = matmul(pinv(A, rtol=rcond), b)
    residuals = values = A.new_empty(0, dtype=A.dtype.to_real())
    rank = create.empty(0, dtype=dtypes.int64, device=A.device)
    if driver != "gels":
        rank = matrix_rank(A, rtol=rcond)
    if driver in ("gelsd", "gelss"):
        values = svdvals(A.detach())
    if m > n and driver != "gelsy" and bool((matrix_rank(A) == n).all()):
        error = matmul(A, solution) - b
        residuals = (conj(error) * error).sum(-2).real if error.is_complex() else (error * error).sum(-2)
        residuals = residuals.squeeze(-1) if vector else residuals
    solution = solution.squeeze(-1) if vector else solution
    cls = return_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
    return named(cls, (solution, residuals, rank, values), out, lstsq)


# --- norms ---------------------------------------------------------------------------------------------------------


def _matrix_dims(name: str, x: Tensor, dim) -> tuple[int, int]:
    if isinstance(dim, int) or len(dim) != 2:
        raise RuntimeError(f"linalg.{name}: dim must be a 2-tuple. Got {dim}")
    first, second = (wrap_dim(d, x.ndim) for d in dim)
    if first == second:
        raise RuntimeError(f"linalg.{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    return first, second


def _largest(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """The largest of what is not negative; 0 of nothing."""
    return x.amax(dim, keepdim) if x._array.shape[dim] else x.sum(dim, keepdim)


def matrix_norm(A: Tensor, ord="fro", dim=(-2, -1), keepdim: bool = False, *, dtype=None, out=None) -> Tensor:
    """A norm of matrices: "fro" (Frobenius), "nuc" (nuclear), ±inf (row sums), ±1 (column sums), ±2 (singular values).

    Raises: RuntimeError for another order, or dimensions that are not two.
    """
    kernels.check_matrices(A._array, "matrix_norm")
    rows, columns = _matrix_dims("matrix_norm", A, dim)
    if A.dtype.category < dtypes.FLOATING:
        kernels.check_floating(A._array, "matrix_norm")
    x = A if dtype is None else A.to(dtype)
    if ord == "fro":
        result = vector_norm(x, 2, (rows, columns), keepdim)
    elif ord == "nuc" or (not isinstance(ord, str) and abs(ord) == 2):
        values = svdvals(x.movedim((rows, columns), (-2, -1)))
        result = values.sum(-1) if ord == "nuc" else _largest(values, -1, False) if ord == 2 else values.amin(-1)
        if keepdim:
            for d in sorted((rows, columns)):
                result = result.unsqueeze(d)
    elif not isinstance(ord, str) and abs(ord) in (1, math.inf):
        summed, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = vector_norm(x, 1, summed, True)
        result = _largest(sums, kept, True) if ord > 0 else sums.amin(kept, True)
        result = result if keepdim else result.squeeze((rows, columns))
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    return result if out is None else written(matrix_norm, out, result)


def norm(A: Tensor, ord=None, dim=None, keepdim: bool = False, *, out=None, dtype=None) -> Tensor:
    """A vector norm over one dimension (or all), a matrix norm over two: what `ord` and `dim` say.

    Raises: RuntimeError where neither says which is meant.

    >>> import tensorgrad as torch
    >>> torch.linalg.norm(torch.tensor([3.0, 4.0]))
    tensor(5.)
    """
    dims = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if ord is not None and dims is None and A.ndim not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
        )
    if dims is not None and len(dims) not in (1, 2) and ord is not None:
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if ord is not None and ((dims is not None and len(dims) == 2) or (dims is None and A.ndim == 2)):
        return matrix_norm(A, ord, dims or (0, 1), keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        return (
            matrix_norm(A, ord, dims or (-2, -1), keepdim, dtype=dtype, out=out)
            if dims is None
            else (matrix_norm(A, ord, dims if len(dims) == 2 else dims[0], keepdim, dtype=dtype, out=out))
        )
    if ord is None and dims is None:  # all elements, whatever the shape
        dims = tuple(range(A.ndim))
    return vector_norm(A, 2 if ord is None else ord, dims, keepdim, dtype=dtype, out=out)


def cond(A: Tensor, p=None, *, out=None) -> Tensor:
    """The condition number ‖A‖ ‖A⁻¹‖ in the norm `p`, by default the ratio of the extreme singular values."""
    if p is None or (not isinstance(p, str) and abs(p) == 2):
        values = svdvals(A)
        result = values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    else:
        kernels.check_square(A._array, "cond")
        try:
            result = matrix_norm(A, p) * matrix_norm(inv(A), p)
        except kernels.LinAlgError:
            result = create.full(tuple(A._array.shape[:-2]), math.inf, dtype=A.dtype.to_real(), device=A.device)
    return result if out is None else written(cond, out, result)
