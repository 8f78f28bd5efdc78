"""Linear algebra over plain arrays: stacks of matrices through LAPACK, with PyTorch's checks and errors."""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.dtypes import scalar_type
from tensorgrad.kernels.array.lapack import one_by_one


class LinAlgError(RuntimeError):
    """Raised for a matrix that an algorithm cannot handle: singular, not positive-definite, or without convergence.

    >>> torch.linalg.inv(torch.zeros(2, 2))
    Traceback (most recent call last):
        ...
    tensorgrad.kernels.array.linalg.LinAlgError: linalg.inv: The diagonal element 1 is zero, the inversion ...
    """


# --- checks --------------------------------------------------------------------------------------------------------


# The routine that PyTorch reports as missing for a dtype, by function; others have messages of their own.
ROUTINES = {
    "cholesky": "cholesky", "cholesky_inverse": "cholesky_inverse_out", "det": "lu", "eig": "linalg_eig_out",
    "eigh": "linalg_eigh", "eigvals": "linalg_eig_out", "ldl_factor_ex": "ldl_factor_kernel",
    "ldl_solve": "ldl_solve_kernel", "lu_solve": "linalg.lu_solve", "qr": "geqrf", "solve": "lu",
    "solve_triangular": "triangular_solve", "svd": "linalg_svd",
}  # fmt: skip
INTEGERS_REACH_IT = {"eigh", "solve_triangular"}


def check_floating(x, name: str) -> None:
    """Raises: RuntimeError (or its subclass NotImplementedError) for integers and 16-bit floats."""
    if x.dtype.kind in "fc" and x.dtype.itemsize > 2:
        return
    is_integer = x.dtype.kind in "biu"
    if name in (INTEGERS_REACH_IT if is_integer else ROUTINES):
        raise NotImplementedError(f"\"{ROUTINES[name]}_cpu\" not implemented for '{scalar_type(x)}'")
    if is_integer:
        raise RuntimeError(f"linalg.{name}: Expected a floating point or complex tensor as input. Got {scalar_type(x)}")
    raise RuntimeError(f"linalg.{name}: Low precision dtypes not supported. Got {scalar_type(x)}")


def check_matrices(x, name: str, argument: str = "A") -> None:
    """Raises: RuntimeError if there are fewer than two dimensions."""
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


# --- what is not finite ----------------------------------------------------------------------------------------------
#
# LAPACK's iterations may never end if there is an infinity among the numbers, and Python cannot interrupt them: its
# routines for singular values and eigenvalues are given finite numbers only. Its eliminations end, but may lose a nan.


def _of_finite(xp, a, routine):
    """Calls a routine with a stack of matrices. The results of those with nan or infinity are nan."""
    finite = xp.isfinite(a)
    if finite.all():
        return routine(a)
    finite = finite.all((-2, -1))
    made = routine(xp.where(finite[..., None, None], a, a.dtype.type(0)))
    whole = isinstance(made, tuple)
    made = [
        xp.where(finite.reshape(finite.shape + (1,) * (r.ndim - finite.ndim)), r, r.dtype.type(math.nan))
        for r in (made if whole else (made,))
    ]
    return tuple(made) if whole else made[0]


def _as_eliminated(xp, a):
    """Returns matrices with infinities transposed: NumPy eliminates their rows, PyTorch their columns.

    For finite numbers this makes no difference to a determinant.
    """
    return a if xp.isfinite(a).all() else a.swapaxes(-1, -2)


def keep_nan(xp, a, made, numbers: bool = False):
    """Returns the matrices (or `numbers`) computed from a stack of matrices, with nan for each that has one."""
    missing = xp.isnan(a)
    if not missing.any():
        return made
    missing = missing.any((-2, -1))
    return xp.where(missing if numbers else missing[..., None, None], made.dtype.type(math.nan), made)


# --- kernels -------------------------------------------------------------------------------------------------------


def det(xp, a):
    """The determinants of a stack of matrices."""
    with np.errstate(all="ignore"):
        return xp.asarray(keep_nan(xp, a, xp.asarray(xp.linalg.det(_as_eliminated(xp, a))), True)).astype(
            a.dtype, copy=False
        )


