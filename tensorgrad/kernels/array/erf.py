"""The error function, related functions and their inverses, over plain arrays.

float64 is accurate to about 1e-15 relative, float32 to a few units in the last place; two-byte floats are computed in
float32. Limits and nan follow PyTorch.
"""

import math

import numpy as np

from .blocks import as_float32, fill, horner, in_blocks, in_float64, ratio, select, table
from .lanes import by_steps

# Up to this many elements a Python loop over `math.erf` beats a dozen calls of ufuncs (0.05 against 0.4 us each).
TINY = 96

_SQRT_HALF = math.sqrt(0.5)

# atanh(erf(x)) / x = top(x^2) / bottom(x^2) to 3.3e-9 of erf on |x| < 4.05, where erf reaches 1 in float32 (own
# weighted minimax fit). Both polynomials are positive and the quotient grows to 6.7, so that tanh saturates by itself.
ERF_TOP = (6.703972084895416, 131.25100067736594, 861.147100718463, 3472.755430247079)
ERF_BOTTOM = (72.90917258707387, 482.86015873599865, 3077.6493575686577)
_ERF_LIMIT = 1e6  # of x^2: far beyond saturation, far below overflow of its cube


def _erf_argument(xp, x):
    """float32 `u` with `tanh(u) = erf(x)`: one rational function and the fast vector `tanh` make `erf`."""
    t = xp.multiply(x, x)
    if not t.max() <= _ERF_LIMIT:  # rare: infinities must not become inf/inf; nan passes through
        xp.minimum(t, np.float32(_ERF_LIMIT), out=t)
    u = ratio(xp, t, ERF_TOP, ERF_BOTTOM)
    return xp.multiply(u, x, u)


# atanh(2 Phi(x) - 1) / x = a t + b + c / (t + d + e / (t + f)) with t = x^2, to 6.6e-8 of Phi (the normal
# distribution's area) and 2.8e-7 of x Phi(x) for negative x, rounding included (own weighted minimax fit). A continued
# fraction takes fewer passes than a quotient of polynomials, and infinity needs no care.
_PHI = (
    0.017848089921243517,
    1.2018274896941223,
    -3.195724194212919,
    -17.56763878313963,
    1017.5085327517425,
    39.935213324787725,
)


def phi_argument(xp, x, t, out):
    """Writes float32 `u` with `(1 + tanh(u)) / 2 = Phi(x)` to `out`, from `t = x^2`, which is overwritten."""
    a, b, c, d, e, f = table(xp, _PHI, x.dtype)
    xp.add(t, f, out)
    xp.divide(e, out, out)
    xp.add(out, t, out)
    xp.add(out, d, out)
    xp.divide(c, out, out)
    xp.multiply(t, a, t)
    xp.add(t, b, t)
    xp.add(out, t, out)
    xp.multiply(out, x, out)


def _erf_float32(xp, out, x):
    xp.tanh(_erf_argument(xp, x), out)


# Coefficients of W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969),
# in the form of his CALERF; highest power first, leading 1 of the denominators left out.
_CODY_SMALL = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e00,
        1.13864154151050156e02,
        3.77485237685302021e02,
        3.20937758913846947e03,
    ),
    (2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03),
)
_CODY_MIDDLE = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594e0,
        6.61191906371416295e01,
        2.98635138197400131e02,
        8.81952221241769090e02,
        1.71204761263407058e03,
        2.05107837782607147e03,
        1.23033935479799725e03,
    ),
    (
        1.57449261107098347e01,
        1.17693950891312499e02,
        5.37181101862009858e02,
        1.62138957456669019e03,
        3.29079923573345963e03,
        4.36261909014324716e03,
        3.43936767414372164e03,
        1.23033935480374942e03,
    ),
)
_CODY_LARGE = (
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        2.56852019228982242e00,
        1.87295284992346725e00,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)
_INV_SQRT_PI = 1 / math.sqrt(math.pi)


