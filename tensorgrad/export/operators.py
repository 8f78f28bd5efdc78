"""Which functions stay one operator in an exported program, as PyTorch's tracer leaves them, and how it writes them.

`torch.nn.functional.linear` is `aten.linear.default`, not the product and the sum that it is made of. Everything else
is written as the operators that it comes down to (library/dispatch_classes.py). A form takes the arguments of the
function, and calls the operator with lists for sizes and without defaults at the end; it returns `NotImplemented` for
what the operator does not do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import REDUCTIONS, ops
from tensorgrad.tensor import Tensor

SKIP = NotImplemented


def run(name: str, given: tuple, late: tuple = (), overload: str = "default", **named: Any) -> Any:
    """Calls an operator.

    Args:
        name: its name.
        given: the arguments without default.
        late: pairs of the others and their defaults.
        overload: the overload.
        named: arguments by keyword; None is not passed.
    """
    rest = list(late)
    while rest and _equal(rest[-1][0], rest[-1][1]):
        rest.pop()
    operator = getattr(getattr(ops.aten, name), overload)
    return operator(*given, *(v for v, _ in rest), **{k: v for k, v in named.items() if v is not None})


def _equal(value: Any, default: Any) -> bool:
    return not isinstance(value, Tensor) and type(value) is type(default) and value == default


def _numbers(value: Any, count: int) -> list[int]:
    """A size for each dimension: `[2, 2]` for 2."""
    if isinstance(value, int):
        return [value] * count
    return list(value) * (count if len(value) == 1 else 1)


def _conv(dims: int) -> Callable:
    name = f"conv{dims}d"

    def form(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        one, zero = [1] * dims, [0] * dims
        late: list[tuple[Any, Any]] = [(bias, None), (_numbers(stride, dims), one)]
        if isinstance(padding, str):
            late += [(padding, "valid"), (_numbers(dilation, dims), one), (groups, 1)]
            return run(name, (input, weight), tuple(late), "padding")
        late += [(_numbers(padding, dims), zero), (_numbers(dilation, dims), one), (groups, 1)]
        return run(name, (input, weight), tuple(late))

    return form


def _conv_transpose(dims: int) -> Callable:
    name, overload = f"conv_transpose{dims}d", "default" if dims == 1 else "input"

    def form(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        one, zero = [1] * dims, [0] * dims
        late: tuple[tuple[Any, Any], ...] = (
            (bias, None), (_numbers(stride, dims), one), (_numbers(padding, dims), zero),
            (_numbers(output_padding, dims), zero), (groups, 1), (_numbers(dilation, dims), one),
        )  # fmt: skip
        return run(name, (input, weight), late, overload)

    return form


def _max_pool(dims: int) -> Callable:
    def form(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:  # fmt: skip
        if return_indices:
            return SKIP
        late: tuple[tuple[Any, Any], ...] = (
            ([] if stride is None else _numbers(stride, dims), []), (_numbers(padding, dims), [0] * dims),
            (_numbers(dilation, dims), [1] * dims), (ceil_mode, False),
        )  # fmt: skip
        return run(f"max_pool{dims}d", (input, _numbers(kernel_size, dims)), late)

    return form


def _adaptive_avg_pool(dims: int) -> Callable:
    def form(input: Any, output_size: Any) -> Any:
        size = _numbers(output_size, dims)
        size = [input.shape[i - dims] if n is None else n for i, n in enumerate(size)]
        return run(f"adaptive_avg_pool{dims}d", (input, size))

    return form


def _adaptive_max_pool(dims: int) -> Callable:
    def form(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        size = _numbers(output_size, dims)
        size = [input.shape[i - dims] if n is None else n for i, n in enumerate(size)]
        made = run(f"adaptive_max_pool{dims}d", (input, size))
        return made if return_indices else made[0]

    return form


def _unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    return run("im2col", (input, *(_numbers(n, 2) for n in (kernel_size, dilation, padding, stride))))


def _fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    return run("col2im", (input, *(_numbers(n, 2) for n in (output_size, kernel_size, dilation, padding, stride))))


def _rrelu(
    input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Any:
    return run("rrelu_" if inplace else "rrelu", (input, lower, upper, training))


def _batch_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    return run("batch_norm", (input, weight, bias, running_mean, running_var, training, momentum, eps, False))


def _layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return run(
        "layer_norm", (input, list(normalized_shape)), ((weight, None), (bias, None), (eps, None), (False, None))
    )


def _group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return run("group_norm", (input, num_groups), ((weight, None), (bias, None), (eps, None), (False, None)))


def _instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    given = input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False
    return run("instance_norm", given)


def _rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    return run("rms_norm", (input, list(normalized_shape)), ((weight, None), (eps, None)))


def _dropout(name: str, training: bool = True, ranks: tuple[int, ...] = ()) -> Callable:
    """A form of dropout.

    Args:
        name: the operator.
        training: the function's default.
        ranks: numbers of dimensions of which the operator does what the function does; all if there are none.
    """
    default = training

    def form(input: Any, p: float = 0.5, training: bool = default, inplace: bool = False) -> Any:
        if ranks and input.ndim not in ranks:
            return SKIP
        return run(name + "_" * inplace, (input, p, training))

    return form


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    late = ((attn_mask, None), (dropout_p, 0.0), (is_causal, False))
    name = "scaled_dot_product_attention"
    return run(name, (query, key, value), late, scale=scale, enable_gqa=enable_gqa or None)


def _softmax(name: str) -> Callable:
    def form(input: Any, dim: Any = None, dtype: Any = None, *, out: Any = None, _stacklevel: int = 3) -> Any:
        if dim is None or out is not None:
            return SKIP
        return run(name, (input, dim), ((dtype, None),), "int")

    def functional(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        return form(input, dim, dtype)

    form.functional = functional  # type: ignore[attr-defined]
    return form


def _cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None or reduction not in REDUCTIONS:
        return SKIP
    late = ((weight, None), (REDUCTIONS.index(reduction), 1), (ignore_index, -100), (label_smoothing, 0.0))
    return run("cross_entropy_loss", (input, target), late)


def _nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None or reduction not in REDUCTIONS:
        return SKIP
    late = ((weight, None), (REDUCTIONS.index(reduction), 1), (ignore_index, -100))
    return run("nll_loss_nd", (input, target), late)


def _loss(name: str) -> Callable:
    def form(
        input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
        weight: Any = None,
    ) -> Any:  # fmt: skip
        if size_average is not None or reduce is not None or weight is not None or reduction not in REDUCTIONS:
            return SKIP
        return run(name, (input, target), ((REDUCTIONS.index(reduction), 1),))

    return form


def _binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    if size_average is not None or reduce is not None or reduction not in REDUCTIONS:
        return SKIP
    return run("binary_cross_entropy", (input, target), ((weight, None), (REDUCTIONS.index(reduction), 1)))


def _binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None or reduction not in REDUCTIONS:
        return SKIP
    late = ((weight, None), (pos_weight, None), (REDUCTIONS.index(reduction), 1))
    return run("binary_cross_entropy_with_logits", (input, target), late)


def _pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    return run("pad", (input, list(pad)), ((mode, "constant"), (value, None)))


def _interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: bool = False,
) -> Any:  # fmt: skip
    dims = input.ndim - 2
    names = {("nearest", n): f"upsample_nearest{n}d" for n in (1, 2, 3)}
    names |= {("bilinear", 2): "upsample_bilinear2d", ("linear", 1): "upsample_linear1d"}
    names |= {("trilinear", 3): "upsample_trilinear3d", ("bicubic", 2): "upsample_bicubic2d"}
    name = names.get((mode, dims))
    if name is None or recompute_scale_factor or antialias:
        return SKIP
    size = None if size is None else _numbers(size, dims)
    if scale_factor is not None:
        given = scale_factor if isinstance(scale_factor, list | tuple) else [scale_factor] * dims
        scale_factor = [float(f) for f in given]
    middle = () if mode == "nearest" else (bool(align_corners),)
    return run(name, (input, size, *middle, scale_factor), (), "vec")


def _to(self: Any, *args: Any, copy: bool = False, **kwargs: Any) -> Any:
    """`x.to(dtype)` as the operator for that; other forms as the copy that they make."""
    dtype = args[0] if len(args) == 1 else kwargs.get("dtype")
    if copy or not isinstance(dtype, tensorgrad.dtype) or len(args) + len(kwargs) != 1 or dtype is self.dtype:
        return SKIP
    return run("to", (self, dtype), (), "dtype")


def _chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    return run("chunk", (input, chunks), ((dim, 0),))


def _lerp(input: Any, end: Any, weight: Any, *, out: Any = None) -> Any:
    if out is not None:
        return SKIP
    return run("lerp", (input, end, weight), (), "Tensor" if isinstance(weight, Tensor) else "Scalar")


def _glu(input: Any, dim: int = -1) -> Any:
    return run("glu", (input,), ((dim, -1),))


def _one_hot(input: Any, num_classes: int = -1) -> Any:
    return run("one_hot", (input,), ((num_classes, -1),))


def _recurrent(name: str) -> Callable:
    def form(*args: Any) -> Any:
        if not isinstance(args[3], bool):
            return SKIP  # of a packed sequence
        return run(name, args, (), "input")

    return form


def _einsum(equation: Any, *operands: Any) -> Any:
    if not isinstance(equation, str):
        return SKIP
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    return run("einsum", (equation, list(operands)))


def _same(name: str) -> Callable:
    """An operator that takes what the function takes."""

    def form(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        return SKIP if out is not None or kwargs else run(name, args)

    return form


_SOFTMAX, _LOG_SOFTMAX = _softmax("softmax"), _softmax("log_softmax")

# Functions of torch and methods, by name.
FUNCTIONS: dict[str, Callable] = {
    "chunk": _chunk,
    "einsum": _einsum,
    "lerp": _lerp,
    "log_softmax": _LOG_SOFTMAX,
    "softmax": _SOFTMAX,
    "to": _to,
    **{name: _recurrent(name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{name: _same(name) for name in ("linear", "matmul", "outer", "square", "kron", "prelu")},
}

# Functions of `torch.nn.functional`, by name.
FUNCTIONAL: dict[str, Callable] = {
    "alpha_dropout": _dropout("alpha_dropout", False),
    "batch_norm": _batch_norm,
    "binary_cross_entropy": _binary_cross_entropy,
    "binary_cross_entropy_with_logits": _binary_cross_entropy_with_logits,
    "cross_entropy": _cross_entropy,
    "dropout": _dropout("dropout"),
    "dropout1d": _dropout("feature_dropout", ranks=(3,)),
    "dropout2d": _dropout("feature_dropout"),
    "dropout3d": _dropout("feature_dropout", ranks=(5,)),
    "feature_alpha_dropout": _dropout("feature_alpha_dropout", False),
    "fold": _fold,
    "glu": _glu,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "interpolate": _interpolate,
    "l1_loss": _loss("l1_loss"),
    "layer_norm": _layer_norm,
    "log_softmax": _LOG_SOFTMAX.functional,  # type: ignore[attr-defined]
    "logsigmoid": lambda input: run("log_sigmoid", (input,)),
    "nll_loss": _nll_loss,
    "one_hot": _one_hot,
    "pad": _pad,
    "rms_norm": _rms_norm,
    "rrelu": _rrelu,
    "scaled_dot_product_attention": _attention,
    "softmax": _SOFTMAX.functional,  # type: ignore[attr-defined]
    "unfold": _unfold,
    **{f"conv{n}d": _conv(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _conv_transpose(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive_max_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive_avg_pool(n) for n in (1, 2, 3)},
}


def form_of(function: Any, name: str, row: Any) -> Callable | None:
    """The form of a function, if it stays one operator."""
    if row is None and (function.__module__ or "").endswith("nn.functional") and name in FUNCTIONAL:
        return FUNCTIONAL[name]
    return FUNCTIONS.get(name)
