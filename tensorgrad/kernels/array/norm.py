"""Normalizations over plain arrays: layer, batch, group and root-mean-square, with their gradients.

Statistics are PyTorch's: the biased variance normalizes. Means and reciprocal deviations of two-byte inputs are
computed in float32, and kept for gradients in the dtype of the parameters (see `kept`); results have the input's dtype.
Gradient kernels take `need`, three flags for the gradients of the input, the
weight and the bias; those not needed are None.
"""

import math

import numpy as np

from tensorgrad.system.float_errors import ignored

from .blocks import LONG, long_rows, row_dot
from .softmax import _row_blocks, _row_sum

_ALL = (True, True, True)
# Elements per block. Half a dozen arrays of this size stay in the last-level cache; smaller blocks cost more in calls.
BLOCK = 1 << 17
_SHORT = 64  # positions per channel from which it is faster to sum over them before everything else


def _wide(array):
    """Returns float32 for two-byte floats, otherwise the array itself."""
    return array.astype(np.float32) if array is not None and array.dtype.itemsize == 2 else array


def kept(statistics, x, *parameters):
    """Rounds statistics to the dtype in which they are kept: that of the parameters or, without any, of the input."""
    return statistics.astype(kept_dtype(x, *parameters), copy=False)


def kept_dtype(x, *parameters):
    return next((p.dtype for p in parameters if p is not None), x.dtype)


def _times_weight(xp, rows, w):
    """Sum of products of each row with `w`."""
    return row_dot(xp, rows, w) if xp is np and len(w) >= LONG else rows @ w


def _column_dot(xp, a, b):
    """Sum of products over the first of two dimensions."""
    return np.einsum("ij,ij->j", a, b) if xp is np else (a * b).sum(axis=0)


def _inverse_deviation(xp, variance, eps):
    variance = xp.asarray(variance + eps)
    xp.sqrt(variance, variance)
    return xp.reciprocal(variance, variance)


def _centre_rows(xp, rows, eps, out, mean, rstd):
    """Writes `rows - mean` to `out` (n, m), the statistics to `mean` (None: not centered) and `rstd` (n, 1)."""
    m = rows.shape[1]
    if mean is None:
        out[...] = rows
    else:
        mean[...] = _row_sum(xp, rows, 1, True) / m
        xp.subtract(rows, mean, out)
    rstd[...] = _inverse_deviation(xp, row_dot(xp, out, out)[:, None] / m, eps)


def _outer(xp, column, row):
    """The products of a column (n, 1) and a vector (m,) as an (n, m) array."""
    if xp is not np or column.size * row.size < 4096:
        return column * row
    # Compared with a product of rank two, padded with zeros, NumPy's loops over a broadcast operand take three times as
    # long.
    left, right = np.zeros((column.size, 2), column.dtype), np.zeros((2, row.size), row.dtype)
    left[:, :1], right[0] = column, row
    return left @ right


def _flat_rows(x, axes):
    """Views `x` as (rows, elements normalized together) for trailing `axes`; also returns the statistics' shape."""
    lead = x.shape[: x.ndim - len(axes)]
    return x.reshape(math.prod(lead), math.prod(x.shape[len(lead) :])), lead + (1,) * len(axes)


def _row_norm(xp, x, axes, weight, bias, eps, centred):
    dtype = x.dtype
    rows, stats = _flat_rows(_wide(x), axes)
    out = xp.empty(rows.shape, rows.dtype)
    mean = xp.empty((rows.shape[0], 1), rows.dtype) if centred else None
    rstd = xp.empty((rows.shape[0], 1), rows.dtype)
    dtype_kept = kept_dtype(x, weight, bias) if centred else rows.dtype  # `rms_norm` keeps float32
    weight, bias = (None if p is None else _wide(p).reshape(-1) for p in (weight, bias))
    with ignored():
        long_rows(xp, rows.shape[1])
        for block in _row_blocks(xp, rows, 1, BLOCK) if rows.size or not rows.shape[1] else ():
            _centre_rows(xp, rows[block], eps, out[block], None if mean is None else mean[block], rstd[block])
            if weight is None:
                xp.multiply(out[block], rstd[block], out[block])
            else:
                xp.multiply(out[block], _outer(xp, rstd[block], weight), out[block])
            if bias is not None:
                xp.add(out[block], bias, out[block])
    out = out.reshape(x.shape).astype(dtype, copy=False)
    mean, rstd = (None if s is None else s.reshape(stats).astype(dtype_kept, copy=False) for s in (mean, rstd))
    return out, mean, rstd


