"""Special functions over plain arrays, written without SciPy.

Every kernel keeps the dtype of its input: float64 is good to about 1e-14 relative, float32 to a few units in
the last place, and two-byte floats are computed in float32. Limits, poles and nan follow PyTorch.
"""

import math
from functools import lru_cache

import numpy as np

# Elements per block. Temporaries of this size stay in the second-level cache; smaller blocks pay more for the
# call of each ufunc than they win (float32: 16 Ki 1.5 ns per element of `erf`, 64 Ki 1.2, 256 Ki 1.25).
BLOCK = 1 << 16

# Below this many elements a Python loop over `math.erf` beats a dozen calls of ufuncs (0.05 against 0.4 us each).
TINY = 48

_SQRT_HALF = math.sqrt(0.5)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def as_float32(kernel, xp, *arrays, **params):
    """`kernel` run in float32 on two-byte floats; the first two-byte operand's dtype is the result's."""
    low = next(a.dtype for a in arrays if a is not None and a.dtype.itemsize == 2)
    lifted = (a.astype(np.float32) if a is not None and a.dtype.itemsize == 2 else a for a in arrays)
    with np.errstate(all="ignore"):
        return kernel(xp, *lifted, **params).astype(low)


def _in_float64(kernel, xp, x):
    with np.errstate(all="ignore"):
        return kernel(xp, x.astype(np.float64)).astype(x.dtype)


def in_blocks(xp, kernel, arrays, *params):
    """A new array filled by `kernel(xp, out, *arrays, *params)`, block by block when the arrays are large.

    All `arrays` have one shape and one dtype. The kernel sees at least one dimension, writes `out` only, and
    may allocate temporaries, which the block size keeps in cache. Floating warnings are off.
    """
    first = arrays[0]
    shape = first.shape
    if not first.size:
        return xp.empty_like(first)
    with np.errstate(all="ignore"):
        if first.size <= 1024 or xp is not np:
            if not shape:  # operators turn 0-dim arrays into scalars, which cannot be written into
                arrays = [a.reshape(1) for a in arrays]
            out = xp.empty_like(arrays[0])
            kernel(xp, out, *arrays, *params)
            return out if shape else out.reshape(())
        turned = all(a.flags.f_contiguous for a in arrays)
        flat = [(a.T if turned else a).reshape(-1) for a in arrays]
        out = np.empty(first.size, first.dtype)
        for start in range(0, first.size, BLOCK):
            block = slice(start, start + BLOCK)
            kernel(xp, out[block], *(a[block] for a in flat), *params)
    return out.reshape(shape[::-1]).T if turned else out.reshape(shape)


@lru_cache(maxsize=None)
def _boxed(values, dtype):
    return tuple(np.array(v, dtype) for v in values)


def table(xp, values, dtype):
    """`values` as operands: NumPy takes a 0-dim array in half the time of a Python float, others want the float."""
    return _boxed(values, dtype) if xp is np else values


def horner(xp, t, coefficients, out=None):
    """The polynomial with `coefficients` (highest power first) at `t`."""
    c = table(xp, coefficients, t.dtype)
    p = xp.multiply(t, c[0], out)
    xp.add(p, c[1], p)
    for k in range(2, len(c)):
        xp.multiply(p, t, p)
        xp.add(p, c[k], p)
    return p


def ratio(xp, t, top, bottom):
    """`top(t) / bottom(t)`: coefficients highest power first, the bottom's leading 1 left out."""
    c = table(xp, bottom, t.dtype)
    q = xp.add(t, c[0])
    for k in range(1, len(c)):
        xp.multiply(q, t, q)
        xp.add(q, c[k], q)
    p = horner(xp, t, top)
    return xp.divide(p, q, p)


_SAME_SIZE_INT = {4: np.int32, 8: np.int64}


def select(xp, mask, a, b):
    """`where(mask, a, b)` for two arrays of one shape and dtype.

    NumPy's `where` branches on every element: on a mask without pattern that costs ten times a selection by bits.
    """
    if xp is not np or mask.size < 4096 or a.shape != b.shape or a.dtype.itemsize not in _SAME_SIZE_INT:
        return xp.where(mask, a, b)
    integer = _SAME_SIZE_INT[a.dtype.itemsize]
    keep = mask.astype(integer)
    np.subtract(0, keep, out=keep)  # 0 or all ones
    other = np.ascontiguousarray(b).view(integer)
    chosen = np.ascontiguousarray(a).view(integer) ^ other
    chosen &= keep
    chosen ^= other
    return chosen.view(a.dtype)


