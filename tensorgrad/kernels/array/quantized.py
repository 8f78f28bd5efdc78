"""Products with weights of 8 and 4 bits, and the weights as floating-point numbers.

The 4-bit weights of a row are packed in blocks of 32: byte j of a block holds weight j in its lower half and weight
j + 16 in its upper half, so that a vector of 16 bytes becomes two vectors of adjacent weights. They are stored as 0 to
15, and stand for (stored - 8) * scale + zero, with a scale and a zero for each group of a row.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.kernels.array.matmul import widened

BLOCK = 32  # weights that are packed together
_AT_A_TIME = 1 << 18  # weights that are made floating-point numbers at a time: they stay in a second-level cache


def int8_weights(xp, weight, scales):
    """The weights of 8 bits as numbers of the scales' dtype."""
    wide = widened(scales)
    return (weight.astype(wide.dtype) * wide[:, None]).astype(scales.dtype, copy=False)


def int4_weights(xp, packed, scales, zeros):
    """The weights of 4 bits as numbers of the scales' dtype, (rows, 2 * bytes of a row)."""
    wide = widened(scales)
    rows, groups = wide.shape
    halves = packed.reshape(rows, packed.shape[1] * 2 // BLOCK, 1, BLOCK // 2)
    stored = xp.concatenate([halves & 15, halves >> 4], axis=2)
    made = stored.reshape(rows, groups, packed.shape[1] * 2 // max(groups, 1)).astype(wide.dtype)
    made -= 8
    made *= wide[:, :, None]
    if zeros is not None:
        made += widened(zeros)[:, :, None]
    return made.reshape(rows, packed.shape[1] * 2).astype(scales.dtype, copy=False)


def linear_by_blocks(xp, x, columns: int, depth: int, bias, weights_of):
    """`x @ weightsᵀ + bias`, where `weights_of(first, last)` makes some rows of the weights; `x` is padded to them."""
    wide = widened(x)
    rows = wide.reshape(math.prod(wide.shape[:-1]), wide.shape[-1])
    out = xp.empty((len(rows), columns), rows.dtype)
    step = max(1, _AT_A_TIME // max(depth, 1))
    for first in range(0, columns, step):
        last = min(first + step, columns)
        weights = weights_of(first, last).astype(rows.dtype, copy=False)
        out[:, first:last] = rows @ weights[:, : rows.shape[1]].T
    if bias is not None:
        out += widened(bias)
    return out.reshape(*x.shape[:-1], columns).astype(x.dtype, copy=False)


def int8_linear(xp, x, weight, scales, bias):
    """`x @ (weight * scales)ᵀ + bias`, with weights of 8 bits."""
    int8_shape(x, weight, scales, bias)
    scales = widened(scales)
    return linear_by_blocks(
        xp, x, len(weight), weight.shape[1], bias, lambda a, b: int8_weights(xp, weight[a:b], scales[a:b])
    )


def int4_linear(xp, x, packed, scales, zeros, bias):
    """`x @ weightsᵀ + bias`, with weights of 4 bits."""
    int4_shape(x, packed, scales, zeros, bias)
    scales, zeros = widened(scales), widened(zeros)
    return linear_by_blocks(
        xp, x, len(packed), packed.shape[1] * 2, bias,
        lambda a, b: int4_weights(xp, packed[a:b], scales[a:b], None if zeros is None else zeros[a:b]),
    )  # fmt: skip


def int8_shape(x, weight, scales, bias=None):
    """The shape of `int8_linear`'s result. Raises: RuntimeError for what does not fit."""
    _check("int8_linear", x, weight, np.int8, x.shape[-1] if x.ndim else -1, weight.shape[-1], scales.shape,
           weight.shape[:1], bias)  # fmt: skip
    return (*x.shape[:-1], weight.shape[0]), x.dtype


def int4_shape(x, packed, scales, zeros=None, bias=None):
    """The shape of `int4_linear`'s result. Raises: RuntimeError for what does not fit."""
    depth, last = packed.shape[-1] * 2, x.shape[-1] if x.ndim else -1
    groups = scales.shape[-1] if scales.ndim else 0
    wanted = (packed.shape[0], groups)
    if not groups or depth % (groups * BLOCK) or (zeros is not None and zeros.shape != wanted):
        raise RuntimeError(
            f"int4_linear: expected scales (and zeros) of shape (rows, groups), with groups of a multiple of {BLOCK} "
            f"weights, got {tuple(scales.shape)}{'' if zeros is None else f' and {tuple(zeros.shape)}'} for packed "
            f"weights of shape {tuple(packed.shape)}"
        )
    fits = depth - depth // groups < last <= depth
    _check("int4_linear", x, packed, np.uint8, last, last if fits else depth, scales.shape, wanted, bias)
    return (*x.shape[:-1], packed.shape[0]), x.dtype


def _check(name, x, weight, dtype, last, wanted, scales, scales_wanted, bias):
    if weight.ndim != 2 or weight.dtype != dtype:
        raise RuntimeError(
            f"{name}: expected weights of two dimensions in {np.dtype(dtype)}, got {weight.dtype} of shape "
            f"{tuple(weight.shape)}"
        )
    if last != wanted or tuple(scales) != tuple(scales_wanted) or x.dtype.kind not in "fV":
        raise RuntimeError(
            f"{name}: the shapes do not fit: input {x.dtype}{list(x.shape)}, weights {list(weight.shape)}, scales "
            f"{list(scales)}"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise RuntimeError(f"{name}: expected a bias of shape ({weight.shape[0]},), got {tuple(bias.shape)}")


def int8_attention(xp, query, key, key_scales, value, value_scales, mask, scale):
    """Attention on keys and values of 8 bits, with a scale for each position of a head."""
    int8_attention_shape(query, key, key_scales, value, value_scales, mask)
    (batch, heads, queries, depth), wide = query.shape, widened(query)
    held, length, width = value.shape[1:]
    lines = heads // max(held, 1) * queries
    numbers = key.astype(wide.dtype) * (widened(key_scales) * scale)[..., None]
    scores = wide.reshape(batch, held, lines, depth) @ numbers.swapaxes(-1, -2)
    if mask is not None:
        mask = xp.where(mask, 0.0, -math.inf) if mask.dtype == bool else widened(mask)
        shape = batch, held, heads // max(held, 1), queries, length
        mask = xp.broadcast_to(mask, (batch, heads, queries, length)).reshape(shape)
        scores = (scores.reshape(shape) + mask.astype(wide.dtype)).reshape(scores.shape)
    if not scores.size:
        return xp.zeros((batch, heads, queries, width), query.dtype)
    top = scores.max(-1, keepdims=True)
    shares = xp.exp(scores - xp.where(top == -math.inf, 0, top))
    total = shares.sum(-1, keepdims=True)
    shares /= xp.where(total == 0, 1, total)
    out = shares @ (value.astype(wide.dtype) * widened(value_scales)[..., None])
    return out.reshape(batch, heads, queries, width).astype(query.dtype, copy=False)


def int8_attention_shape(query, key, key_scales, value, value_scales, mask=None, scale=1.0):
    """The shape of `int8_attention`'s result. Raises: RuntimeError for what does not fit."""
    for name, x, dims in (("query", query, 4), ("key", key, 4), ("value", value, 4), ("key_scales", key_scales, 3),
                          ("value_scales", value_scales, 3)):  # fmt: skip
        if x.ndim != dims:
            raise RuntimeError(f"int8_attention: {name} must have {dims} dimensions, but has {x.ndim}")
    for name, x in (("key", key), ("value", value)):
        if x.dtype != np.int8:
            raise RuntimeError(f"int8_attention: {name} must be int8, but is {x.dtype}")
    batch, heads, queries, depth = query.shape
    if (
        key.shape[0] != batch or key.shape[3] != depth or value.shape[:3] != key.shape[:3]
        or key_scales.shape != key.shape[:3] or value_scales.shape != key.shape[:3]
    ):  # fmt: skip
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, key_scales, value, value_scales))
        raise RuntimeError(f"int8_attention: query, key, key_scales, value and value_scales of shapes {shapes}")
    if heads % max(key.shape[1], 1) or bool(heads) is not bool(key.shape[1]):
        raise RuntimeError(f"int8_attention: {heads} heads of queries cannot share {key.shape[1]} of keys")
    return (batch, heads, queries, value.shape[3]), query.dtype
