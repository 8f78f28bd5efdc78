"""Edge values, and the expressions computed from them: the tables of tests/ops/test_edge_values.py.

In an expression, `l` is the library, `F` its nn.functional, and `x`, `y` and `z` are tensors.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from tensorgrad.rows.kernel_tables import OPS
from tests.support.device import ON_DEVICE  # GPUs' programs of CuPy's take float32 below 1.2e-38 for 0

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
RTOL = {torch.float32: 4e-6, torch.float64: 1e-11, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
nan, inf = math.nan, math.inf


# --- values ----------------------------------------------------------------------------------------------------------


def edges(dtype, loose=False) -> torch.Tensor:
    """Returns the edge values of a dtype; with `loose`, without those near its limits."""
    limits = torch.finfo(dtype)
    tiny, eps = limits.tiny, limits.eps
    numbers = [nan, 0.0, inf, 1.0, 1 + eps, 1 - eps / 2, 0.5, 1.5, 2.0, 2.5, 3.0, 1e-4, 0.1, 6.0, 20.0, 100.0, 88.8]
    numbers += [] if loose else [*([] if ON_DEVICE else [tiny * eps, tiny / 2]), tiny, limits.max, 5e4, 710.0]
    return torch.tensor([sign * v for v in numbers for sign in (1.0, -1.0)], dtype=torch.float64).to(dtype)


def triples(dtype) -> torch.Tensor:
    """Returns all rows of three out of ten values."""
    limits = torch.finfo(dtype)
    large = 2.0 ** math.floor(math.log2(limits.max) / 2 - 3)  # the squares of a few of these have a finite sum
    numbers = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.5, limits.tiny * (1 if ON_DEVICE else limits.eps), large]
    return torch.tensor(list(itertools.product(numbers, repeat=3)), dtype=torch.float64).to(dtype)


# --- which expressions ---------------------------------------------------------------------------------------------


def listed(text: str) -> list[str]:
    """Splits expressions separated by semicolons and line breaks."""
    return [expression.strip() for expression in text.replace("\n", ";").split(";") if expression.strip()]


SPELLED = {  # rows whose public functions have other parameters
    "clamp": "l.clamp(x, -1, 2.5)",
    "elu": "F.elu(x)",
    "gelu": "F.gelu(x)",
    "hardshrink": "F.hardshrink(x)",
    "hardtanh": "F.hardtanh(x)",
    "leaky_relu": "F.leaky_relu(x, 0.1)",
    "polygamma": "l.polygamma(1, x)",
    "prelu": "F.prelu(x, y[:1])",
    "softplus": "F.softplus(x)",
    "softshrink": "F.softshrink(x)",
    "threshold": "F.threshold(x, 0.5, 20.0)",
}


def written(op) -> str | None:
    """Returns the expression that calls a row's public function; None if PyTorch has none, or it takes no floats."""
    tensors = ", ".join("xyz"[: sum(p.is_tensor for p in op.params)])
    if op.name in SPELLED or op.name.startswith("bitwise_") or op.name in ("gcd", "lcm"):
        return SPELLED.get(op.name)
    spaces = (("l", torch, op.name), ("F", torch.nn.functional, op.name))
    spaces += (("l.special", torch.special, op.name.removeprefix("special_")),)
    return next((f"{text}.{name}({tensors})" for text, module, name in spaces if hasattr(module, name)), None)


