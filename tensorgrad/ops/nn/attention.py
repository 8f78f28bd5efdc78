"""Scaled dot-product attention, as a fused op; its twin in simple ops defines what it computes.

Source: Vaswani et al., "Attention is all you need", 2017.
"""

from __future__ import annotations

import math

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import FUNCTIONAL, composite, op
from tensorgrad.dtypes import c_type
from tensorgrad.kernels.array import attention as kernels
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.kernels.array import sample as sampling
from tensorgrad.ops.nn.dropout import dropout
from tensorgrad.ops.random.sample import mask_like
from tensorgrad.random.generator import default_generator
from tensorgrad.rows.strides import order_of_copy
from tensorgrad.rows.switches import SLOW
from tensorgrad.tensor import Tensor, share
from tensorgrad.transforms.batch import innermost_level
from tensorgrad.transforms.transform import beside_ops


def _weights(query, key, attn_mask, is_causal, scale):
    """Returns the attention weights: softmax(scale · query keyᵀ + mask); 0 for a query with all keys masked."""
    scores = query.matmul(key.transpose(-2, -1)) * scale
    hidden = None
    if is_causal:
        hidden = scores.new_ones(scores.shape[-2:], dtype=dtypes.bool).triu(1)
    if attn_mask is not None:
        if attn_mask.dtype is dtypes.bool:
            hidden = attn_mask.logical_not() if hidden is None else hidden.logical_or(attn_mask.logical_not())
        else:
            scores = scores + attn_mask
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    if hidden is None and attn_mask is None:
        return scores.softmax(-1)
    blind = (scores == -math.inf).all(-1, True)
    return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


def _twin(query, key, value, attn_mask, dropout_mask, is_causal, scale):
    p = _weights(query, key, attn_mask, is_causal, scale)
    return (p if dropout_mask is None else p * dropout_mask).matmul(value)


def _shapes(q, k, v, *rest):
    lead = matmul_kernels.broadcast_lead(matmul_kernels.broadcast_lead(q.shape[:-2], k.shape[:-2]), v.shape[:-2])
    wide = dtypes.float32.numpy if q.dtype.itemsize == 2 else q.dtype
    return [((*lead, q.shape[-2], v.shape[-1]), q.dtype), ((*lead, q.shape[-2]), wide)]


def _laid_out(q, k, v, mask, dropout_mask, is_causal, scale):
    """The dimensions of the result, outermost first: as those of the queries where PyTorch's fused kernel serves, else
    in rows."""
    fused = (
        q.ndim == k.ndim == v.ndim == 4
        and dropout_mask is None
        and q.shape[-1] == v.shape[-1]
        and q.shape[0] == k.shape[0] == v.shape[0]
        and all([x.strides[-1] == x.itemsize for x in (q, k, v)])
        and 0 not in (q.shape[-2], k.shape[-2])
        and (mask is None or mask.ndim in (2, 4))
    )
    return order_of_copy(q) if fused else range(max(q.ndim, k.ndim, v.ndim))


# Kept are the logarithms of the queries' sums of weights, (*, L), from which backward computes the weights again.
_attention = op(
    "attention(query, key, value, attn_mask=None, dropout_mask=None, is_causal: bool = False, scale: float = 1.0)",
    lambda xp, q, k, v, mask, dropout_mask, is_causal, scale: kernels.attention(
        xp, q, k, v, mask, is_causal, scale, dropout_mask
    ),
    twin=_twin,
    wrt=("query", "key", "value", "attn_mask"),
    cache=("logs",),
    backward_kernel=lambda xp, g, query, key, value, attn_mask, dropout_mask, out, logs, is_causal, scale, needs: (
        kernels.attention_grad(xp, g, query, key, value, out, logs, scale, dropout_mask, needs, is_causal, attn_mask)
    ),
    shape=_shapes,
    strides=_laid_out,
    backward_name="ScaledDotProductFlashAttentionForCpuBackward0",
    batch_kernel="attention.attention_of_batch",
    batch_backward="attention.attention_of_batch_backward",
    where=(),
)


def _check(query, key, value, attn_mask, is_causal) -> None:
    """Raises: RuntimeError, with PyTorch's messages, for tensors that do not fit together."""
    q, k, v = query._array, key._array, value._array
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{q.ndim} key.dim: {k.ndim} and value.dim: {v.ndim} instead."
        )
    if not q.dtype == k.dtype == v.dtype:
        names = [c_type(a) for a in (q, k, v)]
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {names[0]} key.dtype: "
            f"{names[1]} and value.dtype: {names[2]} instead."
        )
    if not query.dtype.is_floating_point:
        kind = c_type(q)
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: float != {kind}")
    if attn_mask is not None:
        if attn_mask.dtype not in (dtypes.bool, dtypes.float32, query.dtype):
            raise RuntimeError(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
                f"{c_type(attn_mask)} and  query.dtype: {c_type(q)} instead."
            )
        if is_causal:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
            )


class _Shape:
    """A shape, for the shape checks of matrix products."""

    def __init__(self, shape, dtype):
        self.shape, self.ndim, self.dtype = tuple(shape), len(shape), dtype


