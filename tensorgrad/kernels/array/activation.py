"""Activations over plain arrays: each in as few passes and temporaries as NumPy allows.

All keep the dtype of `x` (float32 or float64; two-byte floats are computed in float32). A `*_grad` kernel takes the
gradient of its output first, then what it needs from the forward pass.
"""

import math

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.system.float_errors import ignored

from .blocks import as_float32, in_blocks, select, table
from .erf import TINY, erf, phi_argument
from .special import expit

sigmoid = expit

_ZERO = np.zeros((), np.float32)
_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
_TANH_SLOPE = math.sqrt(2 / math.pi)  # gelu's tanh form: tanh(slope * (x + cubic * x^3))
_TANH_CUBIC = 0.044715
_ALL_ONES_LESS = {4: np.int32, 8: np.int64}
_LARGE = 4096  # elements from which the vector forms below beat one call of the obvious ufunc


def _two_byte(*arrays):
    return arrays[0].dtype.itemsize == 2


def _negative_part(xp, x, out=None):
    """`min(x, 0)`; nan is kept."""
    if x.size < _LARGE:
        return xp.minimum(table(xp, (0.0,), x.dtype)[0], x, out=out)  # x second: its negative zeros are kept
    return xp.clip(x, -np.inf, 0, out)  # NumPy's minimum with a scalar takes three times as long per element


def _positive_part(xp, x):
    """`max(x, 0)`; nan is kept."""
    if x.size < _LARGE:
        return xp.maximum(table(xp, (0.0,), x.dtype)[0], x)
    return xp.clip(x, 0, np.inf)


def clear_where(xp, drop, g):
    """`where(drop, 0, g)`: an exact 0 even for infinite `g`, using bits if there are many elements."""
    if xp is not np or g.size < _LARGE or g.dtype.itemsize not in _ALL_ONES_LESS or drop.shape != g.shape:
        return xp.where(drop, table(xp, (0.0,), g.dtype)[0], g)
    keep = drop.astype(_ALL_ONES_LESS[g.dtype.itemsize])
    keep -= 1  # all ones where kept, 0 where dropped
    keep &= np.ascontiguousarray(g).view(keep.dtype)
    return keep.view(g.dtype)


# ---------------------------------------------------------------- piecewise linear


def clamp(xp, x, low, high):
    """`x` limited to [low, high]; nan is kept."""
    return xp.clip(x, low, high)


def relu(xp, x):
    """`max(x, 0)`; nan is kept."""
    if (x.size < _LARGE and x.dtype.itemsize > 2) or x.dtype.kind != "f":
        return xp.maximum(table(xp, (0,), x.dtype)[0], x)  # x second: PyTorch keeps its negative zeros
    return xp.clip(x, 0, np.inf)  # NumPy's maximum with a scalar takes five times as long


def threshold(xp, x, limit, value):
    """`x` where it exceeds `limit`, else `value`; nan is kept."""
    return xp.where(x <= limit, x.dtype.type(value), x)


def threshold_grad(xp, g, out, limit=0.0):
    """Gradient of `threshold`, and of `relu` from its output: `g` except where `out <= limit`."""
    return clear_where(xp, out <= limit if limit else out <= table(xp, (0,), out.dtype)[0], g)


def relu_backward(xp, g, out):
    """The gradient of `relu`: `g` where the output is positive."""
    if xp is np and g.size < _LARGE and g.dtype is F32 is out.dtype:
        return np.where(np.less_equal(out, _ZERO), _ZERO, g)
    return threshold_grad(xp, g, out)


def _leaky_relu(xp, out, x, slope):
    if slope < 0:
        out[...] = select(xp, x > 0, x, x * slope)
        return
    xp.multiply(x, slope, out)
    (xp.maximum if slope <= 1 else xp.minimum)(x, out, out=out)


def leaky_relu(xp, x, negative_slope=0.01):
    """`x` where positive, else `negative_slope * x`."""
    if _two_byte(x):
        return as_float32(leaky_relu, xp, x, negative_slope=negative_slope)
    return in_blocks(xp, _leaky_relu, [x], negative_slope)


