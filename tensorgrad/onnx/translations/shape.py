"""Views, joining and splitting, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.onnx.builder import Builder, Value, bool, int64
from tensorgrad.onnx.sizes import Varying
from tensorgrad.onnx.translations.table import translates

LAST = 2**63 - 1
FIRST = -(2**63)


@translates("view", "reshape")
def view(g: Builder, input: Value, size: Any) -> Value:
    return g.reshape(input, g.shape)


@translates("expand")
def expand(g: Builder, input: Value, size: Any) -> Value:
    return g.expand(input, g.shape)


@translates("spread")
def spread(g: Builder, input: Value, shape: Any, dim: Any, keepdim: Any) -> Value:
    if not keepdim:
        axes = range(len(g.shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
        input = g.unsqueeze(input, *sorted(d % len(g.shape) for d in axes))
    return g.expand(input, g.shape)


@translates("unsqueeze")
def unsqueeze(g: Builder, input: Value, dim: int) -> Value:
    return g.unsqueeze(input, dim % (input.rank + 1))


@translates("squeeze", "squeeze_dims")
def squeeze(g: Builder, input: Value, dims: Any) -> Value:
    axes = sorted(d % input.rank for d in ((dims,) if isinstance(dims, int) else dims)) if input.rank else []
    return g.squeeze(input, *[d for d in axes if input.shape[d] == 1])


@translates("permute")
def permute(g: Builder, input: Value, dims: Any) -> Value:
    return g.transpose(input, [d % input.rank for d in dims])


@translates("transpose")
def transpose(g: Builder, input: Value, dim0: int, dim1: int) -> Value:
    order = list(range(input.rank))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return g.transpose(input, order)


@translates("t")
def t(g: Builder, input: Value) -> Value:
    return g.transpose(input, range(input.rank)[::-1])


@translates("select", "slice", "new_axes")
def indexed(g: Builder, input: Value, index: Any) -> Value:
    """Integers, slices, None and an ellipsis: a Slice, then dimensions are removed and added."""
    entries = list(index if isinstance(index, tuple) else (index,))
    taken = sum(e is not None and e is not Ellipsis for e in entries)
    at = entries.index(Ellipsis) if Ellipsis in entries else len(entries)
    entries[at : at + 1] = [slice(None)] * (input.rank - taken)
    starts: list[Any] = []
    ends: list[Any] = []
    axes, steps, removed, added = [], [], [], []
    axis = place = 0
    only = None
    for entry in entries:
        if entry is None:
            added.append(place)
            place += 1
            continue
        if isinstance(entry, slice):
            start = 0 if entry.start is None else entry.start
            end = LAST if entry.stop is None else entry.stop
            step = 1 if entry.step is None else entry.step
            if (start, end, step) != (0, LAST, 1):
                starts.append(start)
                ends.append(end)
                axes.append(axis)
                steps.append(step)
            place += 1
        else:
            only = (axis, entry)
            starts.append(entry)
            ends.append(LAST if entry == -1 else _next(g, entry))
            axes.append(axis)
            steps.append(1)
            removed.append(axis)
        axis += 1
    if only is not None and len(starts) == 1:
        size = g.size(only[1])
        scalar = g.constant(np.int64(only[1])) if size.array is not None else g.op("Squeeze", size, [0])
        return g.unsqueeze(g.op("Gather", input, scalar, axis=only[0]), *added)
    value = input
    if starts:
        value = g.op("Slice", value, _ints(g, starts), _ints(g, ends), axes, steps)
    return g.unsqueeze(g.squeeze(value, *removed), *added)


def _next(g: Builder, entry: Any) -> Any:
    return g.op("Add", g.size(entry), [1]) if isinstance(entry, Varying) else entry + 1


def _ints(g: Builder, values: list[Any]) -> Value:
    if not any(isinstance(v, Value) for v in values):
        return g.ints(values)
    return g.concat([v if isinstance(v, Value) else g.size(v) for v in values])


@translates("diagonal")
def diagonal(g: Builder, input: Value, offset: int, dim1: int, dim2: int) -> Value:
    a, b = dim1 % input.rank, dim2 % input.rank
    rest = [d for d in range(input.rank) if d not in (a, b)]
    value = g.transpose(input, [*rest, a, b])
    columns = int(input.shape[b])
    length = int(g.shape[-1])
    first = offset if offset >= 0 else -offset * columns
    flat = g.op("Reshape", value, [*[0 for _ in rest], -1])
    return g.op("Gather", flat, first + np.arange(length, dtype=np.int64) * (columns + 1), axis=len(rest))


@translates("unfold")
def unfold(g: Builder, input: Value, dimension: int, size: int, step: int) -> Value:
    if input.rank == 0:
        return g.op("Slice", g.unsqueeze(input, 0), [0], [size])
    axis = dimension % input.rank
    count = int(g.shape[axis])
    at = np.arange(count)[:, None] * step + np.arange(size)
    made = g.op("Gather", input, at.astype(np.int64), axis=axis)
    order = [d for d in range(input.rank + 1) if d != axis + 1]
    return g.transpose(made, [*order, axis + 1])


@translates("unbind")
def unbind(g: Builder, input: Value, dim: int) -> Any:
    axis = dim % input.rank
    parts = _split(g, input, axis, [1] * len(g.results))
    return tuple(g.squeeze(part, axis) for part in parts)


@translates("split", "split_with_sizes")
def split(g: Builder, input: Value, dim: int, sizes: Any) -> Any:
    return tuple(_split(g, input, dim % input.rank, list(sizes)))


def _split(g: Builder, input: Value, axis: int, sizes: list) -> list[Value]:
    if len(sizes) == 1:
        return [input]
    return g.op("Split", input, g.ints(sizes), outputs=len(sizes), axis=axis)


@translates("cat")
def cat(g: Builder, tensors: list[Value], dim: int) -> Value:
    kept = [t for t in tensors if t.shape != (0,) or len(g.shape) == 1]  # PyTorch leaves out old empty tensors
    return g.concat([g.cast(t, g.dtype) for t in kept], dim % len(g.shape))


@translates("stack")
def stack(g: Builder, tensors: list[Value], dim: int) -> Value:
    axis = dim % len(g.shape)
    return g.concat([g.unsqueeze(g.cast(t, g.dtype), axis) for t in tensors], axis)


@translates("repeat")
def repeat(g: Builder, input: Value, repeats: Any) -> Value:
    repeats = (repeats,) if isinstance(repeats, int | Varying) else repeats
    return g.op("Tile", g.unsqueeze(input, *range(len(repeats) - input.rank)), g.ints(repeats))


@translates("flip")
def flip(g: Builder, input: Value, dims: Any) -> Value:
    axes = [d % input.rank for d in ((dims,) if isinstance(dims, int) else dims)]
    if not axes:
        return input
    return g.op("Slice", input, [-1] * len(axes), [FIRST] * len(axes), axes, [-1] * len(axes))


@translates("roll")
def roll(g: Builder, input: Value, shifts: Any, dims: Any) -> Value:
    shifts = (shifts,) if isinstance(shifts, int | Varying) else tuple(shifts)
    axes = (dims,) if isinstance(dims, int) else tuple(dims or ())
    if input.rank == 0:
        return input
    if not axes:
        made = _rolled(g, g.reshape(input, (-1,)), shifts[0], 0)
        return g.reshape(made, input.shape)
    value = input
    for shift, axis in zip(shifts, axes, strict=True):
        size = input.shape[axis]
        by = shift % size if isinstance(size, int) and size else shift
        value = _rolled(g, value, by, axis % input.rank)
    return value


def _rolled(g: Builder, value: Value, shift: int, axis: int) -> Value:
    if shift == 0:
        return value
    tail = g.op("Slice", value, [-shift], [LAST], [axis])
    return g.op("Concat", tail, g.op("Slice", value, [0], [-shift], [axis]), axis=axis)


def _pads(g: Builder, pads: Any) -> Value:
    return g.ints([before for before, _ in pads] + [after for _, after in pads])


@translates("constant_pad_nd")
def constant_pad(g: Builder, input: Value, pads: Any, value: Any) -> Value:
    if input.dtype is bool:
        made = g.op("Pad", g.cast(input, int64), _pads(g, pads), g.constant(int(value), int64))
        return g.cast(made, bool)
    return g.op("Pad", input, _pads(g, pads), g.operand(value, input.dtype))


@translates("pad_around")
def pad_around(g: Builder, input: Value, pads: Any, mode: str) -> Value:
    if mode != "circular":
        added = [(max(before, 0), max(after, 0)) for before, after in pads]
        made = g.op("Pad", input, _pads(g, added), mode={"reflect": "reflect", "replicate": "edge"}[mode])
        return _cut(g, made, pads)  # Pad would cut first, perhaps all there is
    input = _cut(g, input, pads)
    for axis, (before, after) in enumerate(pads):
        parts = [input]
        if before > 0:
            parts.insert(0, g.op("Slice", input, [-before], [LAST], [axis]))
        if after > 0:
            parts.append(g.op("Slice", input, [0], [after], [axis]))
        input = g.concat(parts, axis) if len(parts) > 1 else input
    return input


def _cut(g: Builder, value: Value, pads: Any) -> Value:
    """Takes away what padding below 0 says."""
    for axis, (before, after) in enumerate(pads):
        if before < 0 or after < 0:
            value = g.op("Slice", value, [max(-before, 0)], [min(after, 0) or LAST], [axis])
    return value


@translates("copy")
def copy(g: Builder, input: Value, src: Any) -> Value:
    return g.expand(g.operand(src, g.dtype), g.shape)


@translates("fill")
def fill(g: Builder, input: Value, value: Any) -> Value:
    return g.expand(g.operand(value, g.dtype), g.shape)