def _check_sizes(query, key, value, attn_mask) -> tuple[int, ...]:
    """Returns the shape of the attention weights. Raises: RuntimeError if the sizes do not fit."""
    q, k, v = query._array, key._array, value._array
    fits = False
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2] or q.shape[:-2] != k.shape[:-2]:
        scores = matmul_kernels.matmul_shape(q, _Shape((*k.shape[:-2], k.shape[-1], k.shape[-2]), k.dtype))
    else:
        scores = (*q.shape[:-1], k.shape[-2])
        fits = attn_mask is None or q.shape[:-2] == v.shape[:-2]
    masked = scores if attn_mask is None else matmul_kernels.broadcast_lead(scores, attn_mask._array.shape)
    if not fits or masked != scores:
        matmul_kernels.matmul_shape(_Shape(masked, q.dtype), v)
    return masked


@composite("functional")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Computes scaled dot-product attention: softmax(scale · query keyᵀ + mask) value.

    Args:
        query, key, value: (*, L, E), (*, S, E), (*, S, V); leading dimensions broadcast. The result is (*, L, V).
        attn_mask: broadcasts to (*, L, S); boolean (True: attend) or added to the scores.
        dropout_p: the probability of dropping each weight (always applied if positive).
        is_causal: whether query i attends to keys 0 .. i only.
        scale: the factor of the scores, 1 / √E unless given.
        enable_gqa: whether key and value may have fewer heads (dimension -3), each shared by several query heads.

    Raises:
        RuntimeError: If the dtypes or sizes do not fit together.

    >>> q = k = v = torch.eye(2)
    >>> torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    tensor([[1.0000, 0.0000],
            [0.3302, 0.6698]])
    """
    _check(query, key, value, attn_mask, is_causal)
    if not 0.0 <= dropout_p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    if enable_gqa:
        if not is_causal and not dropout_p and _shares_as_queries(query, key, value, attn_mask):
            several = query.reshape(*key._array.shape[:-2], -1, query._array.shape[-1])
            made = scaled_dot_product_attention(several, key, value, attn_mask, scale=scale)
            return made.reshape(*query._array.shape[:-1], value._array.shape[-1])
        key, value = _shared_heads(query, key, value)
    weights = _check_sizes(query, key, value, attn_mask)
    width = query._array.shape[-1]
    if scale is None:
        scale = 1.0 / math.sqrt(width) if width else 1.0
    mask = _dropout_mask(query, key, value, weights, dropout_p) if dropout_p > 0 else None
    return _attention(query, key, value, attn_mask, mask, is_causal, scale)


def _shares_as_queries(query, key, value, attn_mask) -> bool:
    """Whether the heads that share keys are as good as several queries of one head, so that these are not repeated.

    They are for the one query of a decoder's token, under a mask that all heads have in common.
    """
    q, k, v = query._array, key._array, value._array
    return (
        q.ndim == k.ndim == v.ndim == 4
        and q.shape[2] == 1
        and 0 < k.shape[1] < q.shape[1]
        and q.shape[1] % k.shape[1] == 0
        and (q.shape[0], *k.shape[1:]) == (k.shape[0], v.shape[1], v.shape[2], q.shape[3])
        and v.shape[0] == q.shape[0]
        and not (query.requires_grad or key.requires_grad or value.requires_grad)
        and (attn_mask is None or (_one_for_all(attn_mask._array) and not attn_mask.requires_grad))
    )


def _one_for_all(mask) -> bool:
    return mask.ndim <= 4 and all(size == 1 for size in mask.shape[-3:-1])


def _shared_heads(query, key, value):
    heads, shared, shared_value = (t._array.shape[-3] for t in (query, key, value))
    if not shared or not shared_value or heads % shared or heads % shared_value:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query, but got "
            f"query {heads}, key {shared}, value {shared_value}"
        )
    return key.repeat_interleave(heads // shared, -3), value.repeat_interleave(heads // shared_value, -3)


def _dropout_mask(query, key, value, weights, p: float) -> Tensor:
    lead = matmul_kernels.broadcast_lead(weights[:-2], value._array.shape[:-2])
    storage = query._storage.__class__
    dtype = query._array.dtype
    shape = (*lead, *weights[-2:])
    if SLOW and innermost_level() is not None:
        mask = mask_like(query, weights, sampling.dropout_mask, p) if p < 1 else query.new_zeros(weights)
        return mask.expand(shape)
    if SLOW:
        drawn = beside_ops(_dropout_mask, (query, key, value, weights, p), kind="random")
        if drawn is not NotImplemented:
            return drawn
    if storage.device_type == "meta":
        made = storage.empty(shape, dtype, query.device)
    elif storage.device_type == "cuda" and p < 1:
        return dropout(query.new_ones(shape), p)
    else:
        made = (
            sampling.dropout_mask(default_generator, weights, dtype, p) if p < 1 else sampling.np.zeros(weights, dtype)
        )
        made = sampling.np.ascontiguousarray(sampling.np.broadcast_to(made, shape))
        made = made if storage.device_type == "cpu" else storage.from_host(made, query.device)
    return share(made, storage.of(made))


__all__ = ["FUNCTIONAL", "scaled_dot_product_attention"]
