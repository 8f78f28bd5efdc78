"""Convolution on plain arrays, in one implementation for one, two and three spatial dimensions.

Everything is based on one matrix product. Each output point reads a window of the input; written out as columns of
`channels * taps` numbers, the windows of many points form a matrix, and

- the forward pass is `weights @ columns` (gather the windows, multiply),
- the gradient of the weights is `columns @ grad.T`,
- the gradient of the input is the forward pass's transpose: `weights.T @ grad`, whose rows are added back at the
  windows' positions (multiply, scatter). A transposed convolution is that same function.

The columns are up to `taps` times larger than the input, so they are made and used in pieces (a few small images, or
some rows of a large one): a piece stays in the processor's cache, where making it costs little.

Shapes: `x` is (N, C, *S), `w` is (O, C / groups, *K), the output is (N, O, *P); `stride`, `padding` and
`dilation` hold one int per spatial dimension. Complex gradients are plain transposes: the caller conjugates.

Source: Chellapilla, Puri, Simard, "High Performance Convolutional Neural Networks for Document Processing", 2006
(convolution as a matrix product); Dumoulin, Visin, "A guide to convolution arithmetic for deep learning", 2016.
"""

from itertools import product
from math import prod

import numpy as np

from tensorgrad.kernels.array import depthwise
from tensorgrad.rows.kernel_tables import run_kernel

# Measured: pieces of 1 to 4 MiB are equally fast; below 0.5 MiB the matrix products are too small to be efficient.
PIECE_BYTES = 1 << 20
# Deep inputs have long columns; with fewer of them than this, rereading the weights costs more than the cache saves.
PIECE_COLUMNS = 512


