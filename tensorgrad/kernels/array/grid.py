"""Sampling images at arbitrary points, on plain arrays, in one implementation for two and three spatial dimensions.

The image is extended on all sides, with zeros or with the continuation of its border, so that every point that can
occur has all its neighbors and no tap needs a mask. Then the neighbors of a point are all at fixed distances from the
first, and each tap of all points is one gather with the same indices from a shifted view of the image. The work is done
in blocks of points whose temporaries stay in the cache.

The steps are PyTorch's: in two and three dimensions they differ in what is rounded. In half precision every step is
rounded, as NumPy computes with arrays of such numbers.

Source of the cubic weights: R. Keys, "Cubic convolution interpolation for digital image processing", IEEE Trans. ASSP
29 (1981), with A = -3/4.
"""

from functools import lru_cache, partial
from itertools import product
from math import prod

import numpy as np

from .blocks import table
from .conv import widen
from .grid_in_turn import VECTOR, scatter_in_turn, slopes_in_turn

BLOCK = 1 << 15  # numbers (channels · points) per block; measured: 8 K to 64 K perform alike
A = -0.75

# --- along one dimension -------------------------------------------------------------------------------------------


def place(xp, x, size, mode, padding, align, dims):
    """Converts coordinates from -1 to 1 to positions in the input, and returns their derivatives, too.

    `padding` says how positions outside are moved inside. `align` is None for coordinates that are positions already.
    """
    if align is None:
        return x, x.dtype.type(1)
    scale = x.dtype.type(x.dtype.type(size - 1 if align else size) / x.dtype.type(2))
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
        if dims == 2:
            period = x.dtype.type(span * x.dtype.type(2))
            rest = x - xp.trunc(x / period) * period
            mirrored = period - rest
            odd = rest > mirrored
        else:
            rest = xp.fmod(x, span)
            mirrored = span - rest
            odd = xp.fmod(xp.floor(x / span), x.dtype.type(2)) != 0
        slope = xp.where(odd, -slope, slope)
        x = xp.where(odd, mirrored, rest) + low
    slope = xp.where((x > 0) & (x < size - 1), slope, x.dtype.type(0))
    return xp.minimum(xp.fmax(x, x.dtype.type(0)), x.dtype.type(size - 1)), slope  # fmax: nan becomes 0


def taps(xp, x, mode, derivatives, dims):
    """Returns the first neighbor of each point (a float), all weights, and (if requested) their derivatives."""
    if mode == "nearest":
        return xp.rint(x), [None], [None]
    first = xp.floor(x)
    t = x - first
    one, two = table(xp, (1.0, 2.0), t.dtype)
    if mode == "bilinear":
        return first, [one - t if dims == 2 else (first + one) - x, t], [-1, 1]
    away = t + one, t, one - t, two - t
    weights = [_far(xp, away[0]), _near(xp, away[1]), _near(xp, away[2]), _far(xp, away[3])]
    if not derivatives:
        return first - one, weights, None
    slopes = [_far_slope(xp, away[0]), _near_slope(xp, away[1]), -_near_slope(xp, away[2]), -_far_slope(xp, away[3])]
    return first - one, weights, slopes


def _near(xp, x):
    a, b, one = table(xp, (A + 2, A + 3, 1.0), x.dtype)
    return (a * x - b) * x * x + one


def _far(xp, x):
    a, b, c, d = table(xp, (A, 5 * A, 8 * A, 4 * A), x.dtype)
    return ((a * x - b) * x + c) * x - d


def _near_slope(xp, x):
    a, b = table(xp, (3 * (A + 2), 2 * (A + 3)), x.dtype)
    return (a * x - b) * x


def _far_slope(xp, x):
    a, b, c = table(xp, (3 * A, 10 * A, 8 * A), x.dtype)
    return (a * x - b) * x + c


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
    count, first = COUNT[mode], widen(xp, first)
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

    def home(self):
        """For each position in a plane that of the element which is there itself; None if none is repeated."""
        if self.plain:
            return None
        there = (np.where(m < 0, np.arange(len(m)), c.start + m) for m, c in zip(self.maps, self.crop))
        return np.ravel_multi_index(np.ix_(*there), self.sizes).ravel()

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
    part = points if step > 1 else max(256, BLOCK // max(1, channels) // VECTOR * VECTOR)
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
        x, slope = place(xp, x, size, mode, padding, align, len(extended.shape))
        first, w, dw = taps(xp, x, mode, derivatives, len(extended.shape))
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
    """The product of one weight from each dimension, the last one first; None stands for 1."""
    total = None
    for w, t in zip(reversed(weights), reversed(tap)):
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
    lifted, dims, points = _stepwise(xp, align), grid.shape[-1], prod(grid.shape[1:-1])
    wide, places = lifted(x), lifted(grid).reshape(len(grid), points, dims)
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
                out[images, :, part] = _sampled(xp, buffer, extended.offsets, index, weights, mode)
    return out.reshape(*x.shape[:2], *grid.shape[1:-1]).astype(x.dtype, copy=False)


def _stepwise(xp, align):
    """What is computed with: numbers of half precision, if each step is rounded as PyTorch does, else float32."""
    return (lambda array: array) if xp is np and align is not None else (lambda array: widen(xp, array))


def _sampled(xp, buffer, offsets, index, weights, mode):
    """Adds up the taps of some points, with their weights: (N, C, P)."""
    dims = len(weights)
    if mode == "bicubic":  # one row of taps after the other
        rows = [_total(xp, buffer, offsets[4 * n : 4 * n + 4], index, weights[1]) for n in range(4)]
        for row, weight in zip(rows, weights[0]):
            row *= weight
        return rows[0] + rows[1] + rows[2] + rows[3]
    if mode == "nearest":
        return buffer.take(index)
    return _total(xp, buffer, offsets, index, [_weight(weights, tap) for tap in product(range(2), repeat=dims)])


def _total(xp, buffer, offsets, index, weights):
    total = None
    for offset, weight in zip(offsets, weights):
        values = buffer[offset:].take(index)
        values *= weight
        total = values if total is None else xp.add(total, values, out=total)
    return total


def grid_sample_grad(xp, g, x, grid, mode, padding, align, needs):
    """Returns the gradients of `grid_sample` for `x` and `grid`; zeros for those not in `needs`.

    >>> import numpy as np
    >>> x, grid = np.arange(4.0).reshape(1, 1, 2, 2), np.zeros((1, 1, 1, 2))
    >>> dx, dgrid = grid_sample_grad(np, np.ones((1, 1, 1, 1)), x, grid, "bilinear", "zeros", True, (True, True))
    >>> dx.ravel().tolist(), dgrid.ravel().tolist()
    ([0.25, 0.25, 0.25, 0.25], [0.5, 1.0])
    """
    lifted, dims, points = _stepwise(xp, align), grid.shape[-1], prod(grid.shape[1:-1])
    wide, places, gradients = lifted(x), lifted(grid).reshape(len(grid), points, dims), lifted(g)
    gradients = gradients.reshape(*g.shape[:2], points)
    dx, dgrid = xp.zeros(x.shape, wide.dtype), xp.zeros(places.shape, wide.dtype)
    for_grid = needs[1] and mode != "nearest"
    extended = _Extended(xp, wide, mode, padding, align)
    scatter, slopes = _scatter, _slopes
    if wide.dtype.itemsize == 2:
        scatter, slopes = partial(scatter_in_turn, extended.home()), slopes_in_turn
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
                    scatter(xp, behind, *there)
                if for_grid:
                    dgrid[images, part] = slopes(xp, ahead, *there)
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