def _places(mask):
    """`mask` as an index. Many elements: by numbers, because indexing by a mask branches on every element too."""
    return mask.nonzero() if mask.ndim == 1 else mask


def _fill(out, mask, function, *arrays):
    """`out[mask] = function(*arrays[mask])`, without the copies when the mask holds everywhere or nowhere."""
    if mask.all():
        out[...] = function(*arrays)
    elif mask.any():
        places = _places(mask)
        out[places] = function(*(a[places] for a in arrays))


# ---------------------------------------------------------------- error functions

# atanh(erf(x)) / x = top(x^2) / bottom(x^2) to 3.3e-9 of erf on |x| < 4.05, where erf reaches 1 in float32 (own
# weighted minimax fit). Both polynomials are positive and the quotient grows to 6.7, so that tanh saturates by itself.
ERF_TOP = (6.703972084895416, 131.25100067736594, 861.147100718463, 3472.755430247079)
ERF_BOTTOM = (72.90917258707387, 482.86015873599865, 3077.6493575686577)
_ERF_LIMIT = 1e6  # of x^2: far beyond saturation, far below overflow of its cube


def erf_argument(xp, x, scale=1.0, out=None):
    """float32 `u` with `tanh(u) = erf(scale * x)`: one rational function and the fast vector `tanh` make `erf`.

    The scale is folded into the coefficients: x^2's powers take its even powers, the leading factor the odd one.
    """
    s2 = scale * scale
    t = xp.multiply(x, x)
    if not t.max() <= _ERF_LIMIT:  # rare: infinities must not become inf/inf; nan goes through
        xp.minimum(t, np.float32(_ERF_LIMIT), out=t)
    # Dividing both by s2^3 keeps the bottom monic.
    top = tuple(c * scale / s2**k for k, c in enumerate(ERF_TOP)) if scale != 1.0 else ERF_TOP
    bottom = tuple(c / s2 ** (k + 1) for k, c in enumerate(ERF_BOTTOM)) if scale != 1.0 else ERF_BOTTOM
    u = ratio(xp, t, top, bottom)
    return xp.multiply(u, x, u if out is None else out)


def _erf_float32(xp, out, x):
    xp.tanh(erf_argument(xp, x), out)


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

    float32 takes the exponential in float64, float64 cuts y to multiples of 1/16 first.
    """
    if y.dtype == np.float32:
        y = y.astype(np.float64)
        return xp.exp(factor * y * y).astype(np.float32)
    head = xp.trunc(y * 16) / 16
    return xp.exp(factor * head * head) * xp.exp(factor * (y - head) * (y + head))


def _cody(xp, out, x, kind):
    """Cody's three ranges for `kind` "erf", "erfc" or "erfcx"."""
    out[...] = x  # keeps nan, which falls in no range
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

    _fill(out, y <= 0.46875, inner, x)
    _fill(out, (y > 0.46875) & (y <= 4), outer(lambda y: ratio(xp, y, *_CODY_MIDDLE)), x, y)
    _fill(out, y > 4, outer(lambda y: _erfcx_large(xp, y)), x, y)


def erf(xp, x):
    """Error function. float64: Cody (1969); float32: `tanh` of a rational function."""
    if x.dtype.itemsize == 2:
        return as_float32(erf, xp, x)
    if xp is np and x.size <= TINY:
        return np.array([math.erf(v) for v in x.ravel().tolist()], x.dtype).reshape(x.shape)
    if x.dtype == np.float32:
        return in_blocks(xp, _erf_float32, [x])
    return in_blocks(xp, _cody, [x], "erf")


