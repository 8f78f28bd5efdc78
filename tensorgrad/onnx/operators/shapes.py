"""Shapes, indices, parts."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.onnx.operators.table import bounded, dtype_of, integers, operator, places


@operator("Shape")
def shape(x: Any, start: int = 0, end: int | None = None) -> Any:
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


@operator("Reshape")
def reshape(x: Any, shape: Any, allowzero: int = 0) -> Any:
    sizes = shape.tolist()
    return x.reshape([x.shape[i] if s == 0 and not allowzero else s for i, s in enumerate(sizes)])


@operator("Transpose")
def transpose(x: Any, perm: Any = None) -> Any:
    return x.permute(perm or tuple(range(x.dim()))[::-1])


@operator("Unsqueeze")
def unsqueeze(x: Any, axes: Any) -> Any:
    axes = integers(axes)
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


@operator("Squeeze")
def squeeze(x: Any, axes: Any = None) -> Any:
    return x.squeeze() if axes is None else x.squeeze(tuple(integers(axes)))


@operator("Concat")
def concat(*values: Any, axis: int) -> Any:
    return torch.cat(values, axis)


@operator("Split", several=True)
def split(x: Any, sizes: Any = None, axis: int = 0, num_outputs: int = 0, split: Any = None, count: int = 1) -> Any:
    sizes = split if sizes is None else sizes.tolist()
    if sizes is None:
        part = -(-x.shape[axis] // count)
        sizes = [max(min(part, x.shape[axis] - i * part), 0) for i in range(count)]
    return x.split(sizes, axis)


@operator("Slice")
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    starts, ends = starts.tolist(), ends.tolist()
    axes = range(len(starts)) if axes is None else axes.tolist()
    for start, end, axis, step in zip(starts, ends, axes, steps.tolist() if steps is not None else [1] * len(starts)):
        at = range(x.shape[axis])[start:end:step]
        if step > 0:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(at.start, at.stop, step),)]
        else:
            x = x.index_select(axis, torch.tensor(list(at), dtype=torch.int64))
    return x


@operator("Gather")
def gather(x: Any, indices: Any, axis: int = 0) -> Any:
    return x[(slice(None),) * (axis % x.dim()) + (indices,)]


@operator("GatherElements")
def gather_elements(x: Any, indices: Any, axis: int = 0) -> Any:
    return x.gather(axis, places(indices, x.shape[axis]))


@operator("GatherND")
def gather_nd(x: Any, indices: Any, batch_dims: int = 0) -> Any:
    n = batch_dims
    batch = [torch.arange(x.shape[i]).reshape(-1, *(1,) * (indices.dim() - 2 - i)) for i in range(n)]
    return x[(*batch, *indices.unbind(-1))]


@operator("ScatterElements")
def scatter_elements(x: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "none") -> Any:
    indices = places(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, indices, updates)
    return x.scatter_reduce(
        axis, indices, updates, {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    )


@operator("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, reduction: str = "none") -> Any:
    if reduction in ("none", "add"):
        return x.index_put(tuple(indices.unbind(-1)), updates, accumulate=reduction == "add")
    count = indices.shape[-1]
    at = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for place, size in zip(indices.unbind(-1), x.shape, strict=False):
        at = at * size + places(place, size)
    flat, rows = x.reshape(math.prod(x.shape[:count]), -1), updates.reshape(at.numel(), -1)
    at = at.reshape(-1, 1).expand(rows.shape)
    return flat.scatter_reduce(0, at, rows, {"mul": "prod", "max": "amax", "min": "amin"}[reduction]).reshape(x.shape)


@operator("NonZero")
def nonzero(x: Any) -> Any:
    return x.nonzero().t()


@operator("OneHot")
def one_hot(indices: Any, depth: Any, values: Any, axis: int = -1) -> Any:
    depth = int(depth.item())
    indices = places(indices, depth)
    chosen = indices.unsqueeze(-1) == torch.arange(depth)
    return torch.where(chosen, values[1], values[0]).movedim(-1, axis)


@operator("Pad")
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, mode: str = "constant") -> Any:
    sizes, n = pads.tolist(), pads.numel() // 2
    dims = range(n) if axes is None else [a % x.dim() for a in axes.tolist()]
    pairs = [(0, 0)] * x.dim()
    for i, d in enumerate(dims):
        pairs[d] = sizes[i], sizes[n + i]
    if mode == "constant":
        return F.pad(x, [p for pair in reversed(pairs) for p in pair], value=0 if value is None else value.item())
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        at = torch.arange(-before, size + after)
        if mode == "edge":
            at = at.clamp(0, size - 1)
        else:
            at = at % size if mode == "wrap" else (size - 1) - ((size - 1) - at.abs()).abs()
        x = x.index_select(axis, at)
    return x


@operator("Compress")
def compress(x: Any, condition: Any, axis: Any = None) -> Any:
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return x.index_select(axis, condition.nonzero()[:, 0])


@operator("Unique", several=True)
def unique(x: Any, axis: Any = None, sorted: int = 1, count: int = 1) -> Any:
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    values, place, often = torch.unique(x, return_inverse=True, return_counts=True, dim=axis)
    first = torch.full((often.numel(),), place.numel()).scatter_reduce(
        0, place, torch.arange(place.numel()), "amin"
    )  # of each value, where it is for the first time
    if not sorted:
        order = first.argsort()
        values, first, often, place = (
            values.index_select(axis, order),
            first[order],
            often[order],
            order.argsort()[place],
        )
    return (values, first, place, often)[:count]


@operator("ReverseSequence")
def reverse_sequence(x: Any, lengths: Any, batch_axis: int = 1, time_axis: int = 0) -> Any:
    moved = x.movedim((time_axis, batch_axis), (0, 1))
    at = torch.arange(moved.shape[0])[:, None]
    at = torch.where(at < lengths, lengths - 1 - at, at)
    made = moved[at, torch.arange(moved.shape[1])]
    return made.movedim((0, 1), (time_axis, batch_axis))


@operator("CenterCropPad")
def center_crop_pad(x: Any, shape: Any, axes: Any = None) -> Any:
    sizes = bounded(shape.tolist())
    for axis, size in zip(range(x.dim()) if axes is None else axes, sizes, strict=True):
        now = x.shape[axis]
        if size < now:
            x = x.narrow(axis, (now - size) // 2, size)
        elif size > now:
            before, sides = (size - now) // 2, [0] * 2 * x.dim()
            axis %= x.dim()
            sides[2 * (x.dim() - 1 - axis) : 2 * (x.dim() - axis)] = before, size - now - before
            x = F.pad(x, sides)
    return x


@operator("EyeLike")
def eye_like(x: Any, dtype: Any = None, k: int = 0) -> Any:
    rows, columns = x.shape
    made = torch.arange(columns) == torch.arange(rows)[:, None] + k
    return made.to(x.dtype if dtype is None else dtype_of(dtype))
