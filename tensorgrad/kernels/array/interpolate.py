"""Resizing images on plain arrays, in one implementation for one, two and three spatial dimensions.

Every mode works along one dimension after the other, and along one dimension it is a banded matrix: each of its rows
says which neighbors in the input make one element of the output, with which weights. So one function applies all modes,
and the gradient is the same function with the matrix transposed. The band is split into small dense blocks, and BLAS
multiplies by those. Measured (float32, one thread, ms) for 1×3×224×224 to twice its size: blocks 0.35, gathering one
neighbor after the other 0.68, PyTorch 1.33; for 16×64×28×28: 2.2, 4.9, 5.8. Nearest neighbors are gathered.

uint8 images are resized in integer arithmetic, width first, and rounded after each dimension, as PyTorch does.

Sources: R. Keys, "Cubic convolution interpolation for digital image processing", IEEE Trans. ASSP 29 (1981), with A =
-3/4, and A = -1/2 where filters are widened against aliasing; C. Duchon, "Lanczos filtering in one and two dimensions",
J. Appl. Meteorology 18 (1979), with three lobes.
"""

from functools import lru_cache
from math import prod

import numpy as np

from tensorgrad.rows.kernel_tables import run_compiled
from tensorgrad.storage.fresh import fresh

from .conv import widen

_WIDE_POINT = 64  # bytes of a point from which on all dimensions are resized at once
BLOCK = 16  # rows per block; measured: 16 to 32 are best, fewer cost more calls

# --- the matrices --------------------------------------------------------------------------------------------------


def step_of(n, m, align, scale, dtype):
    """Returns the distance in the input between two adjacent output elements: a scalar of `dtype`."""
    if align:
        return dtype(n - 1) / dtype(m - 1) if m > 1 else dtype(0)
    return dtype(1.0 / scale) if scale is not None and scale > 0 else dtype(n) / dtype(m)


def neighbours(mode, n, m, align, scale, dtype):
    """Returns the inputs that make each of `m` outputs, and their weights: two arrays of (m, taps).

    Computed as PyTorch does, in the precision of `dtype` (a NumPy scalar type): the rounding of the positions affects
    the result. `scale` is the factor that the caller gave, or None if only the sizes are known.

    >>> neighbours("linear", 2, 4, False, None, np.float32)[1].tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [1.0, 0.0]]
    """
    if n == m and mode not in (
        "nearest",
        "nearest-exact",
        "cubic",
    ):  # PyTorch then ignores the scale, except for these
        return np.arange(n)[:, None], np.ones((n, 1), dtype)
    if mode.endswith("-aa"):
        return _filtered(mode, n, m, align, scale, dtype)
    if mode == "nearest-halved" and m == 2 * n:
        return np.arange(m)[:, None] // 2, np.ones((m, 1), dtype)
    if mode.startswith("nearest"):
        half = dtype(0.5) if mode == "nearest-exact" else dtype(0)
        positions = (np.arange(m, dtype=dtype) + half) * step_of(n, m, False, scale, dtype)
        return np.minimum(positions.astype(np.int64), n - 1)[:, None], np.ones((m, 1), dtype)
    positions = _positions(n, m, align, scale, dtype)
    if mode == "linear":
        positions = np.maximum(positions, 0)
    first = np.floor(positions)
    part = (positions - first).astype(dtype)
    first = first.astype(np.int64)
    if mode == "linear":
        part = np.where(first >= n - 1, dtype(0), part) if n > 1 else np.zeros_like(part)
        indices, weights = [first, first + 1], [1 - part, part]
    else:
        indices, weights = [first - 1, first, first + 1, first + 2], _cubic_weights(part)
    return np.clip(np.stack(indices, 1), 0, n - 1), np.stack(weights, 1).astype(dtype)


def _positions(n, m, align, scale, dtype):
    """Returns the positions of the output elements in the input. The product and sum are rounded once, as by an fma."""
    step = np.float64(step_of(n, m, align, scale, dtype))
    index = np.arange(m, dtype=np.float64)
    return (step * index if align else step * (index + 0.5) - 0.5).astype(dtype)