def erfc(xp, x):
    """Complementary error function, accurate in its tail. float64: Cody (1969); float32: Shepherd and Laframboise's form."""
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
    _fill(out, x >= -1, lambda x: 0.5 * erfc(xp, x * -_SQRT_HALF), x)
    # In the tail the rounding of x / sqrt 2 would be multiplied by x^2; exp(-x^2 / 2) is taken of x itself.
    _fill(out, x < -1, lambda x: _exp_square(xp, xp.maximum(x, -64), -0.5) * (0.5 * erfcx(xp, x * -_SQRT_HALF)), x)


def ndtr(xp, x):
    """Area under the standard normal density left of `x`: `erfc(-x / sqrt 2) / 2`."""
    if x.dtype.itemsize == 2:
        return as_float32(ndtr, xp, x)
    return in_blocks(xp, _ndtr, [x])


def _log_ndtr(xp, out, x):
    out[...] = x
    _fill(out, x < 0, lambda x: xp.log(erfcx(xp, x * -_SQRT_HALF) * 0.5) - 0.5 * x * x, x)
    _fill(out, x >= 0, lambda x: xp.log1p(-ndtr(xp, -x)), x)


def log_ndtr(xp, x):
    """Logarithm of `ndtr`, by the scaled function below 0 (no underflow) and by `log1p` above (no cancellation)."""
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
    _fill(out, xp.abs(q) <= 0.425, centre, q)
    _fill(out, (xp.abs(q) > 0.425) & (tail >= 0), outer, q, tail)


def _erfinv_float32(xp, out, x):
    w = -xp.log((1 - x) * (1 + x))
    horner(xp, w - np.float32(2.5), _GILES_CENTRE, out)
    _fill(out, w >= 5, lambda w: horner(xp, xp.sqrt(w) - 3, _GILES_TAIL), w)
    xp.multiply(out, x, out)
    _fill(out, xp.abs(x) == 1, lambda x: x * np.float32(np.inf), x)


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
        return _in_float64(ndtri, xp, x)
    return in_blocks(xp, lambda xp, out, p: _wichura(xp, out, p - 0.5, xp.minimum(p, 1 - p)), [x])


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


@lru_cache(maxsize=None)
def _zeta_minus_one(k):
    """Riemann's zeta(k) - 1 for an integer k >= 2, by Euler and Maclaurin's formula from 12 on."""
    terms = [n**-k for n in range(2, 12)] + [12 ** (1 - k) / (k - 1), 0.5 * 12**-k]
    factor, power = float(k), 12.0 ** (-k - 1)
    for j, b in enumerate(_BERNOULLI, 1):
        terms.append(b / math.factorial(2 * j) * factor * power)
        factor *= (k + 2 * j - 1) * (k + 2 * j)
        power /= 144
    return math.fsum(terms)


@lru_cache(maxsize=None)
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
    """For 0 <= a < 8: Taylor's series about 2 at the distance to the nearest integer, and the recurrence."""
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
        low = _places(low)
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
    _fill(out, a < 8, lambda a: _lgamma_reduced(xp, a), a)
    _fill(out, a >= 8, lambda a: _lgamma_stirling(xp, a), a)
    if mirrored:  # Gamma(x) Gamma(1 - x) = pi / sin(pi x)
        places = _places(negative)
        x = x[places]
        r = x - xp.rint(x)
        value = -xp.log(xp.abs(xp.sin(np.pi * r)) * (1 / np.pi)) - out[places]
        out[places] = xp.where(x == -np.inf, -x, value)


def lgamma(xp, x):
    """Logarithm of |Gamma(x)|: Taylor's series about 2 with the recurrence below 8, Stirling's formula above.

    Source: Abramowitz and Stegun 6.1.15, 6.1.17, 6.1.33, 6.1.41. Near the zeros between negative integers the
    error is absolute (about 1e-15), not relative, because reflection subtracts.
    """
    if x.dtype.itemsize == 2:
        return as_float32(lgamma, xp, x)
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
        places = _places(negative)
        r = x[places]
        r = r - xp.rint(r)
        r[r == 0] = np.nan
        out[places] -= np.pi / xp.tan(np.pi * r)


