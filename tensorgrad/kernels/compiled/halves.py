"""How kernels take float16 and bfloat16: which ops are computed in which way.

Every way rounds as the ops' NumPy kernels do, and these as PyTorch's.

- A function of one number has 65,536 results: NumPy's kernel computes all of them once, and they are looked up. So is
  the slope by which the gradient of an activation is multiplied. These results are NumPy's to the bit.
- Arithmetic on two arrays is computed in float32, in registers.
- Sums, softmax, norms, cross-entropy, gradients of embeddings and optimizers have kernels of their own for this
  storage: `STORAGES` of simd/two_bytes.py. The table need not name them, but for norms of images whose channels lie
  together.
- Convolutions and maxima of windows become float32 where images are copied for the loops, and are rounded where results
  are copied out of them (simd/stored.py): the same machine code does that for all three dtypes.
- Products become float32 where their factors are copied for blocks (matmul_halves.py), attention a block of keys and
  values at a time (attention_halves.py).
- All other ops on the list become float32 as a whole, run by their kernels, and are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array import activation
from tensorgrad.kernels.array.attention import rounds_weights
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.compiled import layout, pointwise, walk
from tensorgrad.kernels.compiled.casts import bits, is_half
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inlined, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.two_bytes import STRETCH, rounded, widened
from tensorgrad.rows.kernel_tables import run_compiled, run_kernel
from tensorgrad.storage.fresh import fresh

_BITS, _ROW = "uint16[::1]", "float32[::1]"
_U16 = np.dtype(np.uint16)
_ALL = 1 << 16  # numbers of two bytes
_TABLES = 64  # that are kept: those of operations with a number are many
_FEWEST = 16384  # numbers to look up from which on a table is made


# --- functions of one number -----------------------------------------------------------------------------------------


def _in_memory_order(x: np.ndarray) -> tuple[np.ndarray, list[int] | None] | None:
    """Returns an array as it lies in memory, and the permutation that restores it; None if it has gaps."""
    if x.flags.c_contiguous:
        return x, None
    turned = layout.order(x.shape, x.strides)
    if turned is None or not x.transpose(turned[0]).flags.c_contiguous:
        return None
    return x.transpose(turned[0]), turned[1]


def _restored(flat: np.ndarray, like: np.ndarray, back: list[int] | None) -> np.ndarray:
    made = flat.reshape(like.shape)
    return made if back is None else made.transpose(back)


class _Tables:
    """Results for all numbers of a dtype, by function and options."""

    def __init__(self) -> None:
        self.made: dict[tuple, np.ndarray | None] = {}

    def find(self, key: tuple, dtype: np.dtype, worth: bool, compute: Callable) -> np.ndarray | None:
        """Returns a table; None if it is not there and not `worth` to be made, or the results are of another dtype."""
        if key not in self.made:
            if not worth:
                return None
            if len(self.made) >= _TABLES:
                self.made.pop(next(iter(self.made)), None)
            with np.errstate(all="ignore"):
                self.made[key] = compute(np.arange(_ALL).astype(_U16).view(dtype))
        return self.made.get(key)


_tables = _Tables()


def _number(option: Any) -> Any:
    """Returns what stands for an option in a key; None if it is not a number, a name or `None`."""
    if option.__class__ is np.ndarray or isinstance(option, np.ndarray):
        return None if option.ndim else (option.dtype.char, repr(option.item()))
    return (option.__class__, repr(option)) if option is None or isinstance(option, int | float | str) else None


def _look_up() -> Callable:
    @shared(f"void({_BITS}, {_BITS}, {_BITS}, int64, int64)")
    def loop(x, table, out, first, last):
        for i in range(np.uint64(first), np.uint64(last)):
            out[i] = table[x[i]]

    def kernel(flat, table):
        out = fresh(flat.size, flat.dtype)
        thread_pool.run(loop, flat.size, (bits(flat), bits(table), out.view(_U16)), flat.size)
        return out

    return kernel


def _of_one(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    x, *options = given
    if not is_half(x):
        return NotImplemented
    if thread_pool.heard() and any(isinstance(option, np.ndarray) for option in options):
        return NotImplemented  # a plan would repeat the lookup, whatever the number is then
    key = (op, x.dtype.char, *map(_number, options))
    found = _in_memory_order(x) if None not in key else None
    if found is None:
        return NotImplemented

    def compute(numbers):
        made = general(numbers, *options)
        return made if made.dtype == x.dtype else None

    table = _tables.find(key, x.dtype, x.size >= _FEWEST, compute)
    if table is None:
        return NotImplemented
    made = run_compiled("half_lookup", x.size, found[0].reshape(-1), table)
    return made if made is NotImplemented else _restored(made, *found)


def _power(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    x, exponent = given
    if x.dtype.char == "E" and getattr(exponent, "ndim", 0) == 0 and exponent == -0.5:  # where a number is matters
        return NotImplemented
    return _of_one(op, kernel, general, given)


# --- gradients: a slope times g --------------------------------------------------------------------------------------


@inner
def _scaled(g, places, slopes, out):
    for i in range(out.size):
        out[i] = g[i] * slopes[places[i]]


def _scale() -> Callable:
    @shared(f"void({_BITS}, {_BITS}, {_ROW}, {_BITS}, boolean, int64, int64)")
    def loop(g, x, slopes, out, brain, first, last):
        above, held = np.empty(STRETCH, np.float32), np.empty(STRETCH, np.float32)
        for start in range(first, last, STRETCH):
            n = min(STRETCH, last - start)
            widened(g[start : start + n], above[:n], brain)
            _scaled(above[:n], x[start : start + n], slopes, held[:n])
            rounded(held[:n], out[start : start + n], brain)

    def kernel(g, x, slopes):
        out = fresh(g.size, g.dtype)
        thread_pool.run(loop, g.size, (bits(g), bits(x), slopes, out.view(_U16), g.dtype.char == "E"), g.size)
        return out

    return kernel


# The slopes in float32; g is multiplied last.
SLOPES: dict[str, Callable] = {
    "gelu.backward": lambda x, form: activation.gelu_grad_in_float32(np, np.ones_like(x), x, form),
    "silu.backward": lambda x: activation.silu_grad(np, np.ones_like(x), x),
    "tanh.backward": lambda x: activation.tanh_grad(np, np.ones_like(x), x),
    "sigmoid.backward": lambda x: activation.sigmoid_grad(np, np.ones_like(x), x),
}


def _slope(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    g, x, *options = given
    if not is_half(g) or g.dtype != x.dtype or g.shape != x.shape:
        return NotImplemented
    if op == "sigmoid.backward" and g.dtype.char == "e":  # each step of it is rounded
        return NotImplemented
    key = (op, x.dtype.char, *map(_number, options))
    slopes = _tables.find(key, x.dtype, x.size >= _FEWEST, lambda all: SLOPES[op](all.astype(F32), *options))
    if slopes is None or None in key:
        return NotImplemented
    return _together(g, x, lambda a, b: run_compiled("half_slopes", a.size, a.reshape(-1), b.reshape(-1), slopes))


def _together(x: np.ndarray, y: np.ndarray, run: Callable) -> Any:
    """Runs a function of two arrays of one shape, in the memory order of the second."""
    found = _in_memory_order(y)
    if found is None:
        return NotImplemented
    inside, back = found
    turned = layout.order(y.shape, y.strides) if back is not None else None
    x = x if turned is None else x.transpose(turned[0])
    made = run(np.ascontiguousarray(x), inside)
    return made if made is NotImplemented else _restored(made, inside, back)


# --- arithmetic ------------------------------------------------------------------------------------------------------


@inlined
def _add(x, y):
    return x + y


@inlined
def _sub(x, y):
    return x - y


@inlined
def _mul(x, y):
    return x * y


@inlined
def _div(x, y):
    return x / y


FUNCTIONS: dict[str, Callable] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "relu.backward": pointwise.relu_grad,
}  # fmt: skip


@lru_cache(maxsize=8)
def _loop(op: str):
    return walk.loop_of_two_in_two_bytes(FUNCTIONS[op])


def _arithmetic() -> Callable:
    for op in FUNCTIONS:
        _loop(op)

    def kernel(op, x, y):
        planned = walk.plan(x.shape, y.shape)
        if planned is None:
            return NotImplemented
        shape, numbers = planned
        flat = fresh(int(np.prod(shape)), x.dtype)
        given = (bits(x), bits(y), flat.view(_U16), numbers, x.dtype.char == "E")
        thread_pool.run(_loop(op), flat.size, given, flat.size)
        return flat.reshape(shape)

    return kernel


def _of_two(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    x, y = given
    if op != "relu.backward" and (y.__class__ is not np.ndarray or (not y.ndim and x.ndim)):
        return _of_one(op, kernel, general, given)
    if not is_half(y) or x.dtype != y.dtype:
        return NotImplemented
    if not x.flags.c_contiguous or not y.flags.c_contiguous:
        if x.shape != y.shape:
            return NotImplemented
        if any(y.strides):
            return _together(x, y, lambda a, b: run_compiled("half_arithmetic", a.size, op, a, b))
        return _together(y, x, lambda b, a: run_compiled("half_arithmetic", a.size, op, a, b))
    return run_compiled("half_arithmetic", max(x.size, y.size), op, x, y)


# --- the others, as a whole ------------------------------------------------------------------------------------------


def _lifted(value: Any) -> Any:
    if value.__class__ is list:
        return [_lifted(v) for v in value]
    return in_dtype(value, F32) if is_half(value) else value


def _first_half(given: tuple) -> np.dtype | None:
    """Returns the dtype of the first array of two bytes; None if there are several such dtypes, or none."""
    flat = [a for v in given for a in (v if v.__class__ is list else [v]) if is_half(a)]
    return flat[0].dtype if flat and all(a.dtype == flat[0].dtype for a in flat) else None


def _in_float32(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    """All results of float32 are rounded."""
    dtype = _first_half(given)
    if dtype is None:
        return NotImplemented
    made = kernel(*[_lifted(v) for v in given])
    if made.__class__ is tuple:
        return tuple([_lowered(r, dtype) for r in made])
    return _lowered(made, dtype)


_INNER = {  # the dimensions of both factors that a product adds up
    "linear": (-1, -1), "matmul": (-1, -2), "mm": (-1, -2), "bmm": (-1, -2), "matmul_nt": (-1, -1),
    "matmul_tn": (-2, -2),
}  # fmt: skip


def _of_one_dtype(given: tuple) -> bool:
    """NumPy's kernels refuse operands of several."""
    return len({a.dtype for a in given if isinstance(a, np.ndarray)}) == 1


