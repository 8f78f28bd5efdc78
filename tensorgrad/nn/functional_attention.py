"""Multi-head attention as a function (Vaswani et al., 2017, *Attention Is All You Need*).

All tensors are (length, batch, features), or (length, features) without a batch. A mask marks positions that are *not*
attended to: with True in a boolean mask, with minus infinity in a floating-point one, which is added to the scores.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.tensor import Tensor


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q Kᵀ / √d + mask) V for each head; the heads are concatenated and projected by `out_proj_weight`.

    This is what `tensorgrad.nn.MultiheadAttention` computes. L is the length of the query, S that of key and
    value, N the batch size, E the number of features, h the number of heads, and d = E/h. N is absent without a batch.

    Args:
        query, key, value: (L, N, E), (S, N, features of the key), (S, N, features of the value).
        embed_dim_to_check: E, the features that `query` must have.
        num_heads: h, which divides E.
        in_proj_weight, in_proj_bias: (3 E, E) and (3 E), the stacked projections to Q, K and V.
        bias_k, bias_v: (1, 1, E), a learned key and value that are appended to the others.
        add_zero_attn: append a key and a value of zeros.
        dropout_p: the probability that an attention weight is dropped, if `training`.
        out_proj_weight, out_proj_bias: (E, E) and (E), the output projection.
        key_padding_mask: (N, S), the keys to ignore.
        need_weights: return the attention weights.
        attn_mask: (L, S) or (N·h, L, S), the keys that each query ignores.
        use_separate_proj_weight: project with the three `?_proj_weight`, (E, features), not `in_proj_weight`.
        static_k, static_v: (N·h, S, d), used instead of the projected key and value.
        average_attn_weights: return the mean of the weights over the heads.
        is_causal: a promise that `attn_mask` is the causal mask, which allows a faster computation.

    Returns:
        The result, (L, N, E), and the attention weights: (N, L, S) if averaged over the heads, otherwise (N, h, L, S),
        or `None` without `need_weights`.

    Raises:
        AssertionError, RuntimeError: the shapes do not match; the message names them.

    >>> x, same = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.eye(2)  # length 2, 2 features, no projection
    >>> out, weights = torch.nn.functional.multi_head_attention_forward(
    ...     x, x, x, 2, 1, same.repeat(3, 1), None, None, None, False, 0.0, same, None
    ... )
    >>> weights
    tensor([[0.6698, 0.3302],
            [0.3302, 0.6698]])
    >>> out
    tensor([[0.3302, 0.6698],
            [0.6698, 0.3302]])
    """
    batched = _check_dims(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, features = query.shape
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)

    key_padding_mask = additive_mask(key_padding_mask, "key_padding_mask", attn_mask, query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # is_causal replaces the mask, and is faster
    else:
        attn_mask = additive_mask(attn_mask, "attn_mask", None, query.dtype)
        is_causal = False
    _check_mask(attn_mask, batch * num_heads, length, key.shape[0])
    plain = bias_k is None and bias_v is None and static_k is None and static_v is None and not add_zero_attn
    if plain and in_proj_weight is not None and query is key is value:
        out, attention = self_attention(
            query, num_heads, in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias,
            dropout_p if training else 0.0, need_weights, average_attn_weights,
            merged_mask(attn_mask, key_padding_mask, batch, num_heads, length), is_causal, batch_dim=1,
        )  # fmt: skip
        if batched:
            return out, attention
        return out.squeeze(1), None if attention is None else attention.squeeze(0)

    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = _project(query, key, value, weights, in_proj_bias)
    if (bias_k is None) != (bias_v is None):
        raise AssertionError(
            "bias_k is set but bias_v is None" if bias_v is None else "bias_v is set but bias_k is None"
        )
    if bias_k is not None and bias_v is not None:
        for name, static in (("key", static_k), ("value", static_v)):
            if static is not None:
                raise AssertionError(f"bias cannot be added to static {name}.")
        k, v = torch.cat([k, bias_k.repeat(1, batch, 1)]), torch.cat([v, bias_v.repeat(1, batch, 1)])

    q = _heads(q, batch, num_heads)
    k = _heads(k, batch, num_heads) if static_k is None else _static("static_k", static_k, q)
    v = _heads(v, batch, num_heads) if static_v is None else _static("static_v", static_v, q)
    if add_zero_attn:
        k, v = (torch.cat([t, t.new_zeros((t.shape[0], 1, t.shape[2]))], dim=1) for t in (k, v))
    source = k.shape[1]
    extra = (bias_k is not None) + bool(add_zero_attn)
    if extra:  # appended keys are never masked
        attn_mask, key_padding_mask = (m if m is None else F.pad(m, (0, extra)) for m in (attn_mask, key_padding_mask))
    mask = merged_mask(attn_mask, key_padding_mask, batch, num_heads, source)

    if not training:
        dropout_p = 0.0
    q, k, v = (x.view(batch, num_heads, *x.shape[1:]) for x in (q, k, v))
    mixed, attention = _attended(q, k, v, mask, dropout_p, need_weights, average_attn_weights, is_causal)
    mixed = mixed.flatten(0, 1)

    out = F.linear(mixed.transpose(0, 1).reshape(length * batch, features), out_proj_weight, out_proj_bias)
    out = out.view(length, batch, out.shape[1])
    if batched:
        return out, attention
    return out.squeeze(1), None if attention is None else attention.squeeze(0)


def self_attention(
    x: Tensor,
    num_heads: int,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor | None,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    dropout_p: float,
    need_weights: bool,
    average_attn_weights: bool,
    mask: Tensor | None,
    is_causal: bool,
    batch_dim: int,
    rows_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Self-attention, the common case, of `x` with the batch in dimension `batch_dim` (0 or 1).

    `mask` is that of `merged_mask`; with `is_causal`, later positions are ignored. Heads are views: between the
    projections nothing is copied. The result has the memory layout of `x` or, with `rows_first`, (length, batch): a
    dropout that follows draws its random values in that order, as PyTorch's does. The weights are (N, L, S) or
    (N, heads, L, S).
    """
    first, second, features = x.shape
    order, back = ((2, 0, 3, 1, 4), (0, 2, 1, 3)) if batch_dim == 0 else ((2, 1, 3, 0, 4), (2, 0, 1, 3))
    projected = F.linear(x, in_proj_weight, in_proj_bias).view(first, second, 3, num_heads, features // num_heads)
    q, k, v = projected.permute(order).unbind()
    mixed, attention = _attended(q, k, v, mask, dropout_p, need_weights, average_attn_weights, is_causal)
    if batch_dim == 0 and rows_first:
        mixed = mixed.permute(2, 0, 1, 3).reshape(second, first, features)
        return F.linear(mixed, out_proj_weight, out_proj_bias).transpose(0, 1), attention
    return F.linear(mixed.permute(back).reshape(x.shape), out_proj_weight, out_proj_bias), attention


def _attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    need_weights: bool,
    average_attn_weights: bool,
    is_causal: bool,
) -> tuple[Tensor, Tensor | None]:
    """Mixes the values of each head, (N, heads, L, d), and returns the weights if they are needed."""
    if not need_weights:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal), None
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
    attention = F.softmax(scores if mask is None else scores + mask, dim=-1)
    if dropout_p > 0.0:
        attention = F.dropout(attention, p=dropout_p)
    return attention @ v, attention.mean(dim=1) if average_attn_weights else attention


def additive_mask(
    mask: Tensor | None, name: str, other: Tensor | None, dtype: Any, other_name: str = "attn_mask"
) -> Tensor | None:
    """Returns a mask to add to the scores: a boolean mask becomes minus infinity where it is True.

    Raises: AssertionError if the mask is neither boolean nor floating-point.
    """
    if mask is None:
        return None
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and other.dtype != mask.dtype:
        warnings.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=3,
        )
    if mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def _check_dims(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, num_heads: int
) -> bool:
    """Returns whether there is a batch dimension."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    n = query.dim()
    what = f"For {'batched (3-D)' if n == 3 else 'unbatched (2-D)'} `query`, expected"
    if key.dim() != n or value.dim() != n:
        raise AssertionError(
            f"{what} `key` and `value` to be {n}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != n - 1:
        raise AssertionError(
            f"{what} `key_padding_mask` to be `None` or {n - 1}-D but found {padding.dim()}-D tensor instead"
        )
    if mask is not None and mask.dim() not in (2, 3):
        raise AssertionError(f"{what} `attn_mask` to be `None`, 2-D or 3-D but found {mask.dim()}-D tensor instead")
    if n == 2 and mask is not None and mask.dim() == 3:
        expected = (num_heads, query.shape[0], key.shape[0])
        if mask.shape != expected:
            raise AssertionError(f"Expected `attn_mask` shape to be {expected} but got {mask.shape}")
    return n == 3


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, expected: int, num_heads: int, separate: bool) -> None:
    features = query.shape[2]
    if features != expected:
        raise AssertionError(f"was expecting embedding dimension of {expected}, but got {features}")
    if features % num_heads:
        raise AssertionError(f"embed_dim {features} not divisible by num_heads {num_heads}")
    if separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
            )
    elif key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _check_mask(mask: Tensor | None, blocks: int, length: int, source: int) -> None:
    if mask is None:
        return
    expected = (length, source) if mask.dim() == 2 else (blocks, length, source)
    if mask.shape != expected:
        raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {expected}.")


def _project(query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None) -> tuple:
    """Projects query, key and value, with one matrix product for equal inputs."""
    biases = (None, None, None) if bias is None else bias.chunk(3)
    if isinstance(weights, tuple):
        if None in (names := dict(zip("qkv", weights, strict=True))).values():
            missing = next(name for name, weight in names.items() if weight is None)
            raise AssertionError(f"use_separate_proj_weight is True but {missing}_proj_weight is None")
        features = query.shape[-1]
        named = (("query", query), ("key", key), ("value", value))
        for (name, x), weight in zip(named, weights, strict=True):
            if weight.shape != (features, x.shape[-1]):
                raise AssertionError(
                    f"expecting {name} weights shape of {(features, x.shape[-1])}, but got {weight.shape}"
                )
        return tuple(F.linear(x, w, b) for (_, x), w, b in zip(named, weights, biases, strict=True))
    if weights is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    if query is key and key is value:
        return F.linear(query, weights, bias).chunk(3, dim=-1)
    if key is value:
        features = query.shape[-1]
        w_q, w_kv = weights.split([features, 2 * features])
        b_q, b_kv = (None, None) if bias is None else bias.split([features, 2 * features])
        return F.linear(query, w_q, b_q), *F.linear(key, w_kv, b_kv).chunk(2, dim=-1)
    return tuple(
        F.linear(x, w, b) for x, w, b in zip((query, key, value), weights.chunk(3), biases, strict=True)
    )  # fmt: skip


def _heads(x: Tensor, batch: int, num_heads: int) -> Tensor:
    """Reshapes (length, batch, features) to (batch·heads, length, features / heads)."""
    return x.reshape(x.shape[0], batch * num_heads, x.shape[2] // num_heads).transpose(0, 1)


def _static(name: str, given: Tensor, q: Tensor) -> Tensor:
    for dim in (0, 2):
        if given.shape[dim] != q.shape[dim]:
            raise AssertionError(f"expecting {name}.size({dim}) of {q.shape[dim]}, but got {given.shape[dim]}")
    return given


def merged_mask(mask: Tensor | None, padding: Tensor | None, batch: int, num_heads: int, source: int) -> Tensor | None:
    """Merges masks, (L, S) or (N·heads, L, S), and of padding, (N, S), to one that broadcasts to (N, heads, L, S)."""
    if mask is not None and mask.dim() == 3:
        mask = mask.view(batch, num_heads, *mask.shape[1:])
    if padding is None:
        return mask
    for dim, expected in ((0, batch), (1, source)):
        if padding.shape[dim] != expected:
            raise AssertionError(
                f"Expected key_padded_mask.shape[{dim}] to be {expected}, but got {padding.shape[dim]}"
            )
    padding = padding.view(batch, 1, 1, source)
    return padding if mask is None else mask + padding
