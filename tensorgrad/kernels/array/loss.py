"""Losses over plain arrays, including reduction: one pass forward, one backward.

`reduction` is "none", "sum" or "mean". A gradient `g` is that of the reduced loss.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32, scalar_type
from tensorgrad.kernels.array import activation, softmax
from tensorgrad.kernels.array.index import extremes
from tensorgrad.kernels.array.reduce import sum_, two_bytes
from tensorgrad.rows.kernel_tables import run_compiled
from tensorgrad.system.float_errors import ignored

_FEW = 2048  # logits up to which all of cross-entropy costs less than its bookkeeping


def reduced(xp, values, reduction):
    """Reduces elementwise losses to their sum or mean."""
    if reduction == "none":
        return values
    if two_bytes(values):
        return xp.asarray(reduced(xp, values.astype(np.float32), reduction)).astype(values.dtype)
    total = sum_(xp, values, None, False, None)
    return total if reduction == "sum" else _divided(total, values.size)


def _divided(total, n):
    return total / n if n else total * np.nan


def _share(g, n, reduction):
    """The gradient of each element's loss."""
    if two_bytes(g) and reduction == "mean":  # the number of elements may be too large for float16
        return (g.astype(np.float32) / np.float32(n)).astype(g.dtype)
    return g / g.dtype.type(n) if reduction == "mean" else g


def _weighed(slope, factor, g, reduction):
    """slope · factor / n · g in half precision: PyTorch rounds factor / n, and then each product."""
    return slope * slope.dtype.type(factor / (slope.size or 1) if reduction == "mean" else factor) * g


# --- functions of the difference -----------------------------------------------------------------------------------
# All take the same parameters; `knee` is where quadratic becomes linear, None if unused.


def _check_floating(x, name):
    if x.dtype.kind not in "fV":
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{scalar_type(x)}'")


def mse(xp, x, y, knee, reduction):
    """(x - y)²."""
    _check_floating(x, "mse")
    away = xp.subtract(x, y)
    if reduction != "none" and xp is np and away.dtype is F32 and away.size <= _FEW:
        away = away.ravel()
        total = np.dot(away, away)
        return total if reduction == "sum" else _divided(total, away.size)
    return reduced(xp, xp.multiply(away, away), reduction)


def mse_grad(xp, g, x, y, knee, reduction):
    """2 (x - y) g."""
    away = xp.subtract(x, y)
    if two_bytes(away):
        return _weighed(away, 2, g, reduction)
    return xp.multiply(away, _share(g + g, away.size, reduction))


def l1(xp, x, y, knee, reduction):
    """|x - y|."""
    return reduced(xp, xp.asarray(xp.abs(xp.subtract(x, y))), reduction)


def l1_grad(xp, g, x, y, knee, reduction):
    """sign(x - y) g."""
    away = xp.subtract(x, y)
    return xp.multiply(xp.sign(away), _share(g, away.size, reduction))


def _rounded_once(x) -> bool:
    """Whether PyTorch computes `smooth_l1` of this dtype in float32; that of float16 and `huber` are the other way."""
    return two_bytes(x) and x.dtype.name != "float16"


def smooth_l1(xp, x, y, knee, reduction):
    """Quadratic below `knee`, linear above, with slopes up to 1."""
    _check_floating(x, "smooth_l1")
    if two_bytes(x):
        wide = (x.astype(np.float32), y.astype(np.float32)) if _rounded_once(x) else (x, y)
        size = xp.abs(xp.subtract(*wide))
        kind = size.dtype.type
        near = kind(0.5) * size * size / kind(knee)
        values = xp.where(size < kind(knee), near, size - kind(0.5) * kind(knee))
        return reduced(xp, xp.asarray(values).astype(x.dtype), reduction)
    size = xp.asarray(xp.abs(xp.subtract(x, y)))
    kind = size.dtype.type
    return reduced(xp, xp.where(size < knee, kind(0.5 / knee) * size * size, size - kind(0.5 * knee)), reduction)


def smooth_l1_grad(xp, g, x, y, knee, reduction):
    """clip((x - y) / knee, -1, 1) g."""
    if two_bytes(x):
        away = x.astype(np.float32) - y.astype(np.float32)
        share = _share(g.astype(np.float32), away.size, reduction)
        kind = away.dtype.type
        inner = xp.abs(away) < kind(knee)
        return xp.asarray(xp.where(inner, share * away / kind(knee), xp.sign(away) * share)).astype(x.dtype)
    away = xp.subtract(x, y)
    return xp.multiply(xp.clip(away / away.dtype.type(knee), -1, 1), _share(g, away.size, reduction))


