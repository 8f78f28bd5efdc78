"""Scaled dot-product attention over plain arrays, with its gradient."""

from functools import lru_cache

import numpy as np

from .blocks import select
from .softmax import _exp_shifted, _row_max, _row_sum

# Scores are computed for at most about this many (query, key) pairs at a time, so that the softmax between the two
# products finds them in cache.
_PAIRS = 1 << 18


@lru_cache(maxsize=16)
def _causal_bias(rows, columns, dtype):
    """0 where a key is not after its query, -inf elsewhere; queries and keys are aligned at their starts."""
    bias = np.triu(np.full((rows, columns), -np.inf, dtype), 1)
    bias.flags.writeable = False
    return bias


# As many keys PyTorch's kernel takes at a time. The results of two-byte floats depend on it: weights are rounded before
# they are divided by their sum, and relative to the largest of their block.
_KEYS = 512


def _mask_scores(xp, scores, mask, is_causal):
    """Applies the masks in place."""
    if is_causal:
        shape = scores.shape[-2:]
        scores += _causal_bias(*shape, scores.dtype) if xp is np else xp.asarray(_causal_bias(*shape, scores.dtype))
    if mask is not None:
        if mask.dtype == bool:
            hidden = xp.full((), -np.inf, scores.dtype)
            scores[...] = select(xp, xp.broadcast_to(mask, scores.shape), scores, xp.broadcast_to(hidden, scores.shape))
        else:
            scores += mask


def _probabilities(xp, scores, mask, is_causal):
    """Applies the masks and the softmax of `scores` over keys in place; a query without any key gets 0 everywhere."""
    _mask_scores(xp, scores, mask, is_causal)
    axis = scores.ndim - 1
    if mask is None and not is_causal:
        _exp_shifted(xp, scores, axis, scores)
        total = _row_sum(xp, scores, axis, True)
    else:
        top = _row_max(xp, scores, axis)
        xp.subtract(scores, xp.where(top == -np.inf, 0, top).astype(top.dtype, copy=False), scores)
        xp.exp(scores, scores)
        total = _row_sum(xp, scores, axis, True)
        total = xp.where(total == 0, total.dtype.type(1), total)
    xp.divide(scores, total, scores)


def _rounded_forward(xp, q, k, v, mask, is_causal, scale, kind, out, p):
    """`_forward` for two-byte floats (as float32), rounded to their dtype `kind` where PyTorch's kernel does.

    Source: T. Dao et al., arXiv:2205.14135: the weights of a block of keys are relative to the largest score so far.
    """
    xp.matmul(q, k.swapaxes(-1, -2), out=p)
    p *= scale
    _mask_scores(xp, p, mask, is_causal)
    out[...], total, top = 0, 0, xp.full((*p.shape[:-1], 1), -np.inf, p.dtype)
    for first in range(0, p.shape[-1], _KEYS):
        scores, before = p[..., first : first + _KEYS], top
        top = xp.maximum(top, scores.max(-1, keepdims=True))
        base = xp.where(top == -np.inf, p.dtype.type(0), top)
        weights, shrunk = xp.exp(scores - base), xp.exp(before - base)
        total = total * shrunk + _row_sum(xp, weights, p.ndim - 1, True)
        out *= shrunk
        out += xp.matmul(weights.astype(kind).astype(p.dtype), v[..., first : first + _KEYS, :])
    total = xp.where(total == 0, p.dtype.type(1), total)
    out /= total
    p -= xp.where(top == -np.inf, p.dtype.type(0), top)
    xp.divide(xp.exp(p, p), total, p)


def _forward(xp, q, k, v, mask, dropout, is_causal, scale, out, p):
    if out.ndim > 2 and p.size > _PAIRS:
        for i in range(out.shape[0]):
            look, drop = (None if a is None else a[i] for a in (mask, dropout))
            _forward(xp, q[i], k[i], v[i], look, drop, is_causal, scale, out[i], p[i])
        return
    # the factor goes to the smaller operand
    if q.shape[-1] <= p.shape[-1]:
        xp.matmul(q * scale, k.swapaxes(-1, -2), out=p)
    else:
        xp.matmul(q, k.swapaxes(-1, -2), out=p)
        p *= scale
    if p.size:
        _probabilities(xp, p, mask, is_causal)
    xp.matmul(p if dropout is None else p * dropout, v, out=out)


def _common(xp, *arrays):
    """Broadcasts the leading dimensions of the arrays to a common shape."""
    lead = arrays[0].shape[:-2]
    if all(a.shape[:-2] == lead for a in arrays):
        return lead, arrays
    lead = np.broadcast_shapes(*(a.shape[:-2] for a in arrays))
    return lead, [a if a.shape[:-2] == lead else xp.broadcast_to(a, lead + a.shape[-2:]) for a in arrays]


