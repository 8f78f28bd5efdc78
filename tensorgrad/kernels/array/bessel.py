"""Bessel functions of order 0 and 1, and Airy's Ai, over plain arrays.

Near 0 they are power series. Away from it all of them come from one integral, smooth in v: with

    decay(v) = ∫₀^∞ 2 exp(-w²) cosh(2 nu asinh(w √(v/2))) / √(2 + v w²) dw

the modified function is K_nu(x) = exp(-x) decay(1/x) / √x, the oscillating pair is J_nu + i Y_nu = √(2/π) / √x
exp(i (x - nu π/2 - π/4)) √(2/π) decay(i/x), and Ai has order 1/3. (Put cosh t = 1 + w²/x into Abramowitz and Stegun
9.6.24; the rest is 9.6.4 and 10.4.14-15.) The integral is computed once, at the nodes of a Chebyshev expansion in v,
and the expansion is used from then on.

Everything is computed in float64, and good to about 1e-15 of the function's size (1e-14 for Ai). Poles, infinities
and nan follow PyTorch.
"""

import math
from functools import cache

import numpy as np

from . import special
from .blocks import fill, horner, in_blocks, in_float64, table

EULER = 0.57721566490153286061
OSCILLATING, GROWING = -1, 1  # the sign with which terms alternate: J and Y; I and K
NEAR = {OSCILLATING: 4.0, GROWING: 2.0}  # the range of the power series

# ---------------------------------------------------------------- near 0


@cache
def _powers(order, sign):
    """J or I: the coefficients, highest first, of F(x) / (x/2)^order in (x/2)² (9.1.10 and 9.6.10)."""
    terms = 18 if sign == OSCILLATING else 13
    return tuple(sign**k / (math.factorial(k) * math.factorial(k + order)) for k in range(terms, -1, -1))


@cache
def _harmonic_powers(order, sign):
    """The same for the series with the logarithm in Y and K: each term times digamma(k+1) + digamma(k+order+1)."""
    sums = [sum(1 / j for j in range(1, k + 1)) - EULER for k in range(22)]
    coefficients = _powers(order, sign)[::-1]
    return tuple(c * (sums[k] + sums[k + order]) for k, c in enumerate(coefficients))[::-1]


def _first_near(xp, x, order, sign):
    """J or I of the given order."""
    half = 0.5 * x
    value = horner(xp, half * half, _powers(order, sign))
    return half * value if order else value


def _second_near(xp, x, order, sign):
    """π/2 Y, or ∓K (9.1.11 and 9.6.11): -∞ (∞) at 0, nan below."""
    half = 0.5 * x
    regular = 0.5 * horner(xp, half * half, _harmonic_powers(order, sign))
    value = (xp.log(x) - math.log(2)) * _first_near(xp, x, order, sign)
    if not order:
        return value - regular
    return xp.where(x == 0, sign * np.inf, value + sign / x - half * regular)


# ---------------------------------------------------------------- away from 0

_STEP = 0.1  # of the trapezoidal rule, which converges exponentially here: the integrand is even and analytic
_POINTS = np.arange(0, 6.6, _STEP)
_WEIGHTS = 2 * _STEP * np.exp(-_POINTS * _POINTS)
_WEIGHTS[0] /= 2


def _decay(v, order):
    """The integral of the module's docstring, for an array of complex `v` off the negative axis."""
    v = np.asarray(v, np.complex128)[:, None]
    angle = 2 * order * np.arcsinh(np.sqrt(v / 2) * _POINTS)
    return (np.cosh(angle) / np.sqrt(2 + v * _POINTS * _POINTS)) @ _WEIGHTS


def _expansion(f, terms):
    """Chebyshev coefficients, lowest first, of the interpolant to f on [-1, 1] at the zeros of T_terms."""
    turns = np.outer(np.arange(terms), 2 * np.arange(terms) + 1) % (4 * terms)  # exact, in units of π / (2 terms)
    cosines = np.cos(np.pi / (2 * terms) * turns)
    c = cosines @ f(cosines[1]) * (2 / terms)
    c[0] /= 2
    return tuple(c.tolist())


@cache
def _modified_expansion(order, start, terms):
    """decay(1/x) for x >= start, expanded in 2 start/x - 1."""
    return _expansion(lambda y: _decay((y + 1) / (2 * start), order).real, terms)


@cache
def _wave_expansions(order, start, terms):
    """The real part of decay(i/x), and its imaginary part times x, expanded in 2 (start/x)² - 1."""

    def parts(y):
        v = np.sqrt((y + 1) / 2) / start
        value = _decay(1j * v, order)
        return value.real, value.imag / v

    return _expansion(lambda y: parts(y)[0], terms), _expansion(lambda y: parts(y)[1], terms)


def _clenshaw(xp, y, coefficients):
    """The sum of coefficients[k] T_k(y), lowest first (C. W. Clenshaw, 1955)."""
    c = table(xp, coefficients, y.dtype)
    twice = 2 * y
    b, before = c[-1] * xp.ones_like(y), xp.zeros_like(y)
    for k in range(len(c) - 2, 0, -1):
        xp.subtract(c[k], before, before)
        before += twice * b
        b, before = before, b
    return c[0] + y * b - before