def huber(xp, x, y, knee, reduction):
    """Quadratic below `knee`, linear above, with slopes up to `knee`."""
    _check_floating(x, "huber")
    if two_bytes(x) and not _rounded_once(x):
        wide = huber(xp, x.astype(np.float32), y.astype(np.float32), knee, "none")
        return reduced(xp, xp.asarray(wide).astype(x.dtype), reduction)
    size = xp.asarray(xp.abs(xp.subtract(x, y)))
    kind = size.dtype.type
    limit = kind(knee)
    values = xp.where(size <= limit, kind(0.5) * size * size, limit * (size - kind(0.5) * limit))
    return reduced(xp, values, reduction)


def huber_grad(xp, g, x, y, knee, reduction):
    """clip(x - y, -knee, knee) g."""
    away = xp.subtract(x, y)
    kind = away.dtype.type
    slope = xp.clip(away, kind(-knee), kind(knee))
    if two_bytes(away):
        share = kind(1 / (away.size or 1) if reduction == "mean" else 1)
        return xp.where(xp.abs(away) < kind(knee), share * away * g, share * g * slope)
    return xp.multiply(slope, _share(g, away.size, reduction))


def _of_difference(gradient):
    """Makes the backward kernel of such a loss from its function for the gradient of x: that of y is its negative."""

    def backward(xp, g, input, target, knee, reduction, needs):
        found = gradient(xp, g, input, target, knee, reduction)
        return found if needs[0] else None, -found if needs[1] else None

    return backward


mse_backward, l1_backward = _of_difference(mse_grad), _of_difference(l1_grad)
smooth_l1_backward, huber_backward = _of_difference(smooth_l1_grad), _of_difference(huber_grad)


# --- binary cross-entropy ------------------------------------------------------------------------------------------


def bce(xp, x, y, weight, reduction):
    """-(y log x + (1 - y) log(1 - x)), with logarithms clamped to at least -100."""
    if x.dtype != y.dtype:
        raise RuntimeError(f"Found dtype {scalar_type(y)} but expected {scalar_type(x)}")
    for name, values in (("input", x), ("target", y)):
        if not xp.all((values >= 0) & (values <= 1)):
            raise RuntimeError(f"all elements of {name} should be between 0 and 1")
    kind = x.dtype.type
    with ignored():
        loss = (y - kind(1)) * xp.maximum(xp.log1p(-x), kind(-100)) - y * xp.maximum(xp.log(x), kind(-100))
        return reduced(xp, xp.asarray(loss if weight is None else loss * weight), reduction)


def bce_grad(xp, g, x, y, weight, reduction):
    """(x - y) / (x (1 - x)) g, with the divisor at least 1e-12."""
    kind = x.dtype.type
    with ignored():
        least = xp.maximum((kind(1) - x) * x, kind(1e-12))
        if two_bytes(x):
            slope = _share(g * (x - y) / least, x.size, reduction)
        else:
            slope = (x - y) / least * _share(g, x.size, reduction)
    return slope if weight is None else slope * weight


def bce_backward(xp, g, input, target, weight, reduction, needs):
    """Returns the gradients of the probabilities and of the targets."""
    to_target = None
    if needs[1]:
        with ignored():  # (not clamped)
            to_target = -xp.log(input / (input.dtype.type(1) - input)) * _share(g, input.size, reduction)
        to_target = to_target if weight is None else to_target * weight
    return bce_grad(xp, g, input, target, weight, reduction) if needs[0] else None, to_target


def bce_with_logits(xp, x, y, weight, pos_weight, reduction):
    """-(p y log σ(x) + (1 - y) log(1 - σ(x))) with p = `pos_weight`, without overflow.

    In half precision log σ(x) is rounded once, and then every step, as in PyTorch.
    """
    kind = x.dtype.type
    with ignored():
        tail = -activation.log_sigmoid(xp, x)
        if pos_weight is not None:
            tail = tail * ((pos_weight - kind(1)) * y + kind(1))
        loss = xp.asarray((kind(1) - y) * x + tail)
        return reduced(xp, loss if weight is None else xp.asarray(loss * weight), reduction)


def bce_with_logits_grad(xp, g, x, y, weight, pos_weight, reduction):
    """(σ(x) - y) g; with `pos_weight` p: ((p y + 1 - y) σ(x) - p y) g."""
    kind = x.dtype.type
    with ignored():
        share = activation.sigmoid(xp, x)
        if pos_weight is None:
            slope = share - y
        else:
            slope = (pos_weight * y + (kind(1) - y)) * share - pos_weight * y
        slope = slope * _share(g, slope.size, reduction)
    return slope if weight is None else slope * weight


