"""LDL decompositions of stacks of symmetric or Hermitian matrices, by Bunch and Kaufman, in LAPACK's packed form.

A = P L D Lᵀ Pᵀ (Lᴴ for Hermitian matrices) with ones on the diagonal of L and blocks of one or two rows along that of
D. One array holds L's lower triangle and D. `pivots` counts rows from 1: p > 0 stands for a block of one row, swapped
with row p; -p twice for a block of two rows, the second of which was swapped with row p.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.kernels.array.lapack import routine
from tensorgrad.kernels.array.linalg import solve_triangular
from tensorgrad.kernels.array.lu import inv, magnitude

ALPHA = (1 + math.sqrt(17)) / 8  # a step with a block of two rows grows like two steps with one


def mirrored(xp, x, hermitian: bool):
    """The transpose, conjugated for Hermitian matrices."""
    x = x.swapaxes(-1, -2)
    return x.conj() if hermitian else x


def ldl_factor(xp, a, hermitian: bool):
    """Returns the packed L and D, the pivots, and the first zero block of D per matrix (from 1; 0 if none).

    Only the lower triangle of `a` is read. The rows to swap differ between matrices, so there is a loop.
    """
    lead, n = a.shape[:-2], a.shape[-1]
    count, hermitian = math.prod(lead), hermitian and a.dtype.kind == "c"
    packed = xp.tril(a).reshape(count, n, n)
    pivots, info = xp.empty((count, n), np.int32), xp.zeros(count, np.int32)
    if packed.size:
        name = "hetrf" if hermitian else "sytrf"
        factor = routine(name, a.dtype) if xp is np and np.isfinite(packed).all() else None
        with np.errstate(all="ignore"):
            if factor is None:
                for i in range(count):
                    info[i] = _bunch_kaufman(xp, packed[i], pivots[i], hermitian)
            else:
                work = int(routine(f"{name}_lwork", a.dtype)(n, lower=True)[0].real)
                for i in range(count):
                    packed[i], pivots[i], info[i] = factor(packed[i], lower=True, lwork=work)
    return packed.reshape(a.shape), pivots.reshape(*lead, n), info.reshape(lead)


def _bunch_kaufman(xp, a, pivots, hermitian: bool) -> int:
    """Factors one matrix in place, given its lower triangle; returns the first zero block (from 1; or 0).

    Source: J. Bunch, L. Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems",
    1977, algorithm A; G. Golub, C. Van Loan, "Matrix Computations", 4.4.4.
    """
    n, k, bad = len(a), 0, 0
    a[...] = _whole(xp, a, hermitian)
    while k < n:
        size, other = _choose_block(xp, a, k)
        last = k + size - 1
        if other != last:
            rest = a[k:, k:]
            i, j = last - k, other - k
            rest[[i, j]] = rest[[j, i]]
            rest[:, [i, j]] = rest[:, [j, i]]
        pivots[k : k + size] = other + 1 if size == 1 else -(other + 1)
        block = a[k : k + size, k : k + size]
        if size == 1 and block[0, 0] == 0:
            bad = bad or k + 1
        else:
            columns = a[k + size :, k : k + size].copy()
            lower = columns / block[0, 0] if size == 1 else xp.matmul(columns, inv(xp, block)[0])
            a[k + size :, k : k + size] = lower
            rest = xp.tril(a[k + size :, k + size :] - xp.matmul(lower, mirrored(xp, columns, hermitian)))
            a[k + size :, k + size :] = _whole(xp, rest, hermitian)
        k += size
    a[...] = xp.tril(a)
    return bad


def _whole(xp, lower, hermitian: bool):
    """Returns the full matrix of a lower triangle, rebuilt in every step so that rounding keeps it symmetric."""
    diagonal = xp.diagonal(lower).real if hermitian else xp.diagonal(lower)
    below = xp.tril(lower, -1)
    return below + mirrored(xp, below, hermitian) + xp.diag(diagonal)


def _choose_block(xp, a, k: int) -> tuple[int, int]:
    """Returns how many rows (1 or 2) the block at `k` has, and which row is swapped with its last."""
    first = magnitude(xp, a[k, k])
    below = magnitude(xp, a[k + 1 :, k])
    if not below.size or not below.max() > 0:
        return 1, k
    other = k + 1 + int(below.argmax())
    largest = below.max()
    if first >= ALPHA * largest:
        return 1, k
    row = magnitude(xp, a[other, k:])
    diagonal, row[other - k] = row[other - k], 0
    if first >= ALPHA * largest * (largest / row.max()):
        return 1, k
    return (1, other) if diagonal >= ALPHA * row.max() else (2, other)


def ldl_solve(xp, packed, pivots, b, hermitian: bool):
    """Solves A X = B from the decomposition of A."""
    hermitian = hermitian and packed.dtype.kind == "c"
    lead, n = np.broadcast_shapes(packed.shape[:-2], b.shape[:-2]), packed.shape[-1]
    lower, first, order = _unpacked(xp, packed, pivots)
    order = xp.broadcast_to(order, (*lead, n))[..., None]
    x = xp.take_along_axis(xp.broadcast_to(b, (*lead, *b.shape[-2:])), order, -2)
    with np.errstate(all="ignore"):
        x = solve_triangular(xp, lower, x, False, True)
        x = _solve_blocks(xp, packed, first[..., None], x, hermitian)
        x = solve_triangular(xp, mirrored(xp, lower, hermitian), x, True, True)
    return xp.take_along_axis(x, order.argsort(-2), -2)


def _unpacked(xp, packed, pivots):
    """Returns L without D, whether a block of two rows begins in each row, and the order of rows that P represents.

    LAPACK does not swap rows of eliminated columns; here L is one triangle, so they are swapped as well.
    """
    n, count = packed.shape[-1], math.prod(packed.shape[:-2])
    lower = xp.tril(packed, -1).reshape(count, n, n)
    pivots = pivots.reshape(count, n)
    first = xp.zeros((count, n + 1), bool)
    order = xp.tile(xp.arange(n), (count, 1))
    each = xp.arange(count)
    for j in range(n):
        second = first[:, j - 1]
        first[:, j] = (pivots[:, j] < 0) & ~second
        row = j + first[:, j]
        other = xp.where(second, row, xp.abs(pivots[:, j]) - 1)
        for x in (lower[..., :j], order):
            x[each, row], x[each, other] = x[each, other], x[each, row]
    first = first[:, :n]
    if n > 1:
        lower[:, range(1, n), range(n - 1)] *= ~first[:, :-1]
    return lower.reshape(packed.shape), first.reshape(packed.shape[:-1]), order.reshape(packed.shape[:-1])


def _solve_blocks(xp, packed, first, y, hermitian: bool):
    """Solves D X = Y, for single rows and for pairs of rows [[a, ē], [e, b]]."""
    n = packed.shape[-1]
    diagonal = packed[..., range(n), range(n), None]
    alone = y / diagonal
    if n < 2:
        return alone
    first = first[..., :-1, :]
    e = xp.where(first, packed[..., range(1, n), range(n - 1), None], 1)
    above = e.conj() if hermitian else e
    a, b = diagonal[..., :-1, :] / above, diagonal[..., 1:, :] / e  # the equations, divided by a large pivot
    u, v = y[..., :-1, :] / above, y[..., 1:, :] / e
    alone[..., :-1, :] = xp.where(first, (b * u - v) / (a * b - 1), alone[..., :-1, :])
    alone[..., 1:, :] = xp.where(first, (a * v - u) / (a * b - 1), alone[..., 1:, :])
    return alone
