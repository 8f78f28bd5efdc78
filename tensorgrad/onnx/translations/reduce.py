"""Reductions, scans, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.onnx.builder import Builder, Value, bool, int64
from tensorgrad.onnx.translations.pointwise import number, truth
from tensorgrad.onnx.translations.table import TABLE, translates


def axes_of(dim: Any, rank: int) -> list[int] | None:
    """Dimensions as a list of those from 0 on; None for all. A number has none."""
    if rank == 0:
        return []
    if dim is None or dim == ():
        return None
    return sorted(d % rank for d in ((dim,) if isinstance(dim, int) else dim))


def reduced(g: Builder, operator: str, value: Value, axes: list[int] | None, keepdim: Any) -> Value:
    """A reduction. Up to opset 17 some took their axes as an attribute; since 18 all take them as an input."""
    if axes == []:
        return value
    return g.op(operator, value, axes, keepdims=int(keepdim))


def _reduction(operator: str) -> Any:
    def translate(g: Builder, input: Value, dim: Any, keepdim: Any, dtype: Any = None) -> Value:
        if input.rank == 0:
            return g.cast(input, g.dtype)
        return reduced(g, operator, g.cast(input, g.dtype), axes_of(dim, input.rank), keepdim)

    return translate


TABLE.update({name: _reduction(operator) for name, operator in {
    "sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp",
}.items()})  # fmt: skip


@translates("nansum")
def nansum(g: Builder, input: Value, dim: Any, keepdim: Any, dtype: Any) -> Value:
    value = g.op("Where", g.op("IsNaN", input, dtype=bool), g.constant(0, input.dtype), input, dtype=input.dtype)
    return reduced(g, "ReduceSum", g.cast(value, g.dtype), axes_of(dim, input.rank), keepdim)


def _extreme(operator: str) -> Any:
    def translate(g: Builder, input: Value, dim: Any = None, keepdim: Any = False) -> Value:
        if input.rank == 0:
            return input
        value = g.cast(input, int64) if input.dtype is bool else input
        return g.cast(reduced(g, operator, value, axes_of(dim, input.rank), keepdim), input.dtype)

    return translate


TABLE["amax"] = TABLE["max_all"] = _extreme("ReduceMax")
TABLE["amin"] = TABLE["min_all"] = _extreme("ReduceMin")


def _truth(operator: str) -> Any:
    def translate(g: Builder, input: Value, dim: Any, keepdim: Any) -> Value:
        value = truth(g, input)
        if input.rank:
            value = reduced(g, operator, g.cast(value, int64), axes_of(dim, input.rank), keepdim)
        return g.cast(value, g.dtype)

    return translate


TABLE["any"], TABLE["all"] = _truth("ReduceMax"), _truth("ReduceMin")


@translates("count_nonzero")
def count_nonzero(g: Builder, input: Value, dim: Any) -> Value:
    return reduced(g, "ReduceSum", g.cast(truth(g, input), int64), axes_of(dim, input.rank), False)


@translates("extreme_dim")
def extreme_dim(g: Builder, input: Value, dim: int, keepdim: Any, name: str) -> Any:
    largest = "max" in name
    if input.rank == 0:
        return input, g.constant(np.int64(0))
    at = g.op("ArgMax" if largest else "ArgMin", input, dtype=int64, axis=dim % input.rank, keepdims=int(keepdim))
    return reduced(g, "ReduceMax" if largest else "ReduceMin", input, [dim % input.rank], keepdim), at


@translates("arg_extreme")
def arg_extreme(g: Builder, input: Value, dim: Any, keepdim: Any, name: str) -> Value:
    operator = "ArgMax" if "max" in name else "ArgMin"
    value = g.cast(input, int64) if input.dtype is bool else input
    if input.rank == 0:
        return g.constant(np.int64(0))
    if dim is None or dim == ():
        made = g.op(operator, g.reshape(value, (-1,)), dtype=int64, axis=0, keepdims=0)
        return g.reshape(made, (1,) * input.rank) if keepdim else made
    axis = (dim if isinstance(dim, int) else dim[0]) % input.rank
    return g.op(operator, value, dtype=int64, axis=axis, keepdims=int(keepdim))


def moments(g: Builder, input: Value, axes: list[int] | None, correction: Any, keepdim: Any) -> tuple[Value, Value]:
    """Variance and mean."""
    mean = reduced(g, "ReduceMean", input, axes, True)
    centred = g.op("Sub", input, mean)
    squares = g.op("Mul", centred, centred)
    if correction == 0:
        variance = reduced(g, "ReduceMean", squares, axes, keepdim)
    else:
        count = g.op("Div", g.op("Cast", g.op("Size", input, dtype=int64), dtype=input.dtype, to=_float(input)),
                     g.op("Cast", g.op("Size", mean, dtype=int64), dtype=input.dtype, to=_float(input)))  # fmt: skip
        count = g.op("Max", g.op("Sub", count, g.constant(correction, input.dtype)), g.constant(0, input.dtype))
        variance = g.op("Div", reduced(g, "ReduceSum", squares, axes, keepdim), count)
    return variance, mean


def _float(value: Value) -> int:
    from tensorgrad.onnx.model import element_type

    return element_type(value.dtype)


def _spread(root: Any, with_mean: Any) -> Any:
    def translate(g: Builder, input: Value, dim: Any, correction: Any, keepdim: Any) -> Any:
        axes = axes_of(dim, input.rank)
        variance, _ = moments(g, input, axes, correction, keepdim)
        variance = g.op("Sqrt", variance) if root else variance
        return (variance, reduced(g, "ReduceMean", input, axes, keepdim)) if with_mean else variance

    return translate


TABLE["var"], TABLE["std"] = _spread(False, False), _spread(True, False)
TABLE["var_mean"], TABLE["std_mean"] = _spread(False, True), _spread(True, True)


@translates("vector_norm")
def vector_norm(g: Builder, input: Value, ord: Any, dim: Any, keepdim: Any, dtype: Any) -> Value:
    value, axes = g.cast(input, g.dtype), axes_of(dim, input.rank)
    if ord in (1, 2) and input.rank == 0:
        return g.op("Abs", value)
    if ord in (1, 2):
        return reduced(g, f"ReduceL{int(ord)}", value, axes, keepdim)
    size = g.op("Abs", value)
    if ord in (float("inf"), float("-inf")):
        return reduced(g, "ReduceMax" if ord > 0 else "ReduceMin", size, axes, keepdim)
    if ord == 0:
        return reduced(g, "ReduceSum", g.cast(truth(g, value), g.dtype), axes, keepdim)
    total = reduced(g, "ReduceSum", g.op("Pow", size, number(g, ord)), axes, keepdim)
    return g.op("Pow", total, number(g, 1 / ord))


@translates("softmax")
def softmax(g: Builder, input: Value, dim: int) -> Value:
    return _along(g, "Softmax", input, dim)


@translates("log_softmax")
def log_softmax(g: Builder, input: Value, dim: int) -> Value:
    return _along(g, "LogSoftmax", input, dim)


def _along(g: Builder, operator: str, input: Value, dim: int) -> Value:
    if input.rank == 0:
        return g.squeeze(g.op(operator, g.unsqueeze(input, 0), axis=0), 0)
    return g.op(operator, g.cast(input, g.dtype), axis=dim % input.rank)


@translates("cumsum")
def cumsum(g: Builder, input: Value, dim: int, dtype: Any) -> Value:
    if input.rank == 0:
        return g.cast(input, g.dtype)
    return g.op("CumSum", g.cast(input, g.dtype), g.constant(np.int64(dim % input.rank)))


@translates("sort")
def sort(g: Builder, input: Value, dim: int, descending: Any) -> Any:
    return topk(g, input, input.shape[dim] if input.rank else 1, dim, descending)


@translates("topk")
def topk(g: Builder, input: Value, k: Any, dim: int, largest: Any) -> Any:
    if input.rank == 0:
        return input, g.constant(np.int64(0))
    values, at = g.op("TopK", input, g.size(k), outputs=2, axis=dim % input.rank, largest=int(largest))
    at.dtype = int64
    return values, at


@translates("tril")
def tril(g: Builder, input: Value, diagonal: Any) -> Value:
    return _triangle(g, input, diagonal, 0)


@translates("triu")
def triu(g: Builder, input: Value, diagonal: Any) -> Value:
    return _triangle(g, input, diagonal, 1)


def _triangle(g: Builder, input: Value, diagonal: Any, upper: int) -> Value:
    at = g.op("Squeeze", g.size(diagonal), [0]) if not isinstance(diagonal, int) else g.constant(np.int64(diagonal))
    if input.dtype is bool:  # which onnxruntime's Trilu does not take in all versions
        return g.cast(g.op("Trilu", g.cast(input, int64), at, upper=upper), bool)
    return g.op("Trilu", input, at, upper=upper)


@translates("euclidean_distances")
def euclidean_distances(g: Builder, first: Value, second: Value, by_products: Any) -> Value:
    difference = g.op("Sub", g.unsqueeze(first, first.rank - 1), g.unsqueeze(second, second.rank - 2))
    return reduced(g, "ReduceL2", difference, [max(first.rank, second.rank)], False)
