"""Indexing by tensors: choosing, gathering, scattering."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.onnx.builder import Builder, Value, bool, int64
from tensorgrad.onnx.translations.pointwise import number
from tensorgrad.onnx.translations.table import translates


@translates("where")
def where(g: Builder, condition: Value, input: Any, other: Any) -> Value:
    return g.op("Where", g.cast(condition, bool), number(g, input), number(g, other), dtype=g.dtype)


@translates("masked_fill")
def masked_fill(g: Builder, input: Value, mask: Value, value: Any) -> Value:
    return g.op("Where", g.cast(mask, bool), number(g, value), input, dtype=g.dtype)


@translates("embedding")
def embedding(g: Builder, weight: Value, indices: Value, padding_idx: int, scale_grad_by_freq: Any) -> Value:
    return g.op("Gather", weight, indices)


@translates("one_hot")
def one_hot(g: Builder, input: Value, classes: int) -> Value:
    indices = input if input.rank else g.unsqueeze(input, 0)
    made = g.op(
        "OneHot", indices, g.constant(np.int64(int(classes))), g.constant(np.array([0, 1], np.int64)), dtype=int64
    )
    return made if input.rank else g.squeeze(made, 0)


@translates("index_select")
def index_select(g: Builder, input: Value, dim: int, index: Value) -> Value:
    if input.rank == 0:
        return input
    return g.op("Gather", input, index if index.rank else g.unsqueeze(index, 0), axis=dim % input.rank)


@translates("gather")
def gather(g: Builder, input: Value, dim: int, index: Value) -> Value:
    if input.rank == 0:
        return g.expand(input, index.shape)
    axis = dim % input.rank
    if any(a is not b and a != b for i, (a, b) in enumerate(zip(input.shape, index.shape, strict=True)) if i != axis):
        input = g.op("Slice", input, [0] * input.rank, g.ints([
            2**63 - 1 if i == axis else size for i, size in enumerate(index.shape)
        ]))  # fmt: skip
    return g.op("GatherElements", input, index, axis=axis)


@translates("scatter")
def scatter(g: Builder, input: Value, dim: int, index: Value, src: Any) -> Value:
    return _scattered(g, input, dim, index, src, None)


@translates("scatter_add")
def scatter_add(g: Builder, input: Value, dim: int, index: Value, src: Any) -> Value:
    return _scattered(g, input, dim, index, src, "add")


@translates("scatter_reduce")
def scatter_reduce(
    g: Builder, input: Value, dim: int, index: Value, src: Value, reduce: str, include_self: Any
) -> Value:
    names = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if not include_self or reduce not in names:
        raise NotImplementedError(f"reduce={reduce!r}, include_self={include_self}")
    return _scattered(g, input, dim, index, src, names[reduce])


def _scattered(g: Builder, input: Value, dim: int, index: Value, src: Any, reduction: str | None) -> Value:
    source = number(g, src)
    if input.rank == 0:  # a vector of one element
        places, values = (g.op("Reshape", v, [-1]) for v in (index, source))
        made = g.op("ScatterElements", g.unsqueeze(input, 0), places, values, axis=0, reduction=reduction)
        return g.squeeze(made, 0)
    if not isinstance(src, Value) or src.rank == 0:
        source = g.expand(source, index.shape)
    elif src.shape != index.shape:
        source = g.op("Slice", source, [0] * input.rank, g.ints(index.shape))
    return g.op("ScatterElements", input, index, source, axis=dim % input.rank, reduction=reduction)


def _coordinates(g: Builder, input: Value, indices: Any, pattern: Any) -> tuple[list[int], list[Value]]:
    """The dimensions that are indexed, and an index for each."""
    entries = list(pattern) + [None] * (input.rank - len(pattern))
    axes = [d for d, entry in enumerate(entries) if entry is not None]
    return axes, [indices[entries[d]] for d in axes]


@translates("index")
def index(g: Builder, input: Value, indices: Any, pattern: Any) -> Value:
    if any(i.dtype is bool for i in indices):
        if len(indices) > 1 or pattern != (0,):
            raise NotImplementedError("a mask beside other indices")
        return g.op("GatherND", input, g.op("Transpose", g.op("NonZero", indices[0], dtype=int64), perm=[1, 0]))
    axes, chosen = _coordinates(g, input, indices, pattern)
    if len(axes) == 1:
        return g.op("Gather", input, g.cast(chosen[0], int64), axis=axes[0])
    rest = [d for d in range(input.rank) if d not in axes]
    value = g.transpose(input, [*axes, *rest])
    rank = max(c.rank for c in chosen)
    coordinates = [_wrapped(g, c, input.shape[d]) for c, d in zip(chosen, axes, strict=True)]
    made = g.op("GatherND", value, _together(g, coordinates))
    if axes == list(range(axes[0], axes[0] + len(axes))):  # where they stood
        order = [rank + i for i in range(axes[0])] + list(range(rank))
        made = g.transpose(made, [*order, *range(len(order), rank + len(rest))])
    return made


def _wrapped(g: Builder, value: Value, size: Any) -> Value:
    """An index with those below 0 counted from the end."""
    value = g.cast(value, int64)
    if value.array is not None and isinstance(size, int):
        return g.constant(np.where(value.array < 0, value.array + size, value.array), int64)
    return value  # GatherND and ScatterND count them so


def _together(g: Builder, coordinates: list[Value]) -> Value:
    """Indices broadcast against each other, and stacked along a last dimension."""
    if all(c.array is not None for c in coordinates):
        return g.constant(np.stack(np.broadcast_arrays(*[c.array for c in coordinates]), -1), int64)  # type: ignore[arg-type]
    total = coordinates[0]
    for c in coordinates[1:]:
        total = g.op("Add", total, c)
    shape = g.op("Shape", total, dtype=int64)
    spread = [g.op("Unsqueeze", g.op("Expand", c, shape), [-1]) for c in coordinates]
    return spread[0] if len(spread) == 1 else g.op("Concat", *spread, axis=-1)


@translates("index_put")
def index_put(g: Builder, input: Value, indices: Any, values: Any, pattern: Any, accumulate: Any) -> Value:
    given = number(g, values)
    if any(i.dtype is bool for i in indices):
        if len(indices) == 1 and pattern == (0,) and isinstance(values, Value) and given_is_one(values):
            mask = indices[0]
            mask = g.unsqueeze(mask, *range(mask.rank, input.rank))
            return g.op("Where", mask, given, input, dtype=g.dtype)
        raise NotImplementedError("a mask beside other indices, or with several values")
    axes, chosen = _coordinates(g, input, indices, pattern)
    rest = [d for d in range(input.rank) if d not in axes]
    order = [*axes, *rest]
    coordinates = _together(g, [_wrapped(g, c, input.shape[d]) for c, d in zip(chosen, axes, strict=True)])
    rank = max(c.rank for c in chosen)
    if axes != list(range(len(axes))) and len(axes) > 1:
        raise NotImplementedError("several indices that do not begin at the first dimension")
    index_shape = g.op("Slice", g.op("Shape", coordinates, dtype=int64), [0], [-1])
    rest_shape = g.ints([input.shape[d] for d in rest]) if rest else None
    if (
        len(axes) == 1 and axes[0] and isinstance(values, Value) and values.rank > rank
    ):  # the index stands in the middle
        full = [input.shape[d] for d in range(axes[0])], [input.shape[d] for d in range(axes[0] + 1, input.rank)]
        shape = g.concat([v for v in (g.ints(full[0]), index_shape, g.ints(full[1]) if full[1] else None) if v])
        spread = g.op("Expand", given, shape)
        before = list(range(axes[0]))
        middle = list(range(axes[0], axes[0] + rank))
        after = list(range(axes[0] + rank, rank + len(rest)))
        spread = g.transpose(spread, [*middle, *before, *after])
    else:
        if len(axes) == 1 and axes[0] and isinstance(values, Value) and values.rank:
            raise NotImplementedError("values that are broadcast along an index that is not the first")
        shape = index_shape if rest_shape is None else g.concat([index_shape, rest_shape])
        spread = g.op("Expand", given, shape)
    value = g.transpose(input, order)
    made = g.op("ScatterND", value, coordinates, spread, reduction="add" if accumulate else None)
    return g.transpose(made, list(np.argsort(order)))


def given_is_one(value: Value) -> Any:
    """Whether a value has one element."""
    return all(d == 1 for d in value.shape)


@translates("index_copy")
def index_copy(g: Builder, input: Value, dim: int, index: Value, source: Value) -> Value:
    return _along(g, input, dim, index, source, None)


@translates("index_add")
def index_add(g: Builder, input: Value, dim: int, index: Value, source: Value, alpha: Any) -> Value:
    source = number(g, source)
    return _along(g, input, dim, index, source if alpha == 1 else g.op("Mul", source, number(g, alpha)), "add")


@translates("index_fill")
def index_fill(g: Builder, input: Value, dim: int, index: Value, value: Any) -> Value:
    count = index.shape[0] if index.rank else 1
    shape = [size if d != dim % input.rank else count for d, size in enumerate(input.shape)] or [count]
    return _along(g, input, dim, index, g.expand(number(g, value), shape), None)


def _along(g: Builder, input: Value, dim: int, index: Value, source: Value, reduction: str | None) -> Value:
    places = g.op("Reshape", g.cast(index, int64), [-1, 1])
    if input.rank == 0:  # a vector of one element
        values = g.op("Reshape", source, [-1])
        return g.squeeze(g.op("ScatterND", g.unsqueeze(input, 0), places, values, reduction=reduction), 0)
    axis = dim % input.rank
    order = [axis, *[d for d in range(input.rank) if d != axis]]
    made = g.op("ScatterND", g.transpose(input, order), places, g.transpose(source, order), reduction=reduction)
    return g.transpose(made, list(np.argsort(order)))


@translates("nonzero")
def nonzero(g: Builder, input: Value) -> Value:
    if input.rank == 0:
        raise NotImplementedError("of a number")
    return g.op("Transpose", g.op("NonZero", input, dtype=int64), perm=[1, 0])


@translates("pick")
def pick(g: Builder, input: Value, index: Value, dim: int, folded: Any) -> Value:
    raise NotImplementedError("used inside of derivatives")