ROWS = {written(op) for op in OPS.values() if op.kind == "pointwise"} - {None}
FURTHER = listed("""
l.div(x, y, rounding_mode="floor"); l.div(x, y, rounding_mode="trunc"); l.floor_divide(x, y); l.true_divide(x, y)
x ** 2; x ** 0.5; x ** 3; x ** -1; x ** -2; x ** -3; x ** -0.5; x ** 1.5; x ** 1; x ** 0; x ** -2.5; 2 ** x; (-2) ** x
0 ** x; x + 1; 1 - x; 1 / x; x / 3; x // 2; x % 2; x % -2; l.fmod(x, 2); l.fmod(x, -2); x * 0; x * inf; x > 0; x == 0
l.max(x, y); l.min(x, y); l.float_power(x, y); l.float_power(x, 2); l.isclose(x, y); l.isclose(x, y, equal_nan=True)
l.where(x > y, x, y); l.where(x > 0, x, 0.5); l.clamp(x, min=0); l.clamp(x, max=0); l.clamp(x, y, 2 * y)
l.clamp(x, 1, -1); l.clip(x, -inf, inf); l.clamp(x, nan, 1); x.masked_fill(y > 0, -0.0); l.round(x, decimals=2)
l.round(x, decimals=-1); l.logit(x, 0.1); l.nan_to_num(x, 1.0, 2.0, 3.0); l.ldexp(x, l.tensor(2.0)); l.frexp(x)
l.frexp(x).mantissa; l.isposinf(x); l.isneginf(x); l.isreal(x); l.positive(x); l.rsub(x, y); l.add(x, y, alpha=2)
l.mvlgamma(x.abs() + 2, 2); l.special.logit(x); l.special.expit(x); l.special.xlogy(x, y)
l.special.multigammaln(x.abs() + 2, 2); l.addcmul(x, y, y); l.addcdiv(x, y, x); l.addcmul(x, y, x, value=0.5)
l.lerp(x, y, 0.25); l.lerp(x, y, 0.75); l.lerp(x, y, x); l.complex(x, y).real; l.complex(x, y).imag; l.real(x)
l.angle(x); l.heaviside(x, y); x.bool(); x.half(); x.float(); x.double(); x.bfloat16(); F.relu6(x); F.celu(x)
F.celu(x, 0.5); F.selu(x); F.elu(x, 2.0); F.softsign(x); F.tanhshrink(x); F.logsigmoid(x); F.rrelu(x)
F.gelu(x, approximate="tanh"); F.leaky_relu(x, -0.5); F.leaky_relu(x, 2.0); F.hardtanh(x, 0.0, 1.0)
F.hardshrink(x, 0.0); F.softshrink(x, 0.0); F.softplus(x, 2.0, 5.0); F.threshold(x, 0.0, 0.0); F.prelu(x, y[:1])
F.glu(l.stack([x, y], -1)); F.hardsigmoid(x); F.mish(x); F.silu(x); l.sigmoid(x); l.tanh(x)
""")
EXPRESSIONS = sorted(e for e in ROWS | set(FURTHER) if not e.endswith(", z)"))
TERNARY = listed("""
l.addcmul(x, y, z); l.addcdiv(x, y, z); l.lerp(x, y, z); l.where(x > 0, y, z); l.clamp(x, y, z)
""")
ALONG = listed("""
x.sum(-1); x.mean(-1); x.prod(-1); x.nansum(-1); x.nanmean(-1); x.amax(-1); x.amin(-1); x.aminmax(dim=-1); x.max(-1)
x.min(-1); x.argmax(-1); x.argmin(-1); x.all(-1); x.any(-1); x.count_nonzero(-1); x.logsumexp(-1); x.var(-1)
x.std(-1); x.var(-1, correction=0); l.var_mean(x, -1); l.std_mean(x, -1); x.median(-1); x.nanmedian(-1)
x.mode(-1).values; x.kthvalue(2, -1).values; x.quantile(0.5, -1); x.nanquantile(0.25, -1)
x.quantile(0.5, -1, interpolation="nearest"); x.norm(dim=-1); x.norm(1, -1); x.norm(inf, -1); x.norm(-inf, -1)
x.norm(0, -1); x.norm(3, -1); x.norm(0.5, -1); l.linalg.vector_norm(x, 2, -1); l.linalg.vector_norm(x, -1, -1)
l.dist(x[0], x[1]); x.cumsum(-1); x.cumprod(-1); x.cummax(-1); x.cummin(-1); x.logcumsumexp(-1); x.diff(); x.flip(-1)
x.roll(1, -1); l.sort(x, dim=-1, stable=True); l.sort(x, dim=-1, descending=True, stable=True)
l.argsort(x, dim=-1, stable=True); x.msort(); x.topk(2, -1).values; x.topk(2, -1, largest=False).values
x.unique_consecutive(); l.isin(x, x[7]); l.searchsorted(l.tensor([-1.0, 0.0, 1.0], dtype=x.dtype), x)
l.bucketize(x, l.tensor([-1.0, 0.0, 1.0, inf], dtype=x.dtype))
l.bucketize(x, l.tensor([-1.0, 0.0, 1.0, inf], dtype=x.dtype), right=True); x.softmax(-1); x.log_softmax(-1)
F.softmin(x, -1); F.normalize(x, dim=-1); F.normalize(x, 1, -1); F.layer_norm(x, (3,)); F.rms_norm(x, (3,))
F.group_norm(x[:, None], 1); F.instance_norm(x[:, None]); F.local_response_norm(x[:, :, None], 2)
F.batch_norm(x.t(), None, None, training=True).t(); F.batch_norm(x, x.new_zeros(3), x.new_ones(3))
F.max_pool1d(x[:, None], 2, 1); F.avg_pool1d(x[:, None], 2, 1); F.adaptive_max_pool1d(x[:, None], 2)
F.lp_pool1d(x[:, None], 2.0, 2, 1); F.adaptive_avg_pool1d(x[:, None], 2)
F.max_pool1d(x[:, None], 3, 2, 1, return_indices=True); F.max_pool2d(x[:, None, None], (1, 2), 1); F.pad(x, (1, 1))
F.pad(x[:, None], (1, 1), "reflect"); F.pad(x[:, None], (1, 1), "replicate"); F.unfold(x[:, None, None], (1, 2))
F.mse_loss(x, x.roll(1, 0), reduction="none"); F.l1_loss(x, x.roll(1, 0), reduction="none")
F.huber_loss(x, x.roll(1, 0), reduction="none"); F.smooth_l1_loss(x, x.roll(1, 0), reduction="none")
F.soft_margin_loss(x, x.roll(1, 0).sign(), reduction="none"); F.hinge_embedding_loss(x, x.sign(), reduction="none")
F.binary_cross_entropy_with_logits(x, x.roll(1, 0), reduction="none")
F.kl_div(x, x.roll(1, 0).abs(), reduction="none"); F.poisson_nll_loss(x, x.roll(1, 0), reduction="none")
F.gaussian_nll_loss(x, x.roll(1, 0), x.roll(2, 0).abs(), reduction="none"); F.cosine_similarity(x, x.roll(1, 0))
F.pairwise_distance(x, x.roll(1, 0)); F.cross_entropy(x, x[:, 0].isnan().long(), reduction="none")
F.nll_loss(x, x[:, 0].isnan().long(), reduction="none")
F.cross_entropy(x, x[:, 0].isnan().long(), reduction="none", label_smoothing=0.1)
F.multi_margin_loss(x, x[:, 0].isnan().long(), reduction="none")
F.margin_ranking_loss(x, x.roll(1, 0), x.sign(), reduction="none"); (x[:, None] @ x[:, :, None])[:, 0]
l.bmm(x[:, :, None], x[:, None]); x @ x.new_ones(3); x @ x.new_zeros(3, 2); l.linalg.vecdot(x, x.roll(1, 0))
l.einsum("ni,ni->n", x, x); F.linear(x, x.new_ones(2, 3)); l.cross(x, x.roll(1, 0))
l.cdist(x[:, None], x.roll(1, 0)[:, None]); l.outer(x[:, 0], x[0]); F.conv1d(x[:, None], x.new_ones(1, 1, 2))
F.conv1d(x[:, None], x.new_zeros(1, 1, 2)); F.conv_transpose1d(x[:, None], x.new_ones(1, 1, 2))
F.scaled_dot_product_attention(x[:, None, None], x[:, None, None], x[:, None, None])
x.scatter_reduce(1, x.isnan().long(), x, "amax"); x.scatter_reduce(1, x.isnan().long(), x, "amin")
x.scatter_reduce(1, x.isnan().long(), x, "mean"); x.index_reduce(1, l.tensor([0, 0, 2]), x, "amax")
x.scatter_add(1, x.isnan().long(), x); x.index_add(1, l.tensor([0, 0, 1]), x); x.renorm(2, 0, 1.0); l.trapezoid(x)
l.cumulative_trapezoid(x); l.gradient(x, dim=1)[0]; x.nonzero(); x.tril(); l.fft.fft(x); l.fft.rfft(x)
""")
OF_INTEGERS = listed("""
x + y; x - y; x * y; x / y; l.div(x, y, rounding_mode="floor"); l.div(x, y, rounding_mode="trunc"); x // y; x % y
l.fmod(x, y); -x if x.dtype != l.uint8 else x; x.abs(); x.sign(); l.sgn(x); x.square(); x ** 2; x ** 3
l.maximum(x, y); l.minimum(x, y); x.clamp(-1, 1); x == y; x < y; x >= y; l.gcd(x, y); l.lcm(x, y); x & y; x | y; x ^ y
~x; x << (y & 7); x >> (y & 7); l.logical_and(x, y); l.logical_not(x); x.sum(); x.prod(); x.amax(); x.amin()
x.argmax(); x.argmin(); x.cumsum(0); x.cumprod(0); x.cummax(0); l.sort(x, stable=True); x.unique(); x.median()
x.mode().values; x.float(); x.double(); x.half(); x.bool(); x.short(); x.byte(); x.sqrt(); x.exp()
l.true_divide(x, y); x.mean(dtype=l.float64); x.all(); x.any(); x.count_nonzero(); x.diff(); l.isin(x, y)
l.bincount(x.clamp(0, 9)); l.where(x > y, x, y); l.addcmul(x, y, y); x.dot(y) if len(x) == len(y) else x
l.heaviside(x, y); l.ldexp(x, y.clamp(-3, 3)); l.float_power(x, 2); F.relu(x); F.threshold(x, 0, 7)
F.hardtanh(x, -2, 2) if x.dtype != l.uint8 else x; x.masked_fill(y > 0, 3); x.nan_to_num(); l.isnan(x); l.isfinite(x)
""")