def slogdet(xp, a):
    """The signs (unit complex numbers) and the logarithms of the absolute values of determinants."""
    with np.errstate(all="ignore"):
        sign, log = xp.linalg.slogdet(_as_eliminated(xp, a))
    log = keep_nan(xp, a, xp.asarray(log), True)
    if a.dtype.kind != "c":
        sign = xp.where(xp.isnan(log), 0, sign)  # neither positive nor negative
    real = np.dtype(f"f{a.dtype.itemsize // (2 if a.dtype.kind == 'c' else 1)}")
    return xp.asarray(sign).astype(a.dtype, copy=False), xp.asarray(log).astype(real, copy=False)


def solve_triangular(xp, a, b, upper: bool, unitriangular: bool):
    """Solves `a X = b` using only one triangle of `a` (with a diagonal of ones if `unitriangular`)."""
    lead, n = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-1]
    out = xp.array(xp.broadcast_to(b, lead + b.shape[-2:]), order="C")
    trsm = one_by_one(xp, "trsm", a.dtype, math.prod(lead), n)
    if trsm is not None and out.size:
        a = xp.broadcast_to(a, lead + a.shape[-2:])
        for i in np.ndindex(*lead):  # the transposed equation, with X on the left: the routine takes rows as columns
            out[i] = trsm(1.0, a[i].T, out[i].T, side=1, lower=upper, diag=unitriangular).T
        return out
    triangle = xp.triu(a) if upper else xp.tril(a)
    if unitriangular:
        triangle[..., xp.arange(n), xp.arange(n)] = 1
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
    """Computes the triangular factors of positive-definite matrices, and where they fail.

    That is for each matrix the order of the first leading minor that is not positive-definite (0 if all are), where its
    factor ends.
    """
    source = xp.triu(a).conj().swapaxes(-1, -2) if upper else a
    info = xp.zeros(a.shape[:-2], np.int32)
    out = _cholesky(xp, source)
    if out is None:
        out = xp.tril(source)
        for i in np.ndindex(*info.shape):
            whole = _cholesky(xp, source[i])
            if whole is None:
                info[i] = _cholesky_columns(xp, out[i])
            else:
                out[i] = whole
    return xp.ascontiguousarray(out.conj().swapaxes(-1, -2)) if upper else out, info


def _cholesky(xp, a):
    """Returns the factors, or None if a matrix has none."""
    try:
        out = xp.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return None
    return out if xp.isfinite(xp.diagonal(out, 0, -2, -1)).all() else None


def _cholesky_columns(xp, a) -> int:
    """Factors one matrix in place, given its lower triangle, as far as possible; returns where it ends."""
    with np.errstate(all="ignore"):
        for j in range(len(a)):
            row = a[j, :j]
            square = a[j, j].real - (row * row.conj()).real.sum()
            a[j, j] = xp.sqrt(square) if square > 0 else square
            if not square > 0:
                return j + 1
            a[j + 1 :, j] = (a[j + 1 :, j] - xp.matmul(a[j + 1 :, :j], row.conj())) / a[j, j]
            if square == np.inf:
                a[j + 1 :, j] = np.nan  # not 0: then what follows would seem to be positive-definite
    return 0


def qr(xp, a, mode: str):
    """Q and R of the QR decomposition; Q is empty for mode "r"."""
    if mode == "r":
        return xp.empty(0, a.dtype), xp.linalg.qr(a, "r")
    q, r = xp.linalg.qr(a, mode)
    return xp.ascontiguousarray(q), xp.ascontiguousarray(r)


def geqrf(xp, a):
    """Returns R and the Householder vectors of the QR decomposition in LAPACK's packed form, and their factors."""
    packed, tau = xp.linalg.qr(a, "raw")
    return xp.ascontiguousarray(packed.swapaxes(-1, -2)), xp.ascontiguousarray(tau)


