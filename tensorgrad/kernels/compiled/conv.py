"""Convolution, its transpose and its gradients, over one and two spatial dimensions, as products without im2col.

Output point i of a convolution reads its source at the points i * step + tap, one for each tap of the window; points
outside are zero. The gradient for the input is the same with the roles exchanged: for stride s, the points i * s + r of
the input are, for each r, a convolution of the output's gradient with some of the taps and step 1.

The work is done in tiles (`simd/tiles.py`), in which one tap of a channel reads one run of numbers for all output
points. So the inner loop of the product (`simd/vectors.py`) needs no columns, only a table of where the runs begin.
Many small images are better stored side by side (`images.py`); the cheaper way is estimated from the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.compiled import images, winograd
from tensorgrad.kernels.compiled.casts import code
from tensorgrad.kernels.compiled.layout import in_rows
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import STORED, inner, to_fixed_tuple
from tensorgrad.kernels.compiled.runtime.launch import shared, with_loops
from tensorgrad.kernels.compiled.simd.panels import flat, into_panels
from tensorgrad.kernels.compiled.simd.stored import FLOAT32, carry_few_to, carry_to, floats_of, move_to
from tensorgrad.kernels.compiled.simd.tiles import FORM, ITEMS, WIDEST, Layout, fill, layout, odd, up
from tensorgrad.kernels.compiled.simd.vectors import (
    BLOCK,
    DOTS,
    DOTS_LINE,
    LANES,
    LINE,
    ONE,
    PARTS,
    block_dots,
    block_products,
    block_products_1,
    block_products_2,
    line_dots,
    line_products,
)
from tensorgrad.rows import kernel_tables

_DEEP, _USEFUL = 1 << 15, 0.7  # products of channels from which on NumPy is faster if fewer points are useful
_CHUNK = 64  # input and output channels of a weight's gradient that are processed at a time
# Cycles, where a product of vectors takes one (measured): to copy a number to a tile, and from it; and for the gradient
# of the weights to copy one to a tile, to store a weight, and what is done in Python more than for Winograd's method.
_FILLING, _SPILLING = 1.9, 1.2
_MOVING, _STORING, _BEGIN = 2.0, 5.0, 20_000
_FILLS = 144  # taps times outputs that justify filling a tile: the product then takes ten times as long
_IN_PLACE = 64  # outputs up to which windows of one point are read where they are: they are not read often
_PACKED = 1024  # points of the result from which on weights are packed, that is, copied in the order of the product
# Rows of a block, and rows and columns of one of sums over pixels, by which work is planned, at every level.
_TOGETHER, _SUMMED_TOGETHER = 8, ((1, 9), (4, 6))
_STRAY = 8 << 20  # maximum bytes of the parts of a weight's gradient

_OF_WINOGRAD = ((3, 3), (1, 1), (1, 1), 1)  # window, stride, dilation and groups

_ROW, _ZERO = "float32[::1]", np.float32(0)


# --- the product -----------------------------------------------------------------------------------------------------


def _lanes(rows):
    """Returns how many outputs' weights are adjacent, for the block of the product that takes so many."""
    return rows if rows == 1 else max(rows, LANES)


