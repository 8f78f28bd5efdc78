"""Normalisations over plain arrays: layer, batch, group and root-mean-square, with their gradients.

Statistics are those of PyTorch: the biased variance normalises. Means and reciprocal deviations of two-byte inputs
are float32, results have the input's dtype. Gradient kernels take `need`, three flags for the gradients of the
input, the weight and the bias; what is not needed is None.
"""

import math
from typing import Any

import numpy as np

from .softmax import _row_blocks, _row_sum

_ALL = (True, True, True)


def _wide(array):
    """float32 for two-byte floats, otherwise the array itself."""
    return array.astype(np.float32) if array is not None and array.dtype.itemsize == 2 else array


def _row_dot(xp, a, b):
    """Sum of products over the last dimension."""
    return np.vecdot(a, b) if xp is np else (a * b).sum(axis=-1)


def _column_dot(xp, a, b):
    """Sum of products over the first of two dimensions."""
    return np.einsum("ij,ij->j", a, b) if xp is np else (a * b).sum(axis=0)


def _inverse_deviation(xp, variance, eps):
    variance = xp.asarray(variance + eps)
    xp.sqrt(variance, variance)
    return xp.reciprocal(variance, variance)


def _normalise_rows(xp, rows, eps, out, mean, rstd):
    """`(rows - mean) * rstd` into `out` (n, m), the statistics into `mean` (None: not centred) and `rstd` (n, 1)."""
    m = rows.shape[1]
    for block in _row_blocks(xp, rows, 1):
        d = out[block]
        if mean is None:
            square = _row_dot(xp, rows[block], rows[block])
        else:
            mean[block] = _row_sum(xp, rows[block], 1, True) / m
            xp.subtract(rows[block], mean[block], d)
            square = _row_dot(xp, d, d)
        rstd[block] = _inverse_deviation(xp, square[:, None] / m, eps)
        xp.multiply(rows[block] if mean is None else d, rstd[block], d)


def _rows_input_grad(xp, g, normal, rstd, centred):
    """Gradient through the normalisation of rows: `rstd (g - mean(g) - normal mean(g normal))`; overwrites `normal`."""
    m = g.shape[1]
    normal *= (_row_dot(xp, g, normal) / -m)[:, None]
    normal += g
    if centred:
        normal -= _row_sum(xp, g, 1, True) / m
    normal *= rstd
    return normal


def _flat_rows(x, axes):
    """`x` as (rows, elements that are normalised together) for trailing `axes`, and the shape of its statistics."""
    lead = x.shape[: x.ndim - len(axes)]
    return x.reshape(math.prod(lead), math.prod(x.shape[len(lead) :])), lead + (1,) * len(axes)


def _row_norm(xp, x, axes, weight, bias, eps, centred):
    dtype = x.dtype
    rows, stats = _flat_rows(_wide(x), axes)
    out = xp.empty_like(rows)
    mean = xp.empty((rows.shape[0], 1), rows.dtype) if centred else None
    rstd = xp.empty((rows.shape[0], 1), rows.dtype)
    with np.errstate(all="ignore"):
        if rows.size or not rows.shape[1]:
            _normalise_rows(xp, rows, eps, out, mean, rstd)
        if weight is not None:
            xp.multiply(out, _wide(weight).reshape(-1), out)
        if bias is not None:
            xp.add(out, _wide(bias).reshape(-1), out)
    out = out.reshape(x.shape).astype(dtype, copy=False)
    return out, None if mean is None else mean.reshape(stats), rstd.reshape(stats)


def _row_norm_grad(xp, g, x, mean, rstd, weight, axes, need):
    dtype, shape = g.dtype, x.shape[x.ndim - len(axes) :]
    g_rows, _ = _flat_rows(_wide(g), axes)
    x_rows, _ = _flat_rows(_wide(x), axes)
    n, m = x_rows.shape
    rstd = rstd.reshape(n, 1)
    mean = None if mean is None else mean.reshape(n, 1)
    w = None if weight is None else _wide(weight).reshape(-1)
    gx = xp.empty((n, m), x_rows.dtype) if need[0] else None
    gw = xp.zeros(m, x_rows.dtype) if need[1] else None
    gb = xp.zeros(m, x_rows.dtype) if need[2] else None
    with np.errstate(all="ignore"):
        for block in _row_blocks(xp, x_rows, 1) if x_rows.size else ():
            gr = g_rows[block]
            if gb is not None:
                gb += gr.sum(axis=0)
            if gx is None and gw is None:
                continue
            normal = x_rows[block] * rstd[block] if mean is None else x_rows[block] - mean[block]
            if mean is not None:
                normal *= rstd[block]
            if gw is not None:
                gw += _column_dot(xp, gr, normal)
            if gx is not None:
                gr = gr if w is None else gr * w
                gx[block] = _rows_input_grad(xp, gr, normal, rstd[block], mean is not None)
    return (
        None if gx is None else gx.reshape(x.shape).astype(dtype, copy=False),
        None if gw is None else gw.reshape(shape).astype(dtype, copy=False),
        None if gb is None else gb.reshape(shape).astype(dtype, copy=False),
    )