def _leaky_relu_grad(xp, out, g, x, slope):
    xp.multiply(g, slope, out)
    out[...] = select(xp, x > 0, g, out)


def leaky_relu_grad(xp, g, x, negative_slope=0.01):
    """Gradient of `leaky_relu`; for a positive slope `x` may be its output."""
    if _two_byte(g):
        return as_float32(leaky_relu_grad, xp, g, x, negative_slope=negative_slope)
    return in_blocks(xp, _leaky_relu_grad, [g, x], negative_slope)


def hardtanh(xp, x, low=-1.0, high=1.0):
    """`x` limited to [low, high]."""
    return xp.clip(x, low, high)


def hardtanh_grad(xp, g, x, low=-1.0, high=1.0):
    """Gradient of `hardtanh`: 0 on and outside the limits, and at nan."""
    return clear_where(xp, xp.logical_not((x > low) & (x < high)), g)


def hardsigmoid(xp, x):
    """`clip(x + 3, 0, 6) / 6`."""
    if _two_byte(x):
        return as_float32(hardsigmoid, xp, x)
    return xp.clip(x + 3, 0, 6) / 6


def hardsigmoid_grad(xp, g, x):
    """Gradient of `hardsigmoid`: 1/6 strictly inside (-3, 3)."""
    if _two_byte(g):
        return as_float32(hardsigmoid_grad, xp, g, x)
    return clear_where(xp, xp.logical_not((x > -3) & (x < 3)), g * (1 / 6))


def hardswish(xp, x):
    """`x * clip(x + 3, 0, 6) / 6`."""
    if _two_byte(x):
        return as_float32(hardswish, xp, x)
    with ignored():
        return xp.clip(x + 3, 0, 6) * x / 6


def hardswish_grad(xp, g, input):
    """Gradient of `hardswish`: 0 up to -3, `g` from 3, `g * (x / 3 + 1/2)` between."""
    if _two_byte(g):
        return as_float32(hardswish_grad, xp, g, input)
    with ignored():
        between = select(xp, input >= 3, g, (input / 3 + 0.5) * g)
    return clear_where(xp, input <= -3, between)


# ---------------------------------------------------------------- gelu


def _gelu_float32(xp, out, x):
    one, half = table(xp, (1.0, 0.5), x.dtype)
    phi_argument(xp, x, xp.multiply(x, x), out)
    xp.tanh(out, out)
    xp.add(out, one, out)
    xp.multiply(out, half, out)  # before x, as twice x may overflow
    xp.multiply(out, x, out)


def _gelu_float64(xp, out, x):
    xp.multiply(erf(xp, x * _SQRT_HALF), 0.5, out)
    xp.add(out, 0.5, out)
    xp.multiply(out, x, out)


def _gelu_tanh(xp, out, x):
    one, half, slope, cubic = table(xp, (1.0, 0.5, _TANH_SLOPE, _TANH_SLOPE * _TANH_CUBIC), x.dtype)
    xp.multiply(x, x, out)
    xp.multiply(out, cubic, out)
    xp.add(out, slope, out)
    xp.multiply(out, x, out)
    xp.tanh(out, out)
    xp.add(out, one, out)
    xp.multiply(out, half, out)
    xp.multiply(out, x, out)