# --- how closely -----------------------------------------------------------------------------------------------------


EXACT = {  # results that must be exact to the last bit
    *(f"l.{name}(x)" for name in listed("""
    neg; reciprocal; square; abs; sign; sgn; floor; ceil; trunc; round; frac; isnan; isinf; isfinite; signbit
    logical_not; positive; nan_to_num; relu
    """)),
    *(f"l.{name}(x, y)" for name in listed("""
    add; sub; rsub; mul; div; remainder; fmod; copysign; nextafter; heaviside; maximum; minimum; fmax; fmin; clamp_min
    clamp_max; eq; ne; lt; le; gt; ge; logical_and; logical_or; logical_xor; max; min; floor_divide; true_divide
    """)),
    *listed("""
    F.relu6(x); F.hardtanh(x); F.hardshrink(x); F.softshrink(x); F.threshold(x, 0.5, 20.0); l.clamp(x, -1, 2.5)
    l.clamp(x, y, 2 * y); l.clamp(x, min=0); l.clamp(x, max=0); l.clamp(x, y, z); l.where(x > y, x, y)
    l.where(x > 0, y, z); x.masked_fill(y > 0, -0.0); x + 1; 1 - x; 1 / x; x * 0; x * inf; x / 3
    """),
}  # fmt: skip
LOOSE = ("bessel", "airy", "polynomial", "gamma", "zeta")  # PyTorch's own errors are larger than single precision


