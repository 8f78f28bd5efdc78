"""Softmax and ops built on it, over plain arrays.

Rows that are all -inf give nan, as in PyTorch. Two-byte floats are computed in float32.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from tensorgrad.system.float_errors import ignored

from .blocks import BLOCK, LONG, as_float32, long_rows, select
from .index import extremes

# Within these limits exp neither overflows nor becomes subnormal in float32, and neither does a sum of 10^12 such
# values: no row needs to be shifted by its maximum, which saves the row maxima and one pass.
_PLAIN = 60.0
_LARGE = 4096  # elements from which checking for that is worth two reductions


# All their arguments may be positional, which is faster; NumPy's own annotations do not allow it.
_max_over: Any = np.maximum.reduce
_sum_over: Any = np.add.reduce


def _needs_shift(x):
    return x.size < _LARGE or not (x.max() <= _PLAIN and x.min() >= -_PLAIN)


def _row_sum(xp, x, dim, keepdims=False):
    """Sums over one dimension; BLAS's dot sums short contiguous rows in a third of NumPy's time.

    (Of long rows it loses digits, as it adds them up in one go.)
    """
    short = x.shape[dim] < LONG
    if short and xp is np and x.size >= _LARGE and dim == x.ndim - 1 and x.strides[dim] == x.itemsize:
        total = np.vecdot(x, _ones(x.shape[dim], x.dtype))
        return total[..., None] if keepdims else total
    return xp.add.reduce(x, dim, None, None, keepdims) if xp is np else x.sum(axis=dim, keepdims=keepdims)


@lru_cache(maxsize=64)
def _ones(n, dtype):
    ones = np.ones(n, dtype)
    ones.flags.writeable = False
    return ones


def _row_max(xp, x, dim):
    if xp is np:
        return _max_over(x, dim, None, None, True)
    return x.max(axis=dim, keepdims=True)


def _row_blocks(xp, x, dim, size=BLOCK):
    """Returns slices of the leading dimension, of about `size` elements, that contain whole rows; else one slice."""
    if xp is not np or x.size <= size or dim == 0:
        return (slice(None),)
    rows = max(1, size // (x.size // x.shape[0]))
    return [slice(i, i + rows) for i in range(0, x.shape[0], rows)]


def _as_rows(x, dim):
    """Merges the leading dimensions of `x` when softmax runs over the last one, so that blocks may be split freely."""
    if dim == x.ndim - 1 and x.ndim > 2 and x.flags.c_contiguous:
        return x.reshape(-1, x.shape[-1]), 1
    return x, dim


def _exp_shifted(xp, x, dim, out):
    """Writes `exp(x - max)` to `out`; returns the row maxima, or None if no shift was needed."""
    if not _needs_shift(x):
        xp.exp(x, out)
        return None
    top = _row_max(xp, x, dim)
    xp.subtract(x, top, out)
    xp.exp(out, out)
    return top


def softmax(xp, x, dim):
    """`exp(x) / sum(exp(x), dim)`."""
    if x.dtype.itemsize == 2:
        return as_float32(softmax, xp, x, dim=dim)
    if not x.ndim:
        return softmax(xp, x.reshape(1), 0).reshape(())
    if not x.size:
        return xp.empty_like(x)
    if not x.flags.c_contiguous:  # the result is row-major, whatever the input's order
        x = xp.ascontiguousarray(x)
    if xp is np and x.size < _LARGE:
        with ignored():
            out = x - _max_over(x, dim, None, None, True)
            np.exp(out, out)
            return np.divide(out, _sum_over(out, dim, None, None, True), out)
    rows, axis = _as_rows(x, dim)
    out = xp.empty_like(rows)
    with ignored():
        long_rows(xp, rows.shape[-1])
        for block in _row_blocks(xp, rows, axis):
            e = out[block]
            _exp_shifted(xp, rows[block], axis, e)
            xp.divide(e, _row_sum(xp, e, axis, True), e)
    return out.reshape(x.shape) if rows is not x else out


def softmax_grad(xp, g, out, dim):
    """Gradient of `softmax` from its output: `out (g - sum(g out, dim))`."""
    if g.dtype.itemsize == 2:
        return as_float32(softmax_grad, xp, g, out, dim=dim)
    if not g.ndim:
        return xp.zeros_like(g)
    with ignored():
        long_rows(xp, g.shape[-1])
        if xp is np and dim == g.ndim - 1:
            result = g - np.vecdot(g, out)[..., None]
        else:
            result = g - (g * out).sum(axis=dim, keepdims=True)
        return xp.multiply(result, out, result)


def log_softmax(xp, x, dim):
    """`x - log(sum(exp(x), dim))`."""
    if x.dtype.itemsize == 2:
        return as_float32(log_softmax, xp, x, dim=dim)
    if not x.ndim:
        return log_softmax(xp, x.reshape(1), 0).reshape(())
    if not x.size:
        return xp.empty_like(x)
    if not x.flags.c_contiguous:  # the result is row-major, whatever the input's order
        x = xp.ascontiguousarray(x)
    if xp is np and x.size < _LARGE:
        with ignored():
            out = x - _max_over(x, dim, None, None, True)
            total = _sum_over(np.exp(out), dim, None, None, True)
            return np.subtract(out, np.log(total, total), out)
    rows, axis = _as_rows(x, dim)
    out = xp.empty_like(rows)
    with ignored():
        long_rows(xp, rows.shape[-1])
        for block in _row_blocks(xp, rows, axis):
            part, d = rows[block], out[block]
            if _needs_shift(part):
                xp.subtract(part, _row_max(xp, part, axis), d)
                part = d
            total = _row_sum(xp, xp.exp(part), axis, True)
            xp.subtract(part, xp.log(total, total), d)
    return out.reshape(x.shape) if rows is not x else out


def log_softmax_grad(xp, g, out, dim):
    """Gradient of `log_softmax` from its output: `g - exp(out) sum(g, dim)`."""
    if g.dtype.itemsize == 2:
        return as_float32(log_softmax_grad, xp, g, out, dim=dim)
    if not g.ndim:
        return xp.zeros_like(g)
    with ignored():
        long_rows(xp, g.shape[-1])
        result = xp.exp(out)
        xp.multiply(result, _row_sum(xp, g, dim, True), result)
        return xp.subtract(g, result, result)


def logsumexp(xp, x, dims, keepdim=False):
    """`log(sum(exp(x), dims))`; -inf for an empty sum, the infinity itself if the largest element is infinite."""
    if x.dtype.itemsize == 2:
        return as_float32(logsumexp, xp, x, dims=dims, keepdim=keepdim)
    dims = tuple(dims)
    with ignored():
        if not x.size:
            return xp.log(x.sum(axis=dims, keepdims=keepdim))
        top = x.max(axis=dims, keepdims=True)
        shift = xp.where(xp.isfinite(top), top, x.dtype.type(0))
        total = xp.log(xp.exp(x - shift).sum(axis=dims, keepdims=True)) + shift
    return total if keepdim else total.reshape([n for i, n in enumerate(x.shape) if i not in dims])


# ---------------------------------------------------------------- losses over classes


@lru_cache(maxsize=64)
def _small_range(n):
    r = np.arange(n)
    r.flags.writeable = False
    return r


def _positions(xp, shape):
    """Returns index arrays for all dimensions of (N, C, *) but the classes, for `x[at[0], target, *at[1:]]`."""
    if xp is np and len(shape) == 2:
        return (_small_range(shape[0]) if shape[0] <= 1024 else np.arange(shape[0]),)
    kept = (shape[0],) + tuple(shape[2:])
    last = len(kept) - 1
    return tuple(xp.arange(n).reshape((n,) + (1,) * (last - i)) for i, n in enumerate(kept))


def _checked_target(xp, target, classes, ignore_index):
    """Returns `target` with ignored entries set to 0, and the mask of the others (None if nothing is ignored).

    Raises: IndexError if a class is out of range.
    """
    if not target.size:
        return target, None
    low, high = extremes(xp, target)
    if low >= 0 and high < classes and not 0 <= ignore_index <= high:
        return target, None
    valid = target != ignore_index
    wrong = valid & ((target < 0) | (target >= classes))
    if wrong.any():
        raise IndexError(f"Target {int(target[wrong][0])} is out of bounds.")
    return xp.where(valid, target, 0), valid


def _with_batch(kernel, xp, x, target, *rest):
    """Runs a kernel on an unbatched (C,) input as a batch of one."""
    results = kernel(xp, x[None], target.reshape(1), *rest)
    return tuple(r[0] if getattr(r, "ndim", 0) else r for r in results)


def _element_weights(xp, target, valid, weight):
    """Returns the weight of each element, or None if all are 1."""
    if weight is None:
        return None if valid is None else valid
    w = weight[target]
    return w if valid is None else w * valid


def cross_entropy(xp, x, target, weight=None, ignore_index=-100, label_smoothing=0.0):
    """Cross-entropy of logits `x` (N, C, *) with class indices `target` (N, *), fused with log-softmax.

    Returns `(losses, exps, sums, total_weight)`: the weighted loss of each element (N, *); `exp(x - shift)` (N, C, *)
    and its sums over classes (N, *), which `cross_entropy_grad` needs; and the sum of the weights of the elements that
    count, by which a mean divides (an int if there are no weights and nothing is ignored). A loss is `(1 - s) w_t (-log
    p_t) + s / C sum_c w_c (-log p_c)` with s = `label_smoothing`. Unbatched (C,) with a 0-dim target works too. Raises:
    IndexError if a class is out of range.
    """
    if x.dtype.itemsize == 2:
        lifted = None if weight is None else weight.astype(np.float32)
        found = cross_entropy(xp, x.astype(np.float32), target, lifted, ignore_index, label_smoothing)
        return (found[0].astype(x.dtype),) + found[1:]
    if x.ndim == 1:
        return _with_batch(cross_entropy, xp, x, target, weight, ignore_index, label_smoothing)
    classes = x.shape[1]
    target, valid = _checked_target(xp, target, classes, ignore_index)
    exps = xp.empty(x.shape, x.dtype)
    sums = xp.empty(target.shape, x.dtype)
    losses = xp.empty(target.shape, x.dtype)
    with ignored():
        long_rows(xp, classes)
        for block in _row_blocks(xp, x, 1):
            _cross_entropy_block(
                xp, x[block], target[block], weight, label_smoothing, exps[block], sums[block], losses[block]
            )
        w = _element_weights(xp, target, valid, weight)
        if valid is not None:
            losses = xp.where(valid, losses, losses.dtype.type(0))
    return losses, exps, sums, target.size if w is None else w.sum(dtype=x.dtype)


def _cross_entropy_block(xp, x, target, weight, smoothing, exps, sums, losses):
    if not x.size:
        return
    top = _exp_shifted(xp, x, 1, exps)
    if xp is np and x.size < _LARGE:
        np.add.reduce(exps, 1, None, sums)
    else:
        sums[...] = _row_sum(xp, exps, 1)
    xp.log(sums, losses)  # log of the sum of shifted exponentials
    at = _positions(xp, x.shape)
    picked = x[(at[0], target) + at[1:]]
    if top is not None:
        picked -= top[:, 0]
    if not smoothing:
        xp.subtract(losses, picked, losses)
        if weight is not None:
            xp.multiply(losses, weight[target], losses)
        return
    shape = (-1,) + (1,) * (x.ndim - 2)
    spread = x if top is None else x - top  # shifted before the sum: large logits would lose their differences
    if weight is not None:
        spread = spread * weight.reshape(shape)
    mass = x.shape[1] if weight is None else weight.sum()
    uniform = losses * mass - spread.sum(axis=1)
    hit = losses - picked if weight is None else (losses - picked) * weight[target]
    losses[...] = (1 - smoothing) * hit + (smoothing / x.shape[1]) * uniform


def cross_entropy_grad(xp, g, exps, sums, target, weight=None, ignore_index=-100, label_smoothing=0.0):
    """Gradient of `cross_entropy`'s losses with respect to the logits, `g` (N, *) or anything that broadcasts to it."""
    dtype = g.dtype
    if exps.ndim == 1:
        one = cross_entropy_grad(
            xp, g.reshape(1), exps[None], sums.reshape(1), target.reshape(1), weight, ignore_index, label_smoothing
        )
        return one[0]
    classes = exps.shape[1]
    target, valid = _checked_target(xp, target, classes, ignore_index)
    if dtype.itemsize == 2:
        g = g.astype(np.float32)
        weight = None if weight is None else weight.astype(np.float32)
    with ignored():
        if g.shape != target.shape:
            g = xp.broadcast_to(g, target.shape)
        if valid is not None:
            g = xp.where(valid, g, g.dtype.type(0))
        hit = g if weight is None else g * weight[target]
        scale = hit
        if label_smoothing:
            hit = hit * (1 - label_smoothing)
            scale = hit + g * (label_smoothing * (1 if weight is None else weight.sum() / classes))
        long_rows(xp, classes)
        result = exps * (scale / sums)[:, None]
        if label_smoothing:
            share = g[:, None] * (label_smoothing / classes)
            result -= share if weight is None else share * weight.reshape((-1,) + (1,) * (exps.ndim - 2))
    at = _positions(xp, exps.shape)
    result[(at[0], target) + at[1:]] -= hit
    return result.astype(dtype, copy=False)


