"""Convolution with windows of 3×3 and step 1 by Winograd's method: a quarter of the multiplications.

Four by four points of the result (a *tile*) come from 6×6 points of the source. Both the source and the weights are
transformed to values at 36 *places* (products of 6 and 6), in which the convolution is a product of matrices: tiles by
input channels, times input channels by output channels. The result is transformed back. The gradient of the weights
uses the same transforms, transposed. The gradient of the source is a convolution itself.

Channels are innermost in everything between the first and the last transform: one vector holds LANES channels.

The places are products of 0, ±5/8, ±3/2 and infinity, which keep the transforms' numbers near one. The result's error
is about three times that of summing the products directly: below 1e-5 of the largest result, which a test checks.

Source: Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", 2016; Barabasz et al., "Error Analysis and
Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020 (the choice of places).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.casts import code
from tensorgrad.kernels.compiled.images import packed
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import STORED, inner, intrinsic, ir, nothing, types
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.panels import PAD, across, along
from tensorgrad.kernels.compiled.simd.stored import carry_few_to, count_of, number_from, turn_from, turn_to
from tensorgrad.kernels.compiled.simd.tiles import up
from tensorgrad.kernels.compiled.simd.totals import total
from tensorgrad.kernels.compiled.simd.vectors import (
    I64,
    LANES,
    NO,
    PARTS,
    VECTOR,
    carry,
    load_vector,
    multiply_add,
    pointer_of,
    store_vector,
    turn,
)
from tensorgrad.settings import get_num_threads

TILE, _READ = 4, 6  # points of a tile, and of the source that it reads, along one dimension
PLACES = _READ * _READ
_TOGETHER = 64  # output channels of one product
_NUMBERS = 1 << 18  # of the transformed source of one chunk of tiles: it stays in a second-level cache
_FEWEST, _MOST = 24, 128  # tiles of a chunk: fewer would read the weights too often
_LARGEST = max(LANES, 9) * LANES  # numbers of a square of lanes, or of the weights of as many channels
_LEAST = 8  # tiles of a chunk, if that keeps more threads busy
_ITEMS = 16  # parts of the sum of a weight's gradient where possible; results must not depend on the threads
_PARTIAL = 16 << 20  # maximum bytes of these parts
# Cycles, where a product of vectors in a tile of conv.py takes one (measured): a product; to transform and transpose
# a tile of LANES channels of the source, and of the result; the weights of LANES channels, in a cache and beyond.
_PRODUCT, _SOURCE, _RESULT, _WEIGHTS, _FAR_WEIGHTS, _CACHED = 1.5, 500, 1200, 1300, 1900, 1 << 18
# The same for the gradient of the weights: a tile of the input for each group of outputs, and of the output's gradient,
# and the weights. Rows of a block, at every level.
_INPUT, _SLOPES, _BACK, _BLOCK = 1000, 600, 600, 8

_SHARES_OF_INS = 4  # parts of the input channels, whose weights different threads transform
_ROW = "float32[::1]"
_A, _B = 5 / 8, 3 / 2  # the places other than 0 and infinity, with both signs
_AA, _BB = _A * _A, _B * _B


# --- transforms along one dimension ----------------------------------------------------------------------------------


class _Sums:
    """Writes sums of vectors with constant factors."""

    def __init__(self, builder: Any):
        self.builder, self.fused = builder, multiply_add(builder)

    def times(self, factor: float, x: Any, more: Any = None) -> Any:
        """Returns factor · x + more."""
        factor = ir.Constant(VECTOR, [factor] * LANES)
        return self.builder.fmul(factor, x) if more is None else self.builder.call(self.fused, [factor, x, more])

    def both(self, factor: float, odd: Any, even: Any) -> list[Any]:
        """Returns even + factor · odd and even - factor · odd."""
        return [self.times(factor, odd, even), self.times(-factor, odd, even)]


def _of_source(do: _Sums, x: list[Any]) -> list[Any]:
    """6 points of the source to 6 places."""
    first = do.times(_AA * _BB, x[0], do.times(-_AA - _BB, x[2], x[4]))
    last = do.times(_AA * _BB, x[1], do.times(-_AA - _BB, x[3], x[5]))
    at_a = do.both(_A, do.times(-_BB, x[1], x[3]), do.times(-_BB, x[2], x[4]))
    at_b = do.both(_B, do.times(-_AA, x[1], x[3]), do.times(-_AA, x[2], x[4]))
    return [first, *at_a, *at_b, last]


_SHARES = 1 / (_AA * _BB), 1 / (2 * _AA * (_AA - _BB)), 1 / (2 * _BB * (_BB - _AA))


def _of_weights(do: _Sums, w: list[Any]) -> list[Any]:
    """3 weights to 6 places."""
    found = [do.times(_SHARES[0], w[0])]
    for place, share in ((_A, _SHARES[1]), (_B, _SHARES[2])):
        found += do.both(place * share, w[1], do.times(place * place * share, w[2], do.times(share, w[0])))
    return [*found, w[2]]


def _to_weights(do: _Sums, m: list[Any]) -> list[Any]:
    """The transpose of `_of_weights`."""
    add, subtract = do.builder.fadd, do.builder.fsub
    even_a, odd_a, even_b, odd_b = add(m[1], m[2]), subtract(m[1], m[2]), add(m[3], m[4]), subtract(m[3], m[4])
    share, at_a, at_b = _SHARES
    return [
        do.times(share, m[0], do.times(at_a, even_a, do.times(at_b, even_b))),
        do.times(_A * at_a, odd_a, do.times(_B * at_b, odd_b)),
        do.times(_AA * at_a, even_a, do.times(_BB * at_b, even_b, m[5])),
    ]


def _to_result(do: _Sums, m: list[Any]) -> list[Any]:
    """6 places to 4 points of the result."""
    add, subtract = do.builder.fadd, do.builder.fsub
    even_a, odd_a, even_b, odd_b = add(m[1], m[2]), subtract(m[1], m[2]), add(m[3], m[4]), subtract(m[3], m[4])
    return [
        add(m[0], add(even_a, even_b)),
        do.times(_A, odd_a, do.times(_B, odd_b)),
        do.times(_AA, even_a, do.times(_BB, even_b)),
        do.times(_A * _AA, odd_a, do.times(_B * _BB, odd_b, m[5])),
    ]


def _of_result(do: _Sums, y: list[Any]) -> list[Any]:
    """The transpose of `_to_result`."""
    at_a = do.both(_A, do.times(_AA, y[3], y[1]), do.times(_AA, y[2], y[0]))
    at_b = do.both(_B, do.times(_BB, y[3], y[1]), do.times(_BB, y[2], y[0]))
    return [y[0], *at_a, *at_b, y[3]]


def _plane(transform: Any, size: int):
    """Makes the function that transforms a square of `size` vectors along both dimensions.

    out[to + i out_row + j out_column] from source[at + i row + j column], each LANES numbers. Nothing checks bounds.
    """

    @intrinsic
    def plane(typing, source, at, row, column, out, to, out_row, out_column):
        index = types.int64
        signature = types.void(source, index, index, index, out, index, index, index)

        def code(context, builder, signature, given):
            data = pointer_of(context, builder, signature.args[0], given[0], given[1])
            target = pointer_of(context, builder, signature.args[4], given[4], given[5])
            rows, columns, out_rows, out_columns = (
                [builder.mul(given[n], ir.Constant(I64, i)) for i in range(_READ)] for n in (2, 3, 6, 7)
            )
            do, lines = _Sums(builder), []
            for j in range(size):
                lines.append(
                    transform(do, [load_vector(builder, data, builder.add(rows[i], columns[j])) for i in range(size)])
                )
            for i in range(len(lines[0])):
                for j, vector in enumerate(transform(do, [line[i] for line in lines])):
                    store_vector(builder, vector, target, builder.add(out_rows[i], out_columns[j]))
            return nothing(context)

        return signature, code

    return plane


source_plane, weight_plane, result_plane = _plane(_of_source, 6), _plane(_of_weights, 3), _plane(_to_result, 6)
slope_plane, to_weight_plane = _plane(_of_result, 4), _plane(_to_weights, 6)


# --- rows of tiles ---------------------------------------------------------------------------------------------------


@inner
def _read(x, kind, image, channels, height, width, top, left, rows, line, pitch, channel, present):
    """Copies `rows` rows of LANES channels to a line buffer (row, column, lane), which begins at (top, left).

    Only `present` of the channels are there. The border of the buffer is zeros already; points of it that are outside
    now become zeros. `kind`: how the numbers are stored (stored.py).
    """
    area, numbers = height * width, count_of(x, kind)
    base, begin = (image * channels + channel) * area, max(0, -left)
    count = min(width - max(0, left), pitch - begin)
    for i in range(rows):
        to, y = (i * pitch + begin) * LANES, top + i
        if y < 0 or y >= height:
            line[to : to + count * LANES] = np.float32(0)
            continue
        at = base + y * width + max(0, left)
        if count >= LANES:
            for j in range(0, count, LANES):
                j = min(j, count - LANES)
                turn_from(x, kind, at + j, area, present, line, to + j * LANES, LANES, LANES)
        elif at + (present - 1) * area + LANES <= numbers:
            turn_from(x, kind, at, area, present, line, to, LANES, count)
        else:
            for j in range(count):
                for c in range(LANES):
                    line[to + j * LANES + c] = number_from(x, kind, at + min(c, present - 1) * area + j)


@inner
def _write(line, pitch, channel, channels, image, height, width, top, out, kind, square):
    """Copies a line buffer (row, column, lane) to LANES channels of the result, from row `top` on."""
    present, area = min(LANES, channels - channel), height * width
    for i in range(min(TILE, height - top)):
        at, to = i * pitch * LANES, (image * channels + channel) * area + (top + i) * width
        if width >= LANES:
            for j in range(0, width, LANES):
                j = min(j, width - LANES)
                turn_to(line, at + j * LANES, LANES, LANES, out, kind, to + j, area, present)
        else:
            turn(line, at, LANES, width, square, 0, LANES, LANES)
            carry_few_to(square, 0, LANES, out, kind, to, area, present, width)


_differences = total(lambda x: x - x)  # 0 of finite numbers


@inner
def _finite(line, begin, count):
    """Returns whether all of the numbers are finite."""
    return _differences(line[begin : begin + count]) == np.float32(0)


@inner
def _add(line, begin, vectors, shift, s):
    """Adds the same LANES numbers, from `shift[s]` on, to each vector of a line."""
    for j in range(vectors):
        at = np.uint64(begin + j * LANES)
        for lane in range(np.uint64(LANES)):
            line[at + lane] += shift[np.uint64(s) + lane]


# --- weights ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def weights_loop():
    @shared(f"void({_ROW}, {_ROW}, UniTuple(int64, 3), int64, int64)")
    def loop(weights, out, sizes, first, last):
        """Transforms weights (outs / LANES, 9, ins, LANES) to (groups of outs, places, ins, outs of a group)."""
        ins, wide, backwards = sizes
        blocks, apart = wide // LANES, ins * wide
        for n in range(first, last):
            item, part = n // _SHARES_OF_INS, n % _SHARES_OF_INS
            for c in range(part * ins // _SHARES_OF_INS, (part + 1) * ins // _SHARES_OF_INS):
                at, to = (item * 9 * ins + c) * LANES, (item // blocks * PLACES * ins + c) * wide
                row, column = 3 * ins * LANES, ins * LANES
                if backwards:
                    at, row, column = at + 8 * column, -row, -column
                weight_plane(weights, at, row, column, out, to + item % blocks * LANES, _READ * apart, apart)

    return loop


def _transformed(weights, backwards, wide):
    """Transforms weights (1, outs, ins, 9) for products of `wide` outputs; `backwards`: with the window turned."""
    _, outs, ins, _ = weights.shape
    groups = -(-outs // wide)
    panels = packed(weights)
    out = np.empty(groups * PLACES * ins * wide, F32)
    sizes = (ins, wide, int(backwards))
    thread_pool.run(weights_loop(), -(-outs // LANES) * _SHARES_OF_INS, (panels, out, sizes), out.size)
    return out


# --- the result ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def convolve_loop():
    @shared(f"void({STORED}, {_ROW}, {_ROW}, {STORED}, int64, {_ROW}, UniTuple(int64, 12), int64, int64)")
    def loop(x, weights, shift, out, kind, failed, sizes, first, last):
        ins, outs, wide, height, width, points_y, points_x, pad_y, pad_x, rows, splits, total = sizes
        down, beside = -(-points_y // TILE), -(-points_x // TILE)
        many, deep, groups = rows * beside, -(-ins // LANES) * LANES, -(-outs // wide)
        apart, made_apart = many * deep + LANES, many * wide + LANES
        source = np.empty(PLACES * apart, np.float32)
        made = np.empty(PLACES * made_apart + PAD * wide, np.float32)
        pitch, pitch_out = beside * TILE + 2, max(beside * TILE, LANES)
        line, line_out = np.zeros(_READ * pitch * LANES, np.float32), np.zeros(TILE * pitch_out * LANES, np.float32)
        square, held = np.empty(LANES * LANES, np.float32), np.int64(-1)
        for item in range(first, last):
            chunk, split = item // splits, item % splits
            begin, end = chunk * rows, min((chunk + 1) * rows, total)
            tiles = (end - begin) * beside
            if chunk != held:
                held = chunk
                for row in range(begin, end):
                    for c in range(0, ins, LANES):
                        _read(x, kind, row // down, ins, height, width, row % down * TILE - pad_y, -pad_x, _READ, line,
                              pitch, c, min(LANES, ins - c))  # fmt: skip
                        to = (row - begin) * beside * deep + c
                        for tile in range(beside):
                            source_plane(line, tile * TILE * LANES, pitch * LANES, LANES, source, to + tile * deep,
                                         _READ * apart, apart)  # fmt: skip
            for group in range(split * groups // splits, (split + 1) * groups // splits):
                for place in range(PLACES):
                    across(source, place * apart, deep, weights, (group * PLACES + place) * ins * wide, wide, ins,
                           made, place * made_apart, wide, True, tiles, wide)  # fmt: skip
                for row in range(begin, end):
                    for k in range(0, min(wide, outs - group * wide), LANES):
                        at = (row - begin) * beside * wide + k
                        for tile in range(beside):
                            result_plane(made, at + tile * wide, _READ * made_apart, made_apart, line_out,
                                         tile * TILE * LANES, pitch_out * LANES, LANES)  # fmt: skip
                        channel = group * wide + k
                        if not _finite(line_out, NO, TILE * pitch_out * LANES):
                            failed[0] = np.float32(1)
                        if shift.size:
                            _add(line_out, NO, TILE * pitch_out, shift, channel)
                        _write(line_out, pitch_out, channel, outs, row // down, points_y, points_x,
                               row % down * TILE, out, kind, square)  # fmt: skip

    return loop


def _tiles(points):
    return -(-points[0] // TILE), -(-points[1] // TILE)


def _wide(outs):
    """Returns how many output channels one product computes: whole vectors, and equal parts."""
    return up(-(-outs // -(-outs // _TOGETHER)), PARTS)


def _rows(total, beside, channels):
    """Returns the rows of tiles of a chunk."""
    tiles = max(_FEWEST, min(_MOST, _NUMBERS // (PLACES * channels)))
    rows = max(1, min(total, tiles // beside))
    return -(-total // -(-total // rows))


def cost(images, points, ins, outs):
    """Estimates the cycles that `convolve` takes."""
    down, beside = _tiles(points)
    tiles, ins_up, outs_up = images * down * beside, -(-ins // PARTS), -(-outs // PARTS)
    weights = _WEIGHTS if PLACES * ins * outs < _CACHED else _FAR_WEIGHTS
    of_tile = _PRODUCT * PLACES * ins * outs_up + _SOURCE * ins_up + _RESULT * outs_up
    return tiles * of_tile + ins * outs_up * weights


def correlate_cost(images, points, sets, ins, outs):
    """Estimates the cycles that `correlate` takes."""
    down, beside = _tiles(points)
    tiles, ins_up, wide = images * down * beside, -(-ins // PARTS), _wide(outs)
    groups = -(-outs // wide)
    of_tile = PLACES * up(outs, _BLOCK) * ins_up + _INPUT * groups * ins_up + _SLOPES * groups * wide // PARTS
    return sets * (tiles * of_tile + outs * ins_up * _BACK)


def convolve(x, weights, bias, out, padding, backwards=False) -> bool:
    """Convolves `x` (N, C, H, W) into `out` (N, O, P, Q). Returns whether that succeeded.

    It fails if a result is not finite: it may be wrong then. `weights` is (1, O, C, 9); `backwards`: the windows are
    turned by half.
    """
    _, outs, ins, _ = weights.shape
    sizes, wide, items, work = _chunks_of(len(x), out.shape[2:], x.shape[2:], padding, ins, outs, get_num_threads())
    shift, failed = _NO_SHIFT, np.zeros(1, F32)
    if bias is not None:
        shift = np.zeros(up(outs, wide), F32)
        shift[:outs] = bias
    given = (x, _transformed(weights, backwards, wide), shift, out, code(x), failed, sizes)
    thread_pool.run(convolve_loop(), items, given, work)
    return not failed[0]


_NO_SHIFT = np.zeros(0, F32)


@lru_cache(maxsize=64)
def _chunks_of(images, points, size, padding, ins, outs, threads):
    """Returns the sizes that `convolve_loop` takes, the outputs of one product, the number of items, and the work."""
    wide = _wide(outs)
    down, beside = _tiles(points)
    total, groups = images * down, -(-outs // wide)
    shared = max(-(-_LEAST // beside), -(-total // threads))
    rows = min(_rows(total, beside, ins), shared)
    chunks = -(-total // rows)
    splits = min(groups, -(-thread_pool.parts() // chunks))
    sizes = (ins, outs, wide, *size, *points, *padding, rows, splits, total)
    return sizes, wide, chunks * splits, total * beside * PLACES * ins * outs // 16


# --- the gradient of the weights -------------------------------------------------------------------------------------


@inner
def _back(sums, at, apart, k, ins, deep, out, failed, made, square):
    """Transforms the sums of output channel `k`, `apart` from one place to the next, to its weights (ins, 9)."""
    for c in range(0, ins, LANES):
        to_weight_plane(sums, at + c, _READ * apart, apart, made, NO, 3 * LANES, np.int64(LANES))
        if not _finite(made, NO, 9 * LANES):
            failed[0] = np.float32(1)
        to, last = (k * ins + c) * 9, min(LANES, ins - c) - 1
        if LANES >= 9:
            turn(made, NO, LANES, LANES, square, NO, LANES, LANES)
            carry(square, NO, LANES, out, to, np.int64(9), last)  # what is too much is overwritten by the next
            for tap in range(np.uint64(9)):
                out[np.uint64(to + last * 9) + tap] = square[np.uint64(last * LANES) + tap]
        else:
            for lane in range(last + 1):
                for tap in range(np.uint64(9)):
                    out[np.uint64(to + lane * 9) + tap] = made[tap * np.uint64(LANES) + np.uint64(lane)]


@lru_cache(maxsize=1)
def correlate_loop():
    @shared(f"void({STORED}, {STORED}, int64, {_ROW}, {_ROW}, UniTuple(int64, 14), int64, int64)")
    def loop(x, g, kind, out, failed, sizes, first, last):
        """Sums products for a range of items (part of the sum, set of channels, group of a set's outputs).

        Of one part, the sums are transformed here, to weights (outs, ins, 9). Of several, `out` has them all.
        """
        ins, outs, wide, height, width, points_y, points_x, pad_y, pad_x, rows, parts, total, sets, groups = sizes
        down, beside = -(-points_y // TILE), -(-points_x // TILE)
        many, deep = rows * beside, -(-ins // LANES) * LANES
        apart, slopes_apart, out_apart = many * deep + LANES, many * wide + LANES, (wide + PAD) * deep
        source = np.empty(PLACES * apart, np.float32)
        slopes = np.empty(PLACES * slopes_apart + PAD, np.float32)
        pitch, pitch_g = beside * TILE + 2, beside * TILE
        line, line_g = np.zeros(_READ * pitch * LANES, np.float32), np.zeros(TILE * pitch_g * LANES, np.float32)
        single = np.empty(PLACES * out_apart if parts == 1 else 1, np.float32)
        made, square = np.zeros(_LARGEST, np.float32), np.empty(_LARGEST, np.float32)
        sums = single if parts == 1 else out
        for item in range(first, last):
            group, this, part = item % groups, item // groups % sets, item // (groups * sets)
            place_of_sums = 0 if parts == 1 else item * PLACES
            stop = (part + 1) * total // parts
            for begin in range(part * total // parts, stop, rows):
                end = min(begin + rows, stop)
                for row in range(begin, end):
                    image, y = row // down, row % down * TILE
                    for c in range(0, ins, LANES):
                        _read(x, kind, image, sets * ins, height, width, y - pad_y, -pad_x, _READ, line, pitch,
                              this * ins + c, min(LANES, ins - c))  # fmt: skip
                        to = (row - begin) * beside * deep + c
                        for tile in range(beside):
                            source_plane(line, tile * TILE * LANES, pitch * LANES, LANES, source, to + tile * deep,
                                         _READ * apart, apart)  # fmt: skip
                    for k in range(0, wide, LANES):
                        channel = group * wide + k
                        to = (row - begin) * beside * wide + k
                        if channel < outs:
                            _read(g, kind, image, sets * outs, points_y, points_x, y, NO, TILE, line_g, pitch_g,
                                  this * outs + channel, min(LANES, outs - channel))  # fmt: skip
                        for tile in range(beside):
                            slope_plane(line_g, tile * TILE * LANES, pitch_g * LANES, LANES, slopes, to + tile * wide,
                                        _READ * slopes_apart, slopes_apart)  # fmt: skip
                for place in range(PLACES):
                    along(slopes, place * slopes_apart, wide, source, place * apart, deep, (end - begin) * beside,
                          sums, (place_of_sums + place) * out_apart, deep, begin == part * total // parts, wide,
                          deep)  # fmt: skip
            if parts == 1:
                for k in range(min(wide, outs - group * wide)):
                    _back(single, k * deep, out_apart, this * outs + group * wide + k, ins, deep, out, failed, made,
                          square)  # fmt: skip

    return loop


@lru_cache(maxsize=1)
def back_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 6), int64, int64)")
    def loop(sums, out, failed, sizes, first, last):
        """Adds the parts and transforms them to weights (outs, ins, 9), for a range of outputs."""
        ins, outs, wide, parts, sets, groups = sizes
        deep = -(-ins // LANES) * LANES
        apart = (wide + PAD) * deep
        held, made = np.empty(PLACES * deep, np.float32), np.zeros(_LARGEST, np.float32)
        square = np.empty(_LARGEST, np.float32)
        for k in range(first, last):
            this, group, row = k // outs, k % outs // wide, k % outs % wide
            for part in range(parts):
                for place in range(PLACES):
                    at = (((part * sets + this) * groups + group) * PLACES + place) * apart + row * deep
                    for c in range(np.uint64(deep)):
                        value = sums[np.uint64(at) + c]
                        to = np.uint64(place * deep) + c
                        held[to] = value if part == 0 else held[to] + value
            _back(held, NO, deep, k, ins, deep, out, failed, made, square)

    return loop


@lru_cache(maxsize=64)
def _sums_of(images, points, size, padding, sets, outs, ins):
    """Returns how the sums are divided: the sizes that `correlate_loop` and `back_loop` take."""
    wide, deep = _wide(outs), up(ins, PARTS)
    down, beside = _tiles(points)
    total, groups = images * down, -(-outs // wide)
    rows = max(1, min(total, max(_FEWEST, min(_MOST, ins // 2)) // beside))
    one = sets * groups * PLACES * (wide + PAD) * deep
    parts = max(1, min(-(-total // rows), -(-_ITEMS // (sets * groups)), _PARTIAL // (4 * one)))
    sizes = (ins, outs, wide, *size, *points, *padding, rows, parts, total, sets, groups)
    return sizes, parts, parts * one, total * beside * PLACES * ins * outs * sets // 16


def correlate(g, x, w_shape, padding, sets=1):
    """Computes the gradient for a convolution's weights, of `w_shape`, from its output's gradient and its input.

    It is float32, whatever the dtype of these is. The channels are in so many `sets`, each a convolution of its own.
    Returns None if a sum is not finite: it may be wrong then.
    """
    outs, ins = w_shape[0] // sets, w_shape[1]
    sizes, parts, numbers, work = _sums_of(len(x), g.shape[2:], x.shape[2:], padding, sets, outs, ins)
    wide, groups = sizes[2], sizes[-1]
    out, failed = np.empty(w_shape, F32), np.zeros(1, F32)
    weights = out.reshape(-1)
    sums = weights if parts == 1 else np.empty(numbers, F32)
    given = (x, g, code(x), sums, failed, sizes)
    thread_pool.run(correlate_loop(), parts * sets * groups, given, work)
    if parts > 1:
        of_parts = (sums, weights, failed, (ins, outs, wide, parts, sets, groups))
        thread_pool.run(back_loop(), w_shape[0], of_parts, numbers)
    return None if failed[0] else out


LOOPS = (weights_loop, convolve_loop)
SLOPE_LOOPS = (correlate_loop, back_loop)
