"""Pooling over two spatial dimensions, in tiles (`simd/tiles.py`): each tap of a window is one run over all windows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.pool import pool_shape
from tensorgrad.kernels.compiled.casts import bits, code, is_half
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import in_rows, suits
from tensorgrad.kernels.compiled.moments import row_sum
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import STORED, inlined, inner
from tensorgrad.kernels.compiled.runtime.launch import shared, with_loops
from tensorgrad.kernels.compiled.simd.panels import flat
from tensorgrad.kernels.compiled.simd.points import add_points, divide_points
from tensorgrad.kernels.compiled.simd.stored import move_to
from tensorgrad.kernels.compiled.simd.tiles import FORM, WIDEST, fill, layout
from tensorgrad.kernels.compiled.simd.two_bytes import STORAGES, STRETCH, TWO_BYTES, Storage, rounded, widened
from tensorgrad.kernels.compiled.simd.vectors import LANES, NO, ONE, TWO, largest_of_four, largest_of_four_only
from tensorgrad.rows import kernel_tables

_ROW, _PLANES, _IMAGES = "float32[::1]", "float32[:,::1]", "float32[:,:,:,::1]"
_LARGE = 2**30  # indices within a plane are 32-bit
_TOGETHER = 8  # channels from which on whole points are added, if they lie together
_NONE = np.uint8(255)  # no tap of the window yet: more taps than this have no numbers
_NO_PLACES = np.empty(0, np.uint8)  # placeholder when places are not needed
_FOUR = ((2, 2), (2, 2), (0, 0), (1, 1))  # the most common windows: each point is in one of them, none crosses the edge


def _fits(shape, dims):
    """Returns whether a compiled kernel can pool arrays of this shape: not empty, two dimensions, not too large."""
    return len(shape) == 4 and dims == 2 and 0 not in shape and shape[-1] < min(WIDEST, _LARGE // shape[-2])


def _taps(kernel, padding, dilation=(1, 1)):
    return tuple(
        tuple(k * d - p for k, d, p in zip(tap, dilation, padding, strict=True))
        for tap in product(*map(range, kernel))
    )  # fmt: skip


def _planes(array):
    """Views (..., H, W) as (planes, H W)."""
    return array.reshape(-1, array.shape[-2] * array.shape[-1])


# --- maxima ----------------------------------------------------------------------------------------------------------


@inner
def _larger(best, at, source, place):
    """Takes one tap of all windows: values larger than the best so far (or nan) replace it."""
    for j in range(best.size):
        value, held = source[j], best[j]
        better = (value > held) | (value != value)
        best[j] = value if better else held
        at[j] = place if better else at[j]


@inner
def _larger_only(best, source):
    for j in range(best.size):
        value, held = source[j], best[j]
        best[j] = value if (value > held) | (value != value) else held


@inner
def _write_places(found, at, beyond, pad, step, kernel, out, to, count):
    """Writes the taps of a row of windows; for windows in which all are -inf, the first tap that is in the image.

    `beyond`: how many rows of taps are above the image.
    """
    at, to = np.uint64(at), np.uint64(to)
    for j in range(np.uint64(count)):
        here = found[at + j]
        first = beyond * kernel + max(pad - np.int32(j) * step, np.int32(0))
        out[to + j] = here if here != _NONE else np.uint8(first)


@inner
def _largest_of_four(x, top, bottom, out, places, to, count):
    """Takes 2x2 windows in two rows that begin at `top` and `bottom`."""
    top, bottom, to = np.uint64(top), np.uint64(bottom), np.uint64(to)
    for j in range(np.uint64(count)):
        i = j + j
        best, at = x[top + i], np.uint8(0)
        value = x[top + i + np.uint64(1)]
        better = (value > best) | (value != value)
        best, at = value if better else best, np.uint8(1) if better else at
        value = x[bottom + i]
        better = (value > best) | (value != value)
        best, at = value if better else best, np.uint8(2) if better else at
        value = x[bottom + i + np.uint64(1)]
        better = (value > best) | (value != value)
        best, at = value if better else best, np.uint8(3) if better else at
        out[to + j] = best
        if places.size:
            places[to + j] = at


class _Plan(NamedTuple):
    """How the maxima of windows are found."""

    shape: tuple  # of the result
    four: bool  # the windows are those of _FOUR
    rest: tuple  # the arguments of the loop over tiles other than arrays
    tiles: int
    work: int


@lru_cache(maxsize=128)
def _max_plan(x_shape, kernel, stride, padding, dilation, ceil_mode):
    """Returns the `_Plan`; None if compiled kernels do not support it."""
    if not _fits(x_shape, len(kernel)):
        return None
    if max(dilation) > 1 and (any(padding) or ceil_mode):  # a window may miss the input entirely
        return None
    shape = pool_shape(x_shape, kernel, stride, padding, dilation, ceil_mode)
    if (kernel, stride, padding, dilation) == _FOUR and not ceil_mode:
        return _Plan(shape, True, (), 0, prod(x_shape) + 3 * prod(shape))
    taps, planes = _taps(kernel, padding, dilation), x_shape[0] * x_shape[1]
    form, offsets, rests = layout(x_shape[2:], shape[2:], stride, taps, 1, planes)
    rest = (offsets, rests, tuple(form), planes, *padding, kernel[1])
    return _Plan(shape, False, rest, -(-planes // form.images) * form.strips, prod(x_shape) + prod(shape) * len(taps))


@inner
def largest_of_planes(x, at, planes, height, width, points_y, points_x, out, places, to_first):
    """Processes the 2x2 windows, which do not overlap, of planes that begin at `at`."""
    end, border = to_first + planes * points_y * points_x, at + planes * height * width
    for n in range(planes):
        for y in range(points_y):
            top = at + n * height * width + 2 * y * width
            to, done = to_first + (n * points_y + y) * points_x, 0
            # Whole vectors may pass the end of a row, as the next one is written later, except in the last row.
            while done < points_x and to + done + LANES <= end and top + width + 2 * (done + LANES) <= border:
                here = top + 2 * done
                if places.size:
                    largest_of_four(x, here, here + width, out, places, to + done)
                else:
                    largest_of_four_only(x, here, here + width, out, places, to + done)
                done += LANES
            if done < points_x:
                here = top + 2 * done
                _largest_of_four(x, here, here + width, out, places, to + done, points_x - done)


@lru_cache(maxsize=1)
def _max_of_four():
    @shared(f"void({_IMAGES}, {_IMAGES}, uint8[::1], int64, int64)")
    def loop(x, out, places, first, last):
        """Processes 2x2 windows that do not overlap, of a range of planes."""
        height, width, points_y, points_x = x.shape[2], x.shape[3], out.shape[2], out.shape[3]
        largest_of_planes(
            flat(x), first * height * width, last - first, height, width, points_y, points_x, flat(out), places,
            first * points_y * points_x,
        )  # fmt: skip

    return loop


@lru_cache(maxsize=1)
def _max_of_four_halves():
    @shared(f"void({TWO_BYTES.maps}, {TWO_BYTES.maps}, uint8[::1], boolean, int64, int64)")
    def loop(x, out, places, brain, first, last):
        """The same for numbers of two bytes, some rows of windows at a time."""
        height, width, points_y, points_x = x.shape[2], x.shape[3], out.shape[2], out.shape[3]
        x, out, rows = x.reshape(-1), out.reshape(-1), max(1, min(points_y, STRETCH // (2 * width)))
        numbers, best = np.empty(2 * rows * width, np.float32), np.empty(rows * points_x, np.float32)
        for n in range(first, last):
            for y in range(0, points_y, rows):
                count = min(rows, points_y - y)
                at, to = (n * height + 2 * y) * width, (n * points_y + y) * points_x
                read, made = 2 * count * width, count * points_x
                widened(x[at : at + read], numbers[:read], brain)
                here = places[to : to + made]
                largest_of_planes(numbers[:read], 0, 1, 2 * count, width, count, points_x, best[:made], here, 0)
                rounded(best[:made], out[to : to + made], brain)

    return loop


@lru_cache(maxsize=1)
def _max_of_windows():
    @shared(
        f"void({STORED}, {STORED}, uint8[::1], int64[::1], int64[:,::1], {FORM}, int64, int64, int64, int64, int64, "
        "int64, int64)"
    )
    def loop(x, out, places, offsets, rests, form, total, pad_y, pad_x, kernel_x, kind, first, last):
        """Processes any windows, tile by tile."""
        images, rows, strips, height, pitch, _, plane, points, _, _, step_y, step_x, _, _, out_y, out_x = form
        buffer = np.empty(rests.shape[0] * plane, np.float32)
        best, at = np.empty(points, np.float32), np.empty(points, np.uint8)
        before = (-1, -1)
        for tile in range(first, last):
            image, row = tile // strips * images, tile % strips * rows
            now = (row, min(images, total - image))
            fill(x, kind, image, total, NO, ONE, row, rests, form, np.float32(-np.inf), now != before, buffer)
            before = now
            best[:] = -np.inf
            at[:] = _NONE
            for t in range(offsets.size):
                if places.size:
                    _larger(best, at, buffer[offsets[t] :], np.uint8(t))
                else:
                    _larger_only(best, buffer[offsets[t] :])
            for m in range(min(images, total - image)):
                for i in range(min(rows, out_y - row)):
                    start = (m * height + i) * pitch
                    to = ((image + m) * out_y + row + i) * out_x
                    move_to(best, start, out, kind, to, ONE, out_x)
                    if places.size:
                        beyond = max(pad_y - (row + i) * step_y, 0)
                        _write_places(
                            at, start, np.int32(beyond), np.int32(pad_x), np.int32(step_x), np.int32(kernel_x), places,
                            to, out_x,
                        )  # fmt: skip

    return loop


@inner
def _larger_points(best, at, to, source, start, apart, count, channels, place):
    """Takes one tap of `count` windows of adjacent channels."""
    for j in range(count):
        here, there = np.uint64((to + j) * channels), np.uint64(start + j * apart)
        for c in range(np.uint64(channels)):
            value, held = source[there + c], best[here + c]
            better = (value > held) | (value != value)
            best[here + c] = value if better else held
            at[here + c] = place if better else at[here + c]


@inner
def _larger_points_only(best, to, source, start, apart, count, channels):
    for j in range(count):
        here, there = np.uint64((to + j) * channels), np.uint64(start + j * apart)
        for c in range(np.uint64(channels)):
            value, held = source[there + c], best[here + c]
            best[here + c] = value if (value > held) | (value != value) else held


@lru_cache(maxsize=1)
def _max_of_points():
    @shared(f"void({_ROW}, {_ROW}, uint8[::1], int64[:,::1], UniTuple(int64, 12), int64, int64)")
    def loop(x, out, places, met, sizes, first, last):
        """Processes rows of windows of images whose channels lie together."""
        channels, size_y, size_x, points_y, points_x, kernel_y, kernel_x, step_y, step_x, pad_y, pad_x, apart_y = sizes
        width, pitch = size_x * channels, points_x * channels
        at = np.empty(pitch, np.uint8)
        for row in range(first, last):
            n, i = row // points_y, row % points_y
            best = out[row * pitch : (row + 1) * pitch]
            best[:] = -np.inf
            at[:] = _NONE
            for k in range(kernel_y):
                y = i * step_y - pad_y + k * apart_y
                if y < 0 or y >= size_y:
                    continue
                for h in range(met.shape[0]):
                    window, point, count = met[h, 0], met[h, 1], met[h, 2]
                    start, apart = (n * size_y + y) * width + point * channels, step_x * channels
                    if places.size:
                        place = np.uint8(k * kernel_x + met[h, 3])
                        _larger_points(best, at, window, x, start, apart, count, channels, place)
                    else:
                        _larger_points_only(best, window, x, start, apart, count, channels)
            if places.size:
                beyond = max(pad_y - i * step_y, 0) * kernel_x
                for j in range(points_x):
                    corner = np.uint8(beyond + max(pad_x - j * step_x, 0))
                    for c in range(j * channels, (j + 1) * channels):
                        places[row * pitch + c] = at[c] if at[c] != _NONE else corner

    return loop


def _maxima_of_points(x, windows, asked: bool):
    """The same as `_maxima` for images whose channels lie together: the results lie so, too."""
    kernel, stride, padding, dilation, ceil_mode = windows
    turned = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
    channels, size = x.shape[1], x.shape[2:]
    if not turned.flags.c_contiguous or channels < _TOGETHER or not _fits(x.shape, len(kernel)):
        return NotImplemented
    if max(dilation) > 1 and (any(padding) or ceil_mode):  # a window may miss the input entirely
        return NotImplemented
    shape = pool_shape(x.shape, kernel, stride, padding, dilation, ceil_mode)
    points = shape[0], *shape[2:], channels
    out = np.empty(points, F32)
    places = np.empty(points, np.uint8) if asked else _NO_PLACES
    met = _met(size[1], shape[3], kernel[1], stride[1], padding[1], dilation[1])
    sizes = (channels, *size, *shape[2:], *kernel, *stride, *padding, dilation[0])
    given = (turned.reshape(-1), out.reshape(-1), places.reshape(-1), met, sizes)
    thread_pool.run(_max_of_points(), points[0] * points[1], given, x.size + out.size * kernel[0] * kernel[1])
    made = out.transpose(0, 3, 1, 2)
    return (made, places.transpose(0, 3, 1, 2)) if asked else made


def _maxima(x, windows, asked: bool):
    """Returns the largest value of each window, and its place if `asked`: the number of the tap, row by row."""
    if asked and prod(windows[0]) > int(_NONE):
        return NotImplemented
    if x.__class__ is np.ndarray and x.dtype is F32 and not x.flags.c_contiguous:
        return _maxima_of_points(x, windows, asked)
    kind = code(x)
    plan = None if kind is None else _max_plan(x.shape, *windows)
    if plan is None:
        return NotImplemented
    out = np.empty(plan.shape, x.dtype)
    places = np.empty(plan.shape, np.uint8) if asked else _NO_PLACES
    if not plan.four:
        given = (x, out, places.reshape(-1), *plan.rest, kind)
        thread_pool.run(_max_of_windows(), plan.tiles, given, plan.work)
    elif kind:
        given = (bits(x), bits(out), places.reshape(-1), x.dtype.char == "E")
        thread_pool.run(_max_of_four_halves(), x.shape[0] * x.shape[1], given, plan.work)
    else:
        thread_pool.run(_max_of_four(), x.shape[0] * x.shape[1], (x, out, places.reshape(-1)), plan.work)
    return (out, places) if asked else out


def _max_pool(x, *windows):
    return _maxima(x, windows, True)


def _max_pool_values(x, *windows):
    return _maxima(x, windows, False)


def _max_of_windows_grad_loop(form: Storage):
    scratch, read, place, write = form.of_rows

    @shared(f"void({form.row}, uint8[::1], {form.row}, int64[::1], UniTuple(int64, 9), boolean, int64, int64)")
    def loop(g, places, out, table, sizes, brain, first, last):
        """Processes any windows, of planes that have one channel each, or of images whose channels lie together."""
        channels, size_y, size_x, points_y, points_x, step_y, step_x, pad_y, pad_x = sizes
        size, points = size_y * size_x * channels, points_y * points_x * channels
        sums, held = scratch(size), scratch(points)
        for n in range(first, last):
            to = place(out[n * size : (n + 1) * size], sums)
            slopes, taps = read(g[n * points : (n + 1) * points], held, brain), places[n * points : (n + 1) * points]
            to[:] = 0
            for i in range(points_y):
                at = np.uint64(i * points_x * channels)
                corner = (i * step_y - pad_y) * size_x - pad_x
                if channels == 1:
                    for j in range(np.uint64(points_x)):
                        to[np.uint64(corner + table[np.uint64(taps[at + j])])] += slopes[at + j]
                        corner += step_x
                    continue
                for _ in range(points_x):
                    for c in range(np.uint64(channels)):
                        point = corner + table[np.uint64(taps[at + c])]
                        to[np.uint64(point * channels) + c] += slopes[at + c]
                    at, corner = at + np.uint64(channels), corner + step_x
            write(to, out[n * size : (n + 1) * size], brain)

    return loop


@lru_cache(maxsize=1)
def _max_of_windows_grad():
    """The loops for each way in which numbers are stored."""
    return [_max_of_windows_grad_loop(form) for form in STORAGES]


@lru_cache(maxsize=1)
def _max_at_indices_grad():
    @shared(f"void({_PLANES}, int64[:,::1], {_PLANES}, int64, int64)")
    def loop(g, indices, out, first, last):
        """Adds up gradients at indices within a plane."""
        for n in range(first, last):
            slopes, places, to = g[n], indices[n], out[n]
            to[:] = 0
            for i in range(slopes.size):
                to[np.uint64(places[i])] += slopes[i]

    return loop


@lru_cache(maxsize=128)
def _places_of_taps(kernel, dilation, width):
    """Returns for each tap how far its point is from that of the first one, in a plane of rows of `width`."""
    return np.array([y * width + x for y, x in _taps(kernel, (0, 0), dilation)], np.int64)


def _max_pool_grad(g, indices, x_shape, windows=None):
    """Adds up the gradients `g` at the maxima of windows, which are numbers of taps (uint8), or indices."""
    half = is_half(g)
    if len(x_shape) != 4 or not g.size or g.__class__ is not np.ndarray or not (half or g.dtype is F32):
        return NotImplemented
    planes, size, points = x_shape[0] * x_shape[1], tuple(x_shape[2:]), g.shape[2:]
    if indices.dtype == np.int64:
        if half or not (g.flags.c_contiguous and indices.flags.c_contiguous):
            return NotImplemented
        out = np.empty(x_shape, F32)
        given = _planes(g), _planes(indices), _planes(out)
        thread_pool.run(_max_at_indices_grad(), planes, given, out.size + 2 * g.size)
        return out
    kernel, stride, padding, dilation = windows
    channels, count, shape = 1, planes, x_shape
    together = not indices.flags.c_contiguous
    if together:
        channels, count, shape = x_shape[1], x_shape[0], (x_shape[0], *size, x_shape[1])
        g, indices = in_rows(g.transpose(0, 2, 3, 1)), np.ascontiguousarray(indices.transpose(0, 2, 3, 1))
    elif not g.flags.c_contiguous:
        return NotImplemented
    out, table = np.empty(shape, g.dtype), _places_of_taps(kernel, dilation, size[1])
    sizes = (channels, *size, *points, *stride, *padding)
    flat = (bits(g).reshape(-1), indices.reshape(-1), bits(out).reshape(-1), table, sizes, g.dtype.char == "E")
    thread_pool.run(_max_of_windows_grad()[half], count, flat, out.size + 2 * g.size)
    return out.transpose(0, 3, 1, 2) if together else out


# --- means -----------------------------------------------------------------------------------------------------------


@inlined
def _added(total, to, apart, source, at, step, count):
    to, at, apart, step = np.uint64(to), np.uint64(at), np.uint64(apart), np.uint64(step)
    for j in range(np.uint64(count)):
        total[to + j * apart] += source[at + j * step]


@inner
def _add(total, to, apart, source, at, step, count):
    """Adds `count` numbers, `step` apart from `source[at]` on, to those `apart` apart from `total[to]` on."""
    if step == 1 and apart == 1:
        _added(total, to, ONE, source, at, ONE, count)
    elif step == 2 and apart == 1:
        _added(total, to, ONE, source, at, TWO, count)
    elif step == 1 and apart == 2:
        _added(total, to, TWO, source, at, ONE, count)
    else:
        _added(total, to, apart, source, at, step, count)


@inner
def _quotients(source, at, over, divisors, out, to):
    at, to = np.uint64(at), np.uint64(to)
    for j in range(np.uint64(divisors.size)):
        out[to + j] = source[at + j] / (over * divisors[j])


def _counts(size, points, kernel, stride, padding, include):
    """Returns how many points of each window count, along one dimension."""
    first = np.arange(points) * stride - padding
    last = np.minimum(first + kernel, size + padding)
    if not include:
        first, last = np.maximum(first, 0), np.minimum(last, size)
    return (last - first).astype(F32)


@lru_cache(maxsize=128)
def _divisors(size, points, kernel, stride, padding, include, divisor):
    """Returns the divisors of the windows' sums: a number for each row of windows times one for each column."""
    if divisor is not None:
        return np.full(points[0], divisor, F32), np.ones(points[1], F32)
    return tuple(_counts(*of, include) for of in zip(size, points, kernel, stride, padding, strict=True))


