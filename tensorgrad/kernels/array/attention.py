"""Scaled dot-product attention over plain arrays, with its gradient."""

from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.rows.kernel_tables import run_kernel

from .blocks import in_dtype, select
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
KEYS = 512


def _scores(xp, q, k, mask, is_causal, scale):
    """`scale q k^T`, with the masks applied."""
    # the factor goes to the smaller operand
    if q.shape[-1] <= k.shape[-2]:
        scores = xp.matmul(q * scale, k.swapaxes(-1, -2))
    else:
        scores = xp.matmul(q, k.swapaxes(-1, -2))
        scores *= scale
    return _masked(xp, scores, mask, is_causal)


def _masked(xp, scores, mask, is_causal):
    """The scores with the masks applied in place."""
    if is_causal:
        shape = scores.shape[-2:]
        scores += _causal_bias(*shape, scores.dtype) if xp is np else xp.asarray(_causal_bias(*shape, scores.dtype))
    if mask is not None:
        if mask.dtype == bool:
            hidden = xp.full((), -np.inf, scores.dtype)
            mask = xp.broadcast_to(mask, scores.shape)
            scores[...] = select(xp, mask, scores, xp.broadcast_to(hidden, scores.shape))
        else:
            scores += mask
    return scores


def _softmax(xp, scores, masked, logs):
    """The softmax of `scores` over keys in place, and the logarithms of its sums; a query without keys gets 0s."""
    axis = scores.ndim - 1
    if masked:
        top = _row_max(xp, scores, axis)
        top = xp.where(top == -np.inf, 0, top).astype(top.dtype, copy=False)
        xp.subtract(scores, top, scores)
        xp.exp(scores, scores)
        total = _row_sum(xp, scores, axis, True)
        total = xp.where(total == 0, total.dtype.type(1), total)
    else:
        top = _exp_shifted(xp, scores, axis, scores)
        total = _row_sum(xp, scores, axis, True)
    xp.divide(scores, total, scores)
    xp.log(total[..., 0], logs)
    if top is not None:
        logs += top[..., 0]


# 2^x - x - 1 for 0 <= x < 1, with its sign changed: coefficients from the constant on. The error is 1e-4 of 2^x.
CONSTANT, LINEAR, SQUARE, CUBE = np.array((0.00010703434948458272, 0.30354260500649682, -0.22433836478672356,
                                           -0.079204240219773236), np.float32)  # fmt: skip
LOG2_E = np.float32(1.44269502162933349609375)
VECTOR = 16  # numbers for which PyTorch's kernel computes exponentials at once, with AVX-512


def _rough_exp(xp, x):
    """Returns exp(x) for x <= 0 as PyTorch's attention in half precision computes it, up to the keys' last few.

    The logarithm of base 2, plus a correction for its fraction, becomes the bits of the result.
    Source: A. Malossi et al., "Fast exponential computation on SIMD architectures", 2015.
    """
    whole = x.shape[-1] // VECTOR * VECTOR
    powers = x[..., :whole] * LOG2_E
    fraction = powers - xp.floor(powers)
    correction = ((CUBE * fraction + SQUARE) * fraction + LINEAR) * fraction + CONSTANT
    powers = xp.maximum(powers - correction, np.float32(-127))
    bits = (powers.astype(np.float64) + 127) * 2.0**23
    result = xp.empty_like(x)
    result[..., :whole] = bits.astype(np.float32).astype(np.int32).view(np.float32)
    xp.exp(x[..., whole:], result[..., whole:])
    return result


def _rounded_forward(xp, q, k, v, mask, is_causal, scale, kind, out, logs):
    """`_forward` for two-byte floats (as float32), rounded to their dtype `kind` where PyTorch's kernel does.

    Source: T. Dao et al., arXiv:2205.14135: the weights of a block of keys are relative to the largest score so far.
    """
    p = run_kernel("matmul_nt", q, k) if xp is np else xp.matmul(q, k.swapaxes(-1, -2))
    p *= scale
    _masked(xp, p, mask, is_causal)
    out[...], top = 0, xp.full((*p.shape[:-1], 1), -np.inf, p.dtype)
    total = xp.zeros_like(top)
    for first in range(0, p.shape[-1], KEYS):
        scores, before = p[..., first : first + KEYS], top
        top = xp.maximum(top, scores.max(-1, keepdims=True))
        base = xp.where(top == -np.inf, p.dtype.type(0), top)
        weights, shrunk = _rough_exp(xp, scores - base), xp.exp(before - base)
        total = total * shrunk + _row_sum(xp, weights, p.ndim - 1, True)
        out *= shrunk
        out += xp.matmul(weights.astype(kind).astype(p.dtype), v[..., first : first + KEYS, :])
    total = xp.where(total == 0, p.dtype.type(1), total)
    out *= 1 / total
    xp.log(total[..., 0], logs)
    logs += xp.where(top == -np.inf, p.dtype.type(0), top)[..., 0]


