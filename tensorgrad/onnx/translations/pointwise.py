"""Pointwise ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorgrad.dtypes import result_type_of
from tensorgrad.onnx.builder import Builder, Value, bool, float32, float64, int64
from tensorgrad.onnx.sizes import Varying
from tensorgrad.onnx.translations.table import TABLE, translates

# Rows that are an operator of one input, of the dtype of the result.
UNARY = {
    "neg": "Neg", "reciprocal": "Reciprocal", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos",
    "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "abs": "Abs", "sign": "Sign", "sgn": "Sign",
    "sigmoid": "Sigmoid", "erf": "Erf", "relu": "Relu", "mish": "Mish", "hardswish": "HardSwish",
}  # fmt: skip
# Rows that are an operator of two inputs, in the dtype of the result.
BINARY = {"sub": "Sub", "div": "Div"}
BOOLEAN = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
BITWISE = {
    "bitwise_and": ("BitwiseAnd", "And"),
    "bitwise_or": ("BitwiseOr", "Or"),
    "bitwise_xor": ("BitwiseXor", "Xor"),
}
COMPARISON = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def promoted(*operands: Any) -> Any:
    """The dtype in which operands are compared, as if each had a dimension where it has."""
    given = []
    for o in operands:
        if isinstance(o, Value):
            shape = (1,) * (o.rank if o.shapes is not None or o.array is not None else 1)
            given.append(np.empty(shape, o.dtype.numpy))
        else:
            given.append(o.values[0] if isinstance(o, Varying) else o)
    return result_type_of(given)


def _unary(operator: str) -> Any:
    return lambda g, input: g.op(operator, g.operand(input, g.dtype))


def _binary(operator: str) -> Any:
    return lambda g, input, other: g.op(operator, g.operand(input, g.dtype), g.operand(other, g.dtype))


def _boolean(operator: str) -> Any:
    return lambda g, input, other: g.op(operator, truth(g, input), truth(g, other), dtype=bool)


def _bitwise(operators: tuple[str, str]) -> Any:
    def translate(g: Builder, input: Any, other: Any) -> Value:
        operator = operators[1] if g.dtype is bool else operators[0]
        return g.op(operator, g.operand(input, g.dtype), g.operand(other, g.dtype))

    return translate


def _comparison(operator: str) -> Any:
    def translate(g: Builder, input: Any, other: Any) -> Value:
        dtype = promoted(input, other)
        if dtype is bool and operator != "Equal":
            dtype = int64
        return g.op(operator, g.operand(input, dtype), g.operand(other, dtype), dtype=bool)

    return translate


TABLE.update({name: _unary(operator) for name, operator in UNARY.items()})
TABLE.update({name: _binary(operator) for name, operator in BINARY.items()})
TABLE.update({name: _boolean(operator) for name, operator in BOOLEAN.items()})
TABLE.update({name: _bitwise(operators) for name, operators in BITWISE.items()})
TABLE.update({name: _comparison(operator) for name, operator in COMPARISON.items()})


def truth(g: Builder, value: Any) -> Value:
    """Whether elements are not zero."""
    return g.operand(value, bool)


def number(g: Builder, value: Any) -> Value:
    """A number in the dtype of the result."""
    return g.operand(value, g.dtype)


def _or_of_bools(operator: str, for_bool: str) -> Any:
    def translate(g: Builder, input: Any, other: Any) -> Value:
        return g.op(for_bool if g.dtype is bool else operator, number(g, input), number(g, other))

    return translate


TABLE["add"], TABLE["mul"] = _or_of_bools("Add", "Or"), _or_of_bools("Mul", "And")
TABLE["maximum"], TABLE["minimum"] = _or_of_bools("Max", "Or"), _or_of_bools("Min", "And")


@translates("rsub")
def rsub(g: Builder, input: Any, other: Any) -> Value:
    return g.op("Sub", number(g, other), number(g, input))


@translates("rdiv")
def rdiv(g: Builder, input: Any, other: Any) -> Value:
    return g.op("Div", number(g, other), number(g, input))


@translates("pow")
def power(g: Builder, input: Any, exponent: Any) -> Value:
    if exponent == 2:
        value = number(g, input)
        return g.op("Mul", value, value)
    return g.op("Pow", number(g, input), number(g, exponent))


@translates("rpow")
def rpow(g: Builder, exponent: Any, input: Any) -> Value:
    return g.op("Pow", number(g, input), number(g, exponent))


@translates("square")
def square(g: Builder, input: Value) -> Value:
    value = number(g, input)
    return g.op("Mul", value, value)


@translates("floor_divide", "div_floor")
def floor_divide(g: Builder, input: Any, other: Any) -> Value:
    a, b = number(g, input), number(g, other)
    if g.dtype.is_floating_point:
        return g.op("Floor", g.op("Div", a, b))
    return g.op("Div", g.op("Sub", a, g.op("Mod", a, b)), b)  # Div of integers cuts, Mod has the sign of b


@translates("div_trunc")
def div_trunc(g: Builder, input: Any, other: Any) -> Value:
    made = g.op("Div", number(g, input), number(g, other))
    return _truncated(g, made) if g.dtype.is_floating_point else made


def _truncated(g: Builder, value: Value) -> Value:
    return g.op("Mul", g.op("Sign", value), g.op("Floor", g.op("Abs", value)))


@translates("remainder")
def remainder(g: Builder, input: Any, other: Any) -> Value:
    a, b = number(g, input), number(g, other)
    if g.dtype.is_floating_point:
        return g.op("Sub", a, g.op("Mul", b, g.op("Floor", g.op("Div", a, b))))
    return g.op("Mod", a, b)


@translates("fmod")
def fmod(g: Builder, input: Any, other: Any) -> Value:
    return g.op("Mod", number(g, input), number(g, other), fmod=1)


@translates("add_scaled")
def add_scaled(g: Builder, input: Any, other: Any, alpha: Any) -> Value:
    return g.op("Add", number(g, input), g.op("Mul", number(g, other), number(g, alpha)))


def _with_terms(operator: str) -> Any:
    def translate(g: Builder, input: Any, tensor1: Any, tensor2: Any, value: Any) -> Value:
        term = g.op(operator, number(g, tensor1), number(g, tensor2))
        return g.op("Add", number(g, input), term if value == 1 else g.op("Mul", term, number(g, value)))

    return translate


TABLE["addcmul"], TABLE["addcdiv"] = _with_terms("Mul"), _with_terms("Div")


@translates("lerp", "lerp_by_number")
def lerp(g: Builder, input: Value, end: Value, weight: Any) -> Value:
    return g.op("Add", input, g.op("Mul", number(g, weight), g.op("Sub", number(g, end), input)))


@translates("rsqrt")
def rsqrt(g: Builder, input: Value) -> Value:
    return g.op("Reciprocal", g.op("Sqrt", number(g, input)))


@translates("exp2")
def exp2(g: Builder, input: Value) -> Value:
    return g.op("Pow", number(g, 2), number(g, input))


@translates("expm1")
def expm1(g: Builder, input: Value) -> Value:
    # exp(x) - 1 = 2 sinh(x/2) exp(x/2), which keeps its digits near 0
    half = g.op("Mul", number(g, input), number(g, 0.5))
    return g.op("Mul", g.op("Mul", g.op("Sinh", half), g.op("Exp", half)), number(g, 2))


def _logarithm(base: float) -> Any:
    return lambda g, input: g.op("Mul", g.op("Log", number(g, input)), number(g, 1 / math.log(base)))


TABLE["log2"], TABLE["log10"] = _logarithm(2), _logarithm(10)


@translates("log1p")
def log1p(g: Builder, input: Value) -> Value:
    return g.op("Log", g.op("Add", number(g, input), number(g, 1)))


@translates("logaddexp")
def logaddexp(g: Builder, input: Value, other: Value) -> Value:
    a, b = number(g, input), number(g, other)
    distance = g.op("Neg", g.op("Abs", g.op("Sub", a, b)))
    same = g.op("Equal", a, b, dtype=bool)  # of two infinities the difference is nan
    distance = g.op("Where", same, number(g, 0), distance, dtype=g.dtype)
    return g.op("Add", g.op("Max", a, b), g.op("Log", g.op("Add", g.op("Exp", distance), number(g, 1))))


@translates("xlogy")
def xlogy(g: Builder, input: Any, other: Any) -> Value:
    a = number(g, input)
    made = g.op("Mul", a, g.op("Log", number(g, other)))
    return g.op("Where", g.op("Equal", a, number(g, 0), dtype=bool), number(g, 0), made, dtype=g.dtype)


@translates("atan2")
def atan2(g: Builder, input: Any, other: Any) -> Value:
    y, x = number(g, input), number(g, other)
    zero = number(g, 0)
    angle = g.op("Atan", g.op("Div", y, x))
    turn = g.op("Where", g.op("Less", y, zero, dtype=bool), number(g, -math.pi), number(g, math.pi), dtype=g.dtype)
    angle = g.op("Where", g.op("Less", x, zero, dtype=bool), g.op("Add", angle, turn), angle, dtype=g.dtype)
    at_origin = g.op("And", g.op("Equal", x, zero, dtype=bool), g.op("Equal", y, zero, dtype=bool))
    return g.op("Where", at_origin, zero, angle, dtype=g.dtype)


@translates("hypot")
def hypot(g: Builder, input: Any, other: Any) -> Value:
    a, b = number(g, input), number(g, other)
    return g.op("Sqrt", g.op("Add", g.op("Mul", a, a), g.op("Mul", b, b)))


def _scaled(factor: float) -> Any:
    return lambda g, input: g.op("Mul", number(g, input), number(g, factor))


TABLE["deg2rad"], TABLE["rad2deg"] = _scaled(math.pi / 180), _scaled(180 / math.pi)


def _of_floats(operator: str) -> Any:
    """An operator that changes nothing about integers."""
    return lambda g, input: g.op(operator, input) if g.dtype.is_floating_point else input


TABLE["floor"], TABLE["ceil"] = _of_floats("Floor"), _of_floats("Ceil")


@translates("round")
def round_(g: Builder, input: Value, decimals: int) -> Value:
    if not g.dtype.is_floating_point:
        return input
    if not decimals:
        return g.op("Round", input)
    scale = number(g, 10.0**decimals)
    return g.op("Div", g.op("Round", g.op("Mul", input, scale)), scale)


@translates("trunc")
def trunc(g: Builder, input: Value) -> Value:
    return _truncated(g, input) if g.dtype.is_floating_point else input


@translates("frac")
def frac(g: Builder, input: Value) -> Value:
    return g.op("Sub", input, _truncated(g, input))


@translates("clamp_min")
def clamp_min(g: Builder, input: Value, min: Any) -> Value:
    return g.op("Max", number(g, input), number(g, min))


@translates("clamp_max")
def clamp_max(g: Builder, input: Value, max: Any) -> Value:
    return g.op("Min", number(g, input), number(g, max))


@translates("clamp", "clamp_between")
def clamp(g: Builder, input: Value, min: Any, max: Any) -> Value:
    value = number(g, input)
    if isinstance(min, Value) or isinstance(max, Value):
        value = value if min is None else g.op("Max", value, number(g, min))
        return value if max is None else g.op("Min", value, number(g, max))
    return g.op("Clip", value, None if min is None else number(g, min), None if max is None else number(g, max))


@translates("hardtanh")
def hardtanh(g: Builder, input: Value, min_val: Any, max_val: Any) -> Value:
    return clamp(g, input, min_val, max_val)


@translates("ne")
def ne(g: Builder, input: Any, other: Any) -> Value:
    return g.op("Not", TABLE["eq"](g, input, other))


@translates("logical_not")
def logical_not(g: Builder, input: Value) -> Value:
    return g.op("Not", truth(g, input))


@translates("bitwise_not")
def bitwise_not(g: Builder, input: Value) -> Value:
    return g.op("Not" if g.dtype is bool else "BitwiseNot", input)


@translates("isnan")
def isnan(g: Builder, input: Value) -> Value:
    if not input.dtype.is_floating_point:
        return g.expand(g.constant(np.zeros((), np.bool_)), g.shape)
    return g.op("IsNaN", input, dtype=bool)


@translates("isinf")
def isinf(g: Builder, input: Value) -> Value:
    if not input.dtype.is_floating_point:
        return g.expand(g.constant(np.zeros((), np.bool_)), g.shape)
    return g.op("IsInf", input, dtype=bool)


@translates("isfinite")
def isfinite(g: Builder, input: Value) -> Value:
    return g.op("Not", g.op("Or", isnan(g, input), isinf(g, input)))


@translates("nan_to_num")
def nan_to_num(g: Builder, input: Value, nan: Any, posinf: Any, neginf: Any) -> Value:
    if not input.dtype.is_floating_point:
        return input
    limits = np.finfo(np.float32 if g.dtype not in (float32, float64) else g.dtype.numpy)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    value = g.op("Where", isnan(g, input), number(g, 0.0 if nan is None else nan), input, dtype=g.dtype)
    for replacement, sides in ((high, (0, 1)), (low, (1, 0))):
        found = g.op("IsInf", value, dtype=bool, detect_negative=sides[0], detect_positive=sides[1])
        value = g.op("Where", found, number(g, replacement), value, dtype=g.dtype)
    return value


@translates("erfc")
def erfc(g: Builder, input: Value) -> Value:
    return g.op("Sub", number(g, 1), g.op("Erf", number(g, input)))


@translates("logit")
def logit(g: Builder, input: Value, eps: Any) -> Value:
    value = number(g, input)
    value = value if eps is None else g.op("Clip", value, number(g, eps), number(g, 1 - eps))
    return g.op("Log", g.op("Div", value, g.op("Sub", number(g, 1), value)))


@translates("to_copy")
def to_copy(g: Builder, input: Value, dtype: Any) -> Value:
    return g.cast(input, g.dtype)


@translates("conj", "conj_physical", "real", "detach", "alias", "clone_copy")
def same(g: Builder, input: Value, **rest: Any) -> Value:
    return input


# --- activations ----------------------------------------------------------------------------------------------------


@translates("threshold")
def threshold(g: Builder, input: Value, threshold: Any, value: Any) -> Value:
    return g.op("Where", g.op("Greater", input, number(g, threshold), dtype=bool), input, number(g, value),
                dtype=g.dtype)  # fmt: skip


@translates("leaky_relu")
def leaky_relu(g: Builder, input: Value, negative_slope: Any) -> Value:
    return g.op("LeakyRelu", input, alpha=float(negative_slope))


@translates("hardsigmoid")
def hardsigmoid(g: Builder, input: Value) -> Value:
    return g.op("HardSigmoid", input, alpha=1 / 6, beta=0.5)


@translates("hardshrink")
def hardshrink(g: Builder, input: Value, lambd: Any) -> Value:
    return g.op("Shrink", input, lambd=float(lambd), bias=0.0)


@translates("softshrink")
def softshrink(g: Builder, input: Value, lambd: Any) -> Value:
    return g.op("Shrink", input, lambd=float(lambd), bias=float(lambd))


@translates("gated")
def gated(g: Builder, input: Value, gate: Value) -> Value:
    return g.op("Mul", input, g.op("Sigmoid", gate))


@translates("gelu")
def gelu(g: Builder, input: Value, approximate: str) -> Value:
    if g.opset >= 20:
        return g.op("Gelu", input, approximate=None if approximate == "none" else approximate)
    half = g.op("Mul", input, number(g, 0.5))
    if approximate == "none":
        inner = g.op("Erf", g.op("Mul", input, number(g, math.sqrt(0.5))))
    else:
        cube = g.op("Mul", g.op("Mul", input, input), input)
        inner = g.op("Add", input, g.op("Mul", cube, number(g, 0.044715)))
        inner = g.op("Tanh", g.op("Mul", inner, number(g, math.sqrt(2 / math.pi))))
    return g.op("Mul", half, g.op("Add", inner, number(g, 1)))


@translates("silu")
def silu(g: Builder, input: Value) -> Value:
    return g.op("Mul", input, g.op("Sigmoid", input))


@translates("softplus")
def softplus(g: Builder, input: Value, beta: Any, threshold: Any) -> Value:
    if beta == 1:
        made = g.op("Softplus", input)
        scaled = input
    else:
        scaled = g.op("Mul", input, number(g, beta))
        made = g.op("Div", g.op("Softplus", scaled), number(g, beta))
    return g.op("Where", g.op("Greater", scaled, number(g, threshold), dtype=bool), input, made, dtype=g.dtype)


@translates("log_sigmoid")
def log_sigmoid(g: Builder, input: Value) -> Value:
    return g.op("Neg", g.op("Softplus", g.op("Neg", input)))


@translates("elu")
def elu(g: Builder, input: Value, alpha: Any, scale: Any, input_scale: Any) -> Value:
    if scale != 1 and input_scale == 1:
        return g.op("Selu", input, alpha=float(alpha), gamma=float(scale))
    if input_scale == 1:
        return g.op("Elu", input, alpha=float(alpha))
    if abs(input_scale * alpha - 1) < 1e-12 and scale == 1:
        return g.op("Celu", input, alpha=float(alpha))
    negative = g.op("Sub", g.op("Exp", g.op("Mul", input, number(g, input_scale))), number(g, 1))
    negative = g.op("Mul", negative, number(g, alpha * scale))
    positive = g.op("Mul", input, number(g, scale))
    return g.op("Where", g.op("Greater", input, number(g, 0), dtype=bool), positive, negative, dtype=g.dtype)


@translates("prelu")
def prelu(g: Builder, input: Value, weight: Value) -> Value:
    return g.op("PRelu", input, weight)