# erfcx(y) (y + 2) as a polynomial in (y - 2) / (y + 2), highest power first, to 1.1e-8 on y >= 0 and exact at 0: the
# form of M. M. Shepherd and J. G. Laframboise, Math. Comp. 36 (1981), own minimax fit for float32.
_ERFCX_FLOAT32 = (
    8.280864858534187e-05,
    7.445412484230474e-05,
    -0.0005955164670012891,
    -0.0008639805600978434,
    0.0030560314189642668,
    0.0064887129701673985,
    -0.021502669900655746,
    -0.03644378110766411,
    0.27947142720222473,
    -0.6871606111526489,
    1.0215827226638794,
)


def _erfc_float32(xp, out, x, scaled):
    y = xp.abs(x)
    r = xp.add(y, 2)
    xp.reciprocal(r, r)
    v = horner(xp, 1 - 4 * r, _ERFCX_FLOAT32)
    v *= r
    if not scaled:
        v *= _exp_square(xp, y, -1)
    negative = x < 0
    if negative.any():
        v = select(xp, negative, 2 * _exp_square(xp, y, 1) - v if scaled else 2 - v, v)
    out[...] = v


def _erf_small(xp, x):
    return x * ratio(xp, x * x, *_CODY_SMALL)


def _erfcx_large(xp, y):
    t = 1 / (y * y)
    return (_INV_SQRT_PI - t * ratio(xp, t, *_CODY_LARGE)) / y


def _exp_square(xp, y, factor):
    """`exp(factor * y^2)` without losing the digits that squaring drops.

    float32 computes the exponential in float64, float64 first truncates y to multiples of 1/16.
    """
    if y.dtype == np.float32:
        y = y.astype(np.float64)
        return xp.exp(factor * y * y).astype(np.float32)
    head = xp.trunc(y * 16) / 16
    return xp.exp(factor * head * head) * xp.exp(factor * (y - head) * (y + head))


def _cody(xp, out, x, kind):
    """Cody's three ranges for `kind` "erf", "erfc" or "erfcx"."""
    out[...] = x  # keeps nan, which is in no range
    y = xp.abs(x)

    def outer(approximation):
        def value(x, y):
            v = approximation(y)
            if kind == "erfcx":
                return xp.where(x < 0, 2 * _exp_square(xp, xp.minimum(y, 30), 1) - v, v)
            v = v * _exp_square(xp, xp.minimum(y, 28), -1)
            if kind == "erf":
                return xp.copysign(0.5 - v + 0.5, x)
            return xp.where(x < 0, 2 - v, v)

        return value

    def inner(x):
        v = _erf_small(xp, x)
        if kind == "erf":
            return v
        return 1 - v if kind == "erfc" else (1 - v) * xp.exp(x * x)

    fill(out, y <= 0.46875, inner, x)
    fill(out, (y > 0.46875) & (y <= 4), outer(lambda y: ratio(xp, y, *_CODY_MIDDLE)), x, y)
    fill(out, y > 4, outer(lambda y: _erfcx_large(xp, y)), x, y)


def erf(xp, x):
    """Error function. float64: Cody (1969); float32: `tanh` of a rational function."""
    if x.dtype.itemsize == 2:
        return as_float32(erf, xp, x)
    if xp is np and x.size <= TINY:
        return np.array([*map(math.erf, x.reshape(-1).tolist())], x.dtype).reshape(x.shape)
    if x.dtype == np.float32:
        return in_blocks(xp, _erf_float32, [x])
    return in_blocks(xp, _cody, [x], "erf")


def erfc(xp, x):
    """Complementary error function, accurate in its tail: Cody (1969); float32: Shepherd and Laframboise (1981)."""
    if x.dtype.itemsize == 2:
        return as_float32(erfc, xp, x)
    if x.dtype == np.float32:
        return in_blocks(xp, _erfc_float32, [x], False)
    return in_blocks(xp, _cody, [x], "erfc")


def erfcx(xp, x):
    """Scaled complementary error function `exp(x^2) erfc(x)`, by the formulas of `erfc`."""
    if x.dtype.itemsize == 2:
        return as_float32(erfcx, xp, x)
    if x.dtype == np.float32:
        return in_blocks(xp, _erfc_float32, [x], True)
    return in_blocks(xp, _cody, [x], "erfcx")