def _forward(xp, q, k, v, mask, dropout, is_causal, scale, out, logs):
    if out.ndim > 2 and logs.size * k.shape[-2] > _PAIRS:
        for i in range(out.shape[0]):
            look, drop = (None if a is None else a[i] for a in (mask, dropout))
            _forward(xp, q[i], k[i], v[i], look, drop, is_causal, scale, out[i], logs[i])
        return
    p = _scores(xp, q, k, mask, is_causal, scale)
    if p.size:
        _softmax(xp, p, is_causal or mask is not None, logs)
    else:
        logs[...] = 0
    xp.matmul(p if dropout is None else p * dropout, v, out=out)


def rounds_weights(q, v, dropout_mask):
    """Returns whether PyTorch's kernel serves two-byte floats. Elsewhere it computes everything in float32."""
    return q.ndim == 4 and q.shape[-1] == v.shape[-1] and dropout_mask is None


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
    probabilities: 0 or 1 / (1 - rate). Returns `(out, logs)`: the logarithm of each query's sum of weights (*, L), from
    which `attention_grad` computes the probabilities again. A query that may attend to nothing gets 0, as in PyTorch.
    """
    dtype = q.dtype
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if dtype.itemsize == 2:
        q, k, v = (in_dtype(a, F32) for a in (q, k, v))
    if mask is not None and mask.dtype != bool:
        mask = mask.astype(q.dtype, copy=False)
    lead, (q, k, v, *rest) = _common(xp, q, k, v, *_of_matrices(mask))
    if mask is not None:
        mask = rest[0]  # its last two dimensions broadcast where it is applied
    out = xp.empty(lead + (q.shape[-2], v.shape[-1]), q.dtype)
    logs = xp.empty(lead + (q.shape[-2],), q.dtype)
    rounded = dtype.itemsize == 2 and rounds_weights(q, v, dropout_mask)
    with np.errstate(all="ignore"):
        if rounded and logs.size and k.shape[-2]:
            _rounded_forward(xp, q, k, v, mask, is_causal, scale, dtype, out, logs)
        else:
            _forward(xp, q, k, v, mask, dropout_mask, is_causal, scale, out, logs)
    return in_dtype(out, dtype), logs


def _of_matrices(mask):
    """The mask, if any, with at least two dimensions."""
    return () if mask is None else (mask if mask.ndim > 1 else mask[None],)


def _backward(xp, g, q, k, v, mask, out, logs, dropout, is_causal, scale, gq, gk, gv, gs):
    if g.ndim > 2 and logs.size * k.shape[-2] > _PAIRS:
        for i in range(g.shape[0]):
            look, drop, *wanted = (None if a is None else a[i] for a in (mask, dropout, gq, gk, gv, gs))
            given = g[i], q[i], k[i], v[i], look, out[i], logs[i], drop
            _backward(xp, *given, is_causal, scale, *wanted)
        return
    p = _scores(xp, q, k, mask, is_causal, scale)
    p -= logs[..., None]
    xp.exp(p, p)
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


def attention_grad(
    xp, g, q, k, v, out, logs, scale=None, dropout_mask=None, need=(True, True, True, False), is_causal=False, mask=None
):
    """Gradients `(gq, gk, gv, gmask)` of `attention` from its results.

    `need` has a flag for each (None where not needed); `gmask` is that of an added mask. All have the broadcast
    leading dimensions (and `gmask` the full (*, L, S)): the caller sums where an operand was broadcast.
    """
    dtype = g.dtype
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if dtype.itemsize == 2:
        g, q, k, v, out = (a.astype(np.float32) for a in (g, q, k, v, out))
    if mask is not None and mask.dtype != bool:
        mask = mask.astype(q.dtype, copy=False)
    lead, (q, k, v, g, *rest) = _common(xp, q, k, v, g, *_of_matrices(mask))
    if mask is not None:
        mask = rest[0]
    shapes = q.shape, k.shape, v.shape, (q.shape[-2], k.shape[-2])
    grads = [xp.empty(lead + shape[-2:], logs.dtype) if wanted else None for shape, wanted in zip(shapes, need)]
    with np.errstate(all="ignore"):
        _backward(xp, g, q, k, v, mask, out, logs, dropout_mask, is_causal, scale, *grads)
    return tuple(None if a is None else a.astype(dtype, copy=False) for a in grads)


def attention_of_batch(xp, whole, query, key, value, attn_mask, dropout_mask, is_causal, scale, size, mapped):
    """`attention` of each sample of a batch (vmap), which is one more leading dimension: `(out, logs)`."""
    if dropout_mask is not None or not mapped & {"query", "key", "value"}:
        return NotImplemented
    given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    query, key, value, attn_mask = _beside(xp, given, size, mapped)
    return whole(query, key, value, attn_mask, None, is_causal, scale)


def attention_of_batch_backward(
    xp, whole, g, query, key, value, attn_mask, dropout_mask, out, logs, is_causal, scale, needs, size, mapped
):
    """The gradients of each sample."""
    if dropout_mask is not None:
        return NotImplemented
    given = {"g": g, "out": out, "query": query, "key": key, "value": value, "attn_mask": attn_mask}
    g, out, query, key, value, attn_mask = _beside(xp, given, size, mapped)
    if "logs" not in mapped:  # the attention of all samples was one
        logs = xp.ascontiguousarray(xp.broadcast_to(logs, (size, *logs.shape)))
    return whole(g, query, key, value, attn_mask, None, out, logs, is_causal, scale, needs)


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
