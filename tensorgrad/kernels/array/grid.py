"""Sampling images at arbitrary points, on plain arrays, in one implementation for two and three spatial dimensions.

The image is extended on all sides, with zeros or with the continuation of its border, so that every point that can
occur has all its neighbors and no tap needs a mask. Then the neighbors of a point are all at fixed distances from the
first, and each tap of all points is one gather with the same indices from a shifted view of the image. The work is done
in blocks of points whose temporaries stay in the cache.

Source of the cubic weights: R. Keys, "Cubic convolution interpolation for digital image processing", IEEE Trans. ASSP
29 (1981), with A = -3/4.
"""

from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from .blocks import table
from .conv import widen

BLOCK = 1 << 15  # numbers (channels · points) per block; measured: 8 K to 64 K perform alike
A = -0.75

# --- along one dimension -------------------------------------------------------------------------------------------


def place(xp, x, size, mode, padding, align):
    """Converts coordinates from -1 to 1 to positions in the input, and returns their derivatives, too.

    `padding` says how positions outside are moved inside. `align` is None for coordinates that are positions already.
    """
    if align is None:
        return x, x.dtype.type(1)
    scale = x.dtype.type((size - 1) / 2 if align else size / 2)
    one, half, factor = table(xp, (1.0, 0.5, float(scale)), x.dtype)
    x = x + one
    x *= factor
    if not align:
        x -= half
    if padding == "zeros" or mode == "bicubic":  # cubic: its taps are moved inside one by one
        return x, scale
    slope = scale
    if padding == "reflection":
        low, span = (x.dtype.type(v) for v in ((0, size - 1) if align else (-0.5, size)))
        if not span:
            return xp.zeros_like(x), xp.zeros_like(x)
        x = x - low
        slope = xp.where(x < 0, -scale, scale)
        x = abs(x)
        rest = xp.fmod(x, span)
        odd = xp.fmod(xp.floor(x / span), x.dtype.type(2)) != 0
        slope = xp.where(odd, -slope, slope)
        x = xp.where(odd, span - rest, rest) + low
    slope = xp.where((x > 0) & (x < size - 1), slope, x.dtype.type(0))
    return xp.minimum(xp.fmax(x, x.dtype.type(0)), x.dtype.type(size - 1)), slope  # fmax: nan becomes 0


def taps(xp, x, mode, derivatives):
    """Returns the first neighbor of each point (a float), all weights, and (if requested) their derivatives."""
    if mode == "nearest":
        return xp.rint(x), [None], [None]
    first = xp.floor(x)
    t = x - first
    if mode == "bilinear":
        return first, [table(xp, (1.0,), t.dtype)[0] - t, t], [-1, 1]
    u = 1 - t
    weights = [_far(t + 1), _near(t), _near(u), _far(u + 1)]
    if not derivatives:
        return first - 1, weights, None
    return first - 1, weights, [_far_slope(t + 1), _near_slope(t), -_near_slope(u), -_far_slope(u + 1)]


def _near(x):
    return ((A + 2) * x - (A + 3)) * x * x + 1


def _far(x):
    return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A


def _near_slope(x):
    return (3 * (A + 2) * x - 2 * (A + 3)) * x


def _far_slope(x):
    return (3 * A * x - 10 * A) * x + 8 * A


COUNT = {"nearest": 1, "bilinear": 2, "bicubic": 4}


def extension(size, mode, padding, align):
    """Returns which input element is at each position of the extended one: an array of indices, -1 for zero.

    The first tap of a point, moved within one period or to just outside, then has index `first + shift`; see
    `_index`.
    """
    count = COUNT[mode]
    around = np.arange(-count, size + count)
    if padding == "zeros" or mode != "bicubic":
        return np.where((around < 0) | (around >= size), -1, around)
    if padding == "border":
        return np.clip(around, 0, size - 1)
    period = _period(size, align)
    around = np.arange(period + count - 1) % period
    return np.minimum(around, (2 * size - 2 if align else 2 * size - 1) - around) if size > 1 else around * 0


def _period(size, align):
    return max(2 * size - 2 if align else 2 * size, 1)


def _index(xp, first, size, mode, padding, align):
    """Returns the indices of the first taps in the extended input.

    They are arbitrary for nan, whose weights are nan or whose result is 0.
    """
    count = COUNT[mode]
    if mode == "bicubic" and padding == "reflection":
        return xp.fmax(xp.mod(first, first.dtype.type(_period(size, align))), 0).astype(np.int64)
    low, high = table(xp, (float(-count), float(size)), first.dtype)
    index = xp.fmax(xp.fmin(first, high), low).astype(np.int64)
    index += count
    return index