def _cubic_weights(t, a=-0.75):
    """Keys' weights of the four neighbors of a point at distance `t` from the second."""
    weights = []
    for distance in (t + 1, t, 1 - t, 2 - t):
        weights.append(_cubic(distance, a))
    return weights


def _cubic(x, a):
    x = abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _triangle(x):
    return np.maximum(1 - abs(x), 0)


def _lanczos(x):
    return np.where(abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


FILTERS = {"linear-aa": (1, _triangle), "cubic-aa": (2, lambda x: _cubic(x, -0.5)), "lanczos-aa": (3, _lanczos)}


def _filtered(mode, n, m, align, scale, dtype):
    """Returns neighbors for a filter as wide as the step, so that every input counts; weights sum to one.

    Rows are padded with their last neighbor and weight zero.
    """
    reach, weight_at = FILTERS[mode]
    step = step_of(n, m, align, scale, dtype)
    support = dtype(reach) * step if step >= 1 else dtype(reach)
    center = step * (np.arange(m, dtype=dtype) + dtype(0.5))
    first = np.maximum((center - support + dtype(0.5)).astype(np.int64), 0)
    last = np.minimum((center + support + dtype(0.5)).astype(np.int64), n)
    count = np.maximum(last - first, 1)
    tap = np.arange(int(count.max()))
    indices = np.minimum(first[:, None] + tap, (first + count - 1)[:, None])
    distance = first[:, None] + tap - center[:, None] + dtype(0.5)
    weights = weight_at((distance * (1 / step if step >= 1 else dtype(1))).astype(dtype)).astype(dtype)
    weights[tap >= count[:, None]] = 0
    total = weights.sum(1, keepdims=True)
    return np.minimum(indices, n - 1), weights / np.where(total == 0, dtype(1), total)


@lru_cache(maxsize=256)
def _bands(mode, n, m, align, scale, dtype, transposed, block):
    """Splits the matrix of `neighbours` (or its transpose) into dense blocks.

    Returns `(rows, columns, block, its transpose)`.

    Cached, since the next step of a training loop, or the next image, needs the same.
    """
    indices, weights = neighbours(mode, n, m, align, scale, np.dtype(dtype).type)
    rows = np.broadcast_to(np.arange(m)[:, None], indices.shape)
    if transposed:
        rows, indices = indices, rows
    rows, indices, weights = rows.reshape(-1), indices.reshape(-1), weights.reshape(-1)
    order = np.argsort(rows, kind="stable")
    rows, indices, weights = rows[order], indices[order], weights[order]
    total = n if transposed else m
    bands = []
    for first in range(0, total, block):
        last = min(first + block, total)
        here = slice(*np.searchsorted(rows, (first, last)))
        low, high = (int(indices[here].min()), int(indices[here].max()) + 1) if here.stop > here.start else (0, 0)
        dense = np.zeros((last - first, high - low), dtype)
        np.add.at(dense, (rows[here] - first, indices[here] - low), weights[here])
        bands.append((slice(first, last), slice(low, high), dense, np.ascontiguousarray(dense.T)))
    return bands


# --- the products --------------------------------------------------------------------------------------------------


def interpolate(xp, x, mode, size, align, scales):
    """Resizes `x` (N, C, *S) to (N, C, *size).

    `mode` is "nearest", "nearest-exact", "linear", "cubic", or "linear-aa", "cubic-aa", "lanczos-aa" for filters that
    are widened where the image shrinks. `align`: the centers of the outermost elements keep their positions, instead
    of their outer edges. `scales`: None, or a factor (or None) for each dimension, used for the positions.

    >>> import numpy as np
    >>> interpolate(np, np.array([[[0.0, 4.0]]]), "linear", (4,), False, None).tolist()
    [[[0.0, 1.0, 3.0, 4.0]]]
    """
    mode = _variant(mode, size)
    # The channels of a point lie together: they stay so, and each step moves whole points.
    turned = x.transpose(0, *range(2, x.ndim), 1)
    last = not x.flags.c_contiguous and turned.flags.c_contiguous
    x, first = (turned, 1) if last else (x, 2)
    if mode.startswith("nearest"):
        out = _nearest(xp, x, mode, size, scales, first)
    elif x.dtype == np.uint8:
        out = _whole_numbers(xp, x, mode, size, align, scales, first)
    else:
        out = _product(xp, x, mode, x.shape[first : first + len(size)], size, align, scales, False, first)
    return out.transpose(0, x.ndim - 1, *range(1, x.ndim - 1)) if last else out


def interpolate_grad(xp, g, shape, mode, align, scales):
    """The transpose of `interpolate`: `g` (N, C, *size) to `shape` (N, C, *S).

    >>> import numpy as np
    >>> interpolate_grad(np, np.ones((1, 1, 4)), (1, 1, 2), "nearest", False, None).tolist()
    [[[2.0, 2.0]]]
    """
    mode = _variant(mode, g.shape[2:])
    if mode.startswith("nearest") and g.size:
        return _nearest_grad(xp, g, mode, shape[2:], scales)
    return _product(xp, g, mode, shape[2:], g.shape[2:], align, scales, True)


def _variant(mode, size):
    """PyTorch treats small images differently: if one doubles in size, any scale counts as 2."""
    return "nearest-halved" if mode == "nearest" and len(size) == 2 and sum(size) <= 128 else mode


def _product(xp, x, mode, size, new_size, align, scales, transposed, first=2):
    wide = widen(xp, x)
    if not wide.size:
        made = size if transposed else new_size
        return xp.zeros((*x.shape[:first], *made, *x.shape[first + len(made) :]), x.dtype)
    # A block contains zeros as well, and 0 · inf is nan: then every row becomes its own block of neighbors.
    with np.errstate(all="ignore"):
        finite = bool(xp.isfinite(wide.sum()))
        for axis in _by_growth(size, new_size, transposed):
            n, m = size[axis], new_size[axis]
            scale = None if scales is None or align else scales[axis]
            block = (2 if m >= 2 * n and not transposed else 1) * BLOCK if finite else 1
            bands = _bands(mode, n, m, align, scale, wide.dtype.str, transposed, block)
            wide = _multiply(xp, wide, bands, axis + first, n if transposed else m)
    return wide.astype(x.dtype, copy=False)


def _by_growth(size, new_size, transposed):
    """Orders the dimensions: those that shrink the array most first; among equals, contiguous rows first."""
    growth = [n / m if transposed else m / n for n, m in zip(size, new_size)]
    return sorted(range(len(size)), key=lambda axis: (growth[axis], -axis))


def _multiply(xp, x, bands, axis, size):
    """Multiplies `x` by a banded matrix along one axis."""
    out = xp.empty((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    inner = prod(x.shape[axis + 1 :])
    if inner == 1:
        source, target = x.reshape(-1, x.shape[axis]), out.reshape(-1, size)
        for rows, columns, _, turned in bands:
            xp.matmul(source[:, columns], xp.asarray(turned), out=target[:, rows])
    else:
        source, target = x.reshape(-1, x.shape[axis], inner), out.reshape(-1, size, inner)
        for rows, columns, dense, _ in bands:
            xp.matmul(xp.asarray(dense), source[:, columns], out=target[:, rows])
    return out


@lru_cache(maxsize=256)
def _nearest_index(mode, n, m, scale, dtype):
    """Returns the input of each of `m` outputs; how often each occurs (0 if not all alike); whether none repeats."""
    index = neighbours(mode, n, m, False, scale, np.dtype(dtype).type)[0][:, 0]
    times = m // n if m % n == 0 and (index == np.arange(m) // (m // n)).all() else 0
    return index, times, bool((np.diff(index) > 0).all())


@lru_cache(maxsize=8)
def _nearest_points(mode, images, old, size, scales, dtype):
    """Returns the index of the input point that each point of the result is, both counted through all images."""
    points = np.arange(images)
    for axis, (n, m) in enumerate(zip(old, size, strict=True)):
        index, _, _ = _nearest_index(mode, n, m, None if scales is None else scales[axis], dtype)
        points = points[..., None] * n + index
    return points.reshape(-1)


def _nearest(xp, x, mode, size, scales, first):
    dtype = "<f8" if x.dtype == np.float64 else "<f4"
    if first == 1 and len(size) > 1 and x.size and x.shape[-1] * x.dtype.itemsize >= _WIDE_POINT:
        points = _nearest_points(mode, x.shape[0], x.shape[1:-1], tuple(size), scales and tuple(scales), dtype)
        source, shape = x.reshape(-1, x.shape[-1]), (x.shape[0], *size, x.shape[-1])
        if xp is not np:
            return xp.take(source, xp.asarray(points), 0).reshape(shape)
        out = run_compiled("embedding", prod(shape), source, points, None, False)  # it looks up rows, as here
        if out is NotImplemented:
            out = fresh(prod(shape), x.dtype).reshape(-1, x.shape[-1])
            np.take(source, points, 0, out, "clip")  # all are inside: "clip" needs no other buffer
        return out.reshape(shape)
    out = x
    for axis in _by_growth(x.shape[first : first + len(size)], size, False):
        scale = None if scales is None else scales[axis]
        index, times, _ = _nearest_index(mode, x.shape[axis + first], size[axis], scale, dtype)
        if times != 1:
            out = xp.take(out, xp.asarray(index), axis + first)
    return out.copy() if out is x else out


def _nearest_grad(xp, g, mode, size, scales):
    wide = widen(xp, g)
    for axis in _by_growth(size, g.shape[2:], True):
        n, m, scale = size[axis], g.shape[axis + 2], None if scales is None else scales[axis]
        index, times, once = _nearest_index(mode, n, m, scale, wide.dtype.str)
        lead, inner = wide.shape[: axis + 2], wide.shape[axis + 3 :]
        if times:
            parts = wide.reshape(*lead, n, times, *inner)
            before = (slice(None),) * (axis + 3)
            wide = parts[(*before, 0)].copy()
            for k in range(1, times):
                wide += parts[(*before, k)]
        elif once:  # some inputs were left out
            total = xp.zeros((*lead, n, *inner), wide.dtype)
            total[(*(slice(None),) * (axis + 2), xp.asarray(index))] = wide
            wide = total
        else:
            block = BLOCK if xp.isfinite(wide.sum()) else 1
            bands = _bands(mode, n, m, False, scale, wide.dtype.str, True, block)
            wide = _multiply(xp, wide, bands, axis + 2, n)
    return wide.astype(g.dtype, copy=False)


def _whole_numbers(xp, x, mode, size, align, scales, first):
    """uint8: weights are rounded to 16-bit integers, and each dimension's result to uint8."""
    for axis in range(len(size) - 1, -1, -1):
        n, m = x.shape[axis + first], size[axis]
        if n == m:
            continue
        bands, half, shift = _integer_bands(mode, n, m, align, None if scales is None or align else scales[axis])
        sums = _multiply(xp, x.astype(np.float64), bands, axis + first, m)  # exact: all is below 2**31
        x = xp.clip(xp.floor((sums + half) * shift), 0, 255).astype(np.uint8)
    return x.copy()


@lru_cache(maxsize=64)
def _integer_bands(mode, n, m, align, scale):
    """Returns the bands with integer weights, where 2^bits stands for 1: `(bands, 2^bits / 2, 2^-bits)`."""
    bands = _bands(mode, n, m, align, scale, "<f8", False, BLOCK)
    largest = max(float(dense.max()) for _, _, dense, _ in bands)
    bits = 0
    while bits < 22 and int(0.5 + largest * 2 ** (bits + 1)) < 2**15:
        bits += 1
    whole = []
    for rows, columns, dense, _ in bands:
        rounded = np.trunc(dense * 2.0**bits + np.where(dense < 0, -0.5, 0.5))
        whole.append((rows, columns, rounded, np.ascontiguousarray(rounded.T)))
    return whole, 2.0 ** (bits - 1), 2.0**-bits