def _means():
    @shared(f"void({_PLANES}, {_ROW}, float32, int64, int64)")
    def loop(x, out, count, first, last):
        for n in range(first, last):
            out[n] = row_sum(x[n]) / count

    return loop


@lru_cache(maxsize=128)
def _met(size, points, kernel, stride, padding, apart=1):
    """Returns for each tap along a row that meets the input the first window whose point is in it, that point, their
    number, and the tap's."""
    met = []
    for tap in range(kernel):
        shift = tap * apart - padding
        first, last = max(0, -(shift // stride)), min(points, (size - 1 - shift) // stride + 1)
        if first < last:
            met.append((first, first * stride + shift, last - first, tap))
    return np.array(met, np.int64).reshape(-1, 4)


_MEANS = f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, int64[:,::1], UniTuple(int64, 8), int64, int64)"
_MEANS_OF_POINTS = f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, int64[:,::1], UniTuple(int64, 9), int64, int64)"


def _avg_pool():
    means = _means()

    @shared(_MEANS_OF_POINTS)
    def loop(x, out, down, across, met, sizes, first, last):
        """Computes rows of windows, of planes that have one channel each, or of images whose channels lie together."""
        channels, size_y, size_x, points_y, points_x, kernel_y, step_y, step_x, pad_y = sizes
        width = size_x * channels
        column, sums = np.empty(width, np.float32), np.empty(points_x * channels, np.float32)
        for row in range(first, last):
            n, i = row // points_y, row % points_y
            # Down the rows first: they are contiguous, and only one row remains to be read several times.
            column[:] = 0
            for y in range(max(0, i * step_y - pad_y), min(size_y, i * step_y - pad_y + kernel_y)):
                _add(column, 0, 1, x, (n * size_y + y) * width, 1, width)
            sums[:] = 0
            if channels == 1:
                for h in range(met.shape[0]):
                    _add(sums, met[h, 0], 1, column, met[h, 1], step_x, met[h, 2])
                _quotients(sums, 0, down[i], across, out, row * points_x)
            else:
                for h in range(met.shape[0]):
                    to, at, apart = met[h, 0] * channels, met[h, 1] * channels, step_x * channels
                    add_points(sums, to, column, at, apart, met[h, 2], channels)
                divide_points(sums, down[i], across, points_x, channels, out, row * points_x * channels)

    def kernel(x, kernel, stride, padding, ceil_mode, include, divisor):
        if x.__class__ is not np.ndarray or x.dtype is not F32 or not _fits(x.shape, len(kernel)):
            return NotImplemented
        turned = x.transpose(0, 2, 3, 1)
        together = x.shape[1] >= _TOGETHER and turned.flags.c_contiguous and not x.flags.c_contiguous
        if not together and not x.flags.c_contiguous:
            return NotImplemented
        size, planes = x.shape[2:], x.shape[0] * x.shape[1]
        shape = pool_shape(x.shape, kernel, stride, padding, (1, 1), ceil_mode)
        if together:
            x, planes, channels = turned, x.shape[0], x.shape[1]
            out = np.empty((shape[0], *shape[2:], channels), F32)
        else:
            out, channels = np.empty(shape, F32), 1
        if tuple(kernel) == size and not any(padding) and not together:
            thread_pool.run(means, planes, (_planes(x), out.reshape(-1), F(divisor or kernel[0] * kernel[1])), x.size)
            return out
        divisors = _divisors(size, shape[2:], kernel, stride, padding, include, divisor)
        met = _met(size[1], shape[3], kernel[1], stride[1], padding[1])
        sizes = (channels, *size, *shape[2:], kernel[0], *stride, padding[0])
        work = x.size + out.size * kernel[0] * kernel[1]
        thread_pool.run(loop, planes * shape[2], (x.reshape(-1), out.reshape(-1), *divisors, met, sizes), work)
        return out.transpose(0, 3, 1, 2) if together else out

    return kernel


