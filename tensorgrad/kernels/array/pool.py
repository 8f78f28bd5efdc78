"""Pooling on plain arrays, in one implementation for one, two and three spatial dimensions.

`x` is (N, C, *S) and `kernel`, `stride`, `padding` and `dilation` hold one int per spatial dimension.

There is no loop over windows: a loop over the *taps* (the positions within a window) handles that tap of all windows in
one array operation, and reads the input through a slice. Padding is never built: a tap that falls outside for some
windows skips them. The work is done in blocks of a few image planes that stay in the processor's cache.

An average is a sum along one dimension after the other (k + k taps instead of k * k). A maximum keeps its index in the
image: windows with equal maxima take the first index, and a nan wins over everything, with the last nan's index, as in
PyTorch.
"""

from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from tensorgrad.rows.kernel_tables import run_kernel

from .conv import widen

BLOCK_BYTES = 512 << 10  # measured: input planes of this size, with their results, fit a 1 MiB second-level cache
PIECE = 1 << 16  # gradients that are written at a time
MANY_TAPS = 16  # from here on, windows that tile the image are searched with argmax


def max_pool(xp, x, kernel, stride, padding, dilation, ceil_mode, with_indices=True):
    """Returns the maximum of each window and its index: `(values, indices)`, both (N, C, *P).

    `indices` are int64 and flat within an image plane, as from PyTorch's `return_indices=True`; empty unless
    `with_indices` is true.

    >>> import numpy as np
    >>> max_pool(np, np.array([[[3.0, 5.0, 2.0, 4.0]]]), (2,), (2,), (0,), (1,), False)
    (array([[[5., 4.]]]), array([[[1, 3]]]))
    """
    dims = len(kernel)
    size = x.shape[-dims:]
    shape = pool_shape(x.shape, kernel, stride, padding, dilation, ceil_mode)
    points = shape[-dims:]
    planes = widen(xp, x).reshape(-1, *size)
    values = xp.empty((len(planes), *points), planes.dtype)
    indices = xp.empty(values.shape if with_indices else (0,), xp.int64)
    with np.errstate(all="ignore"):
        tiles = tuple(kernel) == tuple(stride) and all(n >= m * k for n, m, k in zip(size, points, kernel))
        if tiles and prod(kernel) >= MANY_TAPS and values.size and not any(padding) and max(dilation) == 1:
            return _max_of_tiles(xp, x, planes, kernel, shape)
        taps, table, corner = _geometry(size, points, *map(tuple, (kernel, stride, padding, dilation)))
        table, corner = xp.asarray(table), xp.asarray(corner)
        # Overlapping windows read everything several times: then it pays to copy the planes interleaved, so that one
        # tap of all planes is contiguous. Work arrays have the same axes, (plane, *S), in any memory order.
        interleave = any(d * (k - 1) + 1 > s for k, s, d in zip(kernel, stride, dilation))
        for first, last in _blocks(planes):
            block, best = planes[first:last], values[first:last]
            if interleave:
                block, best = _interleaved(xp, block.shape, x=block), _interleaved(xp, best.shape, dtype=best.dtype)
            _max_over_taps(xp, block, best, taps)
            values[first:last] = best
            if with_indices:
                indices[first:last] = xp.take(table, _taps_of_maxima(xp, block, best, taps, prod(kernel)))
                indices[first:last] += corner
    if with_indices and any(
        d > 1 for d in dilation
    ):  # all taps of a window may miss the input; its index must be valid
        xp.clip(indices, 0, prod(size) - 1, out=indices)
    return values.reshape(shape).astype(x.dtype, copy=False), indices.reshape(shape) if with_indices else indices


def max_pool_values(xp, x, kernel, stride, padding, dilation, ceil_mode):
    """Returns the maximum of each window, without its index.

    >>> import numpy as np
    >>> max_pool_values(np, np.array([[[3.0, 5.0, 2.0, 4.0]]]), (2,), (2,), (0,), (1,), False)
    array([[[5., 4.]]])
    """
    return max_pool(xp, x, kernel, stride, padding, dilation, ceil_mode, with_indices=False)[0]