# --- all dimensions ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _geometry(shape, mode, padding, align):
    """Returns the geometry of the extended images.

    That is the maps of `extension`, the sizes, the distance of neighbors in each dimension, that of the taps from the
    first, where the images are in them, and whether they are surrounded only by zeros.
    """
    maps = [extension(n, mode, padding, align) for n in shape]
    sizes = tuple(len(m) for m in maps)
    pitch = [prod(sizes[d + 1 :]) for d in range(len(sizes))]
    offsets = [sum(t * p for t, p in zip(tap, pitch)) for tap in product(range(COUNT[mode]), repeat=len(shape))]
    crop = tuple(slice(int(m.argmax() - n + 1), int(m.argmax()) + 1) for m, n in zip(maps, shape))
    return maps, sizes, pitch, offsets, crop, all((m >= 0).sum() == n for m, n in zip(maps, shape))


class _Extended:
    """The extended images of one call: their sizes, and the conversion to them and back."""

    def __init__(self, xp, x, mode, padding, align):
        self.xp, self.shape, self.channels = xp, x.shape[2:], x.shape[1]
        self.maps, self.sizes, self.pitch, self.offsets, self.crop, self.plain = _geometry(
            self.shape, mode, padding, align
        )
        self.plane = prod(self.sizes)
        self.beyond = self.offsets[-1]  # how far the shifted views extend

    def buffer(self, images, dtype):
        """Allocates zeros for the extensions of some images, and for the overhang of the shifted views."""
        return self.xp.zeros(images * self.channels * self.plane + self.beyond, dtype)

    def there(self, images, buffer):
        """Writes the extensions of images (N, C, *S) to a buffer that is zero around them."""
        extended = self._planes(buffer, len(images))
        if self.plain:
            extended[(..., *self.crop)] = images
        else:
            extended[...] = images[(..., *self.xp.ix_(*map(self.xp.asarray, self.maps)))]

    def back(self, buffer, images):
        """The transpose: adds every element of the extensions to its original position, in images that are written."""
        extended = self._planes(buffer, len(images))
        if self.plain:
            images[...] = extended[(..., *self.crop)]
            return
        for axis, (places, n) in enumerate(zip(self.maps, self.shape), start=2):
            before = (slice(None),) * axis
            folded = self.xp.zeros((*extended.shape[:axis], n, *extended.shape[axis + 1 :]), extended.dtype)
            for line, place in enumerate(places):
                folded[(*before, place)] += extended[(*before, line)]
            extended = folded
        images[...] = extended

    def _planes(self, buffer, images):
        return buffer[: images * self.channels * self.plane].reshape(images, self.channels, *self.sizes)


