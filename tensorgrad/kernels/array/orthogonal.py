"""Orthogonal polynomials over plain arrays: their value at `x`, with a degree `n` per element.

All are computed in float64 by their recurrence over the degree (Abramowitz and Stegun 22.7); Chebyshev polynomials of
high degree, within [-1, 1], by their trigonometric form (22.3.15-16 and its analogs for the third and fourth kind). The
degree is truncated to an integer; if it is negative or invalid (nan, or beyond 64 bits) the value is 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .blocks import in_blocks
from .pointwise import _two_arrays


class Wave(NamedTuple):
    """A trigonometric form."""

    inside: Callable  # (xp, n, angle) -> the value at cos(angle), 0 < angle <= π/2
    end: Callable  # n -> the value at 1


class Family(NamedTuple):
    """One family of polynomials. Each function takes arrays."""

    first: Callable  # x -> the polynomial of degree 1
    step: Callable  # (k, x, q, p) -> that of degree k + 1, from q of degree k and p of degree k - 1
    waves: tuple[Wave, Wave] | None = None  # at x >= 0, and the polynomials' at -x, whose odd degrees change sign
    limits: tuple[int, int] | None = None  # PyTorch's highest degrees in float32 and float64; nan beyond


def _chebyshev_step(k, x, q, p):
    return 2 * x * q - p


_FIRST = Wave(lambda xp, n, angle: xp.cos(n * angle), lambda n: 1)
_SECOND = Wave(lambda xp, n, angle: xp.sin((n + 1) * angle) / xp.sin(angle), lambda n: n + 1)
_THIRD = Wave(lambda xp, n, angle: xp.cos((n + 0.5) * angle) / xp.cos(0.5 * angle), lambda n: 1)
_FOURTH = Wave(lambda xp, n, angle: xp.sin((n + 0.5) * angle) / xp.sin(0.5 * angle), lambda n: 2 * n + 1)

CHEBYSHEV_T = Family(lambda x: x, _chebyshev_step, (_FIRST, _FIRST))
CHEBYSHEV_U = Family(lambda x: 2 * x, _chebyshev_step, (_SECOND, _SECOND))
CHEBYSHEV_V = Family(lambda x: 2 * x - 1, _chebyshev_step, (_THIRD, _FOURTH))
CHEBYSHEV_W = Family(lambda x: 2 * x + 1, _chebyshev_step, (_FOURTH, _THIRD))
HERMITE_H = Family(lambda x: 2 * x, lambda k, x, q, p: 2 * x * q - 2 * k * p, limits=(128, 512))
HERMITE_HE = Family(lambda x: x, lambda k, x, q, p: x * q - k * p, limits=(128, 512))
LAGUERRE_L = Family(lambda x: 1 - x, lambda k, x, q, p: ((2 * k + 1 - x) * q - k * p) / (k + 1))
LEGENDRE_P = Family(lambda x: x, lambda k, x, q, p: ((2 * k + 1) * x * q - k * p) / (k + 1))

_HIGH = 8  # above this degree the trigonometric form is used
_CHECK_INTERVAL = 32  # steps of the recurrence between checks whether all values are nan, and will remain so


def _recurrence(xp, x, n, family):
    """Evaluates the polynomials of the degrees `n` >= 1; both arrays have one dimension."""
    order = xp.argsort(-n, kind="stable")  # finished elements leave at the end
    x, n = x[order], n[order]
    found = xp.empty_like(x)
    p, q, k = xp.ones_like(x), family.first(x), 1
    while x.size:
        staying = int((n > k).sum())
        if k % _CHECK_INTERVAL == 0 and xp.isnan(q).all():
            found[: x.size] = np.nan
            break
        found[staying : x.size] = q[staying:]
        x, n, p, q = (a[:staying] for a in (x, n, p, q))
        p, q = q, family.step(k, x, q, p)
        k += 1
    out = xp.empty_like(x, shape=found.shape)
    out[order] = found
    return out


def _trigonometric(xp, x, n, waves):
    """The same for Chebyshev polynomials at -1 <= x <= 1. Below 0 they are mirrored: near π angles lose digits."""
    n = n.astype(np.float64)
    size = xp.abs(x)
    angle = xp.arccos(size)
    right, left = (xp.where(size == 1, wave.end(n), wave.inside(xp, n, angle)) for wave in waves)
    return xp.where(x < 0, (1 - 2 * (n % 2)) * left, right)


def _fill(xp, out, x, n, family, limit):
    degree = xp.where((n > -1) & (n < 2.0**63), n, -1).astype(np.int64)
    out[...] = degree == 0
    rest = degree > 0
    if limit is not None:
        beyond = degree > limit
        out[beyond] = np.nan
        rest &= ~beyond
    if family.waves is not None:
        high = (degree > _HIGH) & (xp.abs(x) <= 1)
        if high.any():
            out[high] = _trigonometric(xp, x[high], degree[high], family.waves)
            rest &= ~high
    if rest.any():
        out[rest] = _recurrence(xp, x[rest], degree[rest], family)


def _kernel(family: Family, shifted: bool = False):
    """Makes a function of x and n, arrays of one dtype that broadcast; one may be a scalar. `shifted`: at 2x - 1."""

    def kernel(xp, x, n):
        x, n = _two_arrays(xp, x, n)
        dtype, x = x.dtype, x.astype(np.float64)
        limit = family.limits and family.limits[dtype == np.float64]
        arrays = xp.broadcast_arrays(2 * x - 1 if shifted else x, n.astype(np.float64))
        return in_blocks(xp, _fill, arrays, family, limit).astype(dtype)

    return kernel


chebyshev_polynomial_t, shifted_chebyshev_polynomial_t = _kernel(CHEBYSHEV_T), _kernel(CHEBYSHEV_T, shifted=True)
chebyshev_polynomial_u, shifted_chebyshev_polynomial_u = _kernel(CHEBYSHEV_U), _kernel(CHEBYSHEV_U, shifted=True)
chebyshev_polynomial_v, shifted_chebyshev_polynomial_v = _kernel(CHEBYSHEV_V), _kernel(CHEBYSHEV_V, shifted=True)
chebyshev_polynomial_w, shifted_chebyshev_polynomial_w = _kernel(CHEBYSHEV_W), _kernel(CHEBYSHEV_W, shifted=True)
hermite_polynomial_h, hermite_polynomial_he = _kernel(HERMITE_H), _kernel(HERMITE_HE)
laguerre_polynomial_l, legendre_polynomial_p = _kernel(LAGUERRE_L), _kernel(LEGENDRE_P)