def _row_norm_grad(xp, g, x, mean, rstd, weight, axes, need):
    dtype, shape = g.dtype, x.shape[x.ndim - len(axes) :]
    g_rows, _ = _flat_rows(_wide(g), axes)
    x_rows, _ = _flat_rows(_wide(x), axes)
    n, m = x_rows.shape
    rstd = _wide(rstd).reshape(n, 1)
    mean = None if mean is None else _wide(mean).reshape(n, 1)
    w = None if weight is None else _wide(weight).reshape(-1)
    gx = xp.empty((n, m), x_rows.dtype) if need[0] else None
    gw = xp.zeros(m, x_rows.dtype) if need[1] else None
    gb = xp.zeros(m, x_rows.dtype) if need[2] else None
    with ignored():
        long_rows(xp, m)
        for block in _row_blocks(xp, x_rows, 1, BLOCK) if x_rows.size else ():
            centre = None if mean is None else mean[block]
            _rows_grad(
                xp, g_rows[block], x_rows[block], centre, rstd[block], w, None if gx is None else gx[block], gw, gb
            )
    kind = dtype if weight is None else weight.dtype
    return (
        None if gx is None else gx.reshape(x.shape).astype(dtype, copy=False),
        None if gw is None else gw.reshape(shape).astype(kind, copy=False),
        None if gb is None else gb.reshape(shape).astype(kind, copy=False),
    )


def _rows_grad(xp, g, x, mean, rstd, w, gx, gw, gb):
    """Writes the gradient of the input to `gx`; adds those of weight and bias to `gw` and `gb` (each may be None).

    gx = rstd (g w - mean(g w) - normal mean(g w normal)) with normal = d rstd, d = x - mean. All sums are products of
    matrices with vectors, which BLAS computes in one pass each, except those of long rows.
    """
    n, m = x.shape
    if gb is not None:
        gb += xp.ones(n, g.dtype) @ g
    if gx is None and gw is None:
        return
    d = x if mean is None else x - mean
    product = g * d
    if gw is not None:
        gw += rstd[:, 0] @ product
    if gx is None:
        return
    w = xp.ones(m, g.dtype) if w is None else w
    slope = _times_weight(xp, product, w)[:, None] * (rstd * rstd * rstd / -m)
    xp.multiply(d, slope, gx)
    xp.multiply(g, _outer(xp, rstd, w), product)
    gx += product
    if mean is not None:
        gx -= _times_weight(xp, g, w)[:, None] * (rstd / m)


def row_norm_tangent(xp, x, weight, x_t, weight_t, bias_t, axes, eps, centred):
    """The tangent of `layer_norm` (or, unless `centred`, of `rms_norm`); tangents of the inputs may be None.

    That of the normal values y is rstd (t - mean(t) - y mean(y t)), as for their gradient.
    """
    rows, _ = _flat_rows(_wide(x), axes)
    along = None if x_t is None else _flat_rows(_wide(x_t), axes)[0]
    weight, weight_t, bias_t = (None if p is None else _wide(p).reshape(-1) for p in (weight, weight_t, bias_t))
    n, m = rows.shape
    out = xp.empty((n, m), rows.dtype)
    with ignored():
        long_rows(xp, m)
        for block in _row_blocks(xp, rows, 1, BLOCK) if rows.size else ():
            normal, t = xp.empty(rows[block].shape, rows.dtype), out[block]
            mean, rstd = xp.empty((len(normal), 1), rows.dtype), xp.empty((len(normal), 1), rows.dtype)
            _centre_rows(xp, rows[block], eps, normal, mean if centred else None, rstd)
            normal *= rstd
            if along is None:
                t[...] = 0
            else:
                xp.multiply(normal, row_dot(xp, normal, along[block])[:, None] / -m, t)
                t += along[block]
                if centred:
                    t -= _row_sum(xp, along[block], 1, True) / m
                t *= rstd if weight is None else _outer(xp, rstd, weight)
            if weight_t is not None:
                t += xp.multiply(normal, weight_t, normal)
            if bias_t is not None:
                t += bias_t
    return out.reshape(x.shape).astype(x.dtype, copy=False)


def layer_norm(xp, x, axes, weight=None, bias=None, eps=1e-5):
    """Layer normalization over the trailing `axes` (J. L. Ba et al., arXiv:1607.06450).

    Returns `(y, mean, rstd)`, the statistics with ones in place of the normalized dimensions.
    """
    return _row_norm(xp, x, axes, weight, bias, eps, True)