def conv(xp, x, w, bias, stride, padding, dilation, groups):
    """Convolves (cross-correlates, as in PyTorch) `x` with `w` and adds `bias`, an (O,) array or None.

    Returns a new contiguous (N, O, *P) array of `x`'s dtype.

    >>> import numpy as np
    >>> conv(np, np.arange(5.0).reshape(1, 1, 5), np.ones((1, 1, 3)), None, (1,), (0,), (1,), 1).tolist()
    [[[3.0, 6.0, 9.0]]]
    """
    dtype = x.dtype
    x, w = widen(xp, x), widen(xp, w)
    kernel, points = w.shape[2:], conv_points(x.shape[2:], w.shape[2:], stride, padding, dilation)
    batch, channels = x.shape[0], w.shape[0] if x.shape[1] else 0  # PyTorch: no channels in, none out
    out = xp.empty((batch, channels, *points), x.dtype)
    if out.size and depthwise.suits(xp, x.shape, w.shape, stride, groups):
        with np.errstate(all="ignore"):
            depthwise.conv(x, w, None if bias is None else widen(xp, bias), out, padding, dilation, groups)
    elif out.size:
        weights = w.reshape(groups, channels // groups, -1)
        flat = out.reshape(batch, groups, channels // groups, -1)
        shift = None if bias is None else widen(xp, bias).reshape(groups, -1, 1)
        with np.errstate(all="ignore"):
            for first, last, start, stop, columns in _columns(xp, x, kernel, points, stride, padding, dilation, groups):
                if last - first == 1:  # the product is written directly to the output
                    part = flat[first, :, :, start:stop]
                    xp.matmul(weights, columns, out=part)
                    if shift is not None:
                        part += shift
                else:
                    part = xp.matmul(weights, columns)
                    if shift is not None:
                        part += shift
                    part = part.reshape(*part.shape[:2], last - first, -1)
                    flat[first:last] = part.transpose(2, 0, 1, 3)
    return out.astype(dtype, copy=False)


def conv_grad_weight(xp, g, x, w_shape, stride, padding, dilation, groups):
    """The gradient of `conv` for its weights, from the output's gradient `g` (N, O, *P) and the input `x`.

    Returns an array of shape `w_shape` and of `g`'s dtype.

    >>> import numpy as np
    >>> x = np.arange(5.0).reshape(1, 1, 5)
    >>> conv_grad_weight(np, np.ones((1, 1, 3)), x, (1, 1, 3), (1,), (0,), (1,), 1).tolist()
    [[[3.0, 6.0, 9.0]]]
    """
    dtype = g.dtype
    g, x = widen(xp, g), widen(xp, x)
    batch, channels, kernel, points = g.shape[0], w_shape[0], tuple(w_shape[2:]), g.shape[2:]
    if g.size and prod(w_shape) and depthwise.suits(xp, x.shape, w_shape, stride, groups):
        with np.errstate(all="ignore"):
            return depthwise.grad_weight(g, x, w_shape, padding, dilation, groups).astype(dtype, copy=False)
    # Kept transposed, (rows of the columns, O): in this order BLAS computes the long inner products faster.
    total = xp.zeros((groups, prod(w_shape[1:]), channels // groups), g.dtype)
    if g.size and total.size:
        flat = g.reshape(batch, groups, channels // groups, -1)
        with np.errstate(all="ignore"):
            for first, last, start, stop, columns in _columns(xp, x, kernel, points, stride, padding, dilation, groups):
                if last - first == 1:
                    part = flat[first, :, :, start:stop]
                else:
                    part = flat[first:last].transpose(1, 2, 0, 3).reshape(groups, channels // groups, -1)
                total += xp.matmul(columns, part.swapaxes(1, 2))
    return xp.ascontiguousarray(total.swapaxes(1, 2)).reshape(w_shape).astype(dtype, copy=False)


def conv_grad_input(xp, g, w, x_shape, stride, padding, dilation, groups):
    """The gradient of `conv` for its input, from the output's gradient `g` (N, O, *P) and the weights.

    Returns an array of shape `x_shape` and of `g`'s dtype.

    >>> import numpy as np
    >>> conv_grad_input(np, np.ones((1, 1, 3)), np.ones((1, 1, 3)), (1, 1, 5), (1,), (0,), (1,), 1).tolist()
    [[[1.0, 2.0, 3.0, 2.0, 1.0]]]
    """
    dtype = g.dtype
    g, w = widen(xp, g), widen(xp, w)
    if _worth_flipping(g.shape, w.shape, x_shape, stride, padding, dilation):
        # With stride 1 the transpose is a convolution, too: of the gradient with the mirrored weights.
        border = tuple(d * (k - 1) - p for k, p, d in zip(w.shape[2:], padding, dilation))
        mirrored = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)[(..., *[slice(None, None, -1)] * len(stride))]
        mirrored = xp.ascontiguousarray(mirrored).reshape(x_shape[1], -1, *w.shape[2:])  # BLAS cannot read mirrors
        return conv(xp, g, mirrored, None, stride, border, dilation, groups).astype(dtype, copy=False)
    out = xp.empty(x_shape, g.dtype)
    if not out.size or not g.size:
        out.fill(0)
    else:
        with np.errstate(all="ignore"):
            _scatter(xp, g, w, out, stride, padding, dilation, groups)
    return out.astype(dtype, copy=False)


def conv_transpose(xp, x, w, bias, stride, padding, output_padding, dilation, groups):
    """The transposed convolution of `x` (N, C, *S) with `w` (C, O / groups, *K) plus `bias`, (O,) or None.

    It is the gradient of a convolution that goes from O to C channels. Returns a new array of `x`'s dtype.

    >>> import numpy as np
    >>> conv_transpose(np, np.array([[[1.0, 2.0]]]), np.ones((1, 1, 2)), None, (2,), (0,), (0,), (1,), 1).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    size = transposed_conv_points(x.shape[2:], w.shape[2:], stride, padding, output_padding, dilation)
    shape = (x.shape[0], w.shape[1] * groups, *size)
    out = conv_grad_input(xp, widen(xp, x), w, shape, stride, padding, dilation, groups)
    if bias is not None:
        out += widen(xp, bias).reshape(-1, *[1] * len(size))
    return out.astype(x.dtype, copy=False)


def widen(xp, array):
    """Converts 16-bit floats to float32 for the computation, as in PyTorch; returns every other array unchanged."""
    dtype = array.dtype
    return array.astype(xp.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else array


# Gathering: input -> columns


def _columns(xp, x, kernel, points, stride, padding, dilation, groups):
    """Yields `(first, last, start, stop, columns)`: the windows of images first..last, output points start..stop.

    `columns` is (groups, C / groups * taps, images * points) and is overwritten by the next piece.
    """
    batch, channels, dims = x.shape[0], x.shape[1], len(kernel)
    depth = channels * prod(kernel)
    if (
        _plain_product(kernel, stride, padding, x.shape[2:], points) and prod(points) >= 128
    ):  # below that, one product of all images is faster
        for image in range(batch):  # the image itself is the matrix
            yield image, image + 1, 0, prod(points), x[image].reshape(groups, depth // groups, -1)
        return
    images, regions = _pieces(batch, points, depth * x.dtype.itemsize)
    inner = x
    if any(padding):  # one buffer for all: its border is zeroed once, its interior overwritten for each piece
        padded = xp.zeros((images, channels, *[s + 2 * p for s, p in zip(x.shape[2:], padding)]), x.dtype)
        inner = padded[(..., *[slice(p, p + s) for s, p in zip(x.shape[2:], padding)])]
        source = padded
    else:
        source = x
    steps = source.strides[2:]
    windows = _strided(
        xp,
        source,
        (channels, *kernel, source.shape[0], *points),
        (
            source.strides[1],
            *[t * d for t, d in zip(steps, dilation)],
            source.strides[0],
            *[t * s for t, s in zip(steps, stride)],
        ),
    )
    buffer = xp.empty(depth * images * max(stop - start for _, start, stop in regions), x.dtype)
    for first in range(0, batch, images):
        last = min(first + images, batch)
        if any(padding):
            inner[: last - first] = x[first:last]
            here = slice(0, last - first)
        else:
            here = slice(first, last)
        for region, start, stop in regions:
            view = windows[(slice(None),) * (1 + dims) + (here, *region)]
            columns = buffer[: view.size]
            columns.reshape(view.shape)[...] = view
            yield first, last, start, stop, columns.reshape(groups, depth // groups, -1)


def _pieces(batch, points, column_bytes):
    """Returns how many images make a piece, and the regions `(slices, start, stop)` of output points."""
    fitting = max(PIECE_BYTES // max(column_bytes, 1), PIECE_COLUMNS)
    images = fitting // prod(points)
    if images >= 1:
        images = _even(batch, images)
        return images, [((slice(None),) * len(points), 0, prod(points))]
    axis = 0  # the first dimension of which a single step fits
    while axis < len(points) - 1 and prod(points[axis + 1 :]) > fitting:
        axis += 1
    step = prod(points[axis + 1 :])
    rows = _even(points[axis], fitting // step)
    regions, start = [], 0
    for lead in product(*map(range, points[:axis])):
        for row in range(0, points[axis], rows):
            stop = start + (min(row + rows, points[axis]) - row) * step
            slices = (*[slice(i, i + 1) for i in lead], slice(row, row + rows))
            regions.append((slices + (slice(None),) * (len(points) - axis - 1), start, stop))
            start = stop
    return 1, regions


def _even(total, most):
    """The size of a part when `total` is split into the fewest nearly equal parts of at most `most`."""
    most = min(max(most, 1), total)
    return -(-total // -(-total // most))


def _strided(xp, array, shape, strides):
    if xp is np and array.flags.c_contiguous:
        return np.ndarray(shape, array.dtype, array, 0, strides)  # as_strided, without its 5 microseconds
    return xp.lib.stride_tricks.as_strided(array, shape, strides)


def _plain_product(kernel, stride, padding, size, points):
    """Returns whether each output point reads only the input point at its position.

    (A transposed convolution may have more output points.)
    """
    alone = all(k == 1 for k in kernel) and all(s == 1 for s in stride) and not any(padding)
    return alone and tuple(size) == tuple(points)


# Scattering: columns -> input


def _scatter(xp, g, w, out, stride, padding, dilation, groups):
    """Fills `out` (N, C, *S) with the windows' contributions `w.T @ g`, added up where windows overlap."""
    batch, channels, *size = out.shape
    inner, kernel, points = channels // groups, w.shape[2:], g.shape[2:]
    taps = prod(kernel)
    weights = w.reshape(groups, -1, inner, taps).transpose(0, 3, 2, 1).reshape(groups, taps * inner, -1)
    if _plain_product(kernel, stride, padding, size, points):
        target = out.reshape(batch, groups, inner, -1)
        xp.matmul(weights, g.reshape(batch, groups, -1, prod(points)), out=target)
        return
    full = tuple(s + 2 * p for s, p in zip(size, padding))
    offsets = list(product(*[range(0, k * d, d) for k, d in zip(kernel, dilation)]))
    flatten = _worth_flattening(points, full, stride)
    grid, extent, step = points, full, stride
    if flatten:
        # Extend the gradient's rows with zeros to the length of the padded input's: then a tap is a shift by one
        # number, and whole planes are added in one run instead of row by row.
        rows = (points[0], *full[1:])
        pitch = [prod(full[axis + 1 :]) for axis in range(len(full))]
        offsets = [(sum(o * t for o, t in zip(offset, pitch)),) for offset in offsets]
        grid, step = (prod(rows),), (1,)
        extent = (max(prod(full), offsets[-1][0] + grid[0]),)
    images, regions = _pieces(batch, grid, taps * channels * g.dtype.itemsize)
    total = xp.empty((groups, inner, images, *extent), g.dtype)
    image = total[..., : prod(full)] if flatten else total
    image = image.reshape(channels, images, *full)[(..., *[slice(p, p + s) for s, p in zip(size, padding)])]
    if flatten:
        spread = xp.zeros((g.shape[1], images, *rows), g.dtype)
        spread_inner = spread[(..., *[slice(0, p) for p in points])]
    for first in range(0, batch, images):
        last = min(first + images, batch)
        count = last - first
        source = g[first:last].swapaxes(0, 1)
        if flatten:
            spread_inner[:, :count] = source
            source = spread[:, :count]
        source = source.reshape(groups, -1, count * prod(grid))
        total.fill(0)
        for region, start, stop in regions:
            columns = xp.matmul(weights, source if len(regions) == 1 else source[:, :, start:stop])
            lengths = [len(range(*r.indices(n))) for r, n in zip(region, grid)]
            begins = [(r.start or 0) * s for r, s in zip(region, step)]
            columns = columns.reshape(groups, taps, inner, count, *lengths)
            _add_taps(xp, total[:, :, :count], columns, offsets, begins, step)
        out[first:last] = image[:, :count].swapaxes(0, 1)


def _add_taps(xp, total, columns, offsets, begins, step):
    """Adds `columns` (groups, taps, C / groups, images, *region) to `total` (groups, C / groups, images, *S)."""
    for tap, offset in enumerate(offsets):
        place = [
            slice(b + o, b + o + (n - 1) * s + 1, s) for b, o, n, s in zip(begins, offset, columns.shape[4:], step)
        ]
        view = total[(slice(None), slice(None), slice(None), *place)]
        xp.add(view, columns[:, tap], out=view)


def _worth_flipping(g_shape, w_shape, x_shape, stride, padding, dilation):
    """Gathering costs O * taps per input point, scattering C * taps per output point, each about 1.5 times as much."""
    if any(s != 1 for s in stride) or prod(w_shape[2:]) == 1 or 0 in g_shape or 0 in x_shape:
        return False
    fits = all(
        p <= d * (k - 1) and n + 2 * (d * (k - 1) - p) - d * (k - 1) == m
        for n, m, k, p, d in zip(g_shape[2:], x_shape[2:], w_shape[2:], padding, dilation)
    )
    return fits and g_shape[1] * prod(x_shape[2:]) <= 1.5 * x_shape[1] * prod(g_shape[2:])


def _worth_flattening(points, full, stride):
    """Short rows are slow to add one by one; the zeros that join them cost multiplications."""
    if len(points) == 1 or any(s != 1 for s in stride):
        return False
    return prod(full[1:]) <= 1.3 * prod(points[1:])


def conv_points(size, kernel, stride, padding, dilation):
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, kernel, stride, padding, dilation)
    )


def transposed_conv_points(size, kernel, stride, padding, output_padding, dilation):
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for n, k, s, p, extra, d in zip(size, kernel, stride, padding, output_padding, dilation)
    )


# --- the samples of a batch (vmap) -----------------------------------------------------------------------------------


def _plain(*arrays):
    """Whether arrays are floating-point numbers row by row: other memory orders are to be kept in the result."""
    return all([a is None or (a.dtype.char in "fd" and a.flags.c_contiguous) for a in arrays])


def conv_of_batch(xp, whole, input, weight, bias, stride, padding, dilation, groups, size, mapped):
    """The convolution of the images of all samples, if they have the weights in common."""
    if mapped != {"input"} or not size or not _plain(input, weight):
        return NotImplemented
    images = input.reshape(input.shape[0] * input.shape[1], *input.shape[2:])
    made = whole(images, weight, bias, stride, padding, dilation, groups)
    return made.reshape(size, input.shape[1], *made.shape[1:])


def conv_of_batch_backward(
    xp, g, input, weight, input_shape, weight_shape, bias_shape, stride, padding, dilation, groups, size, mapped, needs
):
    """The gradients of `conv_of_batch`: in that of the weights, each sample is a group of channels of its own."""
    if "g" not in mapped or "weight" in mapped or not size or not _plain(g, input, weight):
        return NotImplemented
    if (needs[1] and "input" not in mapped) or (needs[2] and bias_shape != g.shape[2:3]):
        return NotImplemented
    count, slopes = g.shape[1], g.reshape(size * g.shape[1], *g.shape[2:])
    of_input = of_weight = of_bias = None
    if needs[0]:
        shape = (size * count, *input_shape[1:])
        of_input = run_kernel("conv_grad_input", slopes, weight, shape, stride, padding, dilation, groups)
        of_input = of_input.reshape(size, *input_shape)
    if needs[1]:
        shape = (size * weight_shape[0], *weight_shape[1:])
        given = (_beside(g), _beside(input), shape, stride, padding, dilation, size * groups)
        of_weight = run_kernel("conv_grad_weight", *given).reshape(size, *weight_shape)
    if needs[2]:
        of_bias = g.sum((1, *range(3, g.ndim))).reshape(size, *bias_shape)
    return of_input, of_weight, of_bias


def _beside(x):
    """The channels (N, C, ...) of all samples beside each other: (N, size · C, ...)."""
    size, count, channels, *rest = x.shape
    return (x if count == 1 else x.swapaxes(0, 1)).reshape(count, size * channels, *rest)
