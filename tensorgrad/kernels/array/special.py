"""Special functions over plain arrays, written without SciPy.

Every kernel keeps the dtype of its input: float64 is accurate to about 1e-14 relative, float32 to a few units in the
last place, and two-byte floats are computed in float32. Limits, poles and nan follow PyTorch.
"""

import math
from functools import cache

import numpy as np

from .blocks import as_float32, fill, horner, in_blocks, in_float64, places_of, select, table
from .erf import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from .lanes import by_steps

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "expit", "i0", "i0e", "i1", "i1e", "lgamma", "log1mexp",
    "log1pexp", "log_ndtr", "logit", "ndtr", "ndtri", "polygamma", "sinc", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

_FEW = 256  # elements up to which a Python loop over `math.lgamma` beats the forty ufuncs that replace it
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# ---------------------------------------------------------------- gamma family

# B_2k, k = 1 .. 10
_BERNOULLI = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
    7 / 6,
    -3617 / 510,
    43867 / 798,
    -174611 / 330,
)


@cache
def _zeta_minus_one(k):
    """Riemann's zeta(k) - 1 for an integer k >= 2, by the Euler-Maclaurin formula from 12 on."""
    terms = [n**-k for n in range(2, 12)] + [12 ** (1 - k) / (k - 1), 0.5 * 12**-k]
    factor, power = float(k), 12.0 ** (-k - 1)
    for j, b in enumerate(_BERNOULLI, 1):
        terms.append(b / math.factorial(2 * j) * factor * power)
        factor *= (k + 2 * j - 1) * (k + 2 * j)
        power /= 144
    return math.fsum(terms)


@cache
def _lgamma_series(terms):
    """Coefficients, highest first, of lgamma(2 + t) / t: Abramowitz and Stegun 6.1.33."""
    low = [1 - 0.57721566490153286061]
    return tuple([(-1) ** k * _zeta_minus_one(k) / k for k in range(terms, 1, -1)] + low)


# Coefficients, highest first, of the correction to Stirling's formula, in 1/a^2: Abramowitz and Stegun 6.1.41.
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:8], 1))[::-1]


def _lgamma_stirling(xp, a):
    series = horner(xp, 1 / (a * a), _STIRLING[-4:] if a.dtype == np.float32 else _STIRLING) / a
    return (a - 0.5) * (xp.log(a) - 1) + (_HALF_LOG_2PI - 0.5) + series


def _lgamma_reduced(xp, a):
    """For 0 <= a < 8: Taylor series about 2 at the distance to the nearest integer, and the recurrence."""
    k = xp.rint(a)
    t = a - k
    result = t * horner(xp, t, _lgamma_series(13 if a.dtype == np.float32 else 28))
    if k.max() > 2:
        product = xp.ones_like(a)
        for j in range(1, 7):  # lgamma(a) = lgamma(2 + t) + log((a - 1) (a - 2) ... (2 + t))
            product *= (a - (j + 1)) * (k >= j + 2) + 1
        result += xp.log(product)
    low = k < 2
    if low.any():  # below 3/2 upwards: lgamma(a) = lgamma(a + 1) - log(a), below 1/2 twice
        low = places_of(low)
        a = a[low]
        result[low] -= xp.log(a * (1 + a * (a <= 0.5)))
    return result


def _lgamma(xp, out, x):
    a = xp.abs(x)
    negative = x < 0
    mirrored = bool(negative.any())
    if mirrored:
        a = a + negative
    out[...] = a  # keeps nan
    fill(out, a < 8, lambda a: _lgamma_reduced(xp, a), a)
    fill(out, a >= 8, lambda a: _lgamma_stirling(xp, a), a)
    if mirrored:  # Gamma(x) Gamma(1 - x) = pi / sin(pi x)
        places = places_of(negative)
        x = x[places]
        r = x - xp.rint(x)
        value = -xp.log(xp.abs(xp.sin(np.pi * r)) * (1 / np.pi)) - out[places]
        # A pole at every integer; large numbers are all integers.
        out[places] = xp.where((r != 0) & (x != -np.inf), value, np.inf)


