"""exp, log, tanh, σ and erf of a float32 scalar, as polynomials without branches, which the compiler vectorizes.

Errors against the true value (in units of the last place, over all finite inputs): exp 1 (1.2 on processors that do not
multiply and add in one instruction), log 0.51, tanh 2, σ 2, erf 2.

Sources: argument reduction of exp by Cody & Waite, *Software Manual for the Elementary Functions* (1980); its
polynomial has the least relative error for its degree, 0.06 units of the last place before rounding. erf: Abramowitz &
Stegun 7.1 for the series, with refitted coefficients.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.kernels.compiled.runtime.language import declared, inlined, intrinsic, ir, types

F = np.float32
LOG2E, LN2_HIGH, LN2_LOW = F(1.44269504088896341), F(0.693359375), F(-2.12194440e-4)
# Coefficients of polynomials, that of the highest power first: of eˣ, of (tanh x - x) / x³ in x², of Φ's tail and erf.
EXP = (
    F(1.3814583654e-3), F(8.3687240258e-3), F(4.1668388993e-2), F(1.6666521132e-1), F(4.9999994040e-1), F(1.0), F(1.0),
)  # fmt: skip
_EXP2 = tuple([F(float(c) * math.log(2) ** (6 - n)) for n, c in enumerate(EXP)])  # the same of 2ˣ
TANH = (
    F(-0.005659984805409408), F(0.020590985051000238), F(-0.053721067269648766), F(0.13331127533750836),
    F(-0.3333326052758411),
)  # fmt: skip

_HALF_CDF = (
    F(0.5307027145), F(-0.7265760135), F(0.7107068705), F(-0.142248368), F(0.127414796),
)  # fmt: skip
_ERF_NEAR = (
    F(-9.641515124568013e-06), F(0.00011256947990046279), F(-0.00084828289210954), F(0.005220945443181657),
    F(-0.026865400048096517), F(0.11283781974263021), F(-0.3761263843466843), F(1.128379167058027),
)  # fmt: skip
_ERF_FAR = (
    F(2.1445575496162232e-05), F(-0.0004385300189198477), F(0.004190856023711904), F(-0.025171809078361966),
    F(0.10836155249239102), F(0.6332724140689128), F(1.1295520410424462), F(-0.00018246007199529402),
)  # fmt: skip
_LN2 = math.log(2.0)
_LOGS = tuple([1.0 / n for n in range(17, 0, -2)])  # of (1 + f) / (1 - f), in f²: 2f + 2f³/3 + 2f⁵/5 + …


def polynomial(fma, coefficients, x):
    """The value of a polynomial, given what emits a b + c, rounded once, of numbers or of whatever x is."""
    made, *rest = coefficients
    for c in rest:
        made = fma(made, x, c)
    return made


def exp_factor(fma, subtract, y, shift):
    """Emits what is eʸ when it is multiplied by 2ⁿ, for y within the range of float32's exponents; and n + shift.

    This is the one statement of the exponential. The functions of a number below, and those of registers (gates.py,
    moments.py, functions_avx512.py), differ in how they limit y and multiply by the power.
    """
    z = fma(y, LOG2E, shift)
    n = subtract(z, shift)
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, y))
    return polynomial(fma, EXP, r), z


def _multiply_add(builder, kind):
    """Returns what emits a b + c of numbers; some may be plain ones."""
    name = f"llvm.fma.{'f32' if kind == ir.FloatType() else 'f64'}"
    fused = declared(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return lambda *given: builder.call(
        fused, [ir.Constant(kind, float(x)) if isinstance(x, float | F) else x for x in given]
    )


def _polynomial(*coefficients):
    """Makes the function of a polynomial with these coefficients, that of the highest power first."""

    @intrinsic
    def value(typing, x):
        def code(context, builder, signature, given):
            return polynomial(_multiply_add(builder, given[0].type), coefficients, given[0])

        return x(x), code

    return value


_exp2, _tanh, _logs = _polynomial(*_EXP2), _polynomial(*TANH), _polynomial(*_LOGS)
_half_cdf, _erf_near, _erf_far = _polynomial(*_HALF_CDF), _polynomial(*_ERF_NEAR), _polynomial(*_ERF_FAR)

# Adding 1.5·2²³ to a number below 2²² rounds it to a whole number, which is then in the lowest bits of the sum.
# With 127 more, these bits are the exponent of that power of two. (The functions below allow no reordering of sums.)
TO_POWER = F(12582912.0 + 127.0)
_BELL_LOG2E = F(-0.72134752044448170)  # -log₂(e) / 2
_TO_HALF_POWER, _TO_LARGER_POWER, _LESS = F(12582912.0 + 126.0), F(12582912.0 + 158.0), F(2.0**-31)


@intrinsic
def _power_of(typing, x):
    """2ⁿ as a float32 for n + TO_POWER, with n from -127 (0) to 128 (inf)."""

    def code(context, builder, signature, given):
        bits = builder.bitcast(given[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return types.float32(types.float32), code


@intrinsic
def _exp_factor(typing, y, shift):
    def code(context, builder, signature, given):
        made = exp_factor(_multiply_add(builder, given[0].type), builder.fsub, *given)
        return context.make_tuple(builder, signature.return_type, made)

    return types.UniTuple(types.float32, 2)(y, shift), code


@inlined
def _factors(y, shift):
    """Two numbers whose product is eʸ, for y within the range of float32's exponents; the second is a power of two.

    It is times the power of two that `shift` adds to the exponent.
    """
    share, z = _exp_factor(y, shift)
    return share, _power_of(z)


@inlined
def _power(y, shift):
    """The product of these factors."""
    share, power = _factors(y, shift)
    return share * power


@inlined
def exp(x):
    """eˣ; nan stays nan."""
    y = F(88.8) if x > F(88.8) else x
    y = F(-104.0) if y < F(-104.0) else y
    tiny = y < F(-86.0)  # the power is taken too large then, so that the last product rounds the result as it must
    shift = _TO_LARGER_POWER if tiny else _TO_HALF_POWER
    return _power(y, shift) * (_LESS if tiny else F(2.0))


@inlined
def exp_and_one(x):
    """eˣ + 1, rounded once; from e^88.4 on it is inf."""
    y = F(89.0) if x > F(89.0) else x
    y = F(-87.0) if y < F(-87.0) else y
    share, power = _factors(y, TO_POWER)
    return share * power + F(1.0)


@inlined
def exp_below(x):
    """eˣ for x ≤ 0; exactly 0 below -87.7, where `exp` still returns numbers of fewer digits."""
    y = F(-88.0) if x < F(-88.0) else x
    return _power(y, TO_POWER)


@inlined
def bell(x):
    """exp(-x²/2); exactly 0 beyond 13.3."""
    s = x * x
    s = F(176.0) if s > F(176.0) else s
    z = s * _BELL_LOG2E + TO_POWER
    f = s * _BELL_LOG2E - (z - TO_POWER)
    return _exp2(f) * _power_of(z)


@intrinsic
def _bits(typing, x):
    return types.int64(types.float64), lambda context, builder, signature, given: builder.bitcast(
        given[0], ir.IntType(64)
    )


@intrinsic
def _of_bits(typing, bits):
    return types.float64(types.int64), lambda context, builder, signature, given: builder.bitcast(
        given[0], ir.DoubleType()
    )


@inlined
def log(x):
    """The natural logarithm, computed in float64: the C library's has other last bits on every system."""
    wide = np.float64(x)
    bits = _bits(wide)
    power = (bits - 0x3FE6A09E667F3BCD) >> 52  # so that the rest is between √½ and √2
    rest = _of_bits(bits - (power << 52))
    f = (rest - 1.0) / (rest + 1.0)
    s = f * f
    made = F(np.float64(power) * _LN2 + 2.0 * f * _logs(s))
    made = made if x < F(np.inf) else x  # inf and nan
    made = F(-np.inf) if x == F(0.0) else made
    return F(np.nan) if x < F(0.0) else made