def _avg_pool_grad():
    @shared(_MEANS)
    def loop(g, out, down, across, met, sizes, first, last):
        size_y, size_x, points_y, points_x, kernel_y, step_y, step_x, pad_y = sizes
        wide, slopes = np.empty(size_x, np.float32), np.empty(points_x, np.float32)
        for n in range(first, last):
            base = n * size_y * size_x
            out[base : base + size_y * size_x] = 0
            for i in range(points_y):
                _quotients(g, (n * points_y + i) * points_x, down[i], across, slopes, 0)
                wide[:] = 0
                for h in range(met.shape[0]):
                    _add(wide, met[h, 1], step_x, slopes, met[h, 0], 1, met[h, 2])
                for y in range(max(0, i * step_y - pad_y), min(size_y, i * step_y - pad_y + kernel_y)):
                    _add(out, base + y * size_x, 1, wide, 0, 1, size_x)

    def kernel(g, x_shape, kernel, stride, padding, ceil_mode, include, divisor):
        if not suits(g) or len(x_shape) != 4 or len(kernel) != 2 or not g.size:
            return NotImplemented
        size, points = x_shape[2:], g.shape[2:]
        if tuple(kernel) == tuple(size):  # one number for a whole plane: NumPy is as fast
            return NotImplemented
        out = np.empty(x_shape, F32)
        divisors = _divisors(size, points, kernel, stride, padding, include, divisor)
        met = _met(size[1], points[1], kernel[1], stride[1], padding[1])
        sizes = (*size, *points, kernel[0], *stride, padding[0])
        given = (g.reshape(-1), out.reshape(-1), *divisors, met, sizes)
        thread_pool.run(loop, x_shape[0] * x_shape[1], given, out.size + g.size * kernel[1])
        return out

    return kernel


