"""Low-rank approximations by random projection.

Source: N. Halko, P.-G. Martinsson, J. Tropp, "Finding structure with randomness: probabilistic algorithms for
constructing approximate matrix decompositions", 2009: algorithms 4.4 (subspace iteration) and 5.1.
"""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite
from tensorgrad.ops.linalg.decompose import linalg_qr, linalg_svd
from tensorgrad.ops.linalg.linalg import adjoint
from tensorgrad.ops.linalg.matmul import matmul
from tensorgrad.ops.random.sample import randn
from tensorgrad.tensor import Tensor


def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """Returns orthonormal columns (*, m, q) that approximately span the image of random vectors under A."""
    start = randn(A._array.shape[-1], q, dtype=A.dtype, device=A.device)
    Q = linalg_qr(matmul(A, start))[0]
    back = adjoint(A)
    for _ in range(niter):
        Q = linalg_qr(matmul(back, Q))[0]
        Q = linalg_qr(matmul(A, Q))[0]
    return Q


@composite("function")
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Approximates A (*, m, n), of a rank not much above q, as U diag(S) Vᴴ: U (*, m, q), S (*, q) and V (*, n, q).

    `niter` subspace iterations improve the approximation; with `M`, which broadcasts to A, A - M is decomposed instead.
    The result depends on the seed.

    Raises:
        ValueError: If A has fewer than two dimensions.

    >>> A = torch.tensor([[1.0], [2.0], [3.0]]) @ torch.ones(1, 4)  # rank 1
    >>> U, S, V = torch.svd_lowrank(A, q=2)
    >>> torch.allclose(U @ S.diag() @ V.mT, A, atol=1e-5)
    True
    """
    m, n = _shape("svd_lowrank", A)
    A = A if M is None else A - M
    wide = m < n
    A = adjoint(A) if wide else A  # so that the random vectors are the shorter ones
    Q = _basis(A, 6 if q is None else q, 2 if niter is None else niter)
    U, S, Vh = linalg_svd(matmul(adjoint(Q), A), False)
    U, V = matmul(Q, U), adjoint(Vh)
    return (V, S, U) if wide else (U, S, V)


def _shape(name: str, A: Tensor) -> tuple[int, int]:
    shape = A._array.shape
    if len(shape) < 2:
        raise ValueError(f"torch.{name}: A must have at least 2 dimensions, got shape {list(shape)}")
    return shape[-2], shape[-1]


@composite("function")
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2):
    """Applies `torch.svd_lowrank` to A (*, m, n), after subtracting the mean of its rows if `center`.

    The columns of V are principal directions, and S² / (m - 1) the variances along them. q is min(6, m, n) by default.

    Raises:
        ValueError: If q is outside 0 .. min(m, n), or `niter` is negative.

    >>> points = torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])
    >>> U, S, V = torch.pca_lowrank(points, q=1)
    >>> (S**2 / 2).round()
    tensor([5.])
    """
    m, n = _shape("pca_lowrank", A)
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if A.dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"torch.pca_lowrank: expected a floating point or complex tensor, got {A.dtype}")
    return svd_lowrank(A, q, niter, A.mean(-2, True) if center else None)
