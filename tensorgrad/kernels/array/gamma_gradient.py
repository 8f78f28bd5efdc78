"""The derivative of a gamma or beta sample with respect to its shape parameter, at a fixed quantile.

For a sample z with density p and distribution function F that is dz/da = -(∂F/∂a) / p(z): the reparameterized gradient
of rejection samplers (M. Figurnov, S. Mohamed and A. Mnih, "Implicit Reparameterization Gradients", NeurIPS 2018).

∂F/∂a is an integral of p times (log t - E log t) over the side of z with less of the mass. On the scale where both
densities are smooth and log-concave (log z; the log odds of a beta sample), divided by p(z), it becomes

    ∫₀^∞ exp(-drop(v)) weight(v) dv    with v the distance from z, drop convex, drop(0) = 0,

which neither overflows nor cancels, for any parameters. Gauss quadrature on a few panels computes it in float64:
accurate to 1e-8 relative or better.
"""

import numpy as np

from .special import digamma

ENOUGH = 40.0  # where the integrand has fallen to exp(-40), the rest is negligible
TINY, BELOW_ONE = np.finfo(np.float64).tiny, 1 - 2.0**-53
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def _tail_integral(xp, drop, slope, weight, reach, cuts):
    """Computes the integral above. `reach`: at or beyond where drop is ENOUGH; `cuts`: the boundaries between panels.

    `drop` is convex: Newton steps from beyond approach the root without ever passing it.
    """
    for _ in range(8):
        reach = reach - (drop(reach) - ENOUGH) / slope(reach)
    total, start = 0.0, xp.zeros_like(reach)
    for end in (*cuts, reach):
        end = xp.minimum(end, reach)
        half = (end - start) / 2
        for node, share in zip(NODES.tolist(), WEIGHTS.tolist()):
            v = start + half * (1 + node)
            total = total + half * share * xp.exp(-drop(v)) * weight(v)
        start = end
    return total


def standard_gamma_grad(xp, alpha, z):
    """d z / d alpha for gamma samples `z` of scale 1; arrays of one shape and floating dtype.

    >>> standard_gamma_grad(np, np.array([1.0]), np.array([1.0])).round(6)
    array([1.173563])
    """
    a, x = alpha.astype(np.float64), xp.maximum(z.astype(np.float64), TINY)
    with np.errstate(all="ignore"):
        side = xp.where(x <= a, 1.0, -1.0)  # from x downwards, or upwards
        shift = side * (digamma(xp, a) - xp.log(x))
        # Below, exp(-v) - 1 + v >= v² / (2 + v); above, exp(v) - 1 - v >= v² / 2.
        gap = 2 * (a - x) - ENOUGH
        below = (xp.sqrt(gap * gap + 8 * ENOUGH * a) - gap) / (2 * a)
        above = 2 * ENOUGH / (x - a + xp.sqrt((x - a) ** 2 + 2 * ENOUGH * x))
        above = xp.minimum(above, xp.maximum(xp.log(3 * ENOUGH / x), 1.3))
        reach = xp.where(side > 0, below, above)
        grad = x * _tail_integral(
            xp,
            lambda v: side * a * v + x * xp.expm1(-side * v),
            lambda v: side * (a - x * xp.exp(-side * v)),
            lambda v: shift + v,
            reach,
            (4.0, 14.0),
        )
    return grad.astype(alpha.dtype)


def dirichlet_grad(xp, x, alpha, total):
    """d x / d alpha divided by 1 - x for beta samples `x` of parameters `alpha` and `total - alpha`.

    These are the diagonal elements from which the gradient of a point on the simplex is assembled. Arrays of one shape
    and floating dtype.

    >>> dirichlet_grad(np, np.array([0.5]), np.array([1.0]), np.array([2.0])).round(6)
    array([0.693147])
    """
    p, a, n = (array.astype(np.float64) for array in (x, alpha, total))
    with np.errstate(all="ignore"):
        p = xp.clip(p, TINY, BELOW_ONE)
        b = n - a
        side = xp.where(p * n <= a, 1.0, -1.0)
        odds = xp.log(p) - xp.log1p(-p)
        mean_log = digamma(xp, a) - digamma(xp, n)
        near = xp.where(side > 0, a, b)  # the parameter that pulls back
        turn = side * odds  # the distance to log odds of 0

        def softplus(t):
            return xp.maximum(t, 0.0) + xp.log1p(xp.exp(-xp.abs(t)))

        here = softplus(turn)

        def drop(v):
            return near * v - n * (here - softplus(turn - v))

        def slope(v):
            return near - n / (1 + xp.exp(v - turn))

        def weight(v):  # log t is -softplus(-(log odds of t))
            return side * (mean_log + softplus(side * (v - turn)))

        turned = xp.maximum(turn, 0.0)
        cuts = (xp.maximum(turn - 5, 0.0), turned + 4, turned + 14)
        grad = p * _tail_integral(xp, drop, slope, weight, (ENOUGH + n * here) / near, cuts)
    return grad.astype(x.dtype)