def loose(expression: str) -> bool:
    """Returns whether only nan, infinities, zeros and five digits can be compared."""
    return any(name in expression for name in LOOSE)


# Zeros of either sign: extrema may return any of several, and sums to zero depend on the order.
SIGNLESS = set(listed("""
x.amax(-1); x.amin(-1); x.aminmax(dim=-1); x.max(-1); x.min(-1); x.median(-1); x.kthvalue(2, -1).values; x.msort()
F.max_pool1d(x[:, None], 2, 1); F.max_pool1d(x[:, None], 3, 2, 1, return_indices=True)
F.max_pool2d(x[:, None, None], (1, 2), 1); F.adaptive_max_pool1d(x[:, None], 2)
x.scatter_reduce(1, x.isnan().long(), x, "amax"); x.scatter_reduce(1, x.isnan().long(), x, "amin")
x.index_reduce(1, l.tensor([0, 0, 2]), x, "amax")
"""))  # fmt: skip
SIGNLESS |= set(listed("""
F.layer_norm(x, (3,)); F.group_norm(x[:, None], 1); F.instance_norm(x[:, None]); l.fft.fft(x); l.fft.rfft(x)
F.batch_norm(x.t(), None, None, training=True).t(); F.batch_norm(x, x.new_zeros(3), x.new_ones(3))
F.cross_entropy(x, x[:, 0].isnan().long(), reduction="none"); l.lerp(x, y, x); l.lerp(x, y, z); l.lerp(x, y, 0.25)
l.lerp(x, y, 0.75)
"""))  # fmt: skip


def _pole(x):
    return (x < 0) & ((np.abs(x - np.rint(x)) < 1e-3) | (x < -1e5))


def _zeros(x, y):
    return (x == 0) & (y == 0)


def _beyond(x, y):
    return np.isfinite(x) & (np.abs(x) > 1e15 * np.abs(y))


def _nan_in_row(x):
    return np.isnan(x).any(-1)


def _inf_in_row(x):
    return np.isinf(x).any(-1)