@inlined
def sigmoid(x):
    """1 / (1 + e⁻ˣ)."""
    return F(1.0) / exp_and_one(-x)


@inlined
def tanh(x):
    """tanh x: a polynomial of x² up to 0.625, 1 - 2 / (e²ˣ + 1) beyond."""
    a = abs(x)
    s = x * x
    near = x + x * s * _tanh(s)
    far = F(1.0) - F(2.0) / exp_and_one(a + a)
    far = -far if x < F(0.0) else far
    return near if a < F(0.625) else far


@inlined
def normal_cdf(x, density):
    """The standard normal distribution's Φ(x), to 1e-7 (not relative to Φ), given `density` = bell(x).

    Abramowitz & Stegun 7.1.26.
    """
    t = F(1.0) / (F(1.0) + F(0.23164189) * abs(x))
    tail = _half_cdf(t) * t * density
    return tail if x < F(0.0) else F(1.0) - tail


@inlined
def erf(x):
    """erf x: a polynomial of x² below 1, 1 - e^(-polynomial of |x|) above."""
    a = abs(x)
    s = x * x
    b = a if a < F(4.0) else F(4.0)
    far = F(1.0) - exp_below(-_erf_far(b))
    far = -far if x < F(0.0) else far
    value = x * _erf_near(s) if a < F(1.0) else far
    return value if x == x else x
