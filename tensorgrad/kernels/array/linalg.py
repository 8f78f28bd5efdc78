"""Linear algebra over plain arrays: stacks of matrices through LAPACK, with PyTorch's checks and errors."""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.array.matmul import NAMES, spoken


class LinAlgError(RuntimeError):
    """A matrix that an algorithm cannot work on: singular, not positive-definite, or without convergence."""


# --- checks --------------------------------------------------------------------------------------------------------


def check_floating(x, name: str, low_precision: bool = False) -> None:
    """Raises: RuntimeError for integers and 16-bit floats."""
    if x.dtype.kind in "biu":
        raise RuntimeError(f"linalg.{name}: Expected a floating point or complex tensor as input. Got {spoken(x)}")
    if x.dtype.itemsize == 2:
        raise RuntimeError(f"linalg.{name}: Low precision dtypes not supported. Got {spoken(x)}")


def check_matrices(x, name: str, argument: str = "A") -> None:
    """Raises: RuntimeError for fewer than two dimensions."""
    if x.ndim < 2:
        raise RuntimeError(f"linalg.{name}: The input tensor {argument} must have at least 2 dimensions.")


def check_square(x, name: str) -> None:
    """Raises: RuntimeError unless `x` is a stack of square matrices of floats."""
    check_matrices(x, name)
    if x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"linalg.{name}: A must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices"
        )
    check_floating(x, name)


def zero_pivot(matrix) -> int:
    """The first pivot (counted from 1) of an LU decomposition that is exactly zero; 0 if none is."""
    u = np.array(matrix)
    n = len(u)
    with np.errstate(all="ignore"):
        for k in range(n):
            best = k + int(np.argmax(np.abs(u[k:, k])))
            if u[best, k] == 0:
                return k + 1
            u[[k, best]] = u[[best, k]]
            u[k + 1 :] -= np.outer(u[k + 1 :, k] / u[k, k], u[k])
    return 0


def _first_bad(matrices, failed):
    """The number in the stack, and the finding, of the first matrix for which `failed` (an int) is not 0."""
    for i, matrix in enumerate(matrices.reshape(-1, *matrices.shape[-2:])):
        found = failed(matrix)
        if found:
            return i, found
    return 0, matrices.shape[-1]


def _batch(x, i: int) -> str:
    return f"(Batch element {i}): " if x.ndim > 2 else ""


# --- kernels -------------------------------------------------------------------------------------------------------


def det(xp, a):
    """The determinants of a stack of matrices."""
    with np.errstate(all="ignore"):
        return xp.asarray(xp.linalg.det(a)).astype(a.dtype, copy=False)


def slogdet(xp, a):
    """The signs (unit complex numbers) and logarithms of the sizes of determinants."""
    with np.errstate(all="ignore"):
        sign, log = xp.linalg.slogdet(a)
    real = np.dtype(f"f{a.dtype.itemsize // (2 if a.dtype.kind == 'c' else 1)}")
    return xp.asarray(sign).astype(a.dtype, copy=False), xp.asarray(log).astype(real, copy=False)


def inv(xp, a):
    """The inverses of a stack of matrices. Raises: LinAlgError for a singular one."""
    try:
        with np.errstate(all="ignore"):
            return xp.linalg.inv(a)
    except np.linalg.LinAlgError:
        i, k = _first_bad(a, zero_pivot)
        raise LinAlgError(
            f"linalg.inv: {_batch(a, i)}The diagonal element {k} is zero, the inversion could not be completed because "
            "the input matrix is singular."
        ) from None


def solve(xp, a, b):
    """X of `a X = b` for stacks of matrices (never of vectors). Raises: LinAlgError for a singular `a`."""
    try:
        with np.errstate(all="ignore"):
            return xp.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        i, _ = _first_bad(a, zero_pivot)
        raise LinAlgError(
            f"torch.linalg.solve: {_batch(a, i)}The solver failed because the input matrix is singular."
        ) from None


def solve_triangular(xp, a, b, upper: bool, unitriangular: bool):
    """X of `a X = b` where only one triangle of `a` counts (and its diagonal counts as ones if `unitriangular`)."""
    triangle = xp.triu(a) if upper else xp.tril(a)
    if unitriangular:
        n = a.shape[-1]
        triangle[..., range(n), range(n)] = 1
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = xp.array(xp.broadcast_to(b, lead + b.shape[-2:]))
    with np.errstate(all="ignore"):
        _substitute(xp, xp.broadcast_to(triangle, lead + a.shape[-2:]), out, upper)
    return out


SMALL = 32  # rows that are solved one by one; more are split, so that most of the work is matrix products


