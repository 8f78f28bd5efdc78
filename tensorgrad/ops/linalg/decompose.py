"""Matrix decompositions and functions based on them: QR, singular values, eigenvalues, pseudo-inverse, rank.

Gradients follow M. Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation", 2008, and S. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions", 2010, with
conjugates where matrices are complex. Where a decomposition is not unique, the gradient of a function of it is
meaningful only if that function does not depend on the choice.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from tensorgrad import dtypes, return_types
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_flags, invalid_combination, typename
from tensorgrad.kernels.array import linalg as kernels
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.ops import create
from tensorgrad.ops.join import cat
from tensorgrad.ops.linalg.linalg import (
    adjoint,
    check_same_dtype,
    identity,
    named,
    real_dtype,
    real_part,
    solve_matrices,
    solve_triangles,
    square,
)
from tensorgrad.ops.linalg.matmul import matmul, nt, tn
from tensorgrad.ops.pointwise import conj
from tensorgrad.ops.rearrange import constant_pad_nd
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

# --- decompositions ------------------------------------------------------------------------------------------------


def _check_qr(mode: str, m: int, n: int) -> None:
    """Raises: RuntimeError where the decomposition has no derivative."""
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
            "linalg.qr(A, mode='reduced') if you are going to require gradients"
        )
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")


def _qr_gradient(grads, Q, R, mode, input_shape, needs):
    g_q, g_r = grads[0], grads[1]
    m, n = input_shape[-2:]
    _check_qr(mode, m, n)
    if m >= n:
        return [_square_qr(g_q, g_r, Q, R)]
    # A = [A₁ A₂] with A₁ = Q R₁ square and R₂ = Qᴴ A₂
    g_r = R * 0 if g_r is None else g_r
    second = g_r[..., m:]
    through = nt(matmul(Q, R[..., m:]), conj(second))
    first = _square_qr(through if g_q is None else g_q + through, g_r[..., :m], Q, R[..., :m])
    return [cat([first, matmul(Q, second)], -1)]


def _square_qr(g_q, g_r, Q, R):
    """(gQ + Q·sym(M)) R⁻ᴴ with M = R gRᴴ - gQᴴ Q, where sym mirrors the lower triangle."""
    m: Any = None if g_r is None else nt(R, conj(g_r))
    if g_q is not None:
        part = tn(conj(g_q), Q)
        m = -part if m is None else m - part
    lower = m.tril(-1)
    symmetric = lower + adjoint(lower) + real_part(m.diagonal(0, -2, -1)).diag_embed()
    total = matmul(Q, symmetric)
    total = total if g_q is None else total + g_q
    return adjoint(solve_triangles(R, adjoint(total), True, False))


def _qr_tangent(input_t, Q, R, mode):
    _check_qr(mode, *input_t._array.shape[-2:])
    k = Q._array.shape[-1]
    first, second = R[..., :k], R[..., k:]  # A = [A₁ A₂] with A₁ = Q R₁ and R₂ = Qᴴ A₂; A₂ is empty unless A is wide
    t = adjoint(solve_triangles(adjoint(first), adjoint(input_t[..., :k]), False, False))  # t₁ R₁⁻¹
    inside = tn(conj(Q), t)
    lower = inside.tril(-1)
    turned = lower - adjoint(lower)
    if inside.is_complex():
        turned = turned + (inside.diagonal(0, -2, -1).imag * 1j).diag_embed()
    stretched = inside - turned
    q_t = t - matmul(Q, stretched)
    r_t = matmul(stretched, first)
    if second._array.shape[-1]:
        r_t = cat([r_t, tn(conj(q_t), matmul(Q, second)) + tn(conj(Q), input_t[..., k:])], -1)
    return q_t, r_t


_qr = op(
    "qr(input, mode: str)",
    "linalg.qr",
    strides="columns columns",
    batch="leading",
    backward=_qr_gradient,
    jvp=_qr_tangent,
    wrt=("input",),
    outputs=("Q", "R"),
    differentiable_outputs=2,
    shape=lambda a, mode: _qr_shapes(a, mode),
    backward_name="LinalgQrBackward0",
    where=(),
)


def _qr_shapes(a, mode):
    m, n = a.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    q = (0,) if mode == "r" else (*a.shape[:-2], m, k)
    return [(q, a.dtype), ((*a.shape[:-2], min(m, n) if mode == "r" else k, n), a.dtype)]


def _check_factored(A: Tensor, name: str) -> None:
    kernels.check_matrices(A._array, name)
    kernels.check_floating(A._array, name)


def linalg_qr(A: Tensor, mode: str = "reduced", *, out=None) -> return_types.linalg_qr:
    """Computes the QR decomposition A = Q R, where Q has orthonormal columns and R is upper triangular.

    `mode` is "reduced", "complete" or "r" (only R). For A (*, m, n) and k = min(m, n), Q and R are (*, m, k) and
    (*, k, n) or, if complete, (*, m, m) and (*, m, n).

    The gradient is accurate if the first k columns of A are linearly independent, far from it if they nearly are not.

    Raises:
        RuntimeError: If the mode is unknown, or A has fewer than two dimensions.

    >>> q, r = torch.linalg.qr(torch.ones(3, 2))
    >>> q.shape, r.shape
    (torch.Size([3, 2]), torch.Size([2, 2]))
    """
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    _check_factored(A, "qr")
    return named(return_type("linalg_qr"), _qr(A, mode), out, linalg_qr)


@composite()
def qr(input: Tensor, some: bool = True, *, out=None) -> return_types.qr:
    """Alias of `torch.linalg.qr`, in reduced mode if `some`, else complete.

    >>> q, r = torch.linalg.qr(torch.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> torch.allclose(q @ r, torch.tensor([[3.0, 1.0], [4.0, 2.0]]), atol=1e-6)
    True
    """
    check_flags(some=some)
    _check_factored(input, "qr")
    return named(return_type("qr"), _qr(input, "reduced" if some else "complete"), out, qr)


def _check_phases(function: str, vectors: str, inside: Tensor) -> None:
    """Raises: RuntimeError if a loss depends on the phases of complex vectors, which are arbitrary.

    `inside` is Vᴴ times the gradient of the vectors V.
    """
    if inside.is_complex() and inside._array.__class__ is np.ndarray:
        turns = inside._array.diagonal(0, -2, -1).imag
        if not (np.abs(turns) <= 1e-2).all():
            raise RuntimeError(
                f"{function}_backward: The {vectors} in the complex case are specified up to multiplication by "
                "e^{i phi}. The specified loss function depends on this quantity, so it is ill-defined."
            )


def _svd_gradient(grads, input, U, S, Vh, full, needs):
    """The gradient of the reduced decomposition A = U S Vᴴ, from the gradients of U, S and Vᴴ."""
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
    both: Any = 0
    if g_u is not None:
        inside = both = tn(conj(U), g_u)
        middle = ((inside - adjoint(inside)) / gap) * s_row
        if inside.is_complex():
            turned = (inside.diagonal(0, -2, -1).imag / S) * 1j
            diagonal = turned if diagonal is None else diagonal + turned
    if g_vh is not None:
        inside = nt(Vh, conj(g_vh))
        both = inside + both
        middle = middle + s_column * ((inside - adjoint(inside)) / gap)
    _check_phases("svd", "singular vectors", both)
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


def _svd_tangent(input_t, U, S, Vh):
    """The tangents of U, S and Vᴴ; zeros for the vectors beyond the reduced decomposition."""
    m, n = input_t._array.shape[-2:]
    k = min(m, n)
    u, vh = U[..., :k], Vh[..., :k, :]
    s_row, s_column = S.unsqueeze(-2), S.unsqueeze(-1)
    left, right = tn(conj(u), input_t), nt(input_t, conj(vh))  # Uᴴ t and t V
    inside = matmul(left, adjoint(vh))
    gap = (s_row - s_column) * (s_row + s_column)
    gap = gap + identity(gap)
    on_diagonal = inside.diagonal(0, -2, -1)
    turned_u = _off_diagonal((inside * s_row + s_column * adjoint(inside)) / gap)
    turned_v = _off_diagonal((s_column * inside + adjoint(inside) * s_row) / gap)
    if inside.is_complex():
        turned_u = turned_u + (on_diagonal.imag / S * 1j).diag_embed()
        on_diagonal = on_diagonal.real
    u_t, vh_t = matmul(u, turned_u), matmul(adjoint(turned_v), vh)
    if m > k:
        u_t = u_t + (right - matmul(u, inside)) / s_row
    if n > k:
        vh_t = vh_t + (left - matmul(inside, vh)) / s_column
    if U._array.shape[-1] > k:
        u_t = cat([u_t, U[..., k:] * 0], -1)
    if Vh._array.shape[-2] > k:
        vh_t = cat([vh_t, Vh[..., k:, :] * 0], -2)
    return u_t, on_diagonal, vh_t


def _off_diagonal(x: Tensor) -> Tensor:
    return x - x.diagonal(0, -2, -1).diag_embed()


def _svd_shapes(a, full):
    (m, n), lead = a.shape[-2:], a.shape[:-2]
    k = min(m, n)
    return [
        ((*lead, m, m if full else k), a.dtype),
        ((*lead, k), real_dtype(a.dtype)),
        ((*lead, n if full else k, n), a.dtype),
    ]


_svd = op(
    "svd(input, full: bool)",
    "linalg.svd",
    strides="columns rows columns",
    batch="leading",
    backward=_svd_gradient,
    jvp=_svd_tangent,
    wrt=("input",),
    outputs=("U", "S", "Vh"),
    differentiable_outputs=3,
    shape=_svd_shapes,
    backward_name="LinalgSvdBackward0",
    where=(),
)


def _check_driver(A: Tensor, driver) -> None:
    """Raises: RuntimeError for a choice of algorithm on devices that have only one."""
    if driver is not None and not A.is_cuda:
        raise RuntimeError(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )


def linalg_svd(
    A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out=None
) -> return_types.linalg_svd:
    """Computes the singular value decomposition A = U diag(S) Vh.

    Args:
        A: a stack of matrices (*, m, n).
        full_matrices: whether U is (*, m, m) and Vh (*, n, n); otherwise (*, m, k) and (*, k, n), with k = min(m, n).

    Returns:
        U with orthonormal columns, the singular values S (*, k) in descending order, and Vh with orthonormal rows.
        U and Vh are unique only up to signs (phases).

    Gradients through U and Vh have the factor 1 / (sᵢ² - sⱼ²): they are large where two singular values are close, and
    not finite where two are equal. Those through S alone are accurate; `svdvals` gives it.

    Raises:
        RuntimeError: If A has fewer than two dimensions or an integral dtype.

    >>> A = torch.tensor([[3.0, 0.0], [4.0, 5.0]])
    >>> U, S, Vh = torch.linalg.svd(A)
    >>> S
    tensor([6.7082, 2.2361])
    >>> torch.allclose(U @ torch.diag(S) @ Vh, A, atol=1e-5)
    True
    """
    _check_driver(A, driver)
    _check_factored(A, "svd")
    return named(return_type("linalg_svd"), _svd(A, full_matrices), out, linalg_svd)


@composite()
def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out=None) -> return_types.svd:
    """The older form of `torch.linalg.svd`: returns V instead of Vh, and zeros for U and V unless `compute_uv`.

    `some` omits the columns that only complete a basis, like `full_matrices=False` there.

    >>> U, S, V = torch.svd(torch.tensor([[3.0, 0.0], [4.0, 5.0]]))
    >>> S
    tensor([6.7082, 2.2361])
    """
    check_flags(some=some, compute_uv=compute_uv)
    _check_factored(input, "svd")
    u, s, vh = _svd(input, not some)
    results = (u, s, adjoint(vh))
    if not compute_uv:
        m, n = input._array.shape[-2:]
        lead = input._array.shape[:-2]
        results = (input.new_zeros((*lead, m, m)), s, input.new_zeros((*lead, n, n)))
    return named(return_type("svd"), results, out, svd)


def svdvals(A: Tensor, *, driver: str | None = None, out=None) -> Tensor:
    """Computes the singular values (*, min(m, n)) of matrices (*, m, n), in descending order.

    Raises:
        RuntimeError: If A has fewer than two dimensions or an integral dtype.

    >>> torch.linalg.svdvals(torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    tensor([3., 2.])
    """
    _check_driver(A, driver)
    _check_factored(A, "svd")
    result = _svd(A, False)[1]
    return store_out("svdvals", out, result)


def _eigh_gradient(grads, L, V, needs):
    g_l, g_v = grads[0], grads[1]
    middle: Any = None
    if g_v is not None:
        gap = L.unsqueeze(-2) - L.unsqueeze(-1)
        inside = tn(conj(V), g_v)
        _check_phases("linalg_eigh", "eigenvectors", inside)
        inside = (inside - adjoint(inside)) * 0.5 / (gap + identity(gap))  # only rotations of the vectors count
        middle = inside - inside.diagonal(0, -2, -1).diag_embed()
    if g_l is not None:
        middle = g_l.diag_embed() + (0 if middle is None else middle)
    if middle.dtype is not V.dtype:
        middle = middle.to(V.dtype)
    return [matmul(matmul(V, middle), adjoint(V))]


def _eigh_tangent(input_t, L, V):
    middle = matmul(adjoint(V), matmul(input_t, V))
    gap = L.unsqueeze(-2) - L.unsqueeze(-1)
    turned = middle / (gap + identity(gap))
    on_diagonal = middle.diagonal(0, -2, -1)
    moved = on_diagonal.real if on_diagonal.is_complex() else on_diagonal
    return moved, matmul(V, _off_diagonal(turned))


_eigh = op(
    "eigh(input, uplo: str)",
    "linalg.eigh",
    strides="rows columns",
    batch="leading",
    prepare=square("eigh"),
    backward=_eigh_gradient,
    jvp=_eigh_tangent,
    wrt=("input",),
    outputs=("L", "V"),
    differentiable_outputs=2,
    shape=lambda a, uplo: [(a.shape[:-1], real_dtype(a.dtype)), (a.shape, a.dtype)],
    backward_name="LinalgEighBackward0",
    where=(),
)


def _check_uplo(uplo: str) -> str:
    if not isinstance(uplo, str):
        raise TypeError(f"linalg_eigh(): argument 'UPLO' (position 2) must be str, not {type(uplo).__name__}")
    if uplo.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    return uplo.upper()


def eigh(input: Tensor, UPLO: str = "L", *, out=None) -> return_types.linalg_eigh:
    """Computes the eigenvalues and eigenvectors of Hermitian matrices, of which only one triangle is read.

    Args:
        input: a stack of matrices (*, n, n).
        UPLO: "L" to read the lower triangle, "U" for the upper one.

    Returns:
        The real eigenvalues (*, n) in ascending order, and orthonormal eigenvectors (*, n, n), one in each column and
        unique only up to signs (phases).

    Gradients through the eigenvectors have the factor 1 / (λᵢ - λⱼ): they are large where two eigenvalues are close,
    and not finite where two are equal. Those through the eigenvalues alone are accurate; `eigvalsh` gives them.

    Raises:
        RuntimeError: If the matrices are not square.

    >>> A = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> values, vectors = torch.linalg.eigh(A)
    >>> values
    tensor([1.3820, 3.6180])
    >>> torch.allclose(A @ vectors, vectors * values, atol=1e-5)
    True
    """
    return named(return_type("linalg_eigh"), _eigh(input, _check_uplo(UPLO)), out, eigh)


def eigvalsh(input: Tensor, UPLO: str = "L", *, out=None) -> Tensor:
    """Computes the eigenvalues (*, n) of Hermitian matrices (*, n, n), in ascending order.

    Only the lower (`UPLO` "L") or upper ("U") triangle is read.

    Raises:
        RuntimeError: If the matrices are not square.

    >>> torch.linalg.eigvalsh(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    tensor([-1.,  1.])
    """
    result = _eigh(input, _check_uplo(UPLO))[0]
    return store_out("eigvalsh", out, result)


def _eig_gradient(grads, L, V, needs):
    g_l, g_v = grads[0], grads[1]
    if g_v is None:
        middle = g_l.diag_embed()
    else:
        gap = conj(L.unsqueeze(-2) - L.unsqueeze(-1))
        inside = tn(conj(V), g_v)
        _check_phases("linalg_eig", "eigenvectors", inside)
        along = inside.diagonal(0, -2, -1).real.unsqueeze(-2)
        middle = (inside - tn(conj(V), V) * along) / (gap + identity(gap))
        middle = middle - middle.diagonal(0, -2, -1).diag_embed()
        middle = middle if g_l is None else middle + g_l.diag_embed()
    return [solve_matrices(adjoint(V), matmul(middle, adjoint(V)))]


def _eig_tangent(input_t, L, V):
    middle = solve_matrices(V, matmul(input_t.to(V.dtype), V))
    gap = L.unsqueeze(-2) - L.unsqueeze(-1)
    turned = middle / (gap + identity(gap))
    moved = matmul(V, _off_diagonal(turned))
    longer = (conj(V) * moved).real.sum(-2, True)  # the vectors keep their length
    return middle.diagonal(0, -2, -1), moved - V * longer


_eig = op(
    "eig(input)",
    "linalg.eig",
    strides="rows columns",
    batch="leading",
    prepare=square("eig"),
    backward=_eig_gradient,
    jvp=_eig_tangent,
    wrt=("input",),
    outputs=("L", "V"),
    differentiable_outputs=2,
    shape=lambda a: [
        (a.shape[:-1], dtypes.from_numpy_dtype(a.dtype).to_complex().numpy),
        (a.shape, dtypes.from_numpy_dtype(a.dtype).to_complex().numpy),
    ],
    backward_name="LinalgEigBackward0",
    where=(),
)


def eig(input: Tensor, *, out=None) -> return_types.linalg_eig:
    """Computes the complex eigenvalues (*, n), in no particular order, and eigenvectors (*, n, n) of square matrices.

    The eigenvectors are the columns.

    Gradients through the eigenvectors have the factor 1 / (λᵢ - λⱼ): they are large where two eigenvalues are close,
    and not finite where two are equal.

    Raises:
        RuntimeError: If the matrices are not square, or contain NaN or infinity.

    >>> torch.linalg.eig(torch.tensor([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
    tensor([2.+0.j, 3.+0.j])
    """
    return named(return_type("linalg_eig"), _eig(input), out, eig)


def eigvals(input: Tensor, *, out=None) -> Tensor:
    """Computes the eigenvalues (*, n) of square matrices (*, n, n): complex, in no particular order.

    Raises:
        RuntimeError: If the matrices are not square, or contain NaN or infinity.

    >>> torch.linalg.eigvals(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor([2.+0.j, 3.+0.j])
    """
    kernels.check_square(input._array, "eigvals")
    result = _eig(input)[0]
    return store_out("eigvals", out, result)


def _pinv_gradient(g, input, out):
    """The gradient of P = A⁺: -Pᴴ g Pᴴ + (I - A P) gᴴ P Pᴴ + Pᴴ P gᴴ (I - P A)."""
    p, ph, gh = out, adjoint(out), adjoint(g)
    first = matmul(gh, matmul(p, ph))
    first = first - matmul(input, matmul(p, first))
    second = matmul(matmul(ph, p), gh)
    second = second - matmul(matmul(second, p), input)
    return first + second - matmul(ph, matmul(g, ph))


def _pinv_tangent(input_t, input, out):
    """The tangent of P = A⁺: -P t P + P Pᴴ tᴴ (I - A P) + (I - P A) tᴴ Pᴴ P."""
    p, ph, th = out, adjoint(out), adjoint(input_t)
    first = matmul(matmul(p, ph), th)
    first = first - matmul(matmul(first, input), p)
    second = matmul(th, matmul(ph, p))
    second = second - matmul(p, matmul(input, second))
    return first + second - matmul(p, matmul(input_t, p))


_pinv = op(
    "pinv(input, atol: any, rtol: any, hermitian: bool)",
    "linalg.pinv",
    batch="leading",
    input=_pinv_gradient,
    jvp=_pinv_tangent,
    shape=lambda a, atol, rtol, hermitian: (*a.shape[:-2], a.shape[-1], a.shape[-2]),
    backward_name="LinalgPinvBackward0",
    where=(),
)


def _as_given(name: str, older, atol, rtol) -> tuple:
    """Returns the tolerances as floats or tensors.

    Raises: TypeError unless all are numbers, or all are tensors, and the one of the older name is alone.
    """
    given = [t for t in (older, atol, rtol) if t is not None]
    decide = [t for t in given if not isinstance(t, Tensor) or t._array.ndim]  # a tensor without dimensions fits both
    kinds = {"Tensor" if isinstance(t, Tensor) else "float" if isinstance(t, Real) else typename(t) for t in decide}
    if not (kinds <= {"float"} or kinds == {"Tensor"}) or (older is not None and len(given) > 1):
        raise invalid_combination(name, f"expected all tolerances to be numbers or all tensors, got {sorted(kinds)}")
    return tuple([float(t) if isinstance(t, Real) else t for t in (older, atol, rtol)])


def _tolerances(A: Tensor, atol, rtol):
    """Returns the absolute and the relative tolerance, as numbers or arrays (…, 1); default rtol: max(m, n) · eps."""
    if rtol is None:
        rtol = 0.0 if atol is not None else max(A._array.shape[-2:]) * dtypes.finfo(A.dtype).eps
    atol = 0.0 if atol is None else atol
    return tuple(t.unsqueeze(-1)._array if isinstance(t, Tensor) else t for t in (atol, rtol))


def _pinv_within(input: Tensor, atol, rtol) -> Tensor:
    """The same with other tolerances for each sample of a batch (vmap)."""
    U, S, Vh = _svd(input, False)
    if rtol is None:
        rtol = 0.0 if atol is not None else max(input._array.shape[-2:]) * dtypes.finfo(input.dtype).eps
    largest = S.amax(-1, True)
    bounds = [t.unsqueeze(-1) if isinstance(t, Tensor) else t for t in (0.0 if atol is None else atol, rtol)]
    bound = (largest * bounds[1]).clamp(min=bounds[0])
    reciprocal = (1 / S).masked_fill(~(bound < S), 0).to(input.dtype)
    return matmul(adjoint(Vh), reciprocal.unsqueeze(-1) * adjoint(U))


def pinv(input: Tensor, rcond=None, hermitian: bool = False, *, atol=None, rtol=None, out=None) -> Tensor:
    """Computes the Moore–Penrose pseudo-inverses (*, n, m) of matrices (*, m, n).

    Singular values not above max(atol, rtol · largest) count as zero. `rtol` defaults to max(m, n) times the dtype's
    machine epsilon unless `atol` is given; `rcond` is its older name. With `hermitian`, eigenvalues are used instead of
    singular values.

    To multiply by a pseudo-inverse, use `torch.linalg.lstsq`: it is faster and more accurate.

    Raises:
        RuntimeError: If there are fewer than two dimensions, or the dtype is integral or a 16-bit float.

    >>> torch.linalg.pinv(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    rcond, atol, rtol = _as_given("linalg_pinv", rcond, atol, rtol)
    rtol = rtol if rcond is None else rcond
    array = input._array
    if array.ndim < 2 or array.dtype.kind not in "fc" or array.dtype.itemsize == 2:
        raise RuntimeError(
            f"linalg.pinv({scalar_type(array)}{{{list(array.shape)}}}): expected a tensor with 2 or more dimensions of "
            "float, double, cfloat or cdouble types"
        )
    if hermitian:
        kernels.check_square(array, "eigh")
    if not array.size:
        result = input.transpose(-2, -1).clone()
    elif any(isinstance(t, Tensor) and whole(t) is not t for t in (atol, rtol)):
        result = _pinv_within(input, atol, rtol)
    else:
        result = _pinv(input, *_tolerances(input, atol, rtol), hermitian)
    return store_out("pinv", out, result)


@composite()
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """Alias of `torch.linalg.pinv`.

    >>> torch.pinverse(torch.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    return pinv(input, rtol=rcond)


def matrix_rank(input: Tensor, tol=None, hermitian: bool = False, *, atol=None, rtol=None, out=None) -> Tensor:
    """Counts the singular values of matrices (*, m, n) above max(atol, rtol · largest): an int64 tensor (*,).

    `rtol` defaults to max(m, n) times the dtype's machine epsilon unless `atol` is given; `tol` is an older name of
    `atol`. With `hermitian`, eigenvalues are used instead of singular values.

    Raises:
        RuntimeError: If there are fewer than two dimensions, or the dtype is integral.

    >>> torch.linalg.matrix_rank(torch.ones(3, 3))
    tensor(1)
    """
    tol, atol, rtol = _as_given("linalg_matrix_rank", tol, atol, rtol)
    atol = atol if tol is None else tol
    _check_factored(input, "matrix_rank")
    values = eigvalsh(input.detach()).abs() if hermitian else svdvals(input.detach())
    if not values._array.shape[-1]:
        result = values.sum(-1).to(dtypes.int64)
    else:
        if rtol is None:
            rtol = 0.0 if atol is not None else max(input._array.shape[-2:]) * dtypes.finfo(input.dtype).eps
        limit = values.amax(-1, True) * (rtol.unsqueeze(-1) if isinstance(rtol, Tensor) else rtol)
        if atol is not None:
            floor = atol.unsqueeze(-1) if isinstance(atol, Tensor) else create.full((), atol, dtype=values.dtype)
            limit = limit.maximum(floor.to(limit.device))
        result = (values > limit).sum(-1)
    return store_out("matrix_rank", out, result)


def _check_least_squares(A: Tensor, B: Tensor, driver) -> bool:
    """Returns whether B is a stack of vectors. Raises: RuntimeError if shapes, dtypes or the driver do not fit."""
    a, b = A._array.shape, B._array.shape
    if len(a) < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if not b:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
    _check_factored(A, "lstsq")
    check_same_dtype("lstsq", A, B)
    if not 0 <= len(a) - len(b) <= 1:
        raise RuntimeError(
            "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) "
            f"<= 1, but they are {len(a)} and {len(b)}"
        )
    vector = len(a) > len(b)
    if b[-1 if vector else -2] != a[-2]:
        raise RuntimeError(
            f"torch.linalg.lstsq: input.size(-2) should match other.size({-1 if vector else -2}), but they are {a[-2]} "
            f"and {b[-1 if vector else -2]}"
        )
    matmul_kernels.broadcast_lead(a[:-2], b[:-1] if vector else b[:-2])
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    return vector


def lstsq(input: Tensor, b: Tensor, rcond=None, *, driver: str | None = None, out=None) -> return_types.linalg_lstsq:
    """Solves least-squares problems: X minimizes ‖A X - B‖, for `input` A (*, m, n) and `b` B (*, m, k) or (*, m).

    Also returns residuals, ranks and singular values, where the driver computes them: "gelsy", the default, computes
    the rank; "gels" assumes full rank and computes the residuals (for m > n); "gelsd" and "gelss" compute all three.

    Raises:
        RuntimeError: If shapes, dtypes or the driver do not fit.

    >>> A, B = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0], [3.0], [5.0]])
    >>> torch.linalg.lstsq(A, B).solution  # the line 1 + 2 x
    tensor([[1.0000],
            [2.0000]])
    """
    vector = _check_least_squares(input, b, driver)
    right = b.unsqueeze(-1) if vector else b
    m, n = input._array.shape[-2:]
    if rcond is not None and (rcond < 0 or (driver == "gelsd" and not 0 < rcond < 1)):
        rcond = dtypes.finfo(input.dtype).eps  # as in LAPACK
    found = nt(right.transpose(-2, -1), pinv(input, rtol=rcond))  # column by column, as LAPACK leaves it,
    if m > n:  # which has other numbers below the solution
        found = constant_pad_nd(found, (0, m - n)).narrow(-1, 0, n)
    solution = found.transpose(-2, -1)
    residuals = values = input.new_empty(0, dtype=input.dtype.to_real())
    rank = create.empty(0, dtype=dtypes.int64, device=input.device)
    if driver != "gels":
        rank = matrix_rank(input, rtol=rcond)
    if driver in ("gelsd", "gelss"):
        values = svdvals(input.detach())
    finds_residuals = m > n and driver not in (None, "gelsy")
    if finds_residuals and (driver == "gels" or input.is_meta or bool((whole(rank) == n).all())):
        error = matmul(input, solution) - right
        residuals = (conj(error) * error).sum(-2).real if error.is_complex() else (error * error).sum(-2)
    solution = found.squeeze(-2) if vector else solution
    cls = return_type("linalg_lstsq")
    return named(cls, (solution, residuals, rank, values), out, lstsq)