def _product(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    if not _of_one_dtype(given):
        return NotImplemented
    if op in _INNER:
        a, b, *bias = given
        made = run_compiled("half_product", a.size, a, b, *(bias or (None,)), *_INNER[op])
        if made is not NotImplemented:
            return made
    return _in_float32(op, kernel, general, given)


def _linear_grad(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    g, x, weight, bias_shape, needs = given
    if not _of_one_dtype(given):
        return NotImplemented
    made: Any = NotImplemented
    if g.ndim > 1 and g.size and not (needs[2] and len(bias_shape) != 1):
        made = _by_products(g, x, weight, needs)
    return _in_float32(op, kernel, general, given) if made is NotImplemented else made


def _by_products(g: np.ndarray, x: Any, weight: Any, needs: tuple) -> Any:
    """Computes the gradients of `linear`."""
    rows = g.reshape(-1, g.shape[-1])
    gx = gw = gb = None
    if needs[0]:
        gx = run_compiled("half_product", g.size, rows, weight, None, -1, -2)
        if gx is NotImplemented:
            return gx
        gx = gx.reshape(*g.shape[:-1], weight.shape[-1])
    if needs[1]:
        gw = run_compiled("half_product", g.size, rows, x.reshape(len(rows), x.shape[-1]), None, -2, -2)
        if gw is NotImplemented:
            return gw
    if needs[2]:
        gb = in_dtype(run_kernel("column_sum", in_dtype(rows, F32)), g.dtype)
    return gx, gw, gb


def _lowered(result: Any, dtype: np.dtype) -> Any:
    return in_dtype(np.asarray(result), dtype) if getattr(result, "dtype", None) == F32 else result


def _batch_norm(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    """With parameters of float32, as the statistics are then. (Others PyTorch rounds on the way.)"""
    x, weight, bias, *_, training, _ = given
    if not is_half(x) or any(a.dtype is not F32 for a in given[1:] if a.__class__ is np.ndarray):
        return NotImplemented
    if weight is None and bias is None and training:
        return NotImplemented
    out, *rest = kernel(in_dtype(x, F32), *given[1:])
    return in_dtype(out, x.dtype), *rest


def _group_norm(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    """The statistics are kept in the dtype of the parameters or, without any, of x."""
    x, weight, bias, *_ = given
    if not is_half(x):
        return NotImplemented
    out, *statistics = kernel(*[_lifted(v) for v in given])
    kept = next((p.dtype for p in (weight, bias) if p is not None), x.dtype)
    return in_dtype(out, x.dtype), *[in_dtype(s, kept) for s in statistics]


def _norm_grad(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    """The gradients of parameters have the dtype of the weight; without one, all that of g."""
    g, weight = given[0], given[2]
    if not is_half(g):
        return NotImplemented
    gx, *others = kernel(*[_lifted(v) for v in given])
    kind = g.dtype if weight is None else weight.dtype
    return None if gx is None else in_dtype(gx, g.dtype), *[None if o is None else in_dtype(o, kind) for o in others]


def _attention(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    """PyTorch computes everything in float32 where its kernel does not serve."""
    q, k, v, mask, dropout, *rest = given
    if not is_half(q) or not q.dtype == k.dtype == v.dtype:
        return NotImplemented
    if rounds_weights(q, v, dropout):
        return run_compiled("half_attention", q.size, q, k, v, mask, *rest)
    out, logs = kernel(*[_lifted(a) for a in given])
    return in_dtype(out, q.dtype), logs


_NUMBERS = (
    "neg", "abs", "sqrt", "reciprocal", "log", "log2", "log10", "log1p", "expm1", "exp2", "tanh", "sin", "cos",
    "square", "exp", "sigmoid", "silu", "relu", "clamp", "erf", "gelu",
)  # fmt: skip
_WHOLE = (  # convolutions and pools only in other memory orders
    "conv", "conv_transpose", "conv_grad_input", "conv_grad_weight", "max_pool", "max_pool_values", "max_pool_grad",
    "avg_pool", "avg_pool_grad", "adaptive_avg_pool", "adaptive_avg_pool_grad", "lstm_layer", "lstm_layer.backward",
    "gru_layer", "gru_layer.backward", "rnn_layer", "var", "std", "var_mean", "std_mean",
    "extreme_dim", "arg_extreme", "vector_norm", "column_sum",
)  # fmt: skip
RULES: dict[str, Callable] = {
    **dict.fromkeys(_NUMBERS, _of_one), "pow": _power, **dict.fromkeys(FUNCTIONS, _of_two),
    **dict.fromkeys((*_INNER, "addmm"), _product), "linear.backward": _linear_grad, **dict.fromkeys(SLOPES, _slope),
    **dict.fromkeys(_WHOLE, _in_float32), "attention": _attention, "batch_norm": _batch_norm, "group_norm": _group_norm,
    **dict.fromkeys(("batch_norm.backward", "group_norm.backward"), _norm_grad),
}  # fmt: skip


def attempt(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    """Runs an op on arrays of two bytes; `NotImplemented` if there is no better way than NumPy's.

    `kernel` is the op's for large arrays of float32, `general` NumPy's.
    """
    rule = RULES.get(op)
    return NotImplemented if rule is None else rule(op, kernel, general, given)


KERNELS: dict[str, Callable[[], Callable]] = {
    "lookup": _look_up, "slopes": _scale, "arithmetic": _arithmetic,
}  # fmt: skip