def nll(xp, logp, target, weight=None, ignore_index=-100):
    """Negative log-likelihood: `(losses, weights)`, both (N, *), from log-probabilities (N, C, *) and class indices.

    Ignored elements have loss and weight 0. Raises: IndexError if a class is out of range.
    """
    if logp.ndim == 1:
        return _with_batch(nll, xp, logp, target, weight, ignore_index)
    target, valid = _checked_target(xp, target, logp.shape[1], ignore_index)
    w = _element_weights(xp, target, valid, weight)
    weights = xp.ones(target.shape, logp.dtype) if w is None else w.astype(logp.dtype, copy=False)
    at = _positions(xp, logp.shape)
    losses = logp[(at[0], target) + at[1:]]
    with ignored():
        losses = xp.negative(losses, losses) if w is None else losses * -weights
    if valid is not None:
        losses = xp.where(valid, losses, losses.dtype.type(0))
    return losses, weights


def nll_grad(xp, g, shape, target, weights, ignore_index=-100):
    """Gradient of `nll`'s losses with respect to log-probabilities of `shape`: `-g weights` at the targets.

    It is 0 at an ignored target, also where `g` is infinite: the gradient of a mean over nothing.
    """
    if len(shape) == 1:
        return nll_grad(xp, g.reshape(1), (1,) + tuple(shape), target.reshape(1), weights.reshape(1), ignore_index)[0]
    target, valid = _checked_target(xp, target, shape[1], ignore_index)
    with ignored():
        slopes = -(g * weights)
    result = xp.zeros(shape, g.dtype)
    at = _positions(xp, shape)
    result[(at[0], target) + at[1:]] = slopes if valid is None else xp.where(valid, slopes, slopes.dtype.type(0))
    return result


def masked_softmax(xp, x, dim, drop):
    """`softmax` without the elements where `drop` is true; rows without any element left give 0."""
    with ignored():
        p = softmax(xp, xp.where(drop, x.dtype.type(-np.inf), x), dim)
    return select(xp, xp.broadcast_to(drop.all(axis=dim, keepdims=True), p.shape), xp.zeros_like(p), p)
