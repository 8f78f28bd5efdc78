"""The regularized incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x) over plain arrays.

    P(a, x) = 1/Γ(a) ∫₀ˣ exp(-t) t^(a-1) dt

Below x = 1 they are power series (Abramowitz and Stegun 6.5.4, 6.5.29). Above, the smaller one is the product of x^a
exp(-x) / Γ(a) and an integral over the distance v from log x, downwards for P (t = x exp(-v)), upwards for Q:

    ∫₀^∞ exp(-drop(v)) dv    with drop(v) = ±a v + x (exp(∓v) - 1), which is convex and 0 at 0.

It neither overflows nor cancels for any a and x, and Gauss quadrature on two panels suffices. Everything is computed in
float64: accurate to about 1e-14 relative, less if the exponents themselves are large (a · 1e-16).
"""

import math

import numpy as np

from .blocks import fill, horner, in_blocks
from .special import _HALF_LOG_2PI, _STIRLING, _lgamma_series, lgamma

_ENOUGH = 40.0  # where the integrand has fallen to exp(-40), the rest is negligible
_RULES = {4: np.polynomial.legendre.leggauss(12), 8: np.polynomial.legendre.leggauss(20)}  # by the result's itemsize
_PANELS = (0.25, 1.0)  # the ends of the panels
_LARGE = 10.0  # Stirling's formula is used from this `a` on
_WIDE = 1e3  # from this `a` on the integrand is concentrated in |v| < 0.4


def _lgamma_after_one(xp, a):
    """log Γ(1 + a) for -1/2 <= a <= 3/2, exact also for tiny `a`: Taylor series of log Γ(2 + t), 6.1.33."""
    t = xp.where(a > 0.5, a - 1, a)
    value = t * horner(xp, t, _lgamma_series(28))
    return xp.where(a > 0.5, value, value - xp.log1p(a))


def _below_one(xp, a, x, upper):
    """For x < 1. P is a sum of positive terms; Q, if it is the smaller one, is rearranged to avoid cancellation."""
    term = total = xp.ones_like(x)
    for k in range(1, 20):
        term = term * x / (a + k)
        total = total + term
    lower = xp.exp(a * xp.log(x) - x - lgamma(xp, a + 1)) * total
    if not upper:
        return lower
    result = 1 - lower

    def small(a, x):  # 1 - x^a / Γ(1 + a) (1 + a · sum of (-x)^k / (k! (a + k)))
        term, total = xp.ones_like(x), xp.zeros_like(x)
        for k in range(1, 20):
            term = term * -x / k
            total = total + term / (a + k)
        exponent = a * xp.log(x) - _lgamma_after_one(xp, a)
        return -xp.expm1(exponent) - xp.exp(exponent) * a * total

    fill(result, lower > 0.5, small, a, x)  # then a < 3/2: the median of a gamma distribution is above a - 1/3
    return result


def _density(xp, a, x):
    """x^a exp(-x) / Γ(a)."""
    value = a * xp.log(x) - x - lgamma(xp, a)

    def stirling(a, x):
        ratio = (x - a) / a
        r = ratio / (2 + ratio)
        series = horner(xp, r * r, tuple(2 / k for k in range(25, 1, -2)))  # of 2 atanh(r) = log(x / a)
        deviation = xp.where(xp.abs(ratio) < 0.4, ratio * r - r * r * r * series, ratio - xp.log(x / a))
        inverse = 1 / a
        correction = inverse * horner(xp, inverse * inverse, _STIRLING)
        return 0.5 * xp.log(a) - _HALF_LOG_2PI - a * deviation - correction

    fill(value, a >= _LARGE, stirling, a, x)
    return xp.exp(value)


def _bend(xp, u):
    """exp(u) - 1 - u."""
    return xp.expm1(u) - u


def _small_bend(xp, u):
    """The same for small `u`, where the difference would cancel: Taylor series."""
    return u * u * horner(xp, u, tuple(1 / math.factorial(k) for k in range(14, 1, -1)))


def _smaller_part(xp, a, x, rule, bend):
    """P where x <= a, else Q; for x >= 1."""
    density = _density(xp, a, x)
    side = xp.where(x <= a, 1.0, -1.0)
    tilt = side * (a - x)  # >= 0: the slope of drop at 0

    def drop(v):
        return tilt * v + x * bend(xp, -side * v)

    # Below, exp(-v) - 1 + v >= v² / (2 + v); above, exp(v) - 1 - v >= v² / 2.
    gap = 2 * tilt - _ENOUGH
    below = 0.5 * (xp.hypot(gap, math.sqrt(8 * _ENOUGH) * xp.sqrt(a)) - gap) / a
    above = 2 * _ENOUGH / (tilt + xp.hypot(tilt, math.sqrt(2 * _ENOUGH) * xp.sqrt(x)))
    above = xp.minimum(above, xp.maximum(xp.log(3 * _ENOUGH / x), 1.3))
    reach = xp.where(side > 0, below, above)
    for _ in range(6):  # drop is convex: Newton steps from beyond approach the root without ever passing it
        reach = reach - (drop(reach) - _ENOUGH) / (tilt - side * x * xp.expm1(-side * reach))
    total, start = 0.0, 0.0
    for end in _PANELS:
        half = (end - start) / 2
        for node, share in zip(*(r.tolist() for r in rule)):
            total = total + half * share * xp.exp(-drop(reach * (start + half * (1 + node))))
        start = end
    return xp.where(density == 0, 0.0, density * reach * total)


def _fill(xp, out, a, x, upper, rule):
    out[...] = np.nan  # remains below 0, where both are 0 or both infinite, and for nan
    out[((x == 0) & ~(a <= 0)) | ((a == np.inf) & ~(x < 0) & (x != np.inf))] = upper
    out[((a == 0) & (x > 0)) | ((x == np.inf) & ~(a < 0) & (a != np.inf))] = not upper
    inside = (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)

    def away(a, x, bend):
        part = _smaller_part(xp, a, x, rule, bend)
        return xp.where((x > a) == upper, part, 1 - part)

    fill(out, inside & (x < 1), lambda a, x: _below_one(xp, a, x, upper), a, x)
    inside &= x >= 1
    fill(out, inside & (a < _WIDE), lambda a, x: away(a, x, _bend), a, x)
    fill(out, inside & (a >= _WIDE), lambda a, x: away(a, x, _small_bend), a, x)


def _incomplete(xp, a, x, upper):
    dtype = a.dtype
    rule = _RULES[8 if dtype == np.float64 else 4]
    a, x = xp.broadcast_arrays(a.astype(np.float64), x.astype(np.float64))
    with np.errstate(all="ignore"):
        return in_blocks(xp, _fill, [a, x], upper, rule).astype(dtype)


def igamma(xp, a, x):
    """P(a, x); the arrays broadcast and have one floating dtype.

    >>> igamma(np, np.array([1.0]), np.array([2.0])).round(6)  # 1 - exp(-2)
    array([0.864665])
    """
    return _incomplete(xp, a, x, False)


def igammac(xp, a, x):
    """Q(a, x); the arrays broadcast and have one floating dtype.

    >>> igammac(np, np.array([1.0]), np.array([2.0])).round(6)  # exp(-2)
    array([0.135335])
    """
    return _incomplete(xp, a, x, True)
