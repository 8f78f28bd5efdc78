"""Tiles: the layout of what the windows of a convolution or pooling read, so that many windows are one run.

Output point i reads its source at the points i * step + tap, one for each tap of the window; points outside are zero.
The work is done tile by tile: some rows of an image, or some small images. A tile's source is copied into a buffer that
stays in the second-level cache, surrounded by its zeros, and so that the points one tap reads in sequence are adjacent
(the rows and columns of each remainder by the step are separated from the others). Then the source of all the tile's
output points under one tap is one run of numbers, whatever the stride and dilation. Runs pass the ends of rows: the
points between are computed in vain and not copied out; they are few, since adjacent rows and images share their zeros.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.simd.stored import carry_few_from, carry_from, count_of, move_from
from tensorgrad.kernels.compiled.simd.vectors import LANES, LINE, PARTS

_REGISTERS = 3  # of PARTS points, in a block: tiles are the same at every level
_TILE = 768 << 10  # bytes of a tile's source: with the weights in use it stays in a second-level cache of 1 MiB
_POINTS = 2048  # maximum per tile, so that the results of a block of channels stay in the cache, too
_FEW = 12  # minimum blocks of pixels per tile if images are small, as the last one is rarely full
ITEMS = 16  # parts of the work where possible, so that a few threads finish at about the same time
WIDEST = 8192  # points of a row: longer ones would need to be split, and use NumPy

FORM = "UniTuple(int64, 16)"  # a Layout, in the form compiled loops take it


class Layout(NamedTuple):
    """A tile's layout in its buffer; each field is a number, as compiled loops take them."""

    images: int  # per tile
    rows: int  # of output points, per image
    strips: int  # tiles from the top to the bottom of an image
    height: int  # rows from an image to the next one in the tile
    pitch: int  # numbers from a row to the next
    filled: int  # rows of each image to copy
    plane: int  # numbers from a plane (a channel, and a remainder by the step) to the next
    points: int  # per tile, including those between the rows
    low_y: int  # the position of the buffer's first row and column in the source, in steps
    low_x: int
    step_y: int
    step_x: int
    size_y: int  # of the source
    size_x: int
    out_y: int  # output points
    out_x: int


@lru_cache(maxsize=128)
def layout(size, out, steps, taps, channels, batch, items=ITEMS):
    """Returns the `Layout`, the offsets (in a tile) that each channel's taps read from, and the remainders that occur.

    `size` and `out` are (height, width) of the source and of the output points, `taps` is a tuple of (y, x), `items`
    the number of parts that the work should have.
    """
    rests = sorted({tuple(t % s for t, s in zip(tap, steps, strict=True)) for tap in taps})
    shifts = [tuple(t // s for t, s in zip(tap, steps, strict=True)) for tap in taps]
    low = [min(axis) for axis in zip(*shifts, strict=True)]
    reach = [max(axis) - least for axis, least in zip(zip(*shifts, strict=True), low, strict=True)]
    shared = []  # zeros before the first and after the last: adjacent rows share them
    for d in (0, 1):
        last = max((size[d] - 1 - rest[d]) // steps[d] - low[d] for rest in rests)
        shared.append(max(0, min(-low[d], out[d] + reach[d] - 1 - last)))
    pitch = max(out[1], out[1] + reach[1] - shared[1])
    stacked = max(out[0], out[0] + reach[0] - shared[0])
    fitting = min(_POINTS // pitch, _TILE // (4 * channels * len(rests)) // pitch - reach[0])  # rows of a tile
    if fitting >= stacked:
        most = min(
            batch, fitting // stacked, max(-(-batch // items), -(-_FEW * _REGISTERS * PARTS // (stacked * pitch)))
        )
        images = min(range(-(-most // 2), most + 1), key=lambda n: _blocks(n * stacked * pitch) * -(-batch // n))
        rows, strips, height, filled = out[0], 1, stacked, stacked
    else:
        most = max(1, fitting)
        rows = min(range(-(-most // 2), most + 1), key=lambda n: _blocks(n * pitch) * -(-out[0] // n))
        images, strips, height, filled = 1, -(-out[0] // rows), rows + reach[0], rows + reach[0]
    points = ((images - 1) * height + rows) * pitch
    widest = max(_REGISTERS, LINE[1]) * PARTS
    plane = odd(max(images * height * pitch, up(points, widest) + reach[0] * pitch + reach[1]))
    places = {rest: place for place, rest in enumerate(rests)}
    of_taps = [
        places[tap[0] % steps[0], tap[1] % steps[1]] * plane + (shift[0] - low[0]) * pitch + shift[1] - low[1]
        for tap, shift in zip(taps, shifts, strict=True)
    ]
    offsets = np.add.outer(np.arange(channels, dtype=np.int64) * (len(rests) * plane), np.array(of_taps, np.int64))
    made = Layout(images, rows, strips, height, pitch, filled, plane, points, *low, *steps, *size, *out)
    return made, offsets.reshape(-1), np.array(rests, np.int64)


def _blocks(points):
    """Returns the cost of a tile of this many points, in vectors: the last is rarely full, and a tile has borders."""
    return -(-points // PARTS) + _REGISTERS


def up(n, unit):
    return -(-n // unit) * unit


def odd(n):
    """Returns the next odd multiple of a cache line: planes at that distance do not compete for the same cache sets."""
    return (-(-n // 16) | 1) * 16


@inner
def fill(x, kind, image, total, channel, channels, row, rests, form, outside, fresh, buffer):
    """Copies channels of the tile that begins at `image` (of `total`) and output row `row` into the buffer.

    `x` is (N, C, H, W) as one row, stored as `kind` says (stored.py), `outside` the value outside an image. Unless it
    is a `fresh` start, the buffer holds a tile whose images have the same positions, so the values outside are already
    there.
    """
    images, _, _, height, pitch, filled, plane, _, low_y, low_x, step_y, step_x, size_y, size_x = form[:14]
    all_channels = count_of(x, kind) // (total * size_y * size_x)
    present = min(images, total - image)
    if fresh:
        buffer[:] = outside
    at = 0
    for c in range(channel, channel + channels):
        for f in range(rests.shape[0]):
            rest_y, rest_x = rests[f, 0], rests[f, 1]
            left = max(0, -low_x)
            right = min(pitch, (size_x - 1 - rest_x) // step_x - low_x + 1)
            if left < right:
                first = (left + low_x) * step_x + rest_x
                top = max(0, -(row + low_y))
                bottom = min(filled, (size_y - 1 - rest_y) // step_y - low_y - row + 1)
                width = right - left
                for m in range(present):
                    base = ((image + m) * all_channels + c) * size_y * size_x
                    if step_x == 1:  # whole vectors, all rows together
                        start = base + ((row + top + low_y) * step_y + rest_y) * size_x + first
                        to = at + (m * height + top) * pitch + left
                        if width < LANES:
                            carry_few_from(x, kind, start, step_y * size_x, buffer, to, pitch, bottom - top, width)
                            continue
                        for j in range(0, width, LANES):
                            j = min(j, width - LANES)
                            carry_from(x, kind, start + j, step_y * size_x, buffer, to + j, pitch, bottom - top)
                        continue
                    for i in range(top, bottom):
                        y = (row + i + low_y) * step_y + rest_y
                        to = at + (m * height + i) * pitch + left
                        move_from(x, kind, base + y * size_x + first, step_x, buffer, to, right - left)
            at += plane