def lgamma(xp, x):
    """Logarithm of |Gamma(x)|: Taylor series about 2 with the recurrence below 8, Stirling's formula above.

    Source: Abramowitz and Stegun 6.1.15, 6.1.17, 6.1.33, 6.1.41. Near the zeros between negative integers the
    error is absolute (about 1e-15), not relative, because reflection subtracts.
    """
    if x.dtype.itemsize == 2:
        return as_float32(lgamma, xp, x)
    if xp is np and x.size <= _FEW:
        try:
            return np.array([*map(math.lgamma, x.reshape(-1).tolist())], x.dtype).reshape(x.shape)
        except (
            ValueError,
            OverflowError,
        ):  # a pole, or beyond float64: Python raises instead of returning inf
            pass
    return in_blocks(xp, _lgamma, [x])


# Coefficients, highest first, of log(a) - 1/(2a) - digamma(a), in 1/a^2: Abramowitz and Stegun 6.3.18.
_DIGAMMA = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI[:8], 1))[::-1] + (0.0,)
# The same for trigamma(a) - 1/a - 1/(2 a^2), times a: Abramowitz and Stegun 6.4.12.
_TRIGAMMA = _BERNOULLI[::-1] + (0.0,)


def _digamma(xp, out, x):
    negative = x < 0
    mirrored = bool(negative.any())
    a = select(xp, negative, 1 - x, x) if mirrored else x
    # Eight steps of the recurrence in four quotients: 1/(a+j) + 1/(a+7-j) = (2a+7) / (a(a+7) + j(7-j)).
    b = xp.minimum(a, 1e15)  # beyond, the sum is below the last place, and its square must not overflow
    u = b * (b + 7)
    total = 1 / u
    for c in (6.0, 10.0, 12.0):
        total += 1 / (u + c)
    total *= 2 * b + 7
    a = a + 8
    inverse = 1 / a
    xp.subtract(xp.log(a) - 0.5 * inverse - horner(xp, inverse * inverse, _DIGAMMA), total, out)
    if mirrored:  # digamma(1 - x) - digamma(x) = pi / tan(pi x)
        places = places_of(negative)
        r = x[places]
        r = r - xp.rint(r)
        r[r == 0] = np.nan
        out[places] -= np.pi / xp.tan(np.pi * r)


def digamma(xp, x):
    """Derivative of `lgamma`: eight steps of the recurrence, then the asymptotic series.

    Source: Abramowitz and Stegun 6.3.5, 6.3.7, 6.3.18. Poles: -inf at 0, inf at -0, nan at negative integers.
    """
    if x.dtype != np.float64:
        return in_float64(digamma, xp, x)
    return in_blocks(xp, _digamma, [x])


def _trigamma(xp, out, x):
    negative = x < 0
    mirrored = bool(negative.any())
    a = select(xp, negative, 1 - x, x) if mirrored else x
    total = 1 / (a * a)
    for j in range(1, 10):
        total += 1 / (a + j) ** 2
    a = a + 10
    inverse = 1 / a
    square = inverse * inverse
    xp.add(total, inverse * (1 + horner(xp, square, _TRIGAMMA)) + 0.5 * square, out)
    if mirrored:  # trigamma(x) + trigamma(1 - x) = (pi / sin(pi x))^2
        places = places_of(negative)
        r = x[places]
        r = r - xp.rint(r)
        out[places] = (np.pi / xp.sin(np.pi * r)) ** 2 - out[places]


def zeta(xp, x, q):
    """Hurwitz zeta function, the sum of (q + k)^-x over k >= 0, by the Euler-Maclaurin formula.

    `x` and `q` broadcast. 1 gives inf and less than 1 nan; a `q` that is 0 or a negative integer gives inf;
    other negative `q` need an integer `x`. Source: Abramowitz and Stegun 23.1.30 and 23.2.
    """
    dtype = x.dtype
    x, q = xp.broadcast_arrays(x.astype(np.float64), q.astype(np.float64))
    with np.errstate(all="ignore"):
        return in_blocks(xp, _zeta, [x, q]).astype(dtype)