def _ndtr(xp, out, x):
    out[...] = x
    fill(out, x >= -1, lambda x: 0.5 * erfc(xp, x * -_SQRT_HALF), x)
    # In the tail the rounding of x / sqrt 2 would be multiplied by x^2; exp(-x^2 / 2) is computed from x itself.
    fill(out, x < -1, lambda x: _exp_square(xp, xp.maximum(x, -64), -0.5) * (0.5 * erfcx(xp, x * -_SQRT_HALF)), x)


def ndtr(xp, x):
    """Area under the standard normal density left of `x`: `erfc(-x / sqrt 2) / 2`."""
    if x.dtype.itemsize == 2:  # PyTorch's is made of other functions
        root = np.float32(_SQRT_HALF)
        return by_steps(xp, lambda rounded, x: rounded(rounded(erf(xp, rounded(x * root))) + 1) * np.float32(0.5), x)
    return in_blocks(xp, _ndtr, [x])


def _log_ndtr(xp, out, x):
    out[...] = x
    fill(out, x < 0, lambda x: xp.log(erfcx(xp, x * -_SQRT_HALF) * 0.5) - 0.5 * x * x, x)
    fill(out, x >= 0, lambda x: xp.log1p(-ndtr(xp, -x)), x)


def log_ndtr(xp, x):
    """Logarithm of `ndtr`: through the scaled function below 0 (no underflow), `log1p` above (no cancellation)."""
    if x.dtype.itemsize == 2:
        return as_float32(log_ndtr, xp, x)
    return in_blocks(xp, _log_ndtr, [x])


# ---------------------------------------------------------------- inverse error function

# Coefficients of M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
# Statistics 37 (1988), routine PPND16 (about 1e-16 relative); highest power first.
_WICHURA_CENTRE = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_WICHURA_NEAR = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
_WICHURA_FAR = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)
# Coefficients of M. Giles, "Approximating the erfinv function", GPU Computing Gems (2010), single precision.
_GILES_CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_GILES_TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


def _wichura(xp, out, q, tail):
    """Normal quantile from `q = p - 1/2` and the smaller tail's probability `min(p, 1 - p)`."""

    def quotient(t, pair):
        return horner(xp, t, pair[0]) / horner(xp, t, pair[1])

    def centre(q):
        return q * quotient(0.180625 - q * q, _WICHURA_CENTRE)

    def outer(q, tail):
        r = xp.sqrt(-xp.log(tail))
        v = xp.where(r <= 5, quotient(r - 1.6, _WICHURA_NEAR), quotient(r - 5, _WICHURA_FAR))
        return xp.copysign(xp.where(tail == 0, np.inf, v), q)

    out[...] = np.nan
    fill(out, xp.abs(q) <= 0.425, centre, q)
    fill(out, (xp.abs(q) > 0.425) & (tail >= 0), outer, q, tail)


def _erfinv_float32(xp, out, x):
    w = -xp.log((1 - x) * (1 + x))
    horner(xp, w - np.float32(2.5), _GILES_CENTRE, out)
    fill(out, w >= 5, lambda w: horner(xp, xp.sqrt(w) - 3, _GILES_TAIL), w)
    xp.multiply(out, x, out)
    fill(out, xp.abs(x) == 1, lambda x: x * np.float32(np.inf), x)


def _erfinv_float64(xp, out, x):
    _wichura(xp, out, 0.5 * x, 0.5 - 0.5 * xp.abs(x))
    out *= _SQRT_HALF


def erfinv(xp, x):
    """Inverse error function. float64: Wichura (1988), AS 241; float32: Giles (2010). nan outside [-1, 1]."""
    if x.dtype.itemsize == 2:
        return as_float32(erfinv, xp, x)
    return in_blocks(xp, _erfinv_float32 if x.dtype == np.float32 else _erfinv_float64, [x])


def ndtri(xp, x):
    """Quantile of the standard normal distribution, inverse of `ndtr` (Wichura 1988). nan outside [0, 1]."""
    if x.dtype != np.float64:
        return in_float64(ndtri, xp, x)
    return in_blocks(xp, lambda xp, out, p: _wichura(xp, out, p - 0.5, xp.minimum(p, 1 - p)), [x])