def max_pool_grad(xp, g, indices, x_shape, windows=None):
    """Computes the gradient of a max pooling for its input of `x_shape`: `g` (N, C, *P) added up at `indices`.

    `windows` is `(kernel, stride, padding, dilation)`; if it shows that windows do not overlap, no two gradients
    share an element and they are just written. None (adaptive pooling) assumes that they may. `indices` may also be
    numbers of taps, as `indices_of` takes them.

    >>> import numpy as np
    >>> max_pool_grad(np, np.array([[[1.0, 2.0]]]), np.array([[[1, 1]]]), (1, 1, 3)).tolist()
    [[[0.0, 3.0, 0.0]]]
    """
    total = xp.zeros(x_shape, widen(xp, g[..., :0]).dtype)
    if indices.dtype == xp.uint8:
        indices = indices_of(xp, indices, x_shape, windows)
    if windows is not None and all(d * (k - 1) + 1 <= s for k, s, _, d in zip(*windows)):
        planes, slopes = prod(x_shape[:2]), g.reshape(-1)
        at = indices.reshape(planes, prod(indices.shape[2:]))
        step = max(1, PIECE // max(at.shape[1], 1))
        for first in range(0, planes, step):  # in pieces, so that the indices stay in the cache
            begin, some = first * at.shape[1], at[first : first + step]
            positions = (some + (xp.arange(len(some)) * prod(x_shape[2:]))[:, None]).reshape(-1)
            total.reshape(-1)[first * prod(x_shape[2:]) :][positions] = slopes[begin : begin + positions.size]
    else:
        positions = _flat_places(xp, indices, prod(x_shape[2:])).reshape(-1)
        xp.add.at(total.reshape(-1), positions, g.reshape(-1).astype(total.dtype, copy=False))  # as fast as bincount
    return total.astype(g.dtype, copy=False)


def indices_of(xp, places, x_shape, windows):
    """Returns the indices in an image plane of `x_shape` for `places` (N, C, *P): the number of a tap of each window.

    Numbers count the taps of a window row by row, and are of type uint8.

    >>> import numpy as np
    >>> places = np.array([[[1, 0]]], np.uint8)
    >>> indices_of(np, places, (1, 1, 4), ((2,), (2,), (0,), (1,))).tolist()
    [[[1, 2]]]
    """
    size, points = tuple(x_shape[2:]), places.shape[2:]
    _, table, corner = _geometry(size, points, *map(tuple, windows))
    return xp.asarray(table)[places] + xp.asarray(corner)


def max_pool_of_batch_backward(xp, g, indices, input_shape, kernel_size, stride, padding, dilation, size, mapped):
    """The gradient of the max pooling of the images of all samples (vmap)."""
    if mapped != {"g", "indices"} or not size or not g.flags.c_contiguous or not indices.flags.c_contiguous:
        return NotImplemented
    count, shape = g.shape[1], (size * input_shape[0], *input_shape[1:])
    g, indices = (a.reshape(size * count, *a.shape[2:]) for a in (g, indices))
    made = run_kernel("max_pool_grad", g, indices, shape, (kernel_size, stride, padding, dilation))
    return made.reshape(size, *input_shape)


def max_pool_gather(xp, gg, indices):
    """Returns the elements of `gg` (N, C, *S) at `indices` (N, C, *P): the derivative of `max_pool_grad`.

    >>> import numpy as np
    >>> max_pool_gather(np, np.array([[[7.0, 8.0, 9.0]]]), np.array([[[1, 1]]])).tolist()
    [[[8.0, 8.0]]]
    """
    return xp.take(gg.reshape(-1), _flat_places(xp, indices, prod(gg.shape[2:]))).reshape(indices.shape)


def avg_pool(xp, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Computes the mean of each window, (N, C, *P).

    The divisor is the number of elements in the window, including those in the padding unless `count_include_pad` is
    false, or `divisor_override` if that is not None.

    >>> import numpy as np
    >>> avg_pool(np, np.array([[[1.0, 3.0, 2.0, 4.0]]]), (2,), (2,), (0,), False, True, None).tolist()
    [[[2.0, 3.0]]]
    """
    dims = len(kernel)
    size = x.shape[-dims:]
    shape = pool_shape(x.shape, kernel, stride, padding, (1,) * dims, ceil_mode)
    points = shape[-dims:]
    planes = widen(xp, x).reshape(-1, *size)
    out = xp.empty((len(planes), *points), planes.dtype)
    divisor = _divisor(xp, size, points, kernel, stride, padding, count_include_pad, divisor_override, out.dtype)
    whole = tuple(kernel) == size and not any(padding)
    with np.errstate(all="ignore"):
        if whole and planes.dtype.kind == "f":  # a product with ones is a sum, and BLAS computes it fastest
            xp.divide(planes.reshape(-1, prod(size)) @ xp.ones(prod(size), planes.dtype), divisor, out=out.reshape(-1))
            return out.reshape(shape).astype(x.dtype, copy=False)
        for first, last in _blocks(planes):
            block = planes[first:last]
            for axis in range(dims):  # rows first: they are contiguous, and the rest is smaller
                block = _sum_windows(xp, block, axis, points[axis], kernel[axis], stride[axis], padding[axis])
            _divide(xp, block, divisor, out[first:last])
    return out.reshape(shape).astype(x.dtype, copy=False)


def avg_pool_grad(xp, g, x_shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Computes the gradient of `avg_pool` for its input: every element gets its windows' `g / divisor`.

    >>> import numpy as np
    >>> avg_pool_grad(np, np.array([[[2.0, 4.0]]]), (1, 1, 4), (2,), (2,), (0,), False, True, None).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    dims = len(kernel)
    size, points = tuple(x_shape[-dims:]), g.shape[-dims:]
    grads = widen(xp, g).reshape(-1, *points)
    out = xp.empty((len(grads), *size), grads.dtype)
    divisor = _divisor(xp, size, points, kernel, stride, padding, count_include_pad, divisor_override, out.dtype)
    with np.errstate(all="ignore"):
        if tuple(kernel) == size and not any(padding):
            block = xp.empty_like(grads)
            _divide(xp, grads, divisor, block)
            out[...] = block
            return out.reshape(x_shape).astype(g.dtype, copy=False)
        for first, last in _blocks(out):
            block = xp.empty_like(grads[first:last])
            _divide(xp, grads[first:last], divisor, block)
            for axis in reversed(range(dims)):
                target = out[first:last] if axis == 0 else None
                block = _spread_windows(xp, block, axis, size[axis], kernel[axis], stride[axis], padding[axis], target)
    return out.reshape(x_shape).astype(g.dtype, copy=False)


def adaptive_avg_pool(xp, x, output_size):
    """The means of `output_size` windows that cover `x` (N, C, *S) evenly.

    Window i goes from floor(i * S / P) to ceil((i + 1) * S / P).

    >>> import numpy as np
    >>> adaptive_avg_pool(np, np.array([[[1.0, 3.0, 2.0]]]), (2,)).tolist()
    [[[2.0, 2.5]]]
    """
    dims = len(output_size)
    size = x.shape[-dims:]
    kernel = _even_kernel(size, output_size)
    if kernel:
        return avg_pool(xp, x, kernel, kernel, (0,) * dims, False, True, None)
    total = widen(xp, x)
    with np.errstate(all="ignore"):
        for axis in range(-dims, 0):
            part = xp.empty((*total.shape[:axis], output_size[axis], *total.shape[axis:][1:]), total.dtype)
            for i, (start, stop) in enumerate(_spans(size[axis], output_size[axis])):
                xp.divide(_along(total, axis, start, stop).sum(axis), stop - start, out=part[_index(axis, i)])
            total = part
    return total.astype(x.dtype, copy=False)


def adaptive_avg_pool_grad(xp, g, x_shape):
    """Computes the gradient of `adaptive_avg_pool` for its input, of shape `x_shape`.

    >>> import numpy as np
    >>> adaptive_avg_pool_grad(np, np.array([[[2.0, 4.0]]]), (1, 1, 3)).tolist()
    [[[1.0, 3.0, 2.0]]]
    """
    dims = len(x_shape) - 2
    size, points = x_shape[2:], g.shape[2:]
    kernel = _even_kernel(size, points)
    if kernel:
        return avg_pool_grad(xp, g, x_shape, kernel, kernel, (0,) * dims, False, True, None)
    total = widen(xp, g)
    with np.errstate(all="ignore"):
        for axis in range(-dims, 0):
            part = xp.zeros((*total.shape[:axis], size[axis], *total.shape[axis:][1:]), total.dtype)
            for i, (start, stop) in enumerate(_spans(size[axis], points[axis])):
                place = _along(part, axis, start, stop)
                place += xp.expand_dims(total[_index(axis, i)], axis) / (stop - start)
            total = part
    return total.astype(g.dtype, copy=False)


def adaptive_max_pool(xp, x, output_size):
    """Returns the maxima of `output_size` even windows (see `adaptive_avg_pool`): `(values, indices)`.

    >>> import numpy as np
    >>> adaptive_max_pool(np, np.array([[[1.0, 3.0, 2.0]]]), (2,))
    (array([[[3., 3.]]]), array([[[1, 1]]]))
    """
    dims = len(output_size)
    size = x.shape[-dims:]
    kernel = _even_kernel(size, output_size)
    if kernel:
        return max_pool(xp, x, kernel, kernel, (0,) * dims, (1,) * dims, False)
    shape = (*x.shape[:-dims], *output_size)
    values, indices = xp.empty(shape, x.dtype), xp.empty(shape, xp.int64)
    plane = xp.arange(prod(size)).reshape(size)
    cells = product(*[enumerate(_spans(n, m)) for n, m in zip(size, output_size)])
    for cell in cells if values.size else ():  # windows of several sizes: one after the other
        window = (..., *[slice(*span) for _, span in cell])
        place = (..., *[i for i, _ in cell])
        values[place], found = _last_nan_argmax(xp, x[window].reshape(*shape[:-dims], -1))
        indices[place] = xp.take(plane[window].reshape(-1), found)
    return values, indices


# The parts


def _max_over_taps(xp, block, best, taps):
    """Writes each window's maximum to `best` (*n*, *P)."""
    best.fill(xp.iinfo(block.dtype).min if block.dtype.kind in "iu" else -xp.inf)
    for _, there, here in taps:
        view = best[there]
        xp.maximum(view, block[here], out=view)


def _taps_of_maxima(xp, block, best, taps, count):
    """Returns the number of the tap where each window's maximum `best` first occurs."""
    # Count the taps before the first that equals the maximum: cheaper than carrying indices along.
    narrow = xp.uint8 if count < 256 else xp.int32
    code, missing = xp.zeros_like(best, dtype=narrow), xp.ones_like(best, dtype=bool)  # in best's memory order
    done = 0
    for number, there, here in taps:
        if number > done:  # taps that are outside for all windows
            code += missing.view(xp.uint8) * narrow(number - done)
        view = missing[there]
        xp.logical_and(view, best[there] != block[here], out=view)
        if number + 1 < count:
            xp.add(code, missing.view(xp.uint8), out=code)
        done = number + 1
    if block.dtype.kind == "f":
        lost = best != best
        if lost.any():  # nan equals nothing: take the last nan of the window
            for number, there, here in taps:
                element = block[here]
                code[there][element != element] = number
    return code


def _max_of_tiles(xp, x, planes, kernel, shape):
    """`max_pool` for large adjacent windows: one row per window, then argmax."""
    dims = len(kernel)
    points, size = shape[-dims:], planes.shape[1:]
    split = planes[(slice(None), *[slice(0, n * k) for n, k in zip(points, kernel)])]
    split = split.reshape(len(planes), *[n for pair in zip(points, kernel) for n in pair])
    split = split.transpose(0, *range(1, 2 * dims, 2), *range(2, 2 * dims + 1, 2))
    values, found = _last_nan_argmax(xp, split.reshape(*split.shape[: dims + 1], -1))
    _, table, corner = _geometry(size, points, tuple(kernel), tuple(kernel), (0,) * dims, (1,) * dims)
    indices = xp.take(xp.asarray(table), found)
    indices += xp.asarray(corner)
    return values.reshape(shape).astype(x.dtype, copy=False), indices.reshape(shape)


def _last_nan_argmax(xp, rows):
    """Returns the maxima along the last axis and the first index of each, or the last nan and its index."""
    found = rows.argmax(-1)
    values = xp.take_along_axis(rows, found[..., None], -1)[..., 0]
    lost = values != values
    if lost.any():
        bad = rows[lost]
        found[lost] = rows.shape[-1] - 1 - (bad != bad)[..., ::-1].argmax(-1)
    return values, found


@lru_cache(maxsize=64)
def _geometry(size, points, kernel, stride, padding, dilation):
    """Returns the positions of the taps: `(taps, table, corner)`; cached, since layers see the same shapes again.

    `taps`: `(number, windows, elements)` of each tap that meets the input, slices into the output and the input.
    Element `table[number] + corner[window]` of the flat image plane is under a tap.
    """
    axes = []
    for n, m, k, s, p, d in zip(size, points, kernel, stride, padding, dilation):
        axes.append([_reach(n, m, tap * d - p, s) for tap in range(k)])
    taps = []
    for number, reach in enumerate(product(*axes)):
        if all(first < last for first, last, _ in reach):
            there = tuple(slice(first, last) for first, last, _ in reach)
            here = tuple(slice(b, b + (last - f - 1) * s + 1, s) for (f, last, b), s in zip(reach, stride))
            taps.append((number, (slice(None), *there), (slice(None), *here)))
    pitch = [prod(size[axis + 1 :]) for axis in range(len(size))]
    table = _outer_sum([np.arange(k) * (d * t) for k, d, t in zip(kernel, dilation, pitch)]).reshape(-1)
    corner = _outer_sum([(np.arange(n) * s - p) * t for n, s, p, t in zip(points, stride, padding, pitch)])
    return taps, np.append(table, 0), corner  # the last entry is for windows that miss the input


def _reach(size, points, shift, stride):
    """Returns the windows first..last with `window * stride + shift` in the input, and the first such element."""
    first = max(0, -(shift // stride))
    last = min(points, (size - 1 - shift) // stride + 1)
    return first, last, first * stride + shift


def _sum_windows(xp, block, axis, points, kernel, stride, padding):
    """Sum along one spatial axis of (plane, *S) over windows."""
    axis += 1
    out = xp.zeros((*block.shape[:axis], points, *block.shape[axis + 1 :]), block.dtype)
    for tap in range(kernel):
        first, last, begin = _reach(block.shape[axis], points, tap - padding, stride)
        if first < last:
            place = _along(out, axis, first, last)
            xp.add(place, _along(block, axis, begin, begin + (last - first - 1) * stride + 1, stride), out=place)
    return out


def _spread_windows(xp, block, axis, size, kernel, stride, padding, out):
    """The transpose of `_sum_windows`: adds every window's number to all its elements."""
    axis += 1
    points = block.shape[axis]
    if out is None:
        out = xp.empty((*block.shape[:axis], size, *block.shape[axis + 1 :]), block.dtype)
    out.fill(0)
    for tap in range(kernel):
        first, last, begin = _reach(size, points, tap - padding, stride)
        if first < last:
            place = _along(out, axis, begin, begin + (last - first - 1) * stride + 1, stride)
            xp.add(place, _along(block, axis, first, last), out=place)
    return out


def _divisor(xp, size, points, kernel, stride, padding, count_include_pad, divisor_override, dtype):
    """Returns the divisor of the windows' sums: one number if it is the same for all, else an array over windows."""
    if divisor_override is not None:
        return divisor_override
    axes = []
    for n, m, k, s, p in zip(size, points, kernel, stride, padding):
        starts = [window * s - p for window in range(m)]
        stops = [min(start + k, n + p) for start in starts]
        if not count_include_pad:
            starts, stops = [max(start, 0) for start in starts], [min(stop, n) for stop in stops]
        axes.append([stop - start for start, stop in zip(starts, stops)])
    if all(len(set(axis)) == 1 for axis in axes):
        return prod(axis[0] for axis in axes)
    total = xp.asarray(1, dtype=dtype)
    for axis in axes:
        total = total[..., None] * xp.asarray(axis, dtype=dtype)
    return total


def _divide(xp, block, divisor, out):
    if out.dtype.kind in "iu":  # C's division: towards zero
        quotient = abs(block) // abs(divisor)
        out[...] = xp.where((block < 0) == (xp.asarray(divisor) < 0), quotient, -quotient)
    else:
        xp.divide(block, divisor, out=out)


def _blocks(planes):
    """Returns `(first, last)` ranges of planes, each about BLOCK_BYTES of input."""
    step = max(1, BLOCK_BYTES // max(1, prod(planes.shape[1:]) * planes.dtype.itemsize))
    for first in range(0, len(planes), step):
        yield first, min(first + step, len(planes))


def _interleaved(xp, shape, dtype=None, x=None):
    """Makes an array with axes (plane, *S) and memory order (*S, plane): empty, or a copy of `x`."""
    out = xp.moveaxis(xp.empty((*shape[1:], shape[0]), x.dtype if dtype is None else dtype), -1, 0)
    if x is not None:
        out[...] = x
    return out


def _flat_places(xp, indices, plane):
    planes = prod(indices.shape[:2])
    return indices.reshape(planes, prod(indices.shape[2:])) + (xp.arange(planes) * plane)[:, None]


def _outer_sum(vectors):
    total = vectors[0]
    for vector in vectors[1:]:
        total = total[..., None] + vector
    return total


def _along(array, axis, start, stop, step=1):
    return array[_index(axis, slice(start, stop, step))]


def _index(axis, item):
    """Returns the index that applies `item` to one axis; negative axes count from the end."""
    return (..., item, *[slice(None)] * (-axis - 1)) if axis < 0 else (*[slice(None)] * axis, item)


def _even_kernel(size, output_size):
    """Returns the kernel that makes an adaptive pooling an ordinary one, or None."""
    if all(m and n and n % m == 0 for n, m in zip(size, output_size)):
        return tuple(n // m for n, m in zip(size, output_size))
    return None


def _spans(size, points):
    return [(i * size // points, -(-(i + 1) * size // points)) for i in range(points)]


# Shapes


def pool_shape(x_shape, kernel, stride, padding, dilation, ceil_mode):
    """The shape of a pooling's result for `x` of (N, C, *S) or (C, *S).

    With `ceil_mode` a last, incomplete window is kept unless it would start in the padding on the right.
    Raises: RuntimeError, with PyTorch's message, if the arguments do not fit together.

    >>> pool_shape((1, 8, 7, 7), (2, 2), (2, 2), (0, 0), (1, 1), True)
    (1, 8, 4, 4)
    """
    dims = len(kernel)
    size = tuple(x_shape[-dims:])
    if 0 in stride:
        raise RuntimeError("stride should not be zero")
    named = ((kernel, "kernel size", "k"), (stride, "stride", "d"), (dilation, "dilation", "dilation"))
    for values, what, letter in named:
        if any(v <= 0 for v in values):
            raise RuntimeError(f"{what} should be greater than zero, but got {_named(letter, values)}")
    for k, p, d in zip(kernel, padding, dilation):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > (d * (k - 1) + 1) // 2:
            raise RuntimeError(
                "pad should be at most half of effective kernel size, "
                f"but got pad={p}, kernel_size={k} and dilation={d}"
            )
    if any(p > k // 2 for k, p in zip(kernel, padding)):
        turned = [(*values[:-2], *values[:-3:-1]) for values in (kernel, padding)]  # PyTorch names the width first
        axes = ("W",) if dims == 1 else ("T", "W", "H")[-dims:]
        pads = [(f"pad{axis}", p) for axis, p in zip(axes, turned[1])]
        kernels = [(f"k{axis}", k) for axis, k in zip(axes, turned[0])]
        if dims == 3:
            words = " ".join(f"{name}: {value}" for name, value in kernels + pads)
        else:
            words = ", ".join(f"{name} = {value}" for name, value in pads + kernels)
        raise RuntimeError(f"pad should be smaller than or equal to half of kernel size, but got {words}")
    points = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation):
        point = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (point - 1) * s >= n + p:
            point -= 1
        points.append(point)
    if any(p < 1 for p in points):
        flat = (1,) if dims == 1 else ()  # PyTorch runs one dimension as two
        channels = x_shape[-dims - 1]
        raise RuntimeError(
            f"Given input size: ({'x'.join(map(str, (channels, *flat, *size)))}). "
            f"Calculated output size: ({'x'.join(map(str, (channels, *flat, *points)))}). Output size is too small"
        )
    return (*x_shape[:-dims], *points)


def _named(letter, values):
    """Formats `kH: 2 kW: 3` and the like; in one dimension PyTorch names a width."""
    return " ".join(f"{letter}{axis}: {v}" for axis, v in zip("THW"[-len(values) :], values))