def _zeta_positive(xp, x, q):
    total = q**-x
    for k in range(1, 10):
        total += (q + k) ** -x
    a = q + 10
    power = a**-x
    total += power * a / (x - 1) + 0.5 * power
    factor = x * power / a
    for j, b in enumerate(_BERNOULLI, 1):
        total += b / math.factorial(2 * j) * factor
        factor = factor * (x + (2 * j - 1)) * (x + 2 * j) / (a * a)
    return total


def _zeta(xp, out, x, q):
    fraction = xp.where(q > 0, q, q - xp.floor(q))
    out[...] = _zeta_positive(xp, x, fraction)

    def below(x, q, value):  # the terms with negative q + k are a difference of two such sums
        sign = 1 - 2 * (x % 2)
        value = value + sign * _zeta_positive(xp, x, xp.ceil(q) - q)  # first these two, which may cancel
        value -= sign * _zeta_positive(xp, x, 1 - q)
        return xp.where(q == xp.floor(q), np.inf, xp.where(x == xp.floor(x), value, np.nan))

    fill(out, q <= 0, below, x, q, out.copy())
    out[...] = xp.where(x == 1, np.inf, xp.where((x > 1) & (xp.isfinite(q) | (q < 0)), out, np.nan))
    fill(out, x == np.inf, lambda q: xp.where(q >= 1, q == 1, xp.where(q < 1, np.inf, q)), q)  # its largest term


def polygamma(xp, n, x):
    """n-th derivative of `digamma` (n >= 0): (-1)^(n+1) n! zeta(n + 1, x), Abramowitz and Stegun 6.4.10."""
    if n == 0:
        return digamma(xp, x)
    if x.dtype != np.float64:
        return in_float64(lambda xp, x: polygamma(xp, n, x), xp, x)
    if n == 1:
        return in_blocks(xp, _trigamma, [x])
    sign = 1.0 if n % 2 else -1.0
    with np.errstate(all="ignore"):
        value = zeta(xp, xp.full(x.shape, n + 1.0), x)
        if n <= 170:
            return value * (sign * math.factorial(n))
        return sign * xp.sign(value) * xp.exp(xp.log(xp.abs(value)) + math.lgamma(n + 1))


# ---------------------------------------------------------------- modified Bessel functions


@cache
def _bessel_series(order, terms):
    """Coefficients, highest first, of I_order(x) / (x/2)^order in (x/2)^2: Abramowitz and Stegun 9.6.10."""
    return tuple(1 / (math.factorial(k) * math.factorial(k + order)) for k in range(terms, -1, -1))


