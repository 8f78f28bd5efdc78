"""Sums, extremes, places, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.onnx.operators.table import OPERATORS, integers, operator


def _reduction(name: str, function: Callable) -> None:
    def reduce(x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        axes = integers(axes)
        if noop_with_empty_axes and not axes:
            return x
        dims = tuple(axes or range(x.dim()))
        return function(x, dims, bool(keepdims)) if dims else function(x.reshape(1), (0,), False)

    reduce.__name__ = reduce.__qualname__ = name.lower()
    OPERATORS[name] = reduce


def _extreme(function: Callable, largest: bool) -> Callable:
    """The largest or smallest elements, also of none: then it is the smallest or largest number."""

    def reduce(x: Any, dims: tuple, keepdim: bool) -> Any:
        if all(x.shape[d] for d in dims):
            return function(x, dims, keepdim=keepdim)
        if x.dtype is torch.bool:
            value: Any = not largest
        elif x.is_floating_point():
            value = -math.inf if largest else math.inf
        else:
            value = torch.iinfo(x.dtype).min if largest else torch.iinfo(x.dtype).max
        gone = {d % x.dim() for d in dims}
        shape = [1 if i in gone else n for i, n in enumerate(x.shape) if keepdim or i not in gone]
        return torch.full(shape, value, dtype=x.dtype)

    return reduce


def _product(x: Any, dims: tuple, keepdim: bool) -> Any:
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = x.prod(d, keepdim=keepdim)
    return x


_reduction("ReduceSum", lambda x, dims, keep: x.sum(dims, keepdim=keep, dtype=x.dtype))
_reduction("ReduceMean", lambda x, dims, keep: x.mean(dims, keepdim=keep))
_reduction("ReduceProd", _product)
_reduction("ReduceMax", _extreme(torch.amax, True))
_reduction("ReduceMin", _extreme(torch.amin, False))
_reduction("ReduceL1", lambda x, dims, keep: x.abs().sum(dims, keepdim=keep, dtype=x.dtype))
_reduction("ReduceL2", lambda x, dims, keep: torch.linalg.vector_norm(x, 2, dims, keepdim=keep))
_reduction("ReduceSumSquare", lambda x, dims, keep: (x * x).sum(dims, keepdim=keep, dtype=x.dtype))
_reduction("ReduceLogSum", lambda x, dims, keep: x.sum(dims, keepdim=keep).log())
_reduction("ReduceLogSumExp", lambda x, dims, keep: x.logsumexp(dims, keepdim=keep))


def _arg(name: str, function: Callable) -> None:
    def place(x: Any, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        if select_last_index:
            return x.shape[axis] - 1 - function(x.flip(axis), axis, keepdim=bool(keepdims))
        return function(x, axis, keepdim=bool(keepdims))

    place.__name__ = place.__qualname__ = name.lower()
    OPERATORS[name] = place


_arg("ArgMax", torch.argmax)
_arg("ArgMin", torch.argmin)


def _running(name: str, function: Callable, first: int) -> None:
    def run(x: Any, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
        d = int(axis.item()) % x.dim()
        x = x.flip(d) if reverse else x
        if exclusive:
            x = torch.cat([torch.full_like(x.narrow(d, 0, 1), first), x.narrow(d, 0, x.shape[d] - 1)], d)
        made = function(x, d, dtype=x.dtype)
        return made.flip(d) if reverse else made

    run.__name__ = run.__qualname__ = name.lower()
    OPERATORS[name] = run


_running("CumSum", torch.cumsum, 0)
_running("CumProd", torch.cumprod, 1)


@operator("TopK", several=True)
def topk(x: Any, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return tuple(x.topk(int(k.item()), axis, bool(largest)))


@operator("Trilu")
def trilu(x: Any, k: Any = None, upper: int = 1) -> Any:
    return (torch.triu if upper else torch.tril)(x, 0 if k is None else k.item())