def attention(xp, q, k, v, mask=None, is_causal=False, scale=None, dropout_mask=None):
    """`softmax(scale q k^T + mask) v` (A. Vaswani et al., arXiv:1706.03762).

    `q` (*, L, E), `k` (*, S, E), `v` (*, S, V), leading dimensions broadcast; `mask` broadcasts to (*, L, S) and is
    either bool (true: attend) or added; `scale` defaults to 1 / sqrt(E). `dropout_mask` (*, L, S) multiplies the
    probabilities: 0 or 1 / (1 - rate). Returns `(out, probabilities before dropout)`, the second for `attention_grad`.
    A query that may attend to nothing gets 0, as in PyTorch.
    """
    dtype = q.dtype
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if dtype.itemsize == 2:
        q, k, v = (a.astype(np.float32) for a in (q, k, v))
    if mask is not None and mask.dtype != bool:
        mask = mask.astype(q.dtype, copy=False)
    operands = (q, k, v) if mask is None else (q, k, v, mask if mask.ndim > 1 else mask[None])
    lead, (q, k, v, *rest) = _common(xp, *operands)
    if mask is not None:
        mask = rest[0]  # its last two dimensions broadcast where it is applied
    out = xp.empty(lead + (q.shape[-2], v.shape[-1]), q.dtype)
    p = xp.empty(lead + (q.shape[-2], k.shape[-2]), q.dtype)
    # PyTorch computes everything in float32 where its kernel does not serve.
    rounded = dtype.itemsize == 2 and q.ndim == 4 and q.shape[-1] == v.shape[-1] and dropout_mask is None and p.size
    with np.errstate(all="ignore"):
        if rounded:
            _rounded_forward(xp, q, k, v, mask, is_causal, scale, dtype, out, p)
        else:
            _forward(xp, q, k, v, mask, dropout_mask, is_causal, scale, out, p)
    return out.astype(dtype, copy=False), p


def _backward(xp, g, q, k, v, out, p, dropout, scale, gq, gk, gv, gs):
    if g.ndim > 2 and p.size > _PAIRS:
        for i in range(g.shape[0]):
            drop = None if dropout is None else dropout[i]
            given = (a[i] for a in (g, q, k, v, out, p))
            wanted = (None if a is None else a[i] for a in (gq, gk, gv, gs))
            _backward(xp, *given, drop, scale, *wanted)  # type: ignore[call-arg]
        return
    if gv is not None:
        xp.matmul((p if dropout is None else p * dropout).swapaxes(-1, -2), g, out=gv)
    if gq is None and gk is None and gs is None:
        return
    grad = xp.matmul(g, v.swapaxes(-1, -2), out=gs)
    if dropout is not None:
        grad *= dropout
    # sum over keys of p times its gradient, without the (L, S) product: it equals g times the output
    grad -= (np.vecdot(g, out) if xp is np else (g * out).sum(axis=-1))[..., None]
    grad *= p
    if gq is not None:
        xp.matmul(grad, k, out=gq)
        gq *= scale
    if gk is not None:
        xp.matmul(grad.swapaxes(-1, -2), q, out=gk)
        gk *= scale


def _probabilities_again(xp, q, k, logs, is_causal, scale, mask):
    """Recomputes the probabilities from the logarithms of their sums (*, L), which the compiled kernel keeps."""
    scores = xp.matmul(q * q.dtype.type(scale), k.swapaxes(-1, -2))
    if is_causal:
        scores += xp.asarray(_causal_bias(*scores.shape[-2:], scores.dtype))
    if mask is not None:
        scores += xp.where(mask, 0, -np.inf).astype(scores.dtype) if mask.dtype == bool else mask
    with np.errstate(all="ignore"):
        scores -= logs[..., None]
        return xp.exp(scores, scores)


def attention_grad(
    xp, g, q, k, v, out, p, scale=None, dropout_mask=None, need=(True, True, True, False), is_causal=False, mask=None
):
    """Gradients `(gq, gk, gv, gmask)` of `attention` from its output and probabilities.

    `need` has a flag for each (None where not needed); `gmask` is that of an added mask. All have the broadcast
    leading dimensions (and `gmask` the full (*, L, S)): the caller sums where an operand was broadcast.
    """
    dtype = g.dtype
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if dtype.itemsize == 2:
        g, q, k, v, out = (a.astype(np.float32) for a in (g, q, k, v, out))
    if p.ndim < q.ndim:
        p = _probabilities_again(xp, q, k, p, is_causal, scale, mask)
    lead, (q, k, v, g) = _common(xp, q, k, v, g)
    grads = [
        xp.empty(lead + shape[-2:], p.dtype) if wanted else None
        for shape, wanted in zip((q.shape, k.shape, v.shape, p.shape), need)
    ]
    with np.errstate(all="ignore"):
        _backward(xp, g, q, k, v, out, p, dropout_mask, scale, *grads)
    return tuple(None if a is None else a.astype(dtype, copy=False) for a in grads)


def attention_of_batch(xp, whole, query, key, value, attn_mask, dropout_mask, is_causal, scale, size, mapped):
    """`attention` of each sample of a batch (vmap), which is one more leading dimension: `(out, probabilities)`."""
    if dropout_mask is not None or not mapped & {"query", "key", "value"}:
        return NotImplemented
    given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    query, key, value, attn_mask = _beside(xp, given, size, mapped)
    return whole(query, key, value, attn_mask, None, is_causal, scale)


def attention_of_batch_backward(
    xp, whole, g, query, key, value, attn_mask, dropout_mask, out, p, is_causal, scale, needs, size, mapped
):
    """The gradients of each sample."""
    given = {"g": g, "out": out, "query": query, "key": key, "value": value, "attn_mask": attn_mask}
    g, out, query, key, value, attn_mask = _beside(xp, given, size, mapped)
    return whole(g, query, key, value, attn_mask, None, out, p, is_causal, scale, needs)


def _beside(xp, given, size, mapped):
    """The arrays with the same number of dimensions, the batch first; the mask without one, if it has none."""
    ndim = 1 + max(x.ndim - (name in mapped) for name, x in given.items() if x is not None)
    made = []
    for name, x in given.items():
        if x is not None and (name in mapped or name != "attn_mask"):
            lead, own = ((size,), x.shape[1:]) if name in mapped else ((1,), x.shape)
            x = x.reshape(*lead, *(1,) * (ndim - 1 - len(own)), *own)
            if name not in mapped:
                x = xp.ascontiguousarray(xp.broadcast_to(x, (size, *x.shape[1:])))
        made.append(x)
    return made