def layer_norm(xp, x, axes, weight=None, bias=None, eps=1e-5):
    """Layer normalisation over the trailing `axes` (J. L. Ba et al., arXiv:1607.06450).

    Returns `(y, mean, rstd)`, the statistics with ones in place of the normalised dimensions.
    """
    return _row_norm(xp, x, axes, weight, bias, eps, True)


def layer_norm_grad(xp, g, x, mean, rstd, weight, axes, need=_ALL):
    """Gradients `(gx, gw, gb)` of `layer_norm`."""
    return _row_norm_grad(xp, g, x, mean, rstd, weight, axes, need)


def rms_norm(xp, x, axes, weight=None, eps=None):
    """Root-mean-square normalisation over the trailing `axes` (B. Zhang, R. Sennrich, arXiv:1910.07467).

    `eps` None means the machine epsilon of `x`'s dtype. Returns `(y, rrms)`.
    """
    if eps is None:
        eps = float(np.finfo(x.dtype).eps) if x.dtype.kind == "f" else 2.0**-7  # bfloat16
    y, _, rrms = _row_norm(xp, x, axes, weight, None, eps, False)
    return y, rrms


def rms_norm_grad(xp, g, x, rrms, weight, axes, need=(True, True)):
    """Gradients `(gx, gw)` of `rms_norm`."""
    return _row_norm_grad(xp, g, x, None, rrms, weight, axes, (need[0], need[1], False))[:2]


# ---------------------------------------------------------------- per channel


def _by_channel(array):
    """(N, C, *) as (N, C, L)."""
    n, c = array.shape[:2]
    return array.reshape(n, c, math.prod(array.shape[2:]))


def _channel_sum(xp, x):
    """Sum of (N, C, L) over all but channels."""
    return x[:, :, 0].sum(axis=0) if x.shape[2] == 1 else _row_sum(xp, x, 2).sum(axis=0)


def _channel_dot(xp, a, b):
    if a.shape[2] == 1:
        return _column_dot(xp, a[:, :, 0], b[:, :, 0])
    return _row_dot(xp, a, b).sum(axis=0)


def _affine_channels(xp, out, weight, bias):
    """`out * weight + bias` per channel of (N, C, L), in place."""
    if weight is not None:
        xp.multiply(out, _wide(weight)[:, None], out)
    if bias is not None:
        xp.add(out, _wide(bias)[:, None], out)


def batch_norm(xp, x, weight, bias, running_mean, running_var, training, eps=1e-5):
    """Batch normalisation of (N, C, *) per channel (S. Ioffe, C. Szegedy, arXiv:1502.03167).

    In training by the batch's statistics, otherwise by the running ones. Returns `(y, mean, rstd, var)`: what
    normalised each channel, `var` biased. The running statistics are not written: see `updated_running`.
    """
    x3 = _by_channel(_wide(x))
    with np.errstate(all="ignore"):
        if not training:
            mean, var = _wide(running_mean), _wide(running_var)
            rstd = _inverse_deviation(xp, var, eps)
            factor = rstd if weight is None else rstd * _wide(weight)
            shift = -mean * factor if bias is None else _wide(bias) - mean * factor
            out = x3 * factor[:, None].astype(x3.dtype, copy=False)
            xp.add(out, shift[:, None].astype(x3.dtype, copy=False), out)
        else:
            count = x3.shape[0] * x3.shape[2]
            mean = _channel_sum(xp, x3) / x3.dtype.type(count)
            out = x3 - mean[:, None]
            var = _channel_dot(xp, out, out) / x3.dtype.type(count)
            rstd = _inverse_deviation(xp, var, eps)
            factor = rstd if weight is None else (rstd * _wide(weight)).astype(x3.dtype, copy=False)
            _affine_channels(xp, out, factor, bias)
    return out.reshape(x.shape).astype(x.dtype, copy=False), mean, rstd, var