def _tiles(images, channels, points):
    """Yields slices of images and of points: many small images together, or a large one in parts."""
    step = max(1, BLOCK // max(1, channels * points))
    part = points if step > 1 else max(256, BLOCK // max(1, channels))
    for first in range(0, images, step):
        together = slice(first, min(first + step, images))
        yield together, [slice(start, min(start + part, points)) for start in range(0, points, part)]


def _locate(xp, extended, grid, mode, padding, align, derivatives):
    """Locates points (N, P, dims) in the extended images.

    Returns flat indices (N, C, P) of the first taps; by dimension the weights (N, 1, P), their derivatives, and the
    slopes of the positions.
    """
    base, weights, changes, slopes = None, [], [], []
    for d, size in enumerate(extended.shape):
        x = grid[:, None, :, len(extended.shape) - 1 - d]  # x, y, z: the last dimension comes first
        x, slope = place(xp, x, size, mode, padding, align)
        first, w, dw = taps(xp, x, mode, derivatives)
        index = _index(xp, first, size, mode, padding, align)
        if extended.pitch[d] != 1:
            index *= extended.pitch[d]
        base = index if base is None else base + index
        weights.append(w)
        changes.append(dw)
        slopes.append(slope)
    planes = xp.arange(len(grid) * extended.channels).reshape(len(grid), extended.channels, 1)
    return base + planes * extended.plane, weights, changes, slopes


def _weight(weights, tap):
    """The product of one weight from each dimension; None stands for 1."""
    total = None
    for w, t in zip(weights, tap):
        if w[t] is not None:
            total = w[t] if total is None else total * w[t]
    return total


def grid_sample(xp, x, grid, mode, padding, align):
    """Samples `x` (N, C, *S) at the points `grid` (N, *P, dims): (N, C, *P).

    A point is (x, y) or (x, y, z), from -1 to 1: the centers of the outermost elements if `align`, else their outer
    edges. `mode`: "nearest", "bilinear" (in three dimensions trilinear), "bicubic". `padding` gives the values
    outside: "zeros", "border" or "reflection".

    >>> import numpy as np
    >>> x = np.arange(4.0).reshape(1, 1, 2, 2)
    >>> grid_sample(np, x, np.array([[[[0.0, 0.0], [1.0, -1.0]]]]), "bilinear", "zeros", True).tolist()
    [[[[1.5, 1.0]]]]
    """
    wide, dims, points = widen(xp, x), grid.shape[-1], prod(grid.shape[1:-1])
    places = widen(xp, grid).reshape(len(grid), points, dims)
    out = xp.empty((*x.shape[:2], points), wide.dtype)
    extended = _Extended(xp, wide, mode, padding, align)
    buffer = None
    with np.errstate(all="ignore"):
        for images, parts in _tiles(*out.shape) if out.size else ():
            if buffer is None:
                buffer = extended.buffer(images.stop, wide.dtype)
            extended.there(wide[images], buffer)
            for part in parts:
                index, weights, _, _ = _locate(xp, extended, places[images, part], mode, padding, align, False)
                total = None
                for offset, tap in zip(extended.offsets, product(range(COUNT[mode]), repeat=dims)):
                    values, weight = buffer[offset:].take(index), _weight(weights, tap)
                    if weight is not None:
                        values *= weight
                    total = values if total is None else xp.add(total, values, out=total)
                out[images, :, part] = total
    return out.reshape(*x.shape[:2], *grid.shape[1:-1]).astype(x.dtype, copy=False)


def grid_sample_grad(xp, g, x, grid, mode, padding, align, needs):
    """Returns the gradients of `grid_sample` for `x` and `grid`; zeros for those not in `needs`.

    >>> import numpy as np
    >>> x, grid = np.arange(4.0).reshape(1, 1, 2, 2), np.zeros((1, 1, 1, 2))
    >>> dx, dgrid = grid_sample_grad(np, np.ones((1, 1, 1, 1)), x, grid, "bilinear", "zeros", True, (True, True))
    >>> dx.ravel().tolist(), dgrid.ravel().tolist()
    ([0.25, 0.25, 0.25, 0.25], [0.5, 1.0])
    """
    wide, dims, points = widen(xp, x), grid.shape[-1], prod(grid.shape[1:-1])
    places, gradients = widen(xp, grid).reshape(len(grid), points, dims), widen(xp, g).reshape(*g.shape[:2], points)
    dx, dgrid = xp.zeros(x.shape, wide.dtype), xp.zeros(places.shape, wide.dtype)
    for_grid = needs[1] and mode != "nearest"
    extended = _Extended(xp, wide, mode, padding, align)
    with np.errstate(all="ignore"):
        for images, parts in _tiles(*gradients.shape) if g.size and (needs[0] or for_grid) else ():
            count = images.stop - images.start
            ahead = extended.buffer(count, wide.dtype) if for_grid else None
            behind = extended.buffer(count, wide.dtype) if needs[0] else None
            if for_grid:
                extended.there(wide[images], ahead)
            for part in parts:
                located = _locate(xp, extended, places[images, part], mode, padding, align, for_grid)
                there = (gradients[images, :, part], extended.offsets, located, mode, dims)
                if needs[0]:
                    _scatter(xp, behind, *there)
                if for_grid:
                    dgrid[images, part] = _slopes(xp, ahead, *there)
            if needs[0]:
                extended.back(behind, dx[images])
    return dx.astype(x.dtype, copy=False), dgrid.reshape(grid.shape).astype(grid.dtype, copy=False)


def _scatter(xp, buffer, g, offsets, located, mode, dims):
    """Adds the gradients (N, C, P) at some points to the neighbors that were sampled."""
    index, weights, _, _ = located
    index = index.reshape(-1)
    for offset, tap in zip(offsets, product(range(COUNT[mode]), repeat=dims)):
        weight = _weight(weights, tap)
        xp.add.at(buffer[offset:], index, (g if weight is None else g * weight).reshape(-1))


def _slopes(xp, buffer, g, offsets, located, mode, dims):
    """Returns the gradients for some points, (N, P, dims): x first."""
    index, weights, changes, slopes = located
    total = xp.zeros((dims, len(index), 1, index.shape[-1]), g.dtype)
    for offset, tap in zip(offsets, product(range(COUNT[mode]), repeat=dims)):
        shared = xp.einsum("ncp,ncp->np", g, buffer[offset:].take(index))[:, None]
        for d in range(dims):
            part = shared * changes[d][tap[d]]
            for e in range(dims):
                if e != d:
                    part *= weights[e][tap[e]]
            total[d] += part
    for d in range(dims):
        total[d] *= slopes[d]
    return xp.moveaxis(total[::-1, :, 0], 0, -1)
