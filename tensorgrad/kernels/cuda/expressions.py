"""Pointwise ops as expressions in CUDA C: data for `pointwise.py`, and for tests that compile all programs.

`a`, `b`, `c` are the elements of the operands; `p`, `q`, `r` are the op's scalars, all as type A; `N(…)` is a constant
of that type (a bare 0.5 would make the arithmetic double). The formulas are those of `kernels/array/activation.py` and
`kernels/array/pointwise.py`, which the CPU uses.
"""

from __future__ import annotations

from typing import NamedTuple


class Expression(NamedTuple):
    """A pointwise op: what it computes, its operands' types ("T", or "b" for bool), and its result's."""

    text: str
    operands: str = "T"
    result: str = "T"


def _of(operands: str, result: str = "T", **texts: str) -> dict[str, Expression]:
    return {name: Expression(text, operands, result) for name, text in texts.items()}


SQRT_HALF, INV_SQRT_2PI = "N(0.70710678118654752440)", "N(0.39894228040143267794)"
TANH_SLOPE, TANH_CUBIC = "N(0.79788456080286535588)", "N(0.044715)"  # for gelu's tanh form

EXPRESSIONS: dict[str, Expression] = {
    **_of(
        "T",
        neg="-a", abs="fabs(a)", reciprocal="1 / a", sqrt="sqrt(a)", rsqrt="rsqrt(a)",
        exp="exp(a)", exp2="exp2(a)", expm1="expm1(a)", log="log(a)", log2="log2(a)", log10="log10(a)",
        log1p="log1p(a)", sin="sin(a)", cos="cos(a)", tanh="tanh(a)", erf="erf(a)", square="a * a", cube="a * a * a",
        sigmoid="sigmoid(a)", silu="a * sigmoid(a)",
        relu="a < 0 ? 0 : a",  # keeps nan and negative zero
        gelu=f"N(0.5) * a * (1 + erf(a * {SQRT_HALF}))",
        gelu_tanh=f"N(0.5) * a * (1 + tanh({TANH_SLOPE} * (a + {TANH_CUBIC} * a * a * a)))",
        mish="a < -60 ? a * exp(a + 30) * N(9.3576229688401746e-14) : a * mish_gate(a)",  # exp(a) may be flushed to 0
        log_sigmoid="Min::of(a, N(0)) - log1p(exp(-fabs(a)))",
        hardsigmoid="limited(a + 3, 0, 6) / 6", hardswish="a * limited(a + 3, 0, 6) / 6",
        clamp="limited(a, p, q)",
        threshold="a <= p ? q : a",
        leaky_relu="a > 0 ? a : a * p",
        hardshrink="a >= -p && a <= p ? 0 : a",
        softshrink="a >= -p && a <= p ? 0 : a - copysign(p, a)",
        softplus="a * p > q ? a : (Max::of(a * p, N(0)) + log1p(exp(-fabs(a * p)))) / p",
        elu="a > 0 ? a * q : p * q * expm1(a * r)",
    ),
    **_of(
        "TT",
        add="a + b", sub="a - b", mul="a * b", div="a / b", pow="pow(a, b)", rsub="b - a", rdiv="b / a",
        maximum="Max::of(a, b)", minimum="Min::of(a, b)",
        floor_divide="floor_divided(a, b)", remainder="floor_rest(fmod(a, b), b)", copysign="copysign(a, b)",
        hypot="hypotenuse(a, b)",
        lerp_by_number="fabs(p) < N(0.5) ? a + p * (b - a) : b - (b - a) * (1 - p)",
        # Gradients: `a` is that of the result; `b` is the input, or the result where noted below.
        sigmoid_grad="a * (1 - b) * b",  # the result
        tanh_grad="a * (1 - b * b)",  # the result
        threshold_grad="b <= p ? 0 : a",
        silu_grad="a * sigmoid(b) * (1 + b * (1 - sigmoid(b)))",
        gelu_grad=f"a * (N(0.5) * (1 + erf(b * {SQRT_HALF})) + b * {INV_SQRT_2PI} * exp(N(-0.5) * b * b))",
        gelu_tanh_grad=f"a * gelu_tanh_slope(b, {TANH_SLOPE}, {TANH_CUBIC})",
        mish_grad="a * (mish_gate(b) + b * sigmoid(b) * (1 - mish_gate(b) * mish_gate(b)))",
        log_sigmoid_grad="a * sigmoid(-b)",
        leaky_relu_grad="b > 0 ? a : a * p",
        hardtanh_grad="b > p && b < q ? a : 0",
        clamp_grad="b >= p && b <= q ? a : 0",
        hardsigmoid_grad="b > -3 && b < 3 ? a * N(0.16666666666666666667) : 0",
        hardswish_grad="b <= -3 ? 0 : b >= 3 ? a : a * (b / 3 + N(0.5))",
        shrink_grad="b < -p || b > p ? a : 0",
        softplus_grad="b * p > q ? a : a * sigmoid(b * p)",
        elu_grad="b > 0 ? a * q : a * q * p * r * exp(b * r)",
    ),
    **_of("TT", "b", eq="a == b", ne="a != b", lt="a < b", le="a <= b", gt="a > b", ge="a >= b"),
    **_of(
        "TTT",
        addcmul="a + p * (b * c)", addcdiv="a + p * (b / c)", clamp_between="Min::of(Max::of(a, b), c)",
        lerp="fabs(c) < N(0.5) ? a + c * (b - a) : b - (b - a) * (1 - c)",
    ),
    **_of("bTT", where="a ? b : c"),
    **_of("Tb", masked_fill="b ? p : a"),
}  # fmt: skip

WHOLE = {"add", "sub", "mul"}  # also for int64


def settings(name: str, dtype: str = "float32") -> dict:
    """Returns the settings of `program.text("pointwise", …)` for an op."""
    row = EXPRESSIONS[name]
    types = {f"T{letter}": "T" if kind == "T" else "bool" for letter, kind in zip("ABC", row.operands)}
    return {
        "EXPRESSION": row.text, "OPERANDS": len(row.operands), "OUT": "T" if row.result == "T" else "bool", **types,
        **({"WHOLE": 1} if dtype == "int64" else {}),
    }  # fmt: skip
