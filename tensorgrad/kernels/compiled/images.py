"""Convolution of many images with images innermost: one vector holds the same point of LANES images.

Then every output point is a product of its own, over just the taps that meet the image: no zeros are multiplied around
small images, and neither stride nor dilation costs anything. The cost is transposing the input so that its images are
side by side, and the output back; with many channels that is little compared with the products. The gradient of the
weights is the same with other roles: channels side by side, and the sum runs over points and images.

Everything is stored in panels, (lanes / LANES, points, inner, LANES), where the lanes are images or channels.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.compiled.casts import code
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import STORED, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.stored import count_of, number_from, put, turn_from, turn_to
from tensorgrad.kernels.compiled.simd.vectors import LANES, LAST, ONE, PARTS, ROWS, runs_1, runs_2, runs_3

_STRIP = 384 << 10  # bytes of the source of one strip of points: it stays in a second-level cache with the weights
_SUMMED = 1024  # points and images that a weight's gradient sums at a time, for the same reason
_SCALAR = 4  # points below which transposing whole blocks is slower than copying single numbers
_MOST_POINTS = 2048  # of an image: beyond, the table of what each point reads becomes large
# Cycles, where a product of vectors in a tile of conv.py takes one (measured): a product here, a sum of them with its
# transposition, to transpose a number of the source, and what is done in Python more than for tiles.
_PRODUCT, _SUM, _TURNED, _BEGIN = 1.2, 30, 1.5, 10_000
# The same for the gradient of the weights, where a product takes one: to transpose a number of the input, and of the
# output's gradient, and to store a weight.
_TURNING, _TURNING_SLOPES, _STORING = 6.0, 2.0, 5.0
_ITEMS, _MOST_ITEMS = 16, 64  # parts of a sum where possible: at least, and at most if there is that much work
_ITEM = 1 << 23  # products that justify a part
_TOGETHER = 8  # rows of a block by which work is planned, at every level

_ROW, _TABLE = "float32[::1]", "int64[:,::1]"


@lru_cache(maxsize=1)
def panels_loop():
    @shared(f"void({STORED}, {_ROW}, UniTuple(int64, 8), int64, int64)")
    def loop(source, out, sizes, first, last):
        """Copies source[group, lane, m, p] into panels out[group, lane / LANES, p, m, lane % LANES].

        Lanes beyond the last hold another lane's numbers. `kind`: how the source is stored (stored.py).
        """
        group_step, lanes, lane_step, inner, inner_step, points, panels, kind = sizes
        step, count = inner * LANES, count_of(source, kind)
        for item in range(first, last):
            m, panel, group = item % inner, item // inner % panels, item // inner // panels
            present = min(LANES, lanes - panel * LANES)
            at = group * group_step + panel * LANES * lane_step + m * inner_step
            to = (item // inner * points * inner + m) * LANES
            if points >= LANES:
                for p in range(0, points, LANES):
                    p = min(p, points - LANES)
                    turn_from(source, kind, at + p, lane_step, present, out, to + p * step, step, LANES)
            elif points >= _SCALAR and at + (present - 1) * lane_step + LANES <= count:
                turn_from(source, kind, at, lane_step, present, out, to, step, points)
            else:
                for p in range(points):
                    for i in range(LANES):
                        number = number_from(source, kind, at + min(i, present - 1) * lane_step + p)
                        out[np.uint64(to + p * step + i)] = number

    return loop


def _panels(source, groups, group_step, lanes, lane_step, inner, inner_step, points):
    count = -(-lanes // LANES)
    out = np.empty(groups * count * inner * points * LANES, F32)
    if points == 1 and inner_step == 1:
        inner, points = 1, inner
    sizes = (group_step, lanes, lane_step, inner, inner_step, points, count, code(source))
    thread_pool.run(panels_loop(), groups * count * inner, (source, out, sizes), out.size)
    return out


def _images_innermost(x):
    """Copies images (N, C, H, W) into panels (N / LANES, H W, C, LANES)."""
    channels, points = x.shape[1], x.shape[2] * x.shape[3]
    return _panels(x, 1, 0, x.shape[0], channels * points, channels, points, points)


def _channels_innermost(x, groups):
    """Copies images (N, C, H, W) into panels (groups, C / groups / LANES, H W, N, LANES)."""
    channels, points = x.shape[1] // groups, x.shape[2] * x.shape[3]
    return _panels(x, groups, channels * points, channels, points, x.shape[0], x[0].size, points)


def packed(weights):
    """Copies weights (groups, outs, ins, taps) into panels (groups, outs / LANES, taps, ins, LANES)."""
    groups, outs, ins, taps = weights.shape
    group_step, out_step, in_step, _ = weights.strides
    ordered = weights if out_step > in_step else weights.swapaxes(1, 2)
    group_step, out_step, in_step = (step // weights.itemsize for step in (group_step, out_step, in_step))
    return _panels(ordered, groups, group_step, outs, out_step, ins, in_step, taps)


def _up(n, unit):
    return -(-n // unit) * unit


# --- forward, and the gradient of the input --------------------------------------------------------------------------


@inner
def _back(made, registers, strip, count, channels, out, kind, to, channel_step, image_step, images):
    """Copies sums (channel, register, point, lane) to their positions in images (image, channel, point)."""
    for r in range(channels):
        for n in range(registers):
            at, goal = (r * registers + n) * strip * LANES, to + r * channel_step + n * LANES * image_step
            present = min(LANES, images - n * LANES)
            if count >= LANES:
                for p in range(0, count, LANES):
                    p = min(p, count - LANES)
                    turn_to(made, at + p * LANES, LANES, LANES, out, kind, goal + p, image_step, present)
            else:
                for i in range(present):
                    for p in range(count):
                        put(out, kind, goal + i * image_step + p, made[np.uint64(at + p * LANES + i)])


@lru_cache(maxsize=1)
def convolve_loop():
    @shared(
        f"void({_ROW}, {_ROW}, {_TABLE}, int64[::1], {_ROW}, {STORED}, int64, UniTuple(int64, 9), int64, int64)",
        product=True,
    )
    def loop(weights, x, table, starts, shift, out, kind, sizes, first, last):
        images, image_panels, image_blocks, groups, outs, ins, size, strip, strips = sizes
        points, blocks = starts.size - 1, -(-outs // LANES)
        depth = weights.size // (groups * blocks)
        made = np.empty(LANES * 3 * strip * LANES, np.float32)
        apart = size * groups * ins * LANES
        for item in range(first, last):
            block, group, rest = item % blocks, item // blocks % groups, item // blocks // groups
            begin, part = rest % strips * strip, rest // strips
            panel = part * image_panels // image_blocks
            registers = (part + 1) * image_panels // image_blocks - panel
            stop, channel = min(begin + strip, points), group * blocks + block
            at = (panel * size * groups + group) * ins * LANES
            beside, pitch = strip * LANES, registers * strip * LANES
            rows = LANES if registers == 1 else ROWS
            for p in range(begin, stop):
                to, low, high = (p - begin) * LANES, starts[p], starts[p + 1]
                for r in range(0, min(LANES, outs - block * LANES), rows):
                    w, s, here = channel * depth + r, channel * LANES + r, to + r * pitch
                    if low == high:
                        for i in range(r, r + rows):
                            for n in range(registers):
                                made[i * pitch + n * beside + to : i * pitch + n * beside + to + LANES] = shift[
                                    s + i - r
                                ]
                    elif registers == 3:
                        runs_3(weights, w, LANES, ONE, LAST, x, at, LANES, apart, table, low, high,
                               shift, s, made, here, pitch, made, here, pitch, beside)  # fmt: skip
                    elif registers == 2:
                        runs_2(weights, w, LANES, ONE, LAST, x, at, LANES, apart, table, low, high,
                               shift, s, made, here, pitch, made, here, pitch, beside)  # fmt: skip
                    else:
                        runs_1(weights, w, LANES, ONE, LAST, x, at, LANES, apart, table, low, high,
                               shift, s, made, here, pitch, made, here, pitch, beside)  # fmt: skip
            channels, first_channel = min(LANES, outs - block * LANES), group * outs + block * LANES
            goal = (panel * LANES * groups * outs + first_channel) * points + begin
            _back(
                made, registers, strip, stop - begin, channels, out, kind, goal, points, groups * outs * points,
                images - panel * LANES,
            )  # fmt: skip

    return loop


def _met(size, points, step, shift, over):
    """Returns where a tap reads for each output point along one dimension; -1 outside, or between two steps."""
    at = np.arange(points) * step + shift
    at = np.where(at % over == 0, at // over, -1)
    return np.where(at < size, at, -1)


@lru_cache(maxsize=32)
def _forward_table(size, points, taps, steps, over, ins, pitch):
    """Lists the runs (index in the weights, index in the source, count) of every output point.

    Also returns where each point's runs start, and the sum of the counts.
    """
    rows: dict[int, np.ndarray] = {}
    columns: dict[int, np.ndarray] = {}
    for y, x in taps:
        rows.setdefault(y, _met(size[0], points[0], steps[0], y, over[0]))
        columns.setdefault(x, _met(size[1], points[1], steps[1], x, over[1]))
    places = np.full((len(taps), *points), -1, np.int64)
    for n, (y, x) in enumerate(taps):
        down, across = rows[y][:, None], columns[x][None, :]
        places[n] = np.where((down < 0) | (across < 0), -1, down * size[1] + across)
    point, tap = np.nonzero(places.reshape(len(taps), -1).T >= 0)
    place = places.reshape(len(taps), -1)[tap, point]
    table = np.stack([tap * ins, place * pitch, np.full(len(tap), ins)], 1)
    if pitch == ins and len(table):  # adjacent taps that read adjacent points are one run
        new = np.ones(len(table), bool)
        new[1:] = (np.diff(point) != 0) | (np.diff(tap) != 1) | (np.diff(place) != 1)
        table[:, 2] = 0
        of = np.cumsum(new) - 1
        table = np.stack([table[new, 0], table[new, 1], np.bincount(of) * ins], 1)
        point = point[new]
    table = np.ascontiguousarray(table * (LANES, LANES, 1))
    starts = np.searchsorted(point, np.arange(points[0] * points[1] + 1))
    return table, starts.astype(np.int64), int(table[:, 2].sum())


def convolve_cost(images, size, points, taps, steps, over, groups, ins, outs):
    """Estimates the cycles that `convolve` takes; infinite for what it does not support."""
    if images < PARTS // 2 or points[0] * points[1] > _MOST_POINTS or outs < _TOGETHER:
        return math.inf
    count = _forward_table(size, points, taps, steps, over, ins, groups * ins)[2]
    vectors = -(-images // PARTS) * groups * _up(outs, _TOGETHER)
    moved = images * groups * ins * size[0] * size[1]
    return vectors * (_PRODUCT * count + _SUM * points[0] * points[1]) + _TURNED * moved + _BEGIN


def convolve(x, weights, bias, out, taps, steps, over):
    """Convolves `x` (N, C, H, W) into `out` (N, O, P, Q): point i reads (i steps + tap) / over, if that is whole.

    `weights` is (groups, outs, ins, taps), with outs and ins in either memory order.
    """
    groups, outs, ins, _ = weights.shape
    panels = packed(weights)
    size, points = x.shape[2:], out.shape[2:]
    table, starts, count = _forward_table(size, points, taps, steps, over, ins, groups * ins)
    sizes, items = _strips_of(len(x), size, points, groups, ins, outs, thread_pool.parts())
    x = _images_innermost(x)
    shift = np.zeros((groups, _up(outs, LANES)), F32)
    if bias is not None:
        shift[:, :outs] = bias.reshape(groups, outs)
    given = (panels, x, table, starts, shift.reshape(-1), out, code(out), sizes)
    thread_pool.run(convolve_loop(), items, given, count * sizes[0] * outs * groups // 16)


@lru_cache(maxsize=64)
def _strips_of(images, size, points, groups, ins, outs, parts):
    """Returns the sizes that `convolve_loop` takes, and the number of its items."""
    blocks = -(-outs // LANES)
    image_panels = -(-images // LANES)
    image_blocks = -(-image_panels // 3)
    # Rows of output points whose source, including the rows that the taps reach beyond, fits the cache.
    row = 4 * LANES * -(-image_panels // image_blocks) * ins * size[1]
    rows = max(1, min(points[0], int(_STRIP / row * points[0] / size[0])))
    strips = max(-(-points[0] // rows), min(points[0], parts // (image_blocks * groups * blocks)))
    rows = -(-points[0] // strips)
    strip = rows * points[1]
    strips = -(-points[0] // rows)
    sizes = (images, image_panels, image_blocks, groups, outs, ins, size[0] * size[1], strip, strips)
    return sizes, image_blocks * strips * groups * blocks


# --- the gradient of the weights -------------------------------------------------------------------------------------


@inner(forceinline=True)  # the steps in panels are constants, which the addresses then contain
def _sums(registers, left, w, step, row, last, right, at, apart, table, low, end, made, to, pitch):
    if registers == 3:
        runs_3(left, w, step, row, last, right, at, LANES, apart, table, low, end,
               left, -1, made, to, pitch, made, to, pitch, LANES)  # fmt: skip
    elif registers == 2:
        runs_2(left, w, step, row, last, right, at, LANES, apart, table, low, end,
               left, -1, made, to, pitch, made, to, pitch, LANES)  # fmt: skip
    else:
        runs_1(left, w, step, row, last, right, at, LANES, apart, table, low, end,
               left, -1, made, to, pitch, made, to, pitch, LANES)  # fmt: skip


@lru_cache(maxsize=1)
def correlate_loop():
    @shared(f"void({_ROW}, {_ROW}, {_TABLE}, int64[::1], {_ROW}, UniTuple(int64, 12), int64, int64)", product=True)
    def loop(left, right, table, starts, out, sizes, first, last):
        """Sums products of `rows` channels of the left array and `columns` of the right one; see `correlate`.

        `row`: the step from one channel of the left array to the next. If it is 1, that is in panels, too.
        """
        images, groups, rows, columns, column_blocks, row, area, span, strips, parts, row_step, column_step = sizes
        blocks, panels, taps = -(-rows // LANES), -(-columns // LANES), (starts.size - 1) // strips
        made = np.empty(taps * LANES * 3 * LANES, np.float32)
        apart = span * images * LANES
        for item in range(first, last):
            block, rest = item % blocks, item // blocks
            column_block, rest = rest % column_blocks, rest // column_blocks
            group, part = rest % groups, rest // groups
            panel = column_block * panels // column_blocks
            registers = (column_block + 1) * panels // column_blocks - panel
            at, pitch = (group * panels + panel) * apart, registers * LANES
            if row > 1:
                begin = (group * rows + block * LANES) * row
            else:
                begin = (group * blocks + block) * area * images * LANES
            present = min(LANES, rows - block * LANES)
            high = LANES if registers == 1 else ROWS
            made[:] = 0
            for strip in range(part * strips // parts, (part + 1) * strips // parts):
                for tap in range(taps):
                    low, end = starts[strip * taps + tap], starts[strip * taps + tap + 1]
                    for r in range(0, min(LANES, rows - block * LANES) if low < end else 0, high):
                        w, last_row, to = begin + r * row, present - 1 - r, (tap * LANES + r) * pitch
                        if row > 1:
                            _sums(registers, left, w, ONE, row, last_row, right, at, apart, table, low, end, made, to,
                                  pitch)  # fmt: skip
                        else:
                            _sums(registers, left, w, LANES, ONE, LAST, right, at, apart, table, low, end, made, to,
                                  pitch)  # fmt: skip
            start = (part * groups + group) * rows * columns * taps
            for r in range(min(LANES, rows - block * LANES)):
                to = start + (block * LANES + r) * row_step + panel * LANES * column_step
                for c in range(min(registers * LANES, columns - panel * LANES)):
                    for tap in range(taps):
                        out[np.uint64(to + c * column_step + tap)] = made[np.uint64((tap * LANES + r) * pitch + c)]

    return loop


@lru_cache(maxsize=32)
def _weight_table(size, points, taps, steps, images):
    """Lists the runs (index in the output's gradient, index in the input, count) of every strip of points and tap.

    Also returns where they start, the number of strips, and the sum of the counts.
    """
    rows = max(1, min(points[0], _SUMMED // (images * points[1])))
    strips = -(-points[0] // rows)
    table: list[tuple[int, int, int]] = []
    starts = [0]
    for strip, (y, x) in product(range(strips), taps):
        across = _met(size[1], points[1], steps[1], x, 1)
        met = np.flatnonzero(across >= 0)
        for i in range(strip * rows, min(strip * rows + rows, points[0])):
            down = i * steps[0] + y
            if 0 <= down < size[0] and met.size:
                base, source = i * points[1], down * size[1]
                if steps[1] == 1:
                    run = base + met[0], source + across[met[0]], len(met)
                    before = table[-1] if len(table) > starts[-1] else (-1, -1, 0)
                    if (before[0] + before[2], before[1] + before[2]) == run[:2]:  # whole rows follow each other
                        table[-1] = (*before[:2], before[2] + len(met))
                    else:
                        table.append(run)
                else:
                    table += [(base + q, source + across[q], 1) for q in met]
        starts.append(len(table))
    runs = np.array(table, np.int64).reshape(-1, 3) * images * (LANES, LANES, 1)
    return runs, np.array(starts, np.int64), strips, int(runs[:, 2].sum())


@lru_cache(maxsize=64)
def _runs_of(swapped, *shape):
    """The runs of `_weight_table`, those of one image with the index in the left array counted in points.

    `swapped`: the left array is the input.
    """
    runs = _weight_table(*shape)[0][:, [1, 0, 2] if swapped else [0, 1, 2]]
    images = shape[-1]
    return np.ascontiguousarray(runs // (LANES, 1, 1) if images == 1 else runs)


def _inputs_inside(outs, ins):
    """Returns whether the sums of one input channel are the rows of a block, and those of the outputs its vectors.

    A block of one vector reads a number for each product, which takes longer than the product.
    """
    if not ins <= PARTS < outs:
        return False
    return _up(ins, _TOGETHER) * _up(outs, PARTS) <= _up(ins, PARTS) * _up(outs, _TOGETHER)


def correlate_cost(images, size, points, taps, steps, groups, ins, outs):
    """Estimates the cycles that `correlate` takes; infinite for what it does not support."""
    if points[0] * points[1] > _MOST_POINTS or outs < _TOGETHER:
        return math.inf
    count = _weight_table(size, points, taps, steps, images)[3]
    rows, columns = (ins, outs) if _inputs_inside(outs, ins) else (outs, ins)
    of_input, of_slopes = _up(ins, PARTS) * size[0] * size[1], _up(outs, PARTS) * points[0] * points[1]
    moved = images * groups * (_TURNING * of_input + _TURNING_SLOPES * of_slopes)
    stored = _STORING * outs * ins * len(taps) * groups
    return _up(rows, _TOGETHER) * -(-columns // PARTS) * groups * count + moved + stored + _BEGIN


def correlate(g, x, w_shape, taps, steps, groups):
    """Computes the gradient for a convolution's weights, of `w_shape`, from its output's gradient and its input.

    It is float32, whatever the dtype of these is.
    """
    images, size, points = x.shape[0], x.shape[2:], g.shape[2:]
    outs, ins = w_shape[0] // groups, w_shape[1]
    area, span = size[0] * size[1], points[0] * points[1]
    _, starts, strips, count = _weight_table(size, points, taps, steps, images)
    left, right, rows, columns, row_step, column_step = g, x, outs, ins, ins * len(taps), len(taps)
    swapped = _inputs_inside(outs, ins)
    if swapped:
        left, right, rows, columns, row_step, column_step = x, g, ins, outs, column_step, row_step
        area, span = span, area  # points of the right array, and of the left one
    runs = _runs_of(swapped, size, points, taps, steps, images)
    # The numbers of the left array are read one by one: those of one image where they are.
    if images == 1 and span > 1:
        left, row = in_dtype(left, F32).reshape(-1), span
    else:
        left, row = _channels_innermost(left, groups), 1
    right = _channels_innermost(right, groups)
    panels = -(-columns // LANES)
    column_blocks, blocks = -(-panels // 3), -(-rows // LANES)
    # Independent of the number of threads and of the size of registers, as results must be.
    planned = -(-columns // (3 * PARTS)) * -(-rows // PARTS)
    items = max(_ITEMS, min(_MOST_ITEMS, count * outs * ins * groups // _ITEM))
    parts = min(strips, max(1, items // (groups * planned)))
    out = np.empty((parts, *w_shape), F32)
    sizes = (images, groups, rows, columns, column_blocks, row, span, area, strips, parts, row_step, column_step)
    given = (left, right, runs, starts, out.reshape(-1), sizes)
    work = count * outs * ins * groups
    thread_pool.run(correlate_loop(), parts * groups * column_blocks * blocks, given, work // 16)
    return out[0] if parts == 1 else out.sum(0)
