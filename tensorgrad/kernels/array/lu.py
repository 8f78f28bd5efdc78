"""LU decompositions of stacks of matrices: A = P L U with partial pivoting, in LAPACK's packed form.

One array holds both triangles (the ones on the diagonal of L are not stored), and `pivots` says which row each row was
swapped with in turn, counted from 1.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.kernels.array.lapack import MANY, one_by_one
from tensorgrad.kernels.array.linalg import keep_nan, solve_triangular

NARROW = 16  # columns that are eliminated one by one; more are split, so that most of the work is matrix products


def lu_factor(xp, a, pivot: bool):
    """Returns the packed triangles, the pivots, and the first zero pivot of each matrix (from 1; 0 if none)."""
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    count, k = math.prod(lead), min(m, n)
    packed = xp.array(a, order="C").reshape(count, m, n)
    pivots = xp.empty((count, k), np.int32)
    if packed.size:
        # (LAPACK's may pass over nan.)
        getrf = one_by_one(xp, "getrf", a.dtype, count, k) if pivot and not xp.isnan(a).any() else None
        with np.errstate(all="ignore"):
            if getrf is None:
                _eliminate(xp, packed, pivots, pivot)
            else:
                for i in range(count):
                    packed[i], pivots[i], _ = getrf(packed[i])
    zero = packed[:, range(k), range(k)] == 0
    info = xp.where(zero.any(-1), zero.argmax(-1) + 1, 0) if k else xp.zeros(count)
    return packed.reshape(a.shape), (pivots + 1).reshape(*lead, k), info.astype(np.int32).reshape(lead)


def _eliminate(xp, a, pivots, pivot: bool):
    """Factors (count, m, n) in place, all matrices in step; returns the resulting order of their rows.

    Source: S. Toledo, "Locality of reference in LU decomposition with partial pivoting", 1997: first the left half of
    the columns, then the right.
    """
    m, n = a.shape[-2:]
    if min(m, n) <= NARROW:
        return _eliminate_columns(xp, a, pivots, pivot)
    half = min(m, n) // 2
    left, right = a[..., :half], a[..., half:]
    rows = _eliminate(xp, left, pivots[:, :half], pivot)
    right[...] = _reordered(xp, right, rows)
    right[:, :half] = solve_triangular(xp, left[:, :half], right[:, :half], False, True)
    right[:, half:] -= xp.matmul(left[:, half:], right[:, :half])
    below = _eliminate(xp, right[:, half:], pivots[:, half:], pivot)
    left[:, half:] = _reordered(xp, left[:, half:], below)
    rows[:, half:] = _reordered(xp, rows[:, half:], below)
    pivots[:, half:] += half
    return rows


def _reordered(xp, x, rows):
    """Reorders the rows of every matrix (or the numbers of every vector)."""
    return x[xp.arange(len(x))[:, None], rows]


def _eliminate_columns(xp, a, pivots, pivot: bool):
    """`_eliminate`, one column after the other."""
    count, m, n = a.shape
    each = xp.arange(count)
    rows = xp.tile(xp.arange(m), (count, 1))
    for j in range(min(m, n)):
        pivots[:, j] = j
        if pivot:
            best = j + magnitude(xp, a[:, j:, j]).argmax(-1)
            pivots[:, j] = best
            for x in (a, rows):
                x[:, j], x[each, best] = x[each, best], x[:, j].copy()
        top = a[:, j, j, None]
        column = a[:, j + 1 :, j]
        column /= xp.where(top == 0, 1, top)
        if j + 1 < n:
            a[:, j + 1 :, j + 1 :] -= column[:, :, None] * a[:, j : j + 1, j + 1 :]
    return rows


def magnitude(xp, x):
    """Returns the size by which LAPACK compares pivots: |x|, or |Re x| + |Im x| of complex numbers."""
    return xp.abs(x.real) + xp.abs(x.imag) if x.dtype.kind == "c" else xp.abs(x)


def row_order(xp, pivots, m: int, inverse: bool = False):
    """Returns the order of `m` rows after the swaps: row i of L U is row `order[i]` of A. `inverse`: the inverse."""
    lead, k = pivots.shape[:-1], pivots.shape[-1]
    swaps = pivots.reshape(math.prod(lead), k) - 1
    if len(swaps) < MANY:
        order = xp.asarray([_swapped(m, one.tolist()) for one in swaps], dtype=np.int64)
    else:
        each = xp.arange(len(swaps))
        order = xp.tile(xp.arange(m), (len(swaps), 1))
        for j in range(k):
            order[:, j], order[each, swaps[:, j]] = order[each, swaps[:, j]], order[:, j].copy()
    order = order.reshape(*lead, m)
    return order.argsort(-1) if inverse else order


def _swapped(m: int, swaps: list[int]) -> list[int]:
    order = list(range(m))
    for j, other in enumerate(swaps):
        order[j], order[other] = order[other], order[j]
    return order


def permutation(xp, pivots, packed):
    """Returns the matrices P of A = P L U."""
    out = xp.zeros((*packed.shape[:-1], packed.shape[-2]), packed.dtype)
    xp.put_along_axis(out, row_order(xp, pivots, packed.shape[-2])[..., None, :], 1, -2)
    return out


def lu_solve(xp, packed, pivots, b, adjoint: bool):
    """Solves A X = B (or Aᴴ X = B if `adjoint`) from the decomposition of A."""
    lead, (n, columns) = np.broadcast_shapes(packed.shape[:-2], b.shape[:-2]), b.shape[-2:]
    packed, pivots = xp.broadcast_to(packed, (*lead, n, n)), xp.broadcast_to(pivots, (*lead, n))
    out = xp.array(xp.broadcast_to(b, (*lead, n, columns)), order="C")
    getrs = one_by_one(xp, "getrs", packed.dtype, math.prod(lead), n)
    if getrs is not None and out.size:
        trans = 0 if not adjoint else 2 if packed.dtype.kind == "c" else 1
        for i in np.ndindex(*lead):
            out[i], _ = getrs(packed[i], pivots[i] - 1, out[i], trans)
        return out
    rows = row_order(xp, pivots, n, inverse=adjoint)[..., None]
    if adjoint:
        other = packed.conj().swapaxes(-1, -2)
        out = solve_triangular(xp, other, solve_triangular(xp, other, out, False, False), True, True)
        return xp.take_along_axis(out, rows, -2)
    out = solve_triangular(xp, packed, xp.take_along_axis(out, rows, -2), False, True)
    return solve_triangular(xp, packed, out, True, False)


def inv(xp, a):
    """Returns the inverses, and the first zero pivot of each matrix (from 1; 0 if none, else it is singular)."""
    try:
        with np.errstate(all="ignore"):
            return keep_nan(xp, a, xp.linalg.inv(a)), xp.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        packed, pivots, info = lu_factor(xp, a, True)
        return keep_nan(xp, a, lu_solve(xp, packed, pivots, xp.eye(a.shape[-1], dtype=a.dtype), False)), info


def solve(xp, a, b):
    """Solves `a X = b` for stacks of matrices (not vectors); also returns each first zero pivot (from 1; 0 if none)."""
    try:
        with np.errstate(all="ignore"):
            return keep_nan(xp, a, xp.linalg.solve(a, b)), xp.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        packed, pivots, info = lu_factor(xp, a, True)
        return keep_nan(xp, a, lu_solve(xp, packed, pivots, b, False)), info
