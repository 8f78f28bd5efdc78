"""Attention, and what goes with it in models of language."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.onnx.operators.table import dtype_of, operator


def heads(x: Any, count: int) -> Any:
    """(batch, time, heads · features) as (batch, heads, time, features)."""
    if count <= 0 or x.shape[-1] % count:
        raise ValueError(f"onnx: {x.shape[-1]} features in {count} heads")
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def for_heads(x: Any, count: int) -> Any:
    """Keys or values for more heads of queries: each serves several of them."""
    return x if x.shape[1] == count else x.repeat_interleave(count // x.shape[1], 1)


def _bias(q: Any, k: Any, mask: Any, lengths: Any, past: int, causal: bool, before: int, after: int) -> Any:
    """What is added to the scores: the mask, and minus infinity for keys that a query does not see."""
    rows, columns = q.shape[2], k.shape[2]
    bias = torch.zeros(rows, columns, dtype=q.dtype)
    if mask is not None:
        missing = columns - mask.shape[-1]
        outside: Any = False if mask.dtype is torch.bool else -math.inf
        mask = F.pad(mask, (0, missing), value=outside) if missing > 0 else mask
        bias = bias + (bias.new_zeros(()).where(mask, -math.inf) if mask.dtype is torch.bool else mask)
    at = torch.arange(columns)
    first = past if lengths is None else lengths.reshape(-1, 1, 1, 1) - rows  # where the first query is
    distance = torch.arange(rows)[:, None] + first - at
    seen = torch.ones(1, dtype=torch.bool) if lengths is None else at < lengths.reshape(-1, 1, 1, 1)
    for limits, ahead, limit in ((causal, True, 0), (before >= 0, False, before), (after >= 0, True, after)):
        if limits:
            seen = seen & ((-distance if ahead else distance) <= limit)
    return torch.where(seen, bias, -math.inf)


@operator("Attention", several=True)
def attention(
    q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None, past_value: Any = None, lengths: Any = None,
    is_causal: int = 0, kv_num_heads: int = 0, q_num_heads: int = 0, qk_matmul_output_mode: int = 0,
    scale: float | None = None, softcap: float = 0.0, softmax_precision: int = 0, left_window_size: int = -1,
    right_window_size: int = -1, count: int = 1,
) -> Any:  # fmt: skip
    flat = q.dim() == 3
    if flat:
        q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    past = 0
    if past_key is not None:
        past, k, v = past_key.shape[2], torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    present, (key, value) = (k, v), (for_heads(t, q.shape[1]) for t in (k, v))
    masked = mask is not None or lengths is not None or max(left_window_size, right_window_size) >= 0
    if not masked and not softcap and not softmax_precision and count < 4 and not (is_causal and past):
        y, scores = F.scaled_dot_product_attention(q, key, value, is_causal=bool(is_causal), scale=scale), None
    else:
        root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        scores = (q * root) @ (key * root).mT
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        bias = _bias(q, key, mask, lengths, past, bool(is_causal), left_window_size, right_window_size)
        whole = scores + bias
        wide = whole.to(dtype_of(softmax_precision)) if softmax_precision else whole
        unseen = bias.amax(-1, keepdim=True) == -math.inf
        shares = torch.where(unseen, 0.0, wide.softmax(-1)).to(q.dtype)
        scores = {2: whole, 3: shares}.get(qk_matmul_output_mode, scores)
        y = shares @ value
    y = y.transpose(1, 2).flatten(2) if flat else y
    return (y, *present, scores)[:count]


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Any, cos: Any, sin: Any, positions: Any = None, interleaved: int = 0, num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:  # fmt: skip
    y = x.transpose(1, 2) if x.dim() == 4 else x.unflatten(-1, (num_heads or 1, -1))  # batch, time, heads, features
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    size = rotary_embedding_dim or y.shape[-1]
    turned, rest = y[..., :size], y[..., size:]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    parts = cos * a - sin * b, sin * a + cos * b
    turned = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    y = torch.cat([turned, rest], -1)
    return y.transpose(1, 2) if x.dim() == 4 else y.flatten(2)


@operator("TensorScatter")
def tensor_scatter(cache: Any, update: Any, at: Any = None, axis: int = -2, mode: str = "linear") -> Any:
    axis, size, count = axis % cache.dim(), cache.shape[axis], update.shape[axis]
    first = torch.zeros(cache.shape[0], dtype=torch.int64) if at is None else at
    place = first.reshape(-1, *(1,) * (cache.dim() - 1))
    place = place + torch.arange(count).reshape(-1, *(1,) * (cache.dim() - 1 - axis))
    place = place % size if mode == "circular" else place
    return cache.scatter(axis, place.expand(update.shape), update)


@operator("LinearAttention", several=True)
def linear_attention(
    q: Any, k: Any, v: Any, state: Any = None, decay: Any = None, beta: Any = None, q_num_heads: int = 0,
    kv_num_heads: int = 0, update_rule: str = "gated_delta", scale: float = 0.0, chunk_size: int = 64,
) -> Any:  # fmt: skip
    kept = q.dtype if state is None else state.dtype
    query = heads(q, q_num_heads).float()
    key, value = (heads(t, kv_num_heads).float() for t in (k, v))
    features = query.shape[-1]
    if state is None:
        now = torch.zeros(q.shape[0], kv_num_heads, features, value.shape[-1])
    else:
        now = state.float()
    fade = None if decay is None else heads(decay, kv_num_heads).float().exp()
    share = None if beta is None else heads(beta, beta.shape[-1]).float()
    made = []
    for i in range(q.shape[1]):
        a, new = key[:, :, i, :, None], value[:, :, i]
        if fade is not None:
            now = now * fade[:, :, i, :, None]
        if share is not None:
            new = share[:, :, i] * (new - (now * a).sum(-2))
        now = now + a * new[:, :, None]
        made.append((query[:, :, i, None] @ for_heads(now, q_num_heads))[:, :, 0])
    if not made:
        raise ValueError("onnx: LinearAttention of an empty sequence")
    y = torch.stack(made, 1).flatten(2) * (scale or 1 / math.sqrt(features))
    return y.to(q.dtype), now.to(kept)


@operator("CausalConvWithState", several=True)
def causal_conv_with_state(x: Any, w: Any, b: Any = None, state: Any = None, activation: str = "none") -> Any:
    more = w.shape[2] - 1
    wide = F.pad(x, (more, 0)) if state is None else torch.cat([state, x], 2)
    made = F.conv1d(wide, w, b, groups=x.shape[1])
    if activation in ("silu", "swish"):
        made = F.silu(made)
    elif activation != "none":
        raise NotImplementedError(f"onnx: CausalConvWithState with the function {activation!r}")
    return made, wide[:, :, wide.shape[2] - more :]