def updated_running(running_mean, running_var, mean, var, count, momentum):
    """The running statistics after a batch of `count` elements per channel: the variance enters unbiased."""
    unbiased = var * (count / (count - 1)) if count > 1 else var * math.inf
    return (
        (running_mean * (1 - momentum) + mean * momentum).astype(running_mean.dtype, copy=False),
        (running_var * (1 - momentum) + unbiased * momentum).astype(running_var.dtype, copy=False),
    )


def batch_norm_grad(xp, g, x, mean, rstd, weight, training, need=_ALL):
    """Gradients `(gx, gw, gb)` of `batch_norm` from the statistics it returned."""
    dtype = g.dtype
    g3, x3 = _by_channel(_wide(g)), _by_channel(_wide(x))
    count = g3.shape[0] * g3.shape[2]
    scale = rstd if weight is None else rstd * _wide(weight)
    gx: Any = None
    gw: Any = None
    gb: Any = None
    with np.errstate(all="ignore"):
        through = need[0] and training
        if need[2] or through:
            gb = _channel_sum(xp, g3)
        if need[1] or through:
            d = x3 - mean[:, None]
            gw = _channel_dot(xp, g3, d) * rstd
        if through:
            # gx = scale (g - mean(g) - normal mean(g normal)), normal = d rstd
            d *= (gw * rstd * (-1.0 / max(count, 1)))[:, None].astype(d.dtype, copy=False)
            d += g3
            d -= (gb / max(count, 1))[:, None].astype(d.dtype, copy=False)
            d *= scale[:, None].astype(d.dtype, copy=False)
            gx = d
        elif need[0]:
            gx = g3 * scale[:, None].astype(g3.dtype, copy=False)
    kind = dtype if weight is None else weight.dtype
    return (
        gx.reshape(x.shape).astype(dtype, copy=False) if need[0] else None,
        gw.astype(kind, copy=False) if need[1] else None,
        gb.astype(kind, copy=False) if need[2] else None,
    )


def group_norm(xp, x, groups, weight=None, bias=None, eps=1e-5):
    """Normalisation of (N, C, *) over each of `groups` groups of channels (Y. Wu, K. He, arXiv:1803.08494).

    Returns `(y, mean, rstd)`, the statistics (N, groups).
    """
    n = x.shape[0]
    wide = _wide(x)
    rows = wide.reshape(n * groups, math.prod(x.shape[1:]) // groups)
    out = xp.empty_like(rows)
    mean = xp.empty((rows.shape[0], 1), rows.dtype)
    rstd = xp.empty_like(mean)
    with np.errstate(all="ignore"):
        if rows.size or not rows.shape[1]:
            _normalise_rows(xp, rows, eps, out, mean, rstd)
        _affine_channels(xp, _by_channel(out.reshape(x.shape)), weight, bias)
    return out.reshape(x.shape).astype(x.dtype, copy=False), mean.reshape(n, groups), rstd.reshape(n, groups)


def group_norm_grad(xp, g, x, mean, rstd, weight, groups, need=_ALL):
    """Gradients `(gx, gw, gb)` of `group_norm`."""
    dtype = g.dtype
    n = x.shape[0]
    g3 = _by_channel(_wide(g))
    rstd = rstd.reshape(n * groups, 1)
    width = math.prod(x.shape[1:]) // groups
    gx = gw = gb = None
    with np.errstate(all="ignore"):
        normal = _wide(x).reshape(n * groups, width) - mean.reshape(n * groups, 1)
        normal *= rstd
        if need[1]:
            gw = _channel_dot(xp, g3, _by_channel(normal.reshape(x.shape))).astype(dtype, copy=False)
        if need[2]:
            gb = _channel_sum(xp, g3).astype(dtype, copy=False)
        if need[0]:
            gy = g3 if weight is None else g3 * _wide(weight)[:, None]
            if width:
                gx = _rows_input_grad(xp, gy.reshape(n * groups, width), normal, rstd, True)
            else:
                gx = normal
            gx = gx.reshape(x.shape).astype(dtype, copy=False)
    return gx, gw, gb
