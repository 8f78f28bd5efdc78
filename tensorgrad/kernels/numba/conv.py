"""Convolution, its transpose and its gradients, over one and two spatial dimensions: each a product without columns.

An output point i of a convolution reads its source at the points i * step + tap, one for each tap of the window; what
lies outside is zero. The gradient for the input is the same thing with the roles changed: where the stride is s, the
points i * s + r of the input are, for each r, a convolution of the output's gradient with some of the taps and step 1.

The work goes by tiles (`tiles.py`), in which one tap of a channel reads one run of numbers for all output points: so
the inner loop of the product (`vectors.py`) needs no columns, only a table of where the runs begin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np
from numba import njit

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba import pool
from tensorgrad.kernels.numba.functions import compiled
from tensorgrad.kernels.numba.tiles import FORM, ITEMS, WIDEST, Layout, fill, layout, move, odd, up
from tensorgrad.kernels.numba.vectors import (
    BLOCK,
    DOTS,
    DOTS_LINE,
    LANES,
    LINE,
    block_dots,
    block_products,
    line_dots,
    line_products,
)

_DEEP, _USEFUL = 1 << 15, 0.7  # products of channels from which on NumPy is faster where fewer points are of use
_CHUNK = 64  # input and output channels that a weight's gradient takes at a time
_STRAY = 8 << 20  # bytes at most of the parts of a weight's gradient

_ROW, _ZERO = "float32[::1]", np.float32(0)


# --- the product -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _pack():
    @compiled(f"void(float32[:,:,:,:], int64[::1], {_ROW}, int64, int64, int64)")
    def pack(weights, taps, out, rows, first, last):
        """Weights (groups, out, in, taps) as the inner loop reads them: for `rows` outputs, one for each in and tap."""
        outs, ins = weights.shape[1], weights.shape[2]
        blocks, depth = -(-outs // rows), ins * taps.size
        for n in range(first, last):
            group, block = n // blocks, n % blocks
            for r in range(rows):
                to = out[n * depth * rows + r : (n + 1) * depth * rows]
                o = block * rows + r
                for c in range(ins):
                    for t in range(taps.size):
                        to[(c * taps.size + t) * rows] = weights[group, o, c, taps[t]] if o < outs else np.float32(0)

    return pack


@njit(error_model="numpy")
def _spill(tile, pitch, out, image, total, channel, channels, count, row, form, place, done):
    """Copies the points of `count` channels to where they belong in the output, but for the first `done` points."""
    images, rows, _, height, width = form[:5]
    out_y, out_x = form[14], form[15]
    size_y, size_x, step_y, step_x, first_y, first_x = place
    for r in range(count):
        for m in range(min(images, total - image)):
            base = ((image + m) * channels + channel + r) * size_y * size_x + first_x
            for i in range(done // width, min(rows, out_y - row)):
                skip = max(0, done - i * width)
                to = base + ((row + i) * step_y + first_y) * size_x + skip
                move(tile, r * pitch + (m * height + i) * width + skip, 1, out, to, step_x, out_x - skip)


@lru_cache(maxsize=2)
def _convolve(line: bool):
    """The compiled loop over items (tile, group, chunk of the group's output channels)."""
    rows, wide = (LINE if line else BLOCK)[0], (LINE if line else BLOCK)[1] * LANES

    @compiled(
        f"void({_ROW}, {_ROW}, {_ROW}, int64[::1], int64[:,::1], {_ROW}, {FORM}, UniTuple(int64, 6), "
        "UniTuple(int64, 6), int64, int64)"
    )
    def loop(x, weights, shift, offsets, rests, out, form, place, sizes, first, last):
        total, groups, ins, outs, chunks, chunk = sizes  # ins, outs: channels of a group; a chunk is in blocks
        images, _, strips, _, _, _, plane, points = form[:8]
        blocks, depth = -(-outs // rows), offsets.size
        pitch, plane_out = -(-points // wide) * wide, place[0] * place[1]
        direct = images == 1 and form[4] == form[15] == place[1] and place[3] == 1 and place[2] == 1
        buffer = np.empty(ins * rests.shape[0] * plane, np.float32)
        made = np.empty(rows * pitch, np.float32)
        held, before = -1, (-1, -1)
        for item in range(first, last):
            part, tile = item % chunks, item // chunks
            group, image, row = tile % groups, tile // groups // strips * images, tile // groups % strips * form[1]
            now = (row, min(images, total - image))
            if tile != held:
                fill(x, image, total, group * ins, ins, row, rests, form, _ZERO, now != before, buffer)
                held, before = tile, now
            # Where the points lie as in the output, whole blocks of them are written there at once.
            ready = min(form[1], form[14] - row) * form[4] // wide * wide if direct else 0
            for block in range(part * chunk, min((part + 1) * chunk, blocks)):
                n, count = group * blocks + block, min(rows, outs - block * rows)
                done = ready if count == rows else 0
                first_out = (image * groups * outs + group * outs + block * rows) * plane_out + row * form[15]
                w, s, channel = n * depth * rows, n * rows, group * outs + block * rows
                for at in range(0, pitch, wide):
                    target, to, apart = (out, first_out + at, plane_out) if at < done else (made, at, pitch)
                    if line:
                        line_products(weights, w, buffer, offsets, at, shift, s, target, to, apart)
                    else:
                        block_products(weights, w, buffer, offsets, at, shift, s, target, to, apart)
                _spill(made, pitch, out, image, total, channel, groups * outs, count, row, form, place, done)

    return loop


def _run(x, weights, bias, out, taps, steps, points, place):
    """Convolves `x` (N, C, H, W) with `weights` (groups, out, in, taps) into the points of `out` that `place` tells.

    `taps` holds (index, y, x) of the taps to take. `place` is (height, width, steps, first point) of the output.
    Returns whether it did: small deep images, where a tile has too much between its rows, are better off elsewhere.
    """
    batch, (groups, outs, ins, _) = x.shape[0], weights.shape
    line = outs <= 2
    rows = (LINE if line else BLOCK)[0]
    blocks = -(-outs // rows)
    form, offsets, rests = layout(x.shape[2:], points, steps, tuple(t[1:] for t in taps), ins, batch)
    tiles = -(-batch // form.images) * form.strips
    if ins * outs >= _DEEP and batch * prod(points) < _USEFUL * tiles * up(form.points, BLOCK[1] * LANES):
        return False
    packed = np.empty(groups * blocks * rows * offsets.size, F32)
    chosen = np.array([t[0] for t in taps], np.int64)
    pool.run(_pack(), groups * blocks, (weights, chosen, packed, rows), packed.size)
    shift = np.zeros((groups, blocks * rows), F32)
    if bias is not None:
        shift[:, :outs] = bias.reshape(groups, outs)
    tiles *= groups
    chunks = min(-(-ITEMS // tiles), -(-blocks * rows // 32))
    chunk = -(-blocks // chunks)
    chunks = -(-blocks // chunk)
    sizes = (batch, groups, ins, outs, chunks, chunk)
    given = (x.reshape(-1), packed, shift.reshape(-1), offsets, rests, out.reshape(-1), tuple(form), place, sizes)
    work = batch * prod(points) * groups * outs * offsets.size
    pool.run(_convolve(line), tiles * chunks, given, work // 16)
    return True


def _planar(array):
    """An array of one spatial dimension (or a parameter of it) as of two."""
    if array.ndim == 3:
        array = array.reshape(*array.shape[:2], 1, array.shape[2])
    return np.ascontiguousarray(array)


def _pairs(parameters, fill):
    return (fill, *parameters) if len(parameters) == 1 else tuple(parameters)


def _suit(*arrays):
    """Whether these arrays are of float32, not empty, and of one or two spatial dimensions."""
    return all(a.__class__ is np.ndarray and a.dtype is F32 and 3 <= a.ndim <= 4 and a.size for a in arrays)


def _reads(kernel, padding, dilation):
    """(index, y, x) of each tap: output point i reads the input at i * stride + (y, x)."""
    return tuple(
        (n, *[k * d - p for k, d, p in zip(tap, dilation, padding, strict=True)])
        for n, tap in enumerate(product(*map(range, kernel)))
    )


def conv(x, w, bias, stride, padding, dilation, groups):
    """The convolution of `x` (N, C, *S) with `w` (O, C / groups, *K)."""
    if not _suit(x, w) or w.shape[0] % groups or x.shape[-1] > WIDEST or (bias is not None and bias.dtype is not F32):
        return NotImplemented
    dims = x.ndim - 2
    x, w = _planar(x), _planar(w)
    stride, padding, dilation = _pairs(stride, 1), _pairs(padding, 0), _pairs(dilation, 1)
    points = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    )
    out = np.empty((x.shape[0], w.shape[0], *points), F32)
    weights = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    if not _run(x, weights, bias, out, _reads(w.shape[2:], padding, dilation), stride, points, (*points, 1, 1, 0, 0)):
        return NotImplemented
    return out if dims == 2 else out.reshape(*out.shape[:2], -1)


def conv_grad_input(g, w, x_shape, stride, padding, dilation, groups, bias=None):
    """The gradient of `conv` for its input, from the output's gradient `g`; `bias` is added to it."""
    if not _suit(g, w) or 0 in x_shape or x_shape[-1] > WIDEST or (bias is not None and bias.dtype is not F32):
        return NotImplemented
    out = np.empty(x_shape, F32)
    g, w = _planar(g), _planar(w)
    stride, padding, dilation = _pairs(stride, 1), _pairs(padding, 0), _pairs(dilation, 1)
    size = _pairs(x_shape[2:], 1)
    weights = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1).swapaxes(1, 2)
    taps = [(n, -y, -x) for n, y, x in _reads(w.shape[2:], padding, dilation)]
    parts = []
    for y, x in product(*[range(min(s, n)) for s, n in zip(stride, size, strict=True)]):
        # The input's points y, y + stride, ...: the taps that reach them, as steps of one output point.
        reached = tuple(
            (n, (y + b) // stride[0], (x + a) // stride[1])
            for n, b, a in taps if not (y + b) % stride[0] and not (x + a) % stride[1]
        )  # fmt: skip
        parts.append((y, x, reached))
    if not all(reached for *_, reached in parts):
        out[...] = 0 if bias is None else bias.reshape(-1, *[1] * (out.ndim - 2))
    for y, x, reached in parts:
        if reached:
            points = (-(-(size[0] - y) // stride[0]), -(-(size[1] - x) // stride[1]))
            if not _run(g, weights, bias, out, reached, (1, 1), points, (*size, *stride, y, x)):
                return NotImplemented
    return out


def conv_transpose(x, w, bias, stride, padding, output_padding, dilation, groups):
    """The transposed convolution of `x` (N, C, *S) with `w` (C, O / groups, *K)."""
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for n, k, s, p, extra, d in zip(x.shape[2:], w.shape[2:], stride, padding, output_padding, dilation)
    )
    return conv_grad_input(x, w, (x.shape[0], w.shape[1] * groups, *size), stride, padding, dilation, groups, bias)


# --- the gradient of the weights -------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _correlate(line: bool):
    """The compiled loop over items (part of the tiles, group, chunk of the group's input channels)."""
    rows, columns = DOTS_LINE if line else DOTS

    @compiled(
        f"void({_ROW}, {_ROW}, int64[::1], int64[:,::1], {_ROW}, {FORM}, {FORM}, UniTuple(int64, 10), int64, int64)"
    )
    def loop(x, g, offsets, rests, out, form, own, sizes, first, last):
        total, groups, outs, out_chunk, out_chunks, ins, in_chunk, in_chunks, tiles, parts = sizes
        images, strips, count, width = form[0], form[2], -(-form[7] // LANES), own[6]
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
                fill(x, image, total, group * ins + to_in, present, row, rests, form, _ZERO, now != before, buffer)
                before = now
                for to_out in range(0, outs, out_chunk):
                    held = min(out_chunk, outs - to_out)
                    fill(g, image, total, group * outs + to_out, held, row, none, own, _ZERO, now != before_g, slopes)
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


def conv_grad_weight(g, x, w_shape, stride, padding, dilation, groups):
    """The gradient of `conv` for its weights, from the output's gradient `g` (N, O, *P) and the input `x`."""
    if not _suit(g, x) or 0 in w_shape or w_shape[0] % groups or max(g.shape[-1], x.shape[-1]) > WIDEST:
        return NotImplemented
    g, x = _planar(g), _planar(x)
    stride, padding, dilation = _pairs(stride, 1), _pairs(padding, 0), _pairs(dilation, 1)
    batch, points, outs, ins = x.shape[0], g.shape[2:], w_shape[0] // groups, w_shape[1]
    line = outs <= 2
    rows, columns = DOTS_LINE if line else DOTS
    out_chunk, in_chunk = up(_even(outs, _CHUNK), rows), _even(ins, _CHUNK)
    out_chunks, in_chunks = -(-outs // out_chunk), -(-ins // in_chunk)
    taps = tuple(t[1:] for t in _reads(_pairs(w_shape[2:], 1), padding, dilation))
    form, offsets, rests = layout(x.shape[2:], points, stride, taps, in_chunk, batch)
    depth = offsets.size
    offsets = np.append(offsets, np.full(-depth % columns, offsets[0]))
    tiles = -(-batch // form.images) * form.strips
    # Parts of the sum, as many as the shape allows (not the threads: the result must not depend on them).
    chunks, height = groups * in_chunks, out_chunks * out_chunk
    parts = min(tiles, -(-ITEMS // chunks), max(1, _STRAY // (4 * chunks * height * offsets.size)))
    total = np.zeros((parts, groups, in_chunks, height, offsets.size), F32)
    sizes = (batch, groups, outs, out_chunk, out_chunks, ins, in_chunk, in_chunks, tiles, parts)
    given = (x.reshape(-1), g.reshape(-1), offsets, rests, total.reshape(-1), tuple(form), tuple(_own_layout(form)))
    pool.run(
        _correlate(line), parts * chunks, (*given, sizes), batch * prod(points) * groups * outs * ins * len(taps) // 16
    )
    total = total[0] if parts == 1 else total.sum(0)
    total = total[..., :depth].swapaxes(1, 2).reshape(groups, height, -1)
    out = np.ascontiguousarray(total[:, :outs, : ins * len(taps)]).reshape(w_shape)
    # Points between the rows count zero times what lies there, which is no number if that is infinite.
    return NotImplemented if np.isnan(out).any() else out


def _even(total, most):
    """The size of a part when `total` is cut into the fewest parts of at most `most`, all about equal."""
    return -(-total // -(-total // most))


def _own_layout(form: Layout) -> Layout:
    """How the output's gradient lies, so that its points are those of the tile and zeros lie between them."""
    height = form.height if form.strips == 1 else form.rows
    plane = odd(max(form.images * height * form.pitch, up(form.points, LANES)))
    return form._replace(
        height=height, filled=height, plane=plane, low_y=0, low_x=0, step_y=1, step_x=1,
        size_y=form.out_y, size_x=form.out_x,
    )  # fmt: skip


def _made(kernel, *loops):
    """The kernel of a row, with its loops compiled."""

    def make():
        for loop in loops:
            loop()
        return kernel

    return make


_PRODUCTS = (_pack, lambda: _convolve(False), lambda: _convolve(True))
KERNELS: dict[str, Callable[[], Callable]] = {
    "conv": _made(conv, *_PRODUCTS),
    "conv_grad_input": _made(conv_grad_input, *_PRODUCTS),
    "conv_transpose": _made(conv_transpose, *_PRODUCTS),
    "conv_grad_weight": _made(conv_grad_weight, lambda: _correlate(False), lambda: _correlate(True)),
}