def _even(size, points):
    """Returns the kernel of the ordinary pooling that is equivalent to an adaptive one, or None."""
    if all(m and n and n % m == 0 for n, m in zip(size, points, strict=True)):
        return tuple(n // m for n, m in zip(size, points, strict=True))
    return None


def _adaptive_avg_pool():
    mean = _avg_pool()

    def kernel(x, output_size):
        row = kernel_tables.COMPILED.get("mean")
        if {*output_size} == {1} and x.ndim > len(output_size) and row is not None and row.available():
            return row.ready(x, tuple(range(x.ndim - len(output_size), x.ndim)), True, None)
        even = _even(x.shape[-len(output_size) :], output_size)
        return NotImplemented if even is None else mean(x, even, even, (0, 0), False, True, None)

    return kernel


def _adaptive_avg_pool_grad():
    spread = _avg_pool_grad()

    def kernel(g, x_shape):
        even = _even(x_shape[2:], g.shape[2:])
        return NotImplemented if even is None else spread(g, x_shape, even, even, (0, 0), False, True, None)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "max_pool": with_loops(_max_pool, _max_of_four, _max_of_four_halves, _max_of_windows, _max_of_points),
    "max_pool_values": with_loops(_max_pool_values, _max_of_four, _max_of_four_halves, _max_of_windows, _max_of_points),
    "max_pool_grad": with_loops(_max_pool_grad, _max_of_windows_grad, _max_at_indices_grad),
    "avg_pool": _avg_pool,
    "avg_pool_grad": _avg_pool_grad,
    "adaptive_avg_pool": _adaptive_avg_pool,
    "adaptive_avg_pool_grad": _adaptive_avg_pool_grad,
}