def _converged(name: str, values: str):
    """For iterative kernels: if one fails, raises an error that says which matrix failed and why."""

    def decorator(kernel):
        def run(xp, a, *rest):
            try:
                with np.errstate(all="ignore"):
                    return kernel(xp, a, *rest)
            except np.linalg.LinAlgError:
                missing = xp.isnan(a)
                bad = (missing if missing.any() else ~xp.isfinite(a)).any((-2, -1))
                where = f"(Batch element {int(bad.reshape(-1).argmax())}): " if a.ndim > 2 and bad.any() else ""
                why = f"is ill-conditioned or has too many repeated {values}"
                if bad.any() and name == "svd":
                    why = "contained non-finite values"
                raise LinAlgError(
                    f"linalg.{name}: {where}The algorithm failed to converge because the input matrix {why}."
                ) from None

        return run

    return decorator


@_converged("svd", "singular values")
def svd(xp, a, full: bool):
    """U, the singular values, and Vᴴ; all nan for a matrix with an infinity. Raises: LinAlgError for nan."""
    if xp.isnan(a).any():
        raise np.linalg.LinAlgError
    u, s, vh = _of_finite(xp, a, lambda a: xp.linalg.svd(a, full))
    return xp.ascontiguousarray(u), s, xp.ascontiguousarray(vh)


@_converged("eigh", "eigenvalues")
def eigh(xp, a, uplo: str):
    """Eigenvalues (real, ascending) and eigenvectors of Hermitian matrices, of which one triangle is read.

    Both are nan if there is an infinity on the diagonal. Raises: LinAlgError for nan, or infinity elsewhere.
    """
    finite = xp.isfinite(a)
    if finite.all():
        values, vectors = xp.linalg.eigh(a, uplo)
        return values, xp.ascontiguousarray(vectors)
    if a.shape[-1] == 1:
        return a.real[..., 0], xp.ones_like(a)
    a = xp.tril(a) if uplo == "L" else xp.triu(a)
    diagonal = xp.diagonal(a, 0, -2, -1)
    if xp.isnan(a).any() or xp.isinf(a).sum() > xp.isinf(diagonal).sum():
        raise np.linalg.LinAlgError
    return _of_finite(xp, a, lambda a: xp.linalg.eigh(a, uplo))


@_converged("eig", "eigenvalues")
def eig(xp, a):
    """Eigenvalues and eigenvectors of square matrices, always complex. Raises: RuntimeError for nan and infinity."""
    if not xp.isfinite(a).all():
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    values, vectors = xp.linalg.eig(a)
    kind = np.dtype("complex64" if a.dtype.name in ("float32", "complex64") else "complex128")
    return values.astype(kind, copy=False), xp.ascontiguousarray(vectors).astype(kind, copy=False)


def adjugate(xp, a):
    """The transposed matrices of cofactors: det(a) · a⁻¹, also if `a` is singular.

    Source: from the singular value decomposition, adj(a) = det(U Vᴴ) · V diag(Π of the other values) Uᴴ.
    """
    if a.shape[-1] == 1:
        return xp.ones_like(a)
    u, s, vh = _of_finite(xp, a, xp.linalg.svd)
    n = s.shape[-1]
    others = xp.stack([xp.prod(xp.delete(s, i, -1), -1) for i in range(n)], -1) if n else s
    phase = (det(xp, u) * det(xp, vh))[..., None, None]
    with np.errstate(all="ignore"):
        made = xp.matmul(vh.conj().swapaxes(-1, -2) * others[..., None, :], u.conj().swapaxes(-1, -2)) * phase
    return made.astype(a.dtype, copy=False)


def pinv(xp, a, atol, rtol, hermitian: bool):
    """The pseudo-inverse: singular values (or absolute eigenvalues) not above max(atol, rtol · largest) count as 0."""
    if hermitian:
        values, vectors = eigh(xp, a, "L")
        size = xp.abs(values)
        left, right = vectors, vectors.conj().swapaxes(-1, -2)
    else:
        u, values, vh = svd(xp, a, False)
        size, left, right = values, vh.conj().swapaxes(-1, -2), u.conj().swapaxes(-1, -2)
    largest = size.max(-1, keepdims=True) if size.shape[-1] else size
    with np.errstate(all="ignore"):
        keep = size > xp.maximum(atol, rtol * largest)
        inverse = xp.where(keep, 1 / xp.where(keep, values, 1), 0).astype(values.dtype)
        return xp.matmul(left * inverse[..., None, :], right)


__all__ = ["LinAlgError"]