def _substitute(xp, a, b, upper: bool) -> None:
    """Solves a triangular system in place in `b`."""
    n = a.shape[-1]
    if n > SMALL:
        half = n // 2
        first, second = (slice(half, n), slice(0, half)) if upper else (slice(0, half), slice(half, n))
        _substitute(xp, a[..., first, first], b[..., first, :], upper)
        b[..., second, :] -= xp.matmul(a[..., second, first], b[..., first, :])
        _substitute(xp, a[..., second, second], b[..., second, :], upper)
        return
    for k in reversed(range(n)) if upper else range(n):
        known = slice(k + 1, n) if upper else slice(0, k)
        if known.stop > known.start:
            b[..., k, :] -= xp.matmul(a[..., k : k + 1, known], b[..., known, :])[..., 0, :]
        b[..., k, :] /= a[..., k, k, None]


def cholesky(xp, a, upper: bool):
    """The triangular factor of positive-definite matrices. Raises: LinAlgError for others."""
    source = xp.triu(a).conj().swapaxes(-1, -2) if upper else a
    try:
        out = xp.linalg.cholesky(source)
    except np.linalg.LinAlgError:
        i, k = _first_bad(source, _bad_minor)
        raise LinAlgError(
            f"linalg.cholesky: {_batch(a, i)}The factorization could not be completed because the input is not "
            f"positive-definite (the leading minor of order {k} is not positive-definite)."
        ) from None
    return xp.ascontiguousarray(out.conj().swapaxes(-1, -2)) if upper else out


def _bad_minor(matrix) -> int:
    """The order of the first leading minor that is not positive-definite; 0 if all are."""
    for k in range(1, len(matrix) + 1):
        try:
            np.linalg.cholesky(matrix[:k, :k])
        except np.linalg.LinAlgError:
            return k
    return 0


def qr(xp, a, mode: str):
    """Q and R of the QR decomposition; Q is empty for mode "r"."""
    if mode == "r":
        return xp.empty(0, a.dtype), xp.linalg.qr(a, "r")
    q, r = xp.linalg.qr(a, mode)
    return xp.ascontiguousarray(q), xp.ascontiguousarray(r)


def _converged(name: str):
    def decorator(kernel):
        def run(xp, a, *rest):
            try:
                with np.errstate(all="ignore"):
                    return kernel(xp, a, *rest)
            except np.linalg.LinAlgError as error:
                raise LinAlgError(f"linalg.{name}: The algorithm failed to converge: {error}") from None

        return run

    return decorator


@_converged("svd")
def svd(xp, a, full: bool):
    """U, the singular values, and Vᴴ."""
    u, s, vh = xp.linalg.svd(a, full)
    return xp.ascontiguousarray(u), s, xp.ascontiguousarray(vh)


@_converged("eigh")
def eigh(xp, a, uplo: str):
    """Eigenvalues (real, ascending) and eigenvectors of Hermitian matrices, of which one triangle is read."""
    values, vectors = xp.linalg.eigh(a, uplo)
    return values, xp.ascontiguousarray(vectors)


@_converged("eig")
def eig(xp, a):
    """Eigenvalues and eigenvectors of square matrices, always complex."""
    values, vectors = xp.linalg.eig(a)
    kind = np.dtype("complex64" if a.dtype.name in ("float32", "complex64") else "complex128")
    return values.astype(kind, copy=False), xp.ascontiguousarray(vectors).astype(kind, copy=False)


def adjugate(xp, a):
    """The matrices of cofactors, transposed: det(a) · a⁻¹, also where `a` is singular.

    Source: from the singular value decomposition, adj(a) = det(U Vᴴ) · V diag(Π of the other values) Uᴴ.
    """
    u, s, vh = xp.linalg.svd(a)
    n = s.shape[-1]
    others = xp.stack([xp.prod(xp.delete(s, i, -1), -1) for i in range(n)], -1) if n else s
    phase = (xp.linalg.det(u) * xp.linalg.det(vh))[..., None, None]
    with np.errstate(all="ignore"):
        made = xp.matmul(vh.conj().swapaxes(-1, -2) * others[..., None, :], u.conj().swapaxes(-1, -2)) * phase
    return made.astype(a.dtype, copy=False)


def pinv(xp, a, atol, rtol, hermitian: bool):
    """The pseudo-inverse: singular values (or sizes of eigenvalues) not above max(atol, rtol · largest) count as 0."""
    if hermitian:
        values, vectors = xp.linalg.eigh(a)
        size = xp.abs(values)
        left, right = vectors, vectors.conj().swapaxes(-1, -2)
    else:
        u, values, vh = xp.linalg.svd(a, False)
        size, left, right = values, vh.conj().swapaxes(-1, -2), u.conj().swapaxes(-1, -2)
    largest = size.max(-1, keepdims=True) if size.shape[-1] else size
    keep = size > xp.maximum(atol, rtol * largest)
    with np.errstate(all="ignore"):
        inverse = xp.where(keep, 1 / xp.where(keep, values, 1), 0).astype(values.dtype)
    return xp.matmul(left * inverse[..., None, :], right)


__all__ = ["NAMES", "LinAlgError"]