def _erf_of_half(xp, x):
    """The formula 7.1.26 of Abramowitz & Stegun: what PyTorch's vectors compute, hence its numbers for large -x."""
    t = 1 / (np.float32(0.3275911) * xp.abs(x) + 1)
    series = np.float32(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(coefficient)
    return xp.copysign(1 - series * t * xp.exp(-x * x), x)


def _phi_of_half(xp, x, approximate):
    """Returns twice the share of x that gelu keeps, in float32, by PyTorch's formulas: 1 + erf cancels, as there."""
    if approximate == "tanh":
        return 1 + xp.tanh(np.float32(_TANH_SLOPE) * (x + np.float32(_TANH_CUBIC) * (x * x * x)))
    return 1 + _erf_of_half(xp, x * np.float32(_SQRT_HALF))


def _gelu_of_half(xp, x, approximate):
    return np.float32(0.5) * x * _phi_of_half(xp, x, approximate)


def gelu_grad_in_float32(xp, g, x, approximate):
    half, kept = np.float32(0.5), _phi_of_half(xp, x, approximate)
    if approximate == "tanh":
        t = kept - 1
        inner = np.float32(_TANH_SLOPE) * (1 + np.float32(3 * _TANH_CUBIC) * (x * x))
        return g * (half * kept + half * x * (1 - t * t) * inner)
    return g * (half * kept + x * (xp.exp(x * x * -half) * np.float32(_INV_SQRT_2PI)))


def gelu(xp, x, approximate="none"):
    """Gaussian error linear unit `x Phi(x)`, or its tanh form (D. Hendrycks, K. Gimpel, arXiv:1606.08415)."""
    if _two_byte(x):
        return as_float32(_gelu_of_half, xp, x, approximate=approximate)
    if approximate == "tanh":
        return in_blocks(xp, _gelu_tanh, [x])
    if xp is np and x.size <= TINY:  # see erf.TINY
        values = [0.5 * v * (1.0 + math.erf(v * _SQRT_HALF)) for v in x.reshape(-1).tolist()]
        return np.array(values, x.dtype).reshape(x.shape)
    return in_blocks(xp, _gelu_float32 if x.dtype == np.float32 else _gelu_float64, [x])


def _gelu_grad(xp, out, g, x):
    minus_half, slope, one, half = table(xp, (-0.5, _INV_SQRT_2PI, 1.0, 0.5), x.dtype)
    square = xp.multiply(x, x)
    density = xp.multiply(square, minus_half)
    xp.exp(density, density)
    xp.multiply(density, x, density)
    xp.multiply(density, slope, density)
    if x.dtype == np.float32:
        phi_argument(xp, x, square, out)
        xp.tanh(out, out)
    else:
        out[...] = erf(xp, x * _SQRT_HALF)
    xp.add(out, one, out)
    xp.multiply(out, half, out)
    xp.add(out, density, out)
    xp.multiply(out, g, out)


def _gelu_tanh_grad(xp, out, g, x):
    square = xp.multiply(x, x)
    t = square * (_TANH_SLOPE * _TANH_CUBIC)
    t += _TANH_SLOPE
    t *= x
    xp.tanh(t, t)
    xp.multiply(t, t, out)
    xp.subtract(1, out, out)  # derivative of tanh
    square *= 3 * _TANH_SLOPE * _TANH_CUBIC
    square += _TANH_SLOPE
    square *= x
    out *= square
    out += t
    out += 1
    out *= 0.5
    out *= g


def gelu_grad(xp, g, input, approximate="none"):
    """Gradient of `gelu`: `g (Phi(x) + x phi(x))`, or that of the tanh form."""
    if _two_byte(g):
        return as_float32(gelu_grad_in_float32, xp, g, input, approximate=approximate)
    return in_blocks(xp, _gelu_tanh_grad if approximate == "tanh" else _gelu_grad, [g, input])


# ---------------------------------------------------------------- built on exp


def _silu(xp, out, x):
    xp.negative(x, out)
    xp.exp(out, out)
    xp.add(out, table(xp, (1.0,), x.dtype)[0], out)
    xp.divide(x, out, out)


def gated(xp, x, gate):
    """`x * sigmoid(gate)`."""
    if _two_byte(x):
        return as_float32(gated, xp, x, gate)
    return xp.multiply(x, sigmoid(xp, gate))


def silu(xp, x):
    """`x * sigmoid(x)`, of complex numbers too."""
    if x.dtype.kind == "c":
        return x * _complex_sigmoid(xp, x)
    if x.dtype.kind in "biu":
        raise TypeError(f"no meaning for {x.dtype}")
    return as_float32(silu, xp, x) if _two_byte(x) else in_blocks(xp, _silu, [x])


def _complex_sigmoid(xp, x):
    with ignored():
        return xp.reciprocal(xp.exp(-x) + 1)


def _silu_grad(xp, out, g, x):
    one = table(xp, (1.0,), x.dtype)[0]
    s = xp.negative(x)
    xp.exp(s, s)
    xp.add(s, one, s)
    xp.divide(one, s, s)
    xp.subtract(one, s, out)
    xp.multiply(out, x, out)
    xp.add(out, one, out)
    xp.multiply(out, s, out)
    xp.multiply(out, g, out)


def silu_grad(xp, g, input):
    """Gradient of `silu`: `g s (1 + x (1 - s))` with `s = sigmoid(x)`; of complex numbers, `g` times its conjugate."""
    if input.dtype.kind == "c":
        s = _complex_sigmoid(xp, input)
        return g * xp.conj(s * (1 + input * (1 - s)))
    return as_float32(silu_grad, xp, g, input) if _two_byte(g) else in_blocks(xp, _silu_grad, [g, input])


def _sigmoid_grad(xp, result, g, out):
    xp.subtract(table(xp, (1.0,), g.dtype)[0], out, result)
    xp.multiply(result, out, result)
    xp.multiply(result, g, result)


def sigmoid_grad(xp, g, out):
    """Gradient of `sigmoid` from its output: `g out (1 - out)`."""
    if _two_byte(g):
        if g.dtype.kind == "f":  # of float16 PyTorch rounds each step, of bfloat16 the result
            with ignored():
                return g * (g.dtype.type(1) - out) * out
        return as_float32(sigmoid_grad, xp, g, out)
    return in_blocks(xp, _sigmoid_grad, [g, out])


def _tanh_grad(xp, result, g, out):
    xp.multiply(out, out, result)
    xp.subtract(table(xp, (1.0,), g.dtype)[0], result, result)
    xp.multiply(result, g, result)


def tanh_grad(xp, g, out):
    """Gradient of `tanh` from its output: `g (1 - out^2)`."""
    if _two_byte(g):
        return as_float32(tanh_grad, xp, g, out)
    return in_blocks(xp, _tanh_grad, [g, out])


def _log1p_exp_minus_abs(xp, out, x):
    """Writes `log(1 + exp(-|x|))` to `out`.

    NumPy's log1p takes ten times as long as its log, so the log is used and the rounding of 1 + e is corrected.
    """
    one = table(xp, (1.0,), x.dtype)[0]
    e = xp.abs(x)
    xp.negative(e, e)
    xp.exp(e, e)
    u = xp.add(e, one)
    xp.log(u, out)
    rest = xp.subtract(u, one)
    xp.subtract(e, rest, e)
    xp.divide(e, u, e)
    xp.add(out, e, out)


def _softplus(xp, out, x, beta, limit):
    z = x * beta if beta != 1 else x
    _log1p_exp_minus_abs(xp, out, z)
    xp.add(out, _positive_part(xp, z), out)
    if beta != 1:
        out /= beta
    if limit < 20 or x.dtype != np.float32:  # from 20 on there is no difference in float32
        linear = z > limit
        if linear.any():
            out[...] = select(xp, linear, x, out)


def softplus(xp, x, beta=1.0, threshold=20.0):
    """`log(1 + exp(beta x)) / beta`, and `x` itself where `beta x > threshold`."""
    if _two_byte(x):
        return as_float32(softplus, xp, x, beta=beta, threshold=threshold)
    return in_blocks(xp, _softplus, [x], beta, threshold)


def _softplus_grad(xp, out, g, x, beta, limit):
    xp.multiply(x, -beta, out)
    xp.exp(out, out)
    xp.add(out, table(xp, (1.0,), x.dtype)[0], out)
    xp.divide(g, out, out)
    if limit < 20 or x.dtype != np.float32:
        linear = x * beta > limit
        if linear.any():
            out[...] = select(xp, linear, g, out)


def softplus_grad(xp, g, input, beta=1.0, threshold=20.0):
    """Gradient of `softplus`: `g sigmoid(beta x)`, and `g` where `beta x > threshold`."""
    if _two_byte(g):
        return as_float32(softplus_grad, xp, g, input, beta=beta, threshold=threshold)
    return in_blocks(xp, _softplus_grad, [g, input], beta, threshold)


def _log_sigmoid(xp, out, x):
    _log1p_exp_minus_abs(xp, out, x)
    xp.subtract(_negative_part(xp, x), out, out)


def log_sigmoid(xp, x):
    """`log(sigmoid(x))` without underflow."""
    return as_float32(log_sigmoid, xp, x) if _two_byte(x) else in_blocks(xp, _log_sigmoid, [x])


def _log_sigmoid_grad(xp, out, g, x):
    xp.exp(x, out)
    xp.add(out, table(xp, (1.0,), x.dtype)[0], out)
    xp.divide(g, out, out)


def log_sigmoid_grad(xp, g, input):
    """Gradient of `log_sigmoid`: `g sigmoid(-x)`."""
    if _two_byte(g):
        return as_float32(log_sigmoid_grad, xp, g, input)
    return in_blocks(xp, _log_sigmoid_grad, [g, input])


def _elu(xp, out, x, negative, scale, input_scale):
    _negative_part(xp, x, out)
    if input_scale != 1:
        out *= input_scale
    xp.expm1(out, out)
    if negative != 1:
        out *= negative
    positive = _positive_part(xp, x)
    if scale != 1:
        positive *= scale
    out += positive


def elu(xp, x, alpha=1.0, scale=1.0, input_scale=1.0):
    """`scale x` where positive, else `scale alpha (exp(input_scale x) - 1)`: the form `selu` and `celu` share."""
    if _two_byte(x):
        return as_float32(elu, xp, x, alpha=alpha, scale=scale, input_scale=input_scale)
    return in_blocks(xp, _elu, [x], alpha * scale, scale, input_scale)


def _elu_grad(xp, out, g, x, alpha, scale, input_scale):
    _negative_part(xp, x, out)
    if input_scale != 1:
        out *= input_scale
    xp.exp(out, out)
    factor = alpha * input_scale
    if factor != 1:  # 1 where x is positive, where `out` is exp(0)
        out[...] = select(xp, x > 0, out, out * factor)
    out *= g
    if scale != 1:
        out *= scale


def elu_grad(xp, g, input, alpha=1.0, scale=1.0, input_scale=1.0):
    """Gradient of `elu` from its input."""
    if _two_byte(g):
        return as_float32(elu_grad, xp, g, input, alpha=alpha, scale=scale, input_scale=input_scale)
    return in_blocks(xp, _elu_grad, [g, input], alpha, scale, input_scale)


SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def selu(xp, x):
    """Self-normalizing `elu` (G. Klambauer et al., arXiv:1706.02515)."""
    return elu(xp, x, SELU_ALPHA, SELU_SCALE)


def celu(xp, x, alpha=1.0):
    """`max(0, x) + min(0, alpha (exp(x / alpha) - 1))` (J. T. Barron, arXiv:1704.07483)."""
    return elu(xp, x, alpha, 1.0, 1.0 / alpha)


def _mish_gate(xp, x):
    """tanh(softplus(x)) = n / (n + 2) with n = e (e + 2), e = exp(x): no logarithm and no cancellation."""
    e = xp.exp(xp.clip(x, -np.inf, 40))  # beyond, the gate is 1
    n = e + 2
    n *= e
    return xp.divide(n, n + 2, n), e


def _mish(xp, out, x):
    xp.multiply(_mish_gate(xp, x)[0], x, out)


def mish(xp, x):
    """`x tanh(softplus(x))` (D. Misra, arXiv:1908.08681)."""
    return as_float32(mish, xp, x) if _two_byte(x) else in_blocks(xp, _mish, [x])


def _mish_grad(xp, out, g, x):
    gate, e = _mish_gate(xp, x)
    e /= 1 + e
    e *= x
    xp.multiply(gate, gate, out)
    xp.subtract(1, out, out)
    out *= e
    out += gate
    out *= g


def mish_grad(xp, g, input):
    """Gradient of `mish`: `g (t + x sigmoid(x) (1 - t^2))` with `t = tanh(softplus(x))`."""
    return as_float32(mish_grad, xp, g, input) if _two_byte(g) else in_blocks(xp, _mish_grad, [g, input])