def digamma(xp, x):
    """Derivative of `lgamma`: eight steps of the recurrence, then the asymptotic series.

    Source: Abramowitz and Stegun 6.3.5, 6.3.7, 6.3.18. Poles: -inf at 0, inf at -0, nan at negative integers.
    """
    if x.dtype != np.float64:
        return _in_float64(digamma, xp, x)
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
        places = _places(negative)
        r = x[places]
        r = r - xp.rint(r)
        out[places] = (np.pi / xp.sin(np.pi * r)) ** 2 - out[places]


def zeta(xp, x, q):
    """Hurwitz's zeta function, the sum of (q + k)^-x over k >= 0, by the formula of Euler and Maclaurin.

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
        value = value + sign * (_zeta_positive(xp, x, xp.ceil(q) - q) - _zeta_positive(xp, x, 1 - q))
        return xp.where(q == xp.floor(q), np.inf, xp.where(x == xp.floor(x), value, np.nan))

    _fill(out, q <= 0, below, x, q, out.copy())
    out[...] = xp.where(x == 1, np.inf, xp.where((x > 1) & (xp.isfinite(q) | (q < 0)), out, np.nan))


def polygamma(xp, n, x):
    """n-th derivative of `digamma` (n >= 0): (-1)^(n+1) n! zeta(n + 1, x), Abramowitz and Stegun 6.4.10."""
    if n == 0:
        return digamma(xp, x)
    if x.dtype != np.float64:
        return _in_float64(lambda xp, x: polygamma(xp, n, x), xp, x)
    if n == 1:
        return in_blocks(xp, _trigamma, [x])
    with np.errstate(all="ignore"):
        scale = math.exp(math.lgamma(n + 1)) if n > 170 else math.factorial(n)
        return zeta(xp, xp.full(x.shape, n + 1.0), x) * (float(scale) if n % 2 else -float(scale))


# ---------------------------------------------------------------- modified Bessel functions


@lru_cache(maxsize=None)
def _bessel_series(order, terms):
    """Coefficients, highest first, of I_order(x) / (x/2)^order in (x/2)^2: Abramowitz and Stegun 9.6.10."""
    return tuple(1 / (math.factorial(k) * math.factorial(k + order)) for k in range(terms, -1, -1))


@lru_cache(maxsize=None)
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
    _fill(out, a <= split, near, a)
    _fill(out, a > split, far, a)
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
    xp.exp(out, out)  # inf for x below -88 (float32), whose reciprocal is the right 0
    xp.add(out, table(xp, (1.0,), x.dtype)[0], out)
    xp.reciprocal(out, out)


def expit(xp, x):
    """Logistic sigmoid `1 / (1 + exp(-x))`."""
    if x.dtype.itemsize == 2:
        return as_float32(expit, xp, x)
    return in_blocks(xp, _expit, [x])


def logit(xp, x, eps=None):
    """`log(x / (1 - x))`, `x` first clamped to [eps, 1 - eps] where `eps` is given."""
    if x.dtype.itemsize == 2:
        return as_float32(logit, xp, x, eps=eps)
    with np.errstate(all="ignore"):
        if eps is not None:
            x = xp.clip(x, eps, 1 - eps)
        return xp.log(x / (1 - x))


def log1mexp(xp, x):
    """`log(1 - exp(x))` for `x <= 0`, by whichever form does not cancel (M. Maechler, 2012)."""
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
    if x.dtype.itemsize == 2:
        return as_float32(_times_log, xp, x, y, log=log)
    with np.errstate(all="ignore"):
        return xp.where((x == 0) & ~xp.isnan(y), x.dtype.type(0), x * log(y))


def entr(xp, x):
    """`-x log(x)`: 0 at 0, -inf below."""
    if x.dtype.itemsize == 2:
        return as_float32(entr, xp, x)
    with np.errstate(all="ignore"):
        zero, floor = x.dtype.type(0), x.dtype.type(-np.inf)
        return xp.where(x > 0, -x * xp.log(x), xp.where(x == 0, zero, xp.where(x < 0, floor, x)))


def sinc(xp, x):
    """`sin(pi x) / (pi x)`, 1 at 0."""
    if x.dtype.itemsize == 2:
        return as_float32(sinc, xp, x)
    with np.errstate(all="ignore"):
        t = x * x.dtype.type(np.pi)
        return xp.where(t == 0, x.dtype.type(1), xp.sin(t) / t)