@lru_cache(maxsize=1)
def _pack():
    @shared(f"void(float32[:,:,:,:], int64[::1], boolean, {_ROW}, int64, int64, int64)")
    def pack(weights, taps, dense, out, lanes, first, last):
        """Packs weights (groups, out, in, taps) for the inner loop: for `lanes` outputs, one for each in and tap.

        `dense`: all taps are taken in order, and the weights are stored in that order.
        """
        outs, ins = weights.shape[1], weights.shape[2]
        panels, depth = -(-outs // lanes), ins * taps.size
        for n in range(first, last):
            group, panel = n // panels, n % panels
            if dense and lanes == LANES:
                start, count = (group * outs + panel * LANES) * depth, min(LANES, outs - panel * LANES)
                into_panels(flat(weights), start, depth, ONE, count, depth, out, n * depth * LANES)
                continue
            for r in range(min(lanes, outs - panel * lanes)):
                to = out[n * depth * lanes + r : (n + 1) * depth * lanes]
                for c in range(ins):
                    for t in range(taps.size):
                        to[(c * taps.size + t) * lanes] = weights[group, panel * lanes + r, c, taps[t]]

    return pack


@inner
def _spill(tile, pitch, out, kind, image, total, channel, channels, count, row, form, place, done):
    """Copies the points of `count` channels to their positions in the output, except the first `done` points."""
    images, rows, _, height, width = form[:5]
    out_y, out_x = form[14], form[15]
    size_y, size_x, step_y, step_x, first_y, first_x = place
    for r in range(count):
        for m in range(min(images, total - image)):
            base = ((image + m) * channels + channel + r) * size_y * size_x + first_x
            if step_x == 1 and not done:  # whole vectors, all rows together
                at, to = r * pitch + m * height * width, base + (row * step_y + first_y) * size_x
                if out_x < LANES:
                    carry_few_to(tile, at, width, out, kind, to, step_y * size_x, min(rows, out_y - row), out_x)
                    continue
                for j in range(0, out_x, LANES):
                    j = min(j, out_x - LANES)
                    carry_to(tile, at + j, width, out, kind, to + j, step_y * size_x, min(rows, out_y - row))
                continue
            for i in range(done // width, min(rows, out_y - row)):
                skip = max(0, done - i * width)
                to = base + ((row + i) * step_y + first_y) * size_x + skip
                move_to(tile, r * pitch + (m * height + i) * width + skip, out, kind, to, step_x, out_x - skip)


@lru_cache(maxsize=2)
def _convolve(line: bool):
    """Makes the compiled loop over items (tile, group, chunk of the group's output channels)."""
    rows, wide = (LINE if line else BLOCK)[0], (LINE if line else BLOCK)[1] * LANES
    lanes = _lanes(rows)

    @shared(
        f"void({STORED}, {_ROW}, {_ROW}, int64[::1], int64[:,::1], {STORED}, int64, int64[::1], boolean, int64, int64)"
    )
    def loop(x, weights, shift, offsets, rests, out, kind, numbers, packed, first, last):
        """`kind`: how the source and the result are stored (stored.py)."""
        form, place, sizes = to_fixed_tuple(numbers[:16], 16), to_fixed_tuple(numbers[16:], 6), numbers[22:]
        # Channels of a group; a chunk is a number of blocks of them.
        total, groups, ins, outs, chunks, chunk, in_place = to_fixed_tuple(sizes, 7)
        images, _, strips, _, _, _, plane, points = form[:8]
        blocks, panels, depth = -(-outs // rows), -(-outs // lanes), offsets.size
        step, next_row = (lanes, 1) if packed else (1, depth)  # from a weight to that of the next tap, the next output
        pitch, plane_out = -(-points // wide) * wide, place[0] * place[1]
        direct = images == 1 and form[4] == form[15] == place[1] and place[3] == 1 and place[2] == 1
        direct, whole = direct and kind == FLOAT32, floats_of(out)
        buffer = np.empty(0 if in_place else ins * rests.shape[0] * plane, np.float32)
        source, origin = floats_of(x) if in_place else buffer, 0
        made = np.empty(rows * pitch, np.float32)
        held, before = -1, (-1, -1)
        for item in range(first, last):
            part, tile = item % chunks, item // chunks
            group, image, row = tile % groups, tile // groups // strips * images, tile // groups % strips * form[1]
            now = (row, min(images, total - image))
            if in_place:
                origin = (image * groups + group) * ins * form[12] * form[13] + row * form[4]
            elif tile != held:
                fill(x, kind, image, total, group * ins, ins, row, rests, form, _ZERO, now != before, buffer)
                held, before = tile, now
            # Where the points have the output's layout, whole blocks of them are written there directly.
            ready = min(form[1], form[14] - row) * form[4] // wide * wide if direct else 0
            for block in range(part * chunk, min((part + 1) * chunk, blocks)):
                n, count = group * blocks + block, min(rows, outs - block * rows)
                done = ready if count == rows else 0
                first_out = (image * groups * outs + group * outs + block * rows) * plane_out + row * form[15]
                if packed:
                    w = (group * panels + block * rows // lanes) * lanes * depth + block * rows % lanes
                else:
                    w = (group * outs + block * rows) * depth
                s, channel = n * rows, group * outs + block * rows
                for at in range(0, pitch, wide):
                    target, to, apart = (whole, first_out + at, plane_out) if at < done else (made, at, pitch)
                    if line:
                        line_products(
                            weights, w, step, next_row, source, offsets, origin + at, shift, s, target, to, apart
                        )
                    elif points - at > 2 * LANES:
                        block_products(
                            weights, w, step, next_row, source, offsets, origin + at, shift, s, target, to, apart
                        )
                    elif points - at > LANES:
                        block_products_2(
                            weights, w, step, next_row, source, offsets, origin + at, shift, s, target, to, apart
                        )
                    else:
                        block_products_1(
                            weights, w, step, next_row, source, offsets, origin + at, shift, s, target, to, apart
                        )
                _spill(made, pitch, out, kind, image, total, channel, groups * outs, count, row, form, place, done)

    return loop


class _Tiling(NamedTuple):
    """The arguments of `_run` other than arrays."""

    chosen: np.ndarray  # indices of taps
    all_chosen: bool
    few: bool  # few points: weights are read in place, as they are not read often
    offsets: np.ndarray
    rests: np.ndarray
    # Layout; height, width, steps and first point of the output's points that this computes; sizes. (Passing an array
    # takes less time than passing as many numbers.)
    numbers: np.ndarray
    items: int
    rows: int  # rows of a block of the product
    none: np.ndarray  # a bias of zeros
    work: int


def _tiling(size, points, steps, taps, batch, groups, ins, outs, place, all_chosen, items, floats):
    """Returns the `_Tiling` of a convolution; None for small deep images, whose tiles have too much between their rows.

    `taps` holds (index, y, x) of the taps to use (`all_chosen`: all of them, in order), `points` is the number of
    output points at `place`, `items` the number of parts to divide the work into if that is worthwhile. `floats`: the
    source is float32, which can be read where it is.
    """
    rows = (LINE if outs <= 2 else BLOCK)[0]
    blocks = -(-outs // rows)
    given = size, points, steps, tuple(t[1:] for t in taps), ins, batch
    form = layout(*given)[0]
    tiles = -(-batch // form.images) * form.strips
    if ins * outs >= _DEEP and batch * prod(points) < _USEFUL * tiles * up(form.points, PARTS):
        return None
    form, offsets, rests = layout(*given, items)
    tiles = -(-batch // form.images) * form.strips * groups
    least = up(max(rows, min(32, _FILLS // len(taps))), rows) // rows  # blocks that justify filling the tile again
    chunks = max(1, min(-(-items // tiles), blocks // least))
    chunk = -(-blocks // chunks)
    chunks = -(-blocks // chunk)
    # One tap, of which point i reads point i, needs no tile if its rows are whole vectors: nothing is read beyond them.
    in_place = (
        floats and taps == ((0, 0, 0),) and steps == (1, 1) and size == points and 2 < outs <= _IN_PLACE
        and form.images == 1 and not points[0] % form.rows and not form.rows * form.pitch % PARTS
    )  # fmt: skip
    if in_place:
        offsets = np.arange(ins, dtype=np.int64) * prod(size)
    sizes = batch, groups, ins, outs, chunks, chunk, in_place
    chosen = np.array([t[0] for t in taps], np.int64)
    none = np.zeros(groups * blocks * rows, F32)
    work = batch * prod(points) * groups * outs * offsets.size // 8
    few = batch * prod(points) <= _PACKED and not outs % rows
    numbers = np.array([*form, *place, *sizes], np.int64)
    return _Tiling(chosen, all_chosen, few, offsets, rests, numbers, tiles * chunks, rows, none, work)


def _run(x, weights, bias, out, tiling):
    """Convolves `x` (N, C, H, W) with `weights` (groups, out, in, taps) into some points of `out`."""
    groups, outs = weights.shape[:2]
    chosen, all_chosen, few, offsets, rests, numbers, items, rows, shift, work = tiling
    dense = all_chosen and weights.flags.c_contiguous
    packed = not (dense and few)
    if packed:
        lanes = _lanes(rows)
        panels = groups * -(-outs // lanes)
        panel = np.empty(panels * lanes * offsets.size, F32)
        # In the threads that are about to read them: data that another thread has written takes a while to arrive.
        thread_pool.run(_pack(), panels, (weights, chosen, dense, panel, lanes), max(panel.size, work // 2))
        weights = panel
    if bias is not None and bias.size == shift.size and bias.dtype is F32 and bias.flags.c_contiguous:
        shift = bias  # (a plan may pass it on as well: links.py)
    elif bias is not None:
        shift = np.zeros((groups, shift.size // groups), F32)
        shift[:, :outs] = bias.reshape(groups, outs)
        shift = shift.reshape(-1)
    given = (x, weights.reshape(-1), shift, offsets, rests, out, code(x), numbers, packed)
    thread_pool.run(_convolve(outs <= 2), items, given, work)


def _planar(array):
    """Views an array of one spatial dimension (or a parameter of it) as one of two."""
    if array.ndim == 3:
        array = array.reshape(*array.shape[:2], 1, array.shape[2])
    return array if array.flags.c_contiguous else in_rows(array)


def _pairs(parameters, fill):
    return (fill, *parameters) if len(parameters) == 1 else tuple(parameters)


def _suits(array):
    """Returns whether this array has one or two spatial dimensions, and is float32, or of two bytes without gaps."""
    if array.__class__ is not np.ndarray or not 3 <= array.ndim <= 4:
        return False
    return array.dtype is F32 or code(array) is not None


def _suit(a, b):
    """Returns whether both arrays do, neither is empty, and their dtypes are equal."""
    return _suits(a) and _suits(b) and a.size and b.size and a.dtype == b.dtype


def _reads(kernel, padding, dilation):
    """Returns (index, y, x) of each tap: output point i reads the input at i * stride + (y, x)."""
    return tuple(
        (n, *[k * d - p for k, d, p in zip(tap, dilation, padding, strict=True)])
        for n, tap in enumerate(product(*map(range, kernel)))
    )


@lru_cache(maxsize=64)
def _places(kernel, padding, dilation):
    """Returns (y, x) of each tap."""
    return tuple(t[1:] for t in _reads(kernel, padding, dilation))


class _Plan(NamedTuple):
    """How a convolution, or the gradient of its input, is computed."""

    points: tuple[int, int]  # of the result
    taps: tuple  # (y, x): point i reads its source at (i * steps + tap) / over, if that is whole
    steps: tuple[int, int]
    over: tuple[int, int]
    innermost: int  # the number of leading images that are computed innermost (images.py), the others by tiles
    tilings: tuple[_Tiling, ...]
    gaps: bool  # whether there are points that no tap reaches
    padding: tuple[int, int] | None  # for Winograd's method (winograd.py), if that is the fastest
    backwards: bool


@lru_cache(maxsize=256)
def _plan(
    backwards, batch, size, points, kernel, stride, padding, dilation, groups, ins, outs, items=ITEMS, floats=True
):
    """Returns the `_Plan` for a source of `size` and a result of `points` (None: as many as fit), each (height, width).

    Returns None if neither way is good: small deep images, if there are few of them.

    `ins` and `outs` are the channels of a group, in the source and the result. `backwards`: the gradient of the input.
    `items` is the desired number of parts of the work; the method, and so the result, does not depend on it, nor on
    `floats`: whether the source is float32.
    """
    reads = _reads(kernel, padding, dilation)
    if not backwards:
        points = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
        )
        taps, steps, over = tuple(t[1:] for t in reads), stride, (1, 1)
        parts: tuple = ((0, 0, points, reads),)
    else:
        taps, steps, over = tuple((-y, -x) for _, y, x in reads), (1, 1), stride
        parts = tuple(
            # The points y, y + stride, ...: the taps that reach them, as steps of one point of the source.
            (y, x, (-(-(points[0] - y) // stride[0]), -(-(points[1] - x) // stride[1])), tuple(
                (n, (y - b) // stride[0], (x - a) // stride[1])
                for n, b, a in reads if not (y - b) % stride[0] and not (x - a) % stride[1]
            ))
            for y, x in product(*[range(min(s, n)) for s, n in zip(stride, points, strict=True)])
        )  # fmt: skip
    by_tiles = 0.0
    for *_, some, reached in parts:
        if reached:
            form, offsets, rests = layout(size, some, steps, tuple(t[1:] for t in reached), ins, batch)
            rows = 1 if outs <= 2 else _TOGETHER
            tiles = -(-batch // form.images) * form.strips
            by_tiles += tiles * -(-form.points // PARTS) * offsets.size * up(outs, rows) * groups
            by_tiles += _FILLING * batch * groups * ins * prod(size) * len(rests) / prod(steps)
    by_tiles += _SPILLING * batch * groups * outs * prod(points)
    whole = batch - batch % PARTS

    def cost(n):
        return images.convolve_cost(n, size, points, taps, steps, over, groups, ins, outs) if n else 0.0

    def of_both(n):
        return cost(n) + by_tiles * (batch - n) / batch

    innermost = min({0, whole, batch}, key=of_both)
    shape, padding = (kernel, stride, dilation, groups), tuple(2 - p if backwards else p for p in padding)
    if shape != _OF_WINOGRAD or min(padding) < 0 or winograd.cost(batch, points, ins, outs) > of_both(innermost):
        padding = None
    tilings = _tilings(batch - innermost, size, points, parts, steps, over, groups, ins, outs, len(taps), items, floats)
    if None in tilings and 0 < innermost < batch:
        innermost, tilings = batch, ()
    gaps = not all(reached for *_, reached in parts)
    if None in tilings and padding is None:
        return None
    return _Plan(points, taps, steps, over, innermost, tilings, gaps, padding, backwards)


def _tilings(batch, size, points, parts, steps, over, groups, ins, outs, taps, items, floats):
    return tuple(
        _tiling(size, some, steps, reached, batch, groups, ins, outs, (*points, *over, y, x), len(reached) == taps,
                items, floats)
        for y, x, some, reached in parts if batch and reached
    )  # fmt: skip


def _carry_out(plan, x, weights, bias, out):
    """Runs a plan. Returns whether that succeeded. (Numbers of two bytes need no copy, but for weights of tiles.)"""
    if plan.padding is not None and winograd.convolve(x, weights, bias, out, plan.padding, plan.backwards):
        return True
    if None in plan.tilings:
        return False
    n = plan.innermost
    if n:
        images.convolve(x[:n], weights, bias, out[:n], plan.taps, plan.steps, plan.over)
    if n < len(x):
        if n:
            x, out = x[n:], out[n:]
        weights = in_dtype(weights, F32)
        if plan.gaps and bias is None:
            out.fill(0)
        elif plan.gaps:
            out[...] = bias.reshape(-1, 1, 1)
        for tiling in plan.tilings:
            _run(x, weights, bias, out, tiling)
    return True


@lru_cache(maxsize=256)
def _forwards(x_shape, w_shape, stride, padding, dilation, groups, items, floats):
    """Returns the `_Plan` of a convolution and the shapes of weights and result it uses; or None."""
    outs, ins, *kernel = w_shape
    if 0 in x_shape or 0 in w_shape or outs % groups or x_shape[-1] > WIDEST:
        return None
    size = x_shape[2:]
    if len(size) == 1:
        size, kernel, stride, padding, dilation = (1, *size), (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)
    own, batch = outs // groups, x_shape[0]
    plan = _plan(False, batch, size, None, (*kernel,), stride, padding, dilation, groups, ins, own, items, floats)
    return None if plan is None else (plan, (groups, own, ins, prod(kernel)), (batch, outs, *plan.points))


def _pixels(x):
    """Views images (N, C, H, W) as rows of channels if the channels are innermost; else None."""
    if x.ndim != 4 or x.flags.c_contiguous:
        return None
    x = x.transpose(0, 2, 3, 1)
    return x.reshape(-1, x.shape[3]) if x.flags.c_contiguous else None


def _of_points(kernel, stride, padding, groups):
    """Returns whether a convolution treats each point separately: then it is a product of rows of channels."""
    return groups == 1 == kernel[-1] and len(kernel) == 2 and {*kernel, *stride} == {1} and not any(padding)


def _product(name, *factors):
    """Runs the compiled kernel of a product; NotImplemented if it is not ready or declines."""
    row = kernel_tables.COMPILED.get(name)
    return row.ready(*factors) if row is not None and row.available() else NotImplemented


def _as_images(pixels, shape):
    """Views rows of channels as images of a shape (N, C, H, W) with channels innermost."""
    return pixels.reshape(shape[0], *shape[2:], shape[1]).transpose(0, 3, 1, 2)


def conv(x, w, bias, stride, padding, dilation, groups):
    """Computes the convolution of `x` (N, C, *S) with `w` (O, C / groups, *K)."""
    if not (_suits(x) and _suits(w)) or x.dtype != w.dtype or (bias is not None and bias.dtype != x.dtype):
        return NotImplemented
    if _of_points(w.shape[2:], stride, padding, groups) and (pixels := _pixels(x)) is not None:
        made = _product("linear", pixels, in_rows(w).reshape(w.shape[:2]), bias)
        if made is not NotImplemented:
            return _as_images(made, (len(x), len(w), *x.shape[2:]))
    parts, floats = thread_pool.parts(ITEMS), x.dtype is F32
    found = _forwards(x.shape, w.shape, stride, padding, dilation, groups, parts, floats)
    if found is None:
        return NotImplemented
    plan, weights, shape = found
    out = np.empty(shape, x.dtype)
    if not _carry_out(plan, _planar(x), in_rows(w).reshape(weights), bias, out):
        return NotImplemented
    return out if x.ndim == 4 else out.reshape(*shape[:2], shape[3])


def conv_grad_input(g, w, x_shape, stride, padding, dilation, groups, bias=None):
    """Computes the gradient of `conv` for its input, from the output's gradient `g`; `bias` is added to it."""
    if not _suit(g, w) or 0 in x_shape or x_shape[-1] > WIDEST or (bias is not None and bias.dtype != g.dtype):
        return NotImplemented
    if bias is None and _of_points(w.shape[2:], stride, padding, groups) and (pixels := _pixels(g)) is not None:
        made = _product("matmul", pixels, in_rows(w).reshape(w.shape[:2]))
        if made is not NotImplemented:
            return _as_images(made, x_shape)
    g, w, items, floats = _planar(g), _planar(w), thread_pool.parts(ITEMS), g.dtype is F32
    plan, weights, shape = _backwards(
        g.shape, w.shape, tuple(x_shape), stride, padding, dilation, groups, items, floats
    )  # fmt: skip
    if plan is None:
        return NotImplemented
    out = np.empty(shape, g.dtype)
    if not _carry_out(plan, g, w.reshape(weights).swapaxes(1, 2), bias, out):
        return NotImplemented
    return out if len(x_shape) == 4 else out.reshape(x_shape)


@lru_cache(maxsize=256)
def _backwards(g_shape, w_shape, x_shape, stride, padding, dilation, groups, items, floats):
    """Returns the `_Plan` of the gradient of the input (or None), and the shapes of weights and result it uses."""
    stride, padding, dilation = _pairs(stride, 1), _pairs(padding, 0), _pairs(dilation, 1)
    size, outs, ins = _pairs(x_shape[2:], 1), w_shape[0] // groups, w_shape[1]
    given = (g_shape[2:], size, w_shape[2:], stride, padding, dilation, groups, outs, ins, items, floats)
    return _plan(True, g_shape[0], *given), (groups, outs, ins, prod(w_shape[2:])), (*x_shape[:2], *size)


def conv_transpose(x, w, bias, stride, padding, output_padding, dilation, groups):
    """Computes the transposed convolution of `x` (N, C, *S) with `w` (C, O / groups, *K)."""
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for n, k, s, p, extra, d in zip(x.shape[2:], w.shape[2:], stride, padding, output_padding, dilation)
    )
    return conv_grad_input(x, w, (x.shape[0], w.shape[1] * groups, *size), stride, padding, dilation, groups, bias)


# --- the gradient of the weights -------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _correlate(line: bool):
    """Makes the compiled loop over items (part of the tiles, group, chunk of the group's input channels)."""
    rows, columns = DOTS_LINE if line else DOTS

    @shared(
        f"void({STORED}, {STORED}, int64, int64[::1], int64[:,::1], {_ROW}, {FORM}, {FORM}, UniTuple(int64, 10), "
        "int64, int64)"
    )
    def loop(x, g, kind, offsets, rests, out, form, own, sizes, first, last):
        total, groups, outs, out_chunk, out_chunks, ins, in_chunk, in_chunks, tiles, parts = sizes
        images, strips, count, width = form[0], form[2], -(-form[7] // PARTS), own[6]
        buffer = np.zeros(in_chunk * rests.shape[0] * form[6], np.float32)
        slopes = np.zeros(out_chunk * width, np.float32)
        none = np.zeros((1, 2), np.int64)
        pitch = offsets.size
        before = before_g = (-1, -1)
        for item in range(first, last):
            to_in, group, part = item % in_chunks * in_chunk, item // in_chunks % groups, item // in_chunks // groups
            present = min(in_chunk, ins - to_in)
            for tile in range(part * tiles // parts, (part + 1) * tiles // parts):
                image, row = tile // strips * images, tile % strips * form[1]
                now = (row, min(images, total - image))
                fresh, channel = now != before, group * ins + to_in
                fill(x, kind, image, total, channel, present, row, rests, form, _ZERO, fresh, buffer)
                before = now
                for to_out in range(0, outs, out_chunk):
                    held = min(out_chunk, outs - to_out)
                    fresh = now != before_g
                    fill(g, kind, image, total, group * outs + to_out, held, row, none, own, _ZERO, fresh, slopes)
                    before_g = now
                    corner = (item * out_chunks * out_chunk + to_out) * pitch
                    for o in range(0, held, rows):
                        for k in range(0, pitch, columns):
                            at, to = o * width, corner + o * pitch + k
                            if line:
                                line_dots(slopes, at, width, buffer, offsets, k, count, out, to, pitch)
                            else:
                                block_dots(slopes, at, width, buffer, offsets, k, count, out, to, pitch)

    return loop


@lru_cache(maxsize=256)
def _correlate_costs(batch, size, points, taps, stride, groups, ins, outs):
    """Estimates the cycles that a weight's gradient takes with channels innermost (images.py), and by tiles."""
    rows, columns = _SUMMED_TOGETHER[outs > 2]
    form = layout(size, points, stride, taps, _even(ins, _CHUNK), batch)[0]
    tiles = -(-batch // form.images) * form.strips
    places = up(outs, rows) * up(ins * len(taps), columns) * groups
    by_tiles = tiles * -(-form.points // PARTS) * places + _STORING * outs * ins * len(taps) * groups + _BEGIN
    by_tiles += _MOVING * batch * groups * (ins * prod(size) + outs * prod(points))
    return images.correlate_cost(batch, size, points, taps, stride, groups, ins, outs), by_tiles


def conv_grad_weight(g, x, w_shape, stride, padding, dilation, groups):
    """Computes the gradient of `conv` for its weights, from the output's gradient `g` (N, O, *P) and the input `x`."""
    if not _suit(g, x) or 0 in w_shape or w_shape[0] % groups or max(g.shape[-1], x.shape[-1]) > WIDEST:
        return NotImplemented
    if _of_points(w_shape[2:], stride, padding, groups):
        pixels = _pixels(x)
        if pixels is not None:
            slopes = in_rows(g.transpose(0, 2, 3, 1)).reshape(-1, w_shape[0])
            made = _product("matmul_tn", slopes, pixels)
            if made is not NotImplemented:
                return made.reshape(w_shape)
    made = _correlated(_planar(g), _planar(x), w_shape, stride, padding, dilation, groups)
    return made if made is NotImplemented else in_dtype(made, g.dtype)


def _correlated(g, x, w_shape, stride, padding, dilation, groups):
    """The same for images row by row, as float32."""
    plan = _correlation(g.shape[2:], x.shape, tuple(w_shape), stride, padding, dilation, groups)
    if plan.padding is not None:
        made = winograd.correlate(g, x, w_shape, plan.padding, groups)
        if made is not None:
            return made
    if plan.innermost:
        return images.correlate(g, x, w_shape, plan.taps, plan.steps, groups)
    return _by_tiles(g, x, w_shape, plan.taps, plan.steps, groups)


class _Correlation(NamedTuple):
    """How the gradient of a convolution's weights is computed."""

    taps: tuple  # (y, x)
    steps: tuple[int, int]
    innermost: bool  # with channels innermost (images.py), or by tiles
    padding: tuple[int, int] | None  # for Winograd's method, if that is the fastest


@lru_cache(maxsize=256)
def _correlation(points, x_shape, w_shape, stride, padding, dilation, groups):
    """Returns the `_Correlation` for an input of `x_shape` and an output of `points`."""
    kernel, stride = _pairs(w_shape[2:], 1), _pairs(stride, 1)
    padding, dilation = _pairs(padding, 0), _pairs(dilation, 1)
    batch, outs, ins = x_shape[0], w_shape[0] // groups, w_shape[1]
    taps = _places(kernel, padding, dilation)
    innermost, by_tiles = _correlate_costs(batch, x_shape[2:], points, taps, stride, groups, ins, outs)
    least = winograd.correlate_cost(batch, points, groups, ins, outs)
    suits = (kernel, stride, dilation, 1) == _OF_WINOGRAD and least < min(innermost, by_tiles)
    return _Correlation(taps, stride, innermost < by_tiles, padding if suits else None)


def _by_tiles(g, x, w_shape, taps, stride, groups):
    """Computes the gradient of the weights by tiles."""
    batch, points, outs, ins = x.shape[0], g.shape[2:], w_shape[0] // groups, w_shape[1]
    line = outs <= 2
    rows, columns = DOTS_LINE if line else DOTS
    out_chunk, in_chunk = up(_even(outs, _CHUNK), rows), _even(ins, _CHUNK)
    out_chunks, in_chunks = -(-outs // out_chunk), -(-ins // in_chunk)
    form, own, depth, offsets, rests = _summed(x.shape[2:], points, stride, taps, in_chunk, batch, columns)
    tiles = -(-batch // form.images) * form.strips
    # Parts of the sum, as many as the shape allows (not the threads: results must not depend on them).
    chunks, height = groups * in_chunks, out_chunks * out_chunk
    parts = min(tiles, -(-ITEMS // chunks), max(1, _STRAY // (4 * chunks * outs * depth)))
    total = np.zeros((parts, groups, in_chunks, height, offsets.size), F32)
    sizes = (batch, groups, outs, out_chunk, out_chunks, ins, in_chunk, in_chunks, tiles, parts)
    given = (x, g, code(x), offsets, rests, total.reshape(-1), tuple(form), own)
    thread_pool.run(
        _correlate(line), parts * chunks, (*given, sizes), batch * prod(points) * groups * outs * ins * len(taps) // 8
    )
    total = total[0] if parts == 1 else total.sum(0)
    total = total[..., :depth].swapaxes(1, 2).reshape(groups, height, -1)
    out = np.ascontiguousarray(total[:, :outs, : ins * len(taps)]).reshape(w_shape)
    # Values between the rows are multiplied by zero, which gives nan if one of them is infinite.
    return NotImplemented if np.isnan(out).any() else out


def _even(total, most):
    """Returns the size of a part when `total` is split into the fewest nearly equal parts of at most `most`."""
    return -(-total // -(-total // most))


@lru_cache(maxsize=64)
def _summed(size, points, stride, taps, ins, batch, columns):
    """Returns the layout of the input's tiles and of the output's gradient, and where the taps read.

    Their number, without those that fill up the last block of `columns`, is the third.
    """
    form, offsets, rests = layout(size, points, stride, taps, ins, batch)
    padded = np.append(offsets, np.full(-offsets.size % columns, offsets[0]))
    return form, tuple(_own_layout(form)), offsets.size, padded, rests


def _own_layout(form: Layout) -> Layout:
    """Lays out the output's gradient so that its points match the tile's, with zeros between them."""
    height = form.height if form.strips == 1 else form.rows
    plane = odd(max(form.images * height * form.pitch, up(form.points, PARTS)))
    return form._replace(
        height=height, filled=height, plane=plane, low_y=0, low_x=0, step_y=1, step_x=1,
        size_y=form.out_y, size_x=form.out_x,
    )  # fmt: skip


_PRODUCTS = (_pack, lambda: _convolve(False), lambda: _convolve(True), images.panels_loop, images.convolve_loop,
             *winograd.LOOPS)  # fmt: skip
KERNELS: dict[str, Callable[[], Callable]] = {
    "conv": with_loops(conv, *_PRODUCTS),
    "conv_grad_input": with_loops(conv_grad_input, *_PRODUCTS),
    "conv_transpose": with_loops(conv_transpose, *_PRODUCTS),
    "conv_grad_weight": with_loops(
        conv_grad_weight,
        lambda: _correlate(False),
        lambda: _correlate(True),
        images.panels_loop,
        images.correlate_loop,
        *winograd.SLOPE_LOOPS,
    ),
}
