"""Extreme eigenpairs of a Hermitian matrix by block iteration: LOBPCG, for one matrix over plain arrays.

Source: A. Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate
gradient method", 2001; A. Stathopoulos, K. Wu, "A block orthogonalization procedure with constant synchronization
requirements", 2002, for the orthogonal basis.
"""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.array.linalg import LinAlgError


def lobpcg(xp, a, b, preconditioner, x, k: int, niter: int, tol: float, largest: bool, orthogonal: bool, watch):
    """Finds the `k` largest (or smallest) eigenvalues of A x = λ B x, best first, and their vectors (m, k), Xᴴ B X = I.

    `x` (m, n), n ≥ k, are the initial vectors; `b` (default: the identity) and `preconditioner` may be None. A pair has
    converged when ‖A x - λ B x‖ < tol · ‖x‖ (‖A‖ + |λ| ‖B‖). `watch`, if given, is called after every step with its
    number, how many pairs have converged, the values, vectors, residuals and their norms, and the basis; it stops the
    iteration by returning True. `niter` < 0 sets no limit.

    Raises: LinAlgError for nan and infinity, or if, without `orthogonal`, the basis has become dependent.
    """
    n = x.shape[-1]
    if not all(xp.isfinite(m).all() for m in (a, b, x) if m is not None):
        raise LinAlgError(
            "linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
            "repeated eigenvalues."
        )
    size = xp.linalg.norm(x)
    a_norm = xp.linalg.norm(xp.matmul(a, x)) / size
    b_norm = 1.0 if b is None else xp.linalg.norm(xp.matmul(b, x)) / size
    search, step = xp.empty((len(a), 0), a.dtype), 0
    basis = x
    while True:
        values, rotated = _rayleigh_ritz(xp, a, b, basis, n, largest, orthogonal or step == 0)
        if step:
            search = rotated - xp.matmul(x, _inner(xp, x, rotated, b))  # the new part of the vectors
        x = rotated
        residual = xp.matmul(a, x) - _times(xp, b, x) * values
        scale = xp.linalg.norm(x, axis=0) * (a_norm + b_norm * xp.abs(values))
        error = xp.linalg.norm(residual, axis=0) / xp.where(scale > 0, scale, 1)
        converged = int(xp.cumprod(error[:k] < tol).sum())
        stop = step and watch is not None and watch(step, converged, values, x, residual, error, basis)
        if stop or converged >= k or step == niter:
            return values[:k], xp.ascontiguousarray(x[:, :k])
        step += 1
        fresh = residual if preconditioner is None else xp.matmul(preconditioner, residual)
        basis = xp.concatenate([x, search, fresh], -1)


def _times(xp, b, x):
    return x if b is None else xp.matmul(b, x)


def _inner(xp, x, y, b):
    """Xᴴ B Y."""
    return xp.matmul(x.conj().T, _times(xp, b, y))


def _rayleigh_ritz(xp, a, b, basis, n: int, largest: bool, orthogonal: bool):
    """Returns the best `n` approximate eigenpairs in the span of a basis."""
    if orthogonal:
        basis = _orthonormal(xp, basis, b)
    else:
        basis = basis / _lengths(xp, basis, b)
        try:
            factor = xp.linalg.cholesky(_inner(xp, basis, basis, b))
        except np.linalg.LinAlgError:
            raise LinAlgError(
                'torch.lobpcg: the basis has become dependent, which method="basic" cannot handle (use "ortho")'
            ) from None
        basis = xp.linalg.solve(factor.conj(), basis.T).T
    inner = _inner(xp, basis, xp.matmul(a, basis), None)
    values, vectors = xp.linalg.eigh((inner + inner.conj().T) / 2)
    order = slice(None, -n - 1, -1) if largest else slice(0, n)
    return values[order], xp.matmul(basis, vectors[:, order])


def _lengths(xp, x, b):
    lengths = xp.sqrt(xp.abs((x.conj() * _times(xp, b, x)).sum(0)))
    return xp.where(lengths > 0, lengths, 1)


def _orthonormal(xp, x, b):
    """Returns columns with Xᴴ B X = I and the same span, without those that add nothing to it.

    Uses singular vectors of the Gram matrix, twice, since the first pass leaves an error of the size of its condition.
    """
    for _ in range(2):
        x = x / _lengths(xp, x, b)
        values, vectors = xp.linalg.eigh(_inner(xp, x, x, b))
        keep = values > values[-1] * len(values) * np.finfo(x.dtype).eps
        x = xp.matmul(x, vectors[:, keep] / xp.sqrt(values[keep]))
    return x