def bce_with_logits_backward(xp, g, input, target, weight, pos_weight, reduction, needs):
    """Returns the gradients of the logits and of the targets."""
    to_target = None
    if needs[1]:
        to_target = _of_targets(xp, g, input, weight, pos_weight, reduction)
    if not needs[0]:
        return None, to_target
    return bce_with_logits_grad(xp, g, input, target, weight, pos_weight, reduction), to_target


def _of_targets(xp, g, x, weight, pos_weight, reduction):
    """(log σ(-x) - p log σ(x)) g."""
    if two_bytes(g):
        single = (None if a is None else a.astype(np.float32) for a in (g, x, weight, pos_weight))
        return _of_targets(xp, *single, reduction).astype(g.dtype)  # type: ignore[call-arg]
    slope, zero = -x, x.dtype.type(0)
    if pos_weight is not None:
        tail = xp.log1p(xp.exp(-xp.abs(x)))
        slope = xp.minimum(-x, zero) - tail - pos_weight * (xp.minimum(x, zero) - tail)
    slope = slope * _share(g, slope.size, reduction)
    return slope if weight is None else slope * weight


# --- classes -------------------------------------------------------------------------------------------------------


def is_small(xp, x, weight, smoothing, reduction):
    """Returns whether the gradient is computed in the forward pass, where it costs less than a second pass."""
    return (
        weight is None and reduction != "none" and not smoothing and x.size <= _FEW and x.ndim == 2
        and 0 < x.shape[1] <= 64 and x.dtype.itemsize > 2 and xp is np
    )  # fmt: skip


def cross_entropy(xp, x, target, weight, ignore_index, smoothing, reduction):
    """Cross-entropy of logits (N, C, ...) with class indices (N, ...): `(loss, shares)`.

    The backward pass needs the shares: for a small batch softmax minus the targets' unit vectors, else the softmax. See
    `softmax.cross_entropy` for the formula.
    """
    small = is_small(xp, x, weight, smoothing, reduction)
    if small and x.size:
        low, high = extremes(np, target)
        if low >= 0 and high < x.shape[1] and not low <= ignore_index <= high:
            loss, cache = _few_cross_entropies(x, target, reduction)
            if loss.item() < math.inf:  # else a logit is infinite or nan, or far above its target's
                return loss, cache
    losses, exps, sums, total = softmax.cross_entropy(xp, x, target, weight, ignore_index, smoothing)
    loss = losses = xp.asarray(losses)
    with ignored():
        if reduction != "none":
            loss = xp.asarray(reduced(xp, losses, "sum"))
            if reduction == "mean":
                plain = xp is np or total.__class__ is int
                loss = xp.true_divide(loss, loss.dtype.type(total) if plain else total.astype(loss.dtype))
        if small:
            each = xp.asarray(
                exps.dtype.type(len(x)) / exps.dtype.type(total) if reduction == "mean" else exps.dtype.type(1)
            )
            return loss, softmax.cross_entropy_grad(xp, each, exps, sums, target, None, ignore_index, 0.0)
        sums = xp.asarray(sums)
        return loss, xp.divide(exps, sums[:, None] if sums.ndim else sums, exps)


def _few_cross_entropies(x, target, reduction):
    """Computes loss and cache of a small batch in few calls: log Σ exp(x - x[target]), exact even near 0.

    A product with a square matrix of ones sums over the classes and writes the sum to each of them, so that all arrays
    have one shape: NumPy takes three times as long to broadcast so few numbers.
    """
    n, classes = x.shape
    rows, spread, shares = _constants_of_few(n, classes, x.dtype, reduction)
    units = rows.take(target, 0)
    cache = x - (x * units).dot(spread)
    np.exp(cache, cache)
    sums = cache.dot(spread)
    cache /= sums
    cache -= units
    np.log(sums, sums)
    return sums.ravel().dot(shares, np.empty((), x.dtype)), cache


@lru_cache(maxsize=64)
def _constants_of_few(n, classes, dtype, reduction):
    """The unit vectors of the classes, ones that spread a sum over the classes, and each number's share of the loss."""
    share = 1.0 / classes if reduction == "sum" else 1.0 / (n * classes)
    made = np.eye(classes, dtype=dtype), np.ones((classes, classes), dtype), np.full(n * classes, share, dtype)
    for constant in made:
        constant.flags.writeable = False
    return made


def _total_weight(xp, target, weight, ignore_index, dtype):
    """Returns the divisor of a mean: the sum of the weights of the targets that count."""
    counted = target != ignore_index
    if weight is None:
        return dtype.type(counted.sum()) if xp is np else counted.sum().astype(dtype)
    return xp.where(counted, weight[xp.where(counted, target, 0)], dtype.type(0)).sum(dtype=weight.dtype)