def layer_norm_grad(xp, g, x, mean, rstd, weight, axes, need=_ALL):
    """Gradients `(gx, gw, gb)` of `layer_norm`."""
    return _row_norm_grad(xp, g, x, mean, rstd, weight, axes, need)


def rms_norm(xp, x, axes, weight, eps):
    """Root-mean-square normalization over the trailing `axes` (B. Zhang, R. Sennrich, arXiv:1910.07467).

    Returns `(y, rrms)`.
    """
    y, _, rrms = _row_norm(xp, x, axes, weight, None, eps, False)
    return y, rrms


def rms_norm_grad(xp, g, x, rrms, weight, axes, need=(True, True)):
    """Gradients `(gx, gw)` of `rms_norm`."""
    return _row_norm_grad(xp, g, x, None, rrms, weight, axes, (need[0], need[1], False))[:2]


# ---------------------------------------------------------------- per channel
#
# (N, C, *) is processed as (N, C L), with each channel's number repeated L times: NumPy's loops are then C L elements
# long instead of L. Channels are taken in blocks that stay in cache.


def _by_channel(array):
    """Views (N, C, *) as (N, C L), and returns L."""
    n, c = array.shape[:2]
    length = math.prod(array.shape[2:])
    return array.reshape(n, c * length), length


def _channel_blocks(xp, x, length):
    """Yields pairs of slices: of channels, and of their columns in `x` (N, C L)."""
    if xp is not np or x.size <= BLOCK or x.shape[0] * length < 1024:
        return ((slice(None), slice(None)),)
    step = max(1, BLOCK // (x.shape[0] * length))
    starts = range(0, x.shape[1] // length, step)
    return [(slice(c, c + step), slice(c * length, (c + step) * length)) for c in starts]


def _expanded(x, channels, length):
    """Expands a number per channel to an operand for `x` (N, C L)."""
    if channels.dtype is not x.dtype:
        channels = channels.astype(x.dtype, copy=False)
    return channels if length == 1 else channels.repeat(length)


def _channel_sum(xp, x, length):
    """Sum of (N, C L) over all but channels."""
    if length < _SHORT:
        return x.sum(axis=0).reshape(-1, max(length, 1)).sum(axis=1)
    return _row_sum(xp, x.reshape(x.shape[0], -1, length), 2).sum(axis=0)


def _channel_dot(xp, a, b, length):
    """Sum of products of (N, C L) over all but channels."""
    if length < _SHORT:
        return _column_dot(xp, a, b).reshape(-1, max(length, 1)).sum(axis=1)
    shape = (a.shape[0], -1, length)
    return row_dot(xp, a.reshape(shape), b.reshape(shape)).sum(axis=0)


def batch_norm(xp, x, weight, bias, running_mean, running_var, training, eps=1e-5):
    """Batch normalization of (N, C, *) per channel (S. Ioffe, C. Szegedy, arXiv:1502.03167).

    Uses the batch's statistics in training, otherwise the running ones. Returns `(y, mean, rstd, var)`: the statistics
    that normalized each channel, `var` biased. The running statistics are not written: see `updated_running`.
    """
    flat, length = _by_channel(_wide(x))
    dtype_kept = kept_dtype(x, weight, bias)
    if x.dtype.itemsize == 2:
        weight, bias, running_mean, running_var = (_wide(p) for p in (weight, bias, running_mean, running_var))
    out = xp.empty(flat.shape, flat.dtype)
    with ignored():
        if training:
            mean, rstd, var = _batch_statistics_and_norm(xp, flat, length, weight, bias, eps, out, dtype_kept)
        else:
            mean, var, rstd = running_mean, running_var, _inverse_deviation(xp, running_var, eps)
            factor = rstd if weight is None else rstd * weight
            shift = -mean * factor if bias is None else bias - mean * factor
            if flat.size <= BLOCK:
                _scale_and_shift(xp, flat, factor, shift, length, out)
            else:
                for channels, columns in _channel_blocks(xp, flat, length):
                    part = factor[channels], shift[channels], length, out[:, columns]
                    _scale_and_shift(xp, flat[:, columns], *part)
    return out.reshape(x.shape).astype(x.dtype, copy=False), mean, rstd, var


def _scale_and_shift(xp, x, factor, shift, length, out):
    xp.multiply(x, _expanded(x, factor, length), out)
    xp.add(out, _expanded(x, shift, length), out)


def _batch_statistics_and_norm(xp, x, length, weight, bias, eps, out, dtype_kept):
    """Returns mean, reciprocal deviation and variance per channel of `x` (N, C L), normalized into `out`.

    If they are kept in half precision, PyTorch normalizes with the rounded ones; of bfloat16 it rounds the sum of
    squares and the number of elements, too.
    """
    mean, rstd, var = (xp.empty(x.shape[1] // max(length, 1), x.dtype) for _ in range(3))
    count = x.dtype.type(x.shape[0] * length)
    for channels, columns in _channel_blocks(xp, x, length):
        d = out[:, columns]
        mean[channels] = _channel_sum(xp, x[:, columns], length) / count
        xp.subtract(x[:, columns], _expanded(x, mean[channels], length), d)
        squares = _channel_dot(xp, d, d, length)
        if dtype_kept.name == "bfloat16":
            squares = squares.astype(dtype_kept)
            rounded = (squares / count.astype(dtype_kept)).astype(x.dtype)
            var[channels] = squares.astype(x.dtype) / count  # not rounded: the running variance is another quotient
        else:
            rounded = var[channels] = squares / count
        rstd[channels] = _inverse_deviation(xp, rounded, eps)
        if dtype_kept.itemsize == 2:
            rstd[channels] = rstd[channels].astype(dtype_kept)
            factor = rstd[channels] if weight is None else rstd[channels] * weight[channels]
            shift = -mean[channels].astype(dtype_kept).astype(x.dtype) * factor
            shift = shift if bias is None else shift + bias[channels]
            _scale_and_shift(xp, x[:, columns], factor, shift, length, d)
            continue
        factor = rstd[channels] if weight is None else rstd[channels] * weight[channels]
        xp.multiply(d, _expanded(x, factor, length), d)
        if bias is not None:
            xp.add(d, _expanded(x, bias[channels], length), d)
    return mean, rstd, var


def updated_running(running_mean, running_var, mean, var, count, momentum):
    """Returns the running statistics after a batch of `count` elements per channel, using the unbiased variance.

    As in PyTorch, each step is rounded to bfloat16 if they are kept in it, but for the last sum of the variance;
    statistics in float16 are computed in float32.
    """
    if running_mean.dtype.name == "bfloat16":
        return _updated_in_bfloat16(running_mean, running_var, mean, var, count, momentum)
    unbiased = var * (count / (count - 1)) if count > 1 else var * math.inf
    return (
        (_wide(running_mean) * (1 - momentum) + mean * momentum).astype(running_mean.dtype, copy=False),
        (_wide(running_var) * (1 - momentum) + unbiased * momentum).astype(running_var.dtype, copy=False),
    )


def _updated_in_bfloat16(running_mean, running_var, mean, var, count, momentum):
    dtype = running_mean.dtype
    new, old = dtype.type(momentum), dtype.type(1) - dtype.type(momentum)
    with ignored():
        unbiased = (var * count).astype(dtype) / dtype.type(count - 1)
        return (
            new * mean.astype(dtype) + old * running_mean,
            (np.float32(new) * _wide(unbiased) + _wide(old * running_var)).astype(dtype),
        )


def batch_norm_grad(xp, g, x, mean, rstd, weight, training, need=_ALL):
    """Gradients `(gx, gw, gb)` of `batch_norm` from the statistics it returned."""
    dtype = g.dtype
    g_flat, length = _by_channel(_wide(g))
    x_flat, _ = _by_channel(_wide(x))
    mean, rstd = _wide(mean), _wide(rstd)
    scale = rstd if weight is None else rstd * _wide(weight)
    gx = xp.empty(x_flat.shape, x_flat.dtype) if need[0] else None
    gw, gb = xp.zeros_like(rstd), xp.zeros_like(rstd)
    with ignored():  # (The statistics of nothing are nan, but its gradients are 0.)
        for c, columns in _channel_blocks(xp, x_flat, length) if x.size else ():
            part = None if gx is None else gx[:, columns]
            gw[c], gb[c] = _batch_norm_grad_block(
                xp, g_flat[:, columns], x_flat[:, columns], length, mean[c], rstd[c], scale[c], training, need, part
            )
    kind = dtype if weight is None else weight.dtype
    return (
        None if gx is None else gx.reshape(x.shape).astype(dtype, copy=False),
        gw.astype(kind, copy=False) if need[1] else None,
        gb.astype(kind, copy=False) if need[2] else None,
    )


def _batch_norm_grad_block(xp, g, x, length, mean, rstd, scale, training, need, gx):
    """Writes the gradient of some channels' input to `gx` (None: not needed); returns those of weight and bias, or 0.

    gx = scale (g - mean(g) - normal mean(g normal)) with normal = d rstd, d = x - mean.
    """
    through = need[0] and training
    count = max(x.shape[0] * length, 1)
    gb = _channel_sum(xp, g, length) if need[2] or through else 0
    gw = 0
    if need[1] or through:
        d = xp.subtract(x, _expanded(x, mean, length), gx)
        gw = _channel_dot(xp, g, d, length) * rstd
        if through:
            d *= _expanded(x, gw * rstd * (-1.0 / count), length)
            d += g
            d -= _expanded(x, gb / count, length)
            d *= _expanded(x, scale, length)
    if need[0] and not training:
        xp.multiply(g, _expanded(x, scale, length), gx)
    return gw, gb


def group_norm(xp, x, groups, weight=None, bias=None, eps=1e-5):
    """Normalization of (N, C, *) over each of `groups` groups of channels (Y. Wu, K. He, arXiv:1803.08494).

    Returns `(y, mean, rstd)`, the statistics (N, groups).
    """
    n, c = x.shape[:2]
    length = math.prod(x.shape[2:])
    images = _wide(x).reshape(n, c, length)
    out = xp.empty(images.shape, images.dtype)
    mean, rstd = (xp.empty((n, groups), images.dtype) for _ in range(2))
    with ignored():
        long_rows(xp, length)
        for some in _row_blocks(xp, images, 2, BLOCK) if images.size or not c * length else ():
            part = out[some]
            rows = (len(part) * groups, c * length // groups)
            column = (-1, 1)
            _centre_rows(
                xp, images[some].reshape(rows), eps, part.reshape(rows), mean[some].reshape(column),
                rstd[some].reshape(column),
            )  # fmt: skip
            part *= _channel_factors(xp, rstd[some], weight, c)
            if bias is not None:
                part += _wide(bias)[:, None]
    return out.reshape(x.shape).astype(x.dtype, copy=False), kept(mean, x, weight, bias), kept(rstd, x, weight, bias)


def _channel_factors(xp, per_group, weight, channels):
    """Multiplies (N, groups) by `weight` (C,), giving (N, C, 1)."""
    factors = per_group.repeat(channels // per_group.shape[1], axis=1)
    return (factors if weight is None else factors * _wide(weight))[:, :, None]


def group_norm_grad(xp, g, x, mean, rstd, weight, groups, need=_ALL):
    """Gradients `(gx, gw, gb)` of `group_norm`."""
    dtype, (n, c) = g.dtype, x.shape[:2]
    length = math.prod(x.shape[2:])
    shape = (n, c, length)
    g3, x3 = _wide(g).reshape(shape), _wide(x).reshape(shape)
    gx = xp.empty(shape, x3.dtype) if need[0] else None
    gw, gb = xp.zeros(c, x3.dtype), xp.zeros(c, x3.dtype)
    mean, rstd = _wide(mean).reshape(n, groups), _wide(rstd).reshape(n, groups)
    with ignored():
        long_rows(xp, length)
        for some in _row_blocks(xp, x3, 2, BLOCK) if x3.size else ():
            part = None if gx is None else gx[some]
            _images_grad(xp, g3[some], x3[some], mean[some], rstd[some], weight, part, gw, gb)
    kind = dtype if weight is None else weight.dtype
    return (
        None if gx is None else gx.reshape(x.shape).astype(dtype, copy=False),
        gw.astype(kind, copy=False) if need[1] else None,
        gb.astype(kind, copy=False) if need[2] else None,
    )


def _images_grad(xp, g, x, mean, rstd, weight, gx, gw, gb):
    """Writes the gradient of images (n, C, L) to `gx` (None: not needed); adds those of weight and bias to `gw`, `gb`.

    The formula is that of `_rows_grad` with a group as a row; the sums over groups are made from sums over channels.
    """
    n, c, length = x.shape
    groups = mean.shape[1]
    d = xp.subtract(x, mean.repeat(c // groups, axis=1)[:, :, None], gx)
    dots, sums = row_dot(xp, g, d), _row_sum(xp, g, 2)  # (n, C)
    gw += (dots * rstd.repeat(c // groups, axis=1)).sum(axis=0)
    gb += sums.sum(axis=0)
    if gx is None:
        return
    if weight is not None:
        dots, sums = dots * _wide(weight), sums * _wide(weight)
    width = c // groups * length
    slope = dots.reshape(n, groups, -1).sum(axis=2) * (rstd * rstd * rstd / -width)
    shift = sums.reshape(n, groups, -1).sum(axis=2) * (rstd / -width)
    d *= slope.repeat(c // groups, axis=1)[:, :, None]
    d += g * _channel_factors(xp, rstd, weight, c)
    d += shift.repeat(c // groups, axis=1)[:, :, None]