@cache
def _bessel_asymptotic(order, terms):
    """Coefficients, highest first, of I_order(x) exp(-x) sqrt(2 pi x) in 1/x: Abramowitz and Stegun 9.7.1."""
    values = [1.0]
    for k in range(1, terms + 1):
        values.append(-values[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return tuple(values[::-1])


def _bessel(xp, out, x, order, scaled):
    single = x.dtype == np.float32
    split, terms, far_terms = (10, 24, 12) if single else (20, 46, 30)
    a = xp.abs(x)

    def near(a):
        t = 0.25 * a * a
        v = horner(xp, t, _bessel_series(order, terms))
        v = v * (0.5 * a) if order else v
        return v * xp.exp(-a) if scaled else v

    def far(a):
        v = horner(xp, 1 / a, _bessel_asymptotic(order, far_terms)) / (math.sqrt(2 * np.pi) * xp.sqrt(a))
        return v if scaled else v * xp.exp(a)

    out[...] = a
    fill(out, a <= split, near, a)
    fill(out, a > split, far, a)
    if order:
        xp.multiply(out, xp.sign(x), out)


def i0(xp, x):
    """Modified Bessel function of order 0: power series up to 20 (float32: 10), asymptotic series beyond."""
    return as_float32(i0, xp, x) if x.dtype.itemsize == 2 else in_blocks(xp, _bessel, [x], 0, False)


def i0e(xp, x):
    """`exp(-|x|) i0(x)`."""
    return as_float32(i0e, xp, x) if x.dtype.itemsize == 2 else in_blocks(xp, _bessel, [x], 0, True)


def i1(xp, x):
    """Modified Bessel function of order 1."""
    return as_float32(i1, xp, x) if x.dtype.itemsize == 2 else in_blocks(xp, _bessel, [x], 1, False)


def i1e(xp, x):
    """`exp(-|x|) i1(x)`."""
    return as_float32(i1e, xp, x) if x.dtype.itemsize == 2 else in_blocks(xp, _bessel, [x], 1, True)


# ---------------------------------------------------------------- logarithms and exponentials


def _expit(xp, out, x):
    xp.negative(x, out)
    one = table(xp, (1.0,), x.dtype)[0]
    xp.exp(out, out)  # inf for x below -88 (float32), whose reciprocal is the right 0
    xp.add(out, one, out)
    xp.divide(one, out, out)  # NumPy's reciprocal takes twice as long


def expit(xp, x):
    """Logistic sigmoid `1 / (1 + exp(-x))`."""
    if x.dtype.itemsize == 2:
        return as_float32(expit, xp, x)
    return in_blocks(xp, _expit, [x])


def logit(xp, x, eps=None):
    """`log(x / (1 - x))`, with `x` first clamped to [eps, 1 - eps] if `eps` is given."""
    if x.dtype.itemsize == 2:
        low = None if eps is None else x.dtype.type(eps).astype(np.float32)
        return by_steps(xp, lambda rounded, x: _logit_by_steps(xp, rounded, x, low), x)
    with np.errstate(all="ignore"):
        if eps is not None:
            x = xp.clip(x, eps, 1 - eps)
        return xp.log(x / (1 - x))


def _logit_by_steps(xp, rounded, x, low):
    if low is not None:
        x = xp.clip(x, low, rounded(1 - low))
    return xp.log(rounded(x / rounded(1 - x)))


def log1mexp(xp, x):
    """`log(1 - exp(x))` for `x <= 0`, in the form that does not cancel (M. Maechler, 2012)."""
    if x.dtype.itemsize == 2:
        return as_float32(log1mexp, xp, x)
    with np.errstate(all="ignore"):
        return xp.where(x > -math.log(2), xp.log(-xp.expm1(x)), xp.log1p(-xp.exp(x)))


def log1pexp(xp, x):
    """`log(1 + exp(x))` without overflow."""
    if x.dtype.itemsize == 2:
        return as_float32(log1pexp, xp, x)
    with np.errstate(all="ignore"):
        return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


def xlogy(xp, x, y):
    """`x log(y)`, 0 where `x` is 0 (unless `y` is nan)."""
    return _times_log(xp, x, y, xp.log)


def xlog1py(xp, x, y):
    """`x log(1 + y)`, 0 where `x` is 0 (unless `y` is nan)."""
    return _times_log(xp, x, y, xp.log1p)


def _times_log(xp, x, y, log):
    with np.errstate(all="ignore"):
        logs = log(y.astype(np.float32)).astype(y.dtype) if y.dtype.itemsize == 2 else log(y)
        return xp.where((x == 0) & ~xp.isnan(y), x.dtype.type(0), x * logs)


def entr(xp, x):
    """`-x log(x)`: 0 at 0, -inf below."""
    if x.dtype.itemsize == 2:
        return by_steps(xp, lambda rounded, x: _entr(xp, x, rounded(xp.log(x))), x)
    with np.errstate(all="ignore"):
        return _entr(xp, x, xp.log(x))


def _entr(xp, x, log):
    zero, floor = x.dtype.type(0), x.dtype.type(-np.inf)
    return xp.where(x > 0, -x * log, xp.where(x == 0, zero, xp.where(x < 0, floor, x)))


def sinc(xp, x):
    """`sin(pi x) / (pi x)`, 1 at 0."""
    if x.dtype.itemsize == 2:
        return as_float32(sinc, xp, x)
    with np.errstate(all="ignore"):
        t = x * x.dtype.type(np.pi)
        return xp.where(t == 0, x.dtype.type(1), xp.sin(t) / t)