def _modified_far(xp, x, order, start, terms):
    """exp(x) K_order(x)."""
    return _clenshaw(xp, 2 * start / x - 1, _modified_expansion(order, start, terms)) / xp.sqrt(x)


def _wave_far(xp, x, order, start, terms, turns, second=False):
    """√x times the real part (`second`: the imaginary) of exp(i (x - π/4 - turns π/2)) decay(i/x).

    The phase is separated by the addition theorem: x - π/4 would lose it for large x.
    """
    ratio = start / x
    y = 2 * ratio * ratio - 1
    p, q = (_clenshaw(xp, y, c) for c in _wave_expansions(order, start, terms))
    q /= x
    cosine, sine = xp.cos(x), xp.sin(x)
    cosine, sine = cosine + sine, sine - cosine  # times √2: of x - π/4
    if turns:
        cosine, sine = sine, -cosine
    return (p * sine + q * cosine if second else p * cosine - q * sine) * math.sqrt(0.5)


# ---------------------------------------------------------------- the functions


def _kernel(core):
    """Makes a function of one array from a core that fills `out` block by block in float64."""

    def kernel(xp, x):
        if x.dtype != np.float64:
            return in_float64(kernel, xp, x)
        return in_blocks(xp, core, [x])

    return kernel


def _wave(order, second):
    limit, terms = NEAR[OSCILLATING], 26

    def near(xp, x):
        if second:
            return _second_near(xp, x, order, OSCILLATING) * (2 / np.pi)
        return _first_near(xp, x, order, OSCILLATING)

    def far(xp, x):
        return _wave_far(xp, x, order, limit, terms, order, second) * (2 / np.pi) / xp.sqrt(x)

    def core(xp, out, x):
        a = x if second else xp.abs(x)
        out[...] = a  # keeps nan
        fill(out, a <= limit, lambda a: near(xp, a), a)
        fill(out, a > limit, lambda a: far(xp, a), a)
        if order and not second:
            xp.copysign(1, x, a)
            out *= a

    return _kernel(core)


def _modified(order, scaled):
    limit, terms = NEAR[GROWING], 26

    def near(xp, x):
        value = _second_near(xp, x, order, GROWING) * (1 if order else -1)
        return value * xp.exp(x) if scaled else value

    def far(xp, x):
        value = _modified_far(xp, x, order, limit, terms)
        return value if scaled else value * xp.exp(-x)

    def core(xp, out, x):
        out[...] = x
        fill(out, x <= limit, lambda x: near(xp, x), x)
        fill(out, x > limit, lambda x: far(xp, x), x)

    return _kernel(core)


bessel_j0, bessel_j1 = _wave(0, False), _wave(1, False)
bessel_y0, bessel_y1 = _wave(0, True), _wave(1, True)
modified_bessel_k0, modified_bessel_k1 = _modified(0, False), _modified(1, False)
scaled_modified_bessel_k0, scaled_modified_bessel_k1 = _modified(0, True), _modified(1, True)
modified_bessel_i0, modified_bessel_i1 = special.i0, special.i1


def _spherical(xp, out, x):
    xp.divide(xp.sin(x), x, out)
    out[x == 0] = 1
    out[xp.isinf(x)] = 0


spherical_bessel_j0 = _kernel(_spherical)

# ---------------------------------------------------------------- Airy's function

_AIRY_LOW, _AIRY_HIGH = -2.5, 1.5  # the power series is used between them, the expansions beyond
_AIRY_TERMS = 40


@cache
def _airy_powers(start):
    """Coefficients, highest first, in x³ of the solutions of y'' = x y that begin with 1 and with x (10.4.3)."""
    values = [1.0]
    for k in range(1, 18):
        values.append(values[-1] / ((3 * k + start) * (3 * k + start - 1)))
    return tuple(values[::-1])


def _airy_near(xp, x):
    cube = x * x * x
    even = horner(xp, cube, _airy_powers(0)) * (3 ** (-2 / 3) / math.gamma(2 / 3))
    return even - x * horner(xp, cube, _airy_powers(1)) * (3 ** (-1 / 3) / math.gamma(1 / 3))


def _airy_start(x):
    """The ζ at which the expansions in 1/ζ begin."""
    return 2 / 3 * abs(x) ** 1.5


def _airy_right(xp, x):
    zeta = 2 / 3 * x * xp.sqrt(x)
    bessel = _modified_far(xp, zeta, 1 / 3, _airy_start(_AIRY_HIGH), _AIRY_TERMS)
    return xp.sqrt(x / 3) * bessel * xp.exp(-zeta) / np.pi


def _airy_left(xp, x):
    root = xp.sqrt(-x)
    zeta = -2 / 3 * x * root
    wave = _wave_far(xp, zeta, 1 / 3, _airy_start(_AIRY_LOW), _AIRY_TERMS, 0)
    return wave / xp.sqrt(root) * (math.sqrt(2) / np.pi)


def _airy(xp, out, x):
    out[...] = np.nan  # stays at the infinities
    fill(out, (x >= _AIRY_LOW) & (x <= _AIRY_HIGH), lambda x: _airy_near(xp, x), x)
    fill(out, (x > _AIRY_HIGH) & (x < np.inf), lambda x: _airy_right(xp, x), x)
    fill(out, (x < _AIRY_LOW) & (x > -np.inf), lambda x: _airy_left(xp, x), x)


airy_ai = _kernel(_airy)