def cross_entropy_backward(xp, g, input, shares, target, weight, ignore_index, label_smoothing, reduction):
    """Returns the gradient of the logits: (softmax - target's unit vector) · g."""
    if g.dtype.itemsize > 2 and is_small(xp, shares, weight, label_smoothing, reduction):  # (of bfloat16 float32)
        return np.multiply(shares, g.item() / (len(shares) or 1) if reduction == "mean" else g)
    if reduction == "mean":
        with ignored():
            lifted = g.astype(shares.dtype)
            g = xp.asarray(lifted / _total_weight(xp, target, weight, ignore_index, shares.dtype)).astype(g.dtype)
    one = xp.ones((), shares.dtype)  # the shares are already divided by their sums
    return softmax.cross_entropy_grad(xp, g, shares, one, target, weight, ignore_index, label_smoothing)


def cross_entropy_of_batch(xp, whole, input, target, weight, ignore_index, label_smoothing, reduction, size, mapped):
    """Cross-entropy of the samples of a batch, each with its own reduction: `(losses, shares of all elements)`."""
    if "input" not in mapped or "weight" in mapped or input.dtype.itemsize == 2:
        return NotImplemented
    if "target" not in mapped:
        target = xp.broadcast_to(target, (size, *target.shape))
    if weight is None and not label_smoothing and reduction != "none":
        made = run_compiled("cross_entropy_of_batch", input.size, input, target, ignore_index, reduction)
        if made is not NotImplemented:
            return made
    each, shares = whole(_joined(input), _all(target), weight, ignore_index, label_smoothing, "none")
    if reduction == "none":
        return each.reshape(target.shape), shares
    with ignored():
        total = each.reshape(size, -1).sum(1)
        if reduction == "mean":
            total = total / _weights_of_batch(xp, target, weight, ignore_index, size, input.dtype)
    return total, shares


def cross_entropy_of_batch_backward(
    xp, whole, g, input, shares, target, weight, ignore_index, label_smoothing, reduction, size, mapped
):
    """The gradient of the logits."""
    if "input" not in mapped or "weight" in mapped:
        return NotImplemented  # one call, outside of the vmap, may have kept other shares
    if "target" not in mapped:
        target = xp.broadcast_to(target, (size, *target.shape))
    if weight is None and not label_smoothing and reduction != "none":
        given = (g, input, shares, target, ignore_index, reduction)
        made = run_compiled("cross_entropy_of_batch_backward", input.size, *given)
        if made is not NotImplemented:
            return made
    if "g" not in mapped:
        g = xp.broadcast_to(g, (size, *g.shape))
    if reduction == "mean":
        with ignored():
            g = g / _weights_of_batch(xp, target, weight, ignore_index, size, input.dtype)
    g = xp.broadcast_to(g.reshape(size, *(1,) * (target.ndim - 1)) if reduction != "none" else g, target.shape)
    found = whole(_all(g), _joined(input), shares, _all(target), weight, ignore_index, label_smoothing, "none")
    return found.reshape(input.shape)


def _joined(x):
    """The logits of all samples as one batch."""
    return x.reshape(-1, *x.shape[2:]) if x.ndim > 2 else x


def _all(x):
    """One number per element, of all samples as one batch."""
    return x.reshape(-1, *x.shape[2:]) if x.ndim > 1 else x


def _weights_of_batch(xp, target, weight, ignore_index, size, dtype):
    """The divisor of each sample's mean."""
    counted = target != ignore_index
    if weight is not None:
        return xp.where(counted, weight[xp.where(counted, target, 0)], dtype.type(0)).reshape(size, -1).sum(1)
    return counted.reshape(size, -1).sum(1).astype(dtype)


def nll(xp, logp, target, weight, ignore_index, reduction):
    """The negative log-probability of the target's class: `(loss, weight of each element)`."""
    losses, weights = softmax.nll(xp, logp, target, weight, ignore_index)
    losses, weights = xp.asarray(losses), xp.asarray(weights)
    if reduction == "none":
        return losses, weights
    total = xp.asarray(reduced(xp, losses, "sum"))
    with ignored():
        return total if reduction == "sum" else xp.true_divide(total, weights.sum(dtype=weights.dtype)), weights


def nll_grad(xp, g, target, weights, shape, ignore_index):
    """Writes -g · weights at the targets in zeros of `shape`; `g` is per element or one for all."""
    if weights.ndim == 0 and g.ndim:
        g = g.reshape(())
    return softmax.nll_grad(xp, xp.broadcast_to(g, weights.shape), shape, target, weights, ignore_index)