_DIGITS = "a difference of nearly equal numbers, of which few digits are left"
_FLOAT64 = "PyTorch's own double precision is this far off"
_FMOD = "PyTorch's vector code gives nan where the quotient has more digits than a double; its scalar code does not"
_PRODUCT = "the product overflows before the sum; PyTorch's vector code does both in one instruction"
_ZERO_FIRST = "in half precision NumPy takes the other one of a zero and a negative zero"
_RUNNING_MEAN = "PyTorch's running mean turns an infinity into nan; its own mean() does not"
POLYNOMIAL = "of nan, PyTorch ends its recurrence early for some degrees; of ±1/2, the result is all cancellation"
DEVIATIONS: dict = {  # expression -> (the reason, for which operands)
    "F.scaled_dot_product_attention(x[:, None, None], x[:, None, None], x[:, None, None])": (
        "PyTorch's fused kernel gives 0 where a score is nan; its composite form gives nan",
        lambda x: ~np.isfinite(x).all(-1)),
    "F.tanhshrink(x)": (_DIGITS, lambda x: np.abs(x) < (0.2 if ON_DEVICE else 1e-3)),  # CUDA's tanh: to two ulps
    "l.add(x, y, alpha=2)": (_PRODUCT, lambda x, y: np.isinf(2 * y)),
    "l.addcmul(x, y, y)": (_PRODUCT, lambda x, y: np.isinf(y * y)),
    "l.addcmul(x, y, x, value=0.5)": (_PRODUCT, lambda x, y: np.isinf(x * y) | (np.abs(x * y) < 1e-37)),
    "l.lerp(x, y, x)": (_PRODUCT, lambda x, y: np.isinf(2 * y) | (np.abs(x) < 1e-3)),
    "l.logaddexp2(x, y)": (_DIGITS, lambda x, y: np.maximum(x, y) < -0.98),
    "l.digamma(x)": (_FLOAT64, lambda x: np.abs(x + 1) < 1e-3),
    "l.polygamma(1, x)": ("infinite at the poles, where PyTorch's sine of a rounded π is not zero", _pole),
    "l.fmod(x, y)": (_FMOD, _beyond),
    "l.remainder(x, y)": (_FMOD, _beyond),
    "l.special.ndtr(x)": (_FLOAT64, lambda x: x < -5),
    "l.special.zeta(x, y)": (
        "PyTorch's values for q up to 0 and infinite s follow no rule", lambda x, y: ~(y > 0) | np.isinf(x)),
    "x.mode(-1).values": ("PyTorch sorts nan to no certain place", _nan_in_row),
    "l.var_mean(x, -1)": (_RUNNING_MEAN, _inf_in_row),
    "l.std_mean(x, -1)": (_RUNNING_MEAN, _inf_in_row),
    **{f"l.{name}(x, y)": (_ZERO_FIRST, _zeros) for name in listed(
        "maximum; minimum; max; min; fmax; fmin; clamp_min; clamp_max; nextafter")},
    "l.clamp(x, y, 2 * y)": (_ZERO_FIRST, _zeros),
    "l.clamp(x, y, z)": (_ZERO_FIRST, lambda x, y, z: (x == 0) | (y == 0) | (z == 0)),
    **{f"l.special.{name}(x, y)": (POLYNOMIAL, lambda x, y: np.isnan(x) | (np.abs(x) == 0.5)) for name in listed("""
       chebyshev_polynomial_u; chebyshev_polynomial_v; chebyshev_polynomial_w; laguerre_polynomial_l
       legendre_polynomial_p; shifted_chebyshev_polynomial_t; shifted_chebyshev_polynomial_u
       shifted_chebyshev_polynomial_w
    """)},
}  # fmt: skip
# Where the gradient at an edge differs from torch's: expression -> (the reason, for which operands).
GRADIENT_DEVIATIONS: dict = {
    **{
        f"l.{name}(x)": ("infinite in PyTorch's double precision one step before it overflows", lambda x: abs(x) > 709)
        for name in ("cosh", "sinh")
    },
    "l.special.i1e(x)": (_DIGITS, lambda x: abs(x) > 1e4),
    "F.mish(x)": ("next to the smallest numbers", lambda x: x < -700),
    "l.lgamma(x)": (_FLOAT64, lambda x: np.abs(x + 1) < 1e-3),
    "l.special.erfcx(x)": (_DIGITS, lambda x: x > 50),
    "l.special.log_ndtr(x)": (_FLOAT64, lambda x: x < -1e4),
}
