"""Scaled dot-product attention, tile by tile: a tile's scores stay in the cache and are never written to memory.

In the forward pass the softmax is updated along the keys: a larger maximum rescales the sums so far. It returns the
result and the logarithm of each query's sum; the backward pass recomputes the weights from these. A mask is added to
the scores of a tile; a Boolean one is first turned into zeros and minus infinities, but not repeated.

The backward pass reads and writes numbers of two bytes, too: rows become float32 where they are copied for products,
once for each head. The forward pass of these is in attention_halves.py.

Source: Dao, Fu, Ermon, Rudra, Ré, "FlashAttention", 2022; Milakov & Gimelshein, "Online normalizer calculation for
softmax", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.blocks import in_dtype
from tensorgrad.kernels.array.join import beside
from tensorgrad.kernels.compiled.casts import bits, is_half
from tensorgrad.kernels.compiled.functions import F, exp_below, log
from tensorgrad.kernels.compiled.layout import in_rows
from tensorgrad.kernels.compiled.moments import row_dot, row_exps
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.panels import EVEN, LANES, PAD, across, along, flat
from tensorgrad.kernels.compiled.simd.two_bytes import FLOAT32, STORAGES, TWO_BYTES, Storage, widened_rows
from tensorgrad.kernels.compiled.simd.vectors import NO, turn

_HEADS = FLOAT32.heads  # batch, head, position, feature
FEW = 4  # queries that are computed one by one: a tile's rows are LANES queries
_QUERIES, _KEYS = 64, 240  # per tile: its scores stay in the second-level cache; keys a multiple of EVEN
_CAUSAL, _SHORT = 32, 256  # queries per tile if later keys are hidden, so that fewer of those are computed; up to when
_CAUSAL_GRAD = 2 * EVEN  # the same for gradients, whose blocks of keys are multiples of EVEN


@inner
def even(n, step):
    return (n + step - 1) // step * step


@inner
def turn_rows(x, at, step, count, features, scale, out, pitch):
    """out[e, i] = scale · x[i, e], with zeros up to `pitch`, whole registers; row i of x begins at `at + i step`."""
    if features < LANES:
        for i in range(count):
            for e in range(features):
                out[e * pitch + i] = x[at + i * step + e]
    else:
        for i in range(0, count, LANES):
            for e in range(0, features, LANES):
                e = min(e, features - LANES)  # the last block begins earlier, and writes some numbers again
                turn(x, at + i * step + e, step, min(LANES, count - i), out, e * pitch + i, pitch, LANES)
    for e in range(features):
        row = out[e * pitch : (e + 1) * pitch]
        if scale != F(1.0):
            for i in range(count):
                row[i] *= scale
        row[count:] = F(0.0)


@inner
def _pack(x, at, step, count, features, out, pitch):
    """out[i, e] = x[i, e], with zeros up to `pitch`; row i of x begins at `at + i step`."""
    for i in range(count):
        row, to = x[at + i * step : at + i * step + features], out[i * pitch : (i + 1) * pitch]
        for e in range(features):
            to[e] = row[e]
        to[features:] = F(0.0)


@inner
def fill_up(rows, pitch, count, features):
    """Writes zeros after the `features` numbers of each row, up to `pitch`."""
    if pitch != features:
        for i in range(count):
            rows[i * pitch + features : (i + 1) * pitch] = F(0.0)


@inner
def steps(x):
    """Returns the distances between an array's batches, heads and positions, in elements."""
    return x.strides[0] // x.itemsize, x.strides[1] // x.itemsize, x.strides[2] // x.itemsize


@inner
def _raise(scores, top):
    """Raises `top` to each query's largest score; any number if one is nan."""
    for k in range(scores.shape[0]):
        row = scores[k]
        for j in range(top.size):
            top[j] = row[j] if row[j] > top[j] else top[j]


@inner(fastmath={"contract"})
def _shares(scores, shift, total):
    for k in range(scores.shape[0]):
        row = scores[k]
        for j in range(total.size):
            share = exp_below(row[j] - shift[j])
            row[j] = share
            total[j] += share


@inner
def hide_later(scores, first_key, first_query):
    """Sets keys after their query to -inf; scores[key, query]."""
    for k in range(scores.shape[0]):
        row = scores[k]
        for j in range(min(row.size, max(0, first_key + k - first_query))):
            row[j] = -np.inf


@inner
def add_mask(scores, mask, at, key_step, query_step, count):
    """scores[key, query] += mask[at + key · key_step + query · query_step]"""
    for k in range(scores.shape[0]):
        row, begin = scores[k], at + k * key_step
        if query_step == 0:
            number = mask[begin]
            for j in range(count):
                row[j] += number
        else:
            for j in range(count):
                row[j] += mask[begin + j * query_step]


@inner
def _rescale(rows, factors):
    for j in range(rows.shape[0]):
        row, factor = rows[j], factors[j]
        for d in range(row.size):
            row[d] *= factor


@inner
def _shift_of(top, new, blind, factor, shift):
    """Computes what to subtract for the new maxima, and the factors of the sums so far."""
    for j in range(top.size):
        shift[j] = F(0.0) if blind and new[j] == -np.inf else new[j]
        old = F(0.0) if top[j] == -np.inf else exp_below(top[j] - shift[j])
        factor[j] = F(1.0) if top[j] == new[j] else old
        top[j] = new[j]


@inner(fastmath={"contract"})
def _tile(q, q_at, q_step, features, k, k_at, k_step, v, v_at, v_step, width, length, first, count, causal, scale,
          masked, mask, m_at, m_query, m_key, turned, scores, sums, top, total, work):  # fmt: skip
    """Computes the results `sums` (not yet divided by `total`) of `count` queries, and their largest scores, `top`."""
    wide = top.size
    turn_rows(q, q_at, q_step, count, features, scale, turned, wide)
    for j in range(wide):
        top[j], total[j] = -np.inf, F(0.0)
    new, factor, shift = work[0], work[1], work[2]
    end = min(length, first + count) if causal else length
    flat, flat_sums = scores.reshape(-1), sums.reshape(-1)
    for start in range(0, end, _KEYS):
        several = min(_KEYS, end - start)
        across(k, k_at + start * k_step, k_step, turned, 0, wide, features, flat, 0, wide, True, several, wide)
        here = scores[:several]
        if causal and start + several > first + 1:
            hide_later(here, start, first)
        if masked:
            add_mask(here, mask, m_at + start * m_key, m_key, m_query, count)
        for j in range(wide):
            new[j] = top[j]
        _raise(here, new)
        _shift_of(top, new, causal or masked, factor, shift)
        if start:
            for j in range(wide):
                total[j] *= factor[j]
            _rescale(sums[:count], factor)
        _shares(here, shift, total)
        along(flat, 0, wide, v, v_at + start * v_step, v_step, several, flat_sums, 0, width, start == 0, count, width)


@inner(fastmath={"contract"})
def add_scaled(to, row, factor):
    for d in range(to.size):
        to[d] += row[d] * factor


TOGETHER = 8  # rows that are added at a time


@inner(fastmath={"contract"})
def add_eight(to, rows, at, step, p):
    """to += Σₛ p[s] rows[at + s step :] for TOGETHER rows, one after the other: what is added to is read once."""
    n = to.size
    a, b = rows[at : at + n], rows[at + step : at + step + n]
    c, d = rows[at + 2 * step : at + 2 * step + n], rows[at + 3 * step : at + 3 * step + n]
    e, f = rows[at + 4 * step : at + 4 * step + n], rows[at + 5 * step : at + 5 * step + n]
    g, h = rows[at + 6 * step : at + 6 * step + n], rows[at + 7 * step : at + 7 * step + n]
    p0, p1, p2, p3, p4, p5, p6, p7 = p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]
    for i in range(n):
        first = to[i] + a[i] * p0 + b[i] * p1 + c[i] * p2 + d[i] * p3
        to[i] = first + e[i] * p4 + f[i] * p5 + g[i] * p6 + h[i] * p7


@inner
def _one(q, k, k_at, k_step, v, v_at, v_step, scale, blind, masked, mask, m_at, m_key, scores, out):
    """Computes the result `out` of one query by reading keys and values in order. Returns the logarithm of its sum."""
    top = F(-np.inf)
    for s in range(scores.size):
        at = k_at + s * k_step
        number = row_dot(q, k[at : at + q.size]) * scale
        if masked:
            number += mask[m_at + s * m_key]
        scores[s] = number
        top = number if number > top else top
    shift = F(0.0) if blind and top == -np.inf else top
    total = row_exps(scores, scores, shift)
    if blind and total == F(0.0):
        total = F(1.0)
    out[:] = F(0.0)
    whole = scores.size - scores.size % TOGETHER
    for s in range(0, whole, TOGETHER):
        add_eight(out, v, v_at + s * v_step, v_step, scores[s : s + TOGETHER])
    for s in range(whole, scores.size):
        at = v_at + s * v_step
        add_scaled(out, v[at : at + out.size], scores[s])
    share = F(1.0) / total
    for d in range(out.size):
        out[d] *= share
    return shift + log(total)


def _attention():
    @shared(f"void({_HEADS}, {_HEADS}, {_HEADS}, boolean, {_HEADS}, boolean, float32, int64, int64, {_HEADS}, "
            "float32[:,:,::1], int64, int64)")  # fmt: skip
    def loop(q4, k4, v4, masked, mask4, causal, scale, tile, parts, out4, logs, first, last):
        heads, length, features = q4.shape[1:]
        source, narrow = v4.shape[2:]
        width, wide = even(narrow, LANES), even(tile, LANES)
        q, k, v, out, mask = flat(q4), flat(k4), flat(v4), flat(out4), flat(mask4)
        (mb, mh, ms), mk = steps(mask4), mask4.strides[3] // 4
        (qb, qh, qs), (kb, kh, ks), (vb, vh, vs), (ob, oh, os) = steps(q4), steps(k4), steps(v4), steps(out4)
        turned, scores = np.empty(features * wide, F32), np.empty((_KEYS + PAD, wide), F32)
        padded = np.empty(0 if width == narrow else source * width, F32)
        sums, top, total = np.empty((wide + PAD, width), F32), np.empty(wide, F32), np.empty(wide, F32)
        work, packed = np.empty((3, wide), F32), -1
        one = np.empty(source if length < FEW else 0, F32)
        tiles = (length + tile - 1) // tile
        each = (tiles + parts - 1) // parts
        for unit in range(first, last):
            head, part = unit // parts, unit % parts
            b, h = head // heads, head % heads
            values, v_at, v_step = v, b * vb + h * vh, vs
            if length < FEW:
                for j in range(part * each * tile, min((part + 1) * each * tile, length)):
                    at, place, seen = b * qb + h * qh + j * qs, b * ob + h * oh + j * os, source
                    if causal:
                        seen = min(source, j + 1)
                    logs[b, h, j] = _one(
                        q[at : at + features], k, b * kb + h * kh, ks, v, v_at, vs, scale, causal or masked, masked,
                        mask, b * mb + h * mh + j * ms, mk, one[:seen], out[place : place + narrow],
                    )  # fmt: skip
                continue
            if width != narrow:
                if head != packed:
                    _pack(v, v_at, vs, source, narrow, padded, width)
                    packed = head
                values, v_at, v_step = padded, 0, width
            for t in range(part * each, min((part + 1) * each, tiles)):
                begin = t * tile
                count = min(tile, length - begin)
                _tile(q, b * qb + h * qh + begin * qs, qs, features, k, b * kb + h * kh, ks, values, v_at, v_step,
                      width, source, begin, count, causal, scale, masked, mask, b * mb + h * mh + begin * ms, ms, mk,
                      turned, scores, sums, top, total, work)  # fmt: skip
                at = b * ob + h * oh + begin * os
                for j in range(count):
                    row, to = sums[j], out[at + j * os : at + j * os + narrow]
                    if (causal or masked) and total[j] == F(0.0):
                        total[j] = F(1.0)
                    share = F(1.0) / total[j]
                    for d in range(narrow):
                        to[d] = row[d] * share
                    seen = F(0.0) if (causal or masked) and top[j] == -np.inf else top[j]
                    logs[b, h, begin + j] = seen + log(total[j])

    def kernel(q, k, v, mask, dropout_mask, is_causal, scale):
        if dropout_mask is not None or q.dtype is not F32:
            return NotImplemented
        given = as_heads(q, k, v)
        if given is None:
            return NotImplemented
        q4, k4, v4 = given
        batch, heads, length, features = q4.shape
        source, width = v4.shape[2:]
        mask4 = added_mask(mask, (batch, heads, length, source))
        if mask4 is None:
            return NotImplemented
        out4 = result_like(q4, width)
        logs = np.empty((batch, heads, length), F32)
        tile, parts = tiles_of(length, is_causal, batch * heads)
        work = batch * heads * length * source * (features + width + 16) // 16
        args = (q4, k4, v4, mask is not None, mask4, is_causal, F(scale), tile, parts, out4, logs)
        thread_pool.run(loop, batch * heads * parts, args, work)
        return _without_lead(out4, q), logs.reshape(q.shape[:-1])

    return kernel


def _tile_of(length: int, most: int = _QUERIES) -> int:
    """Returns the queries per tile, so that tiles are about equal."""
    tiles = -(-length // most)
    return -(-length // (tiles * LANES)) * LANES


def tiles_of(length, is_causal, heads):
    """Returns the queries per tile in the forward pass, and in how many parts a head's tiles are shared."""
    tile = _tile_of(length, _CAUSAL if is_causal and length <= _SHORT else _QUERIES)
    return tile, max(1, min(-(-length // tile), thread_pool.parts(16) // heads))


def result_like(like, width):
    """Allocates a result in the memory order and dtype of `like`.

    If that is row-major, the heads of one position are stored side by side, which makes joining them free.
    """
    shape, strides = (*like.shape[:3], width), like.strides
    order = sorted(range(3), key=lambda d: -strides[d])
    if order == [0, 1, 2]:
        order = [0, 2, 1]
    made = np.empty([*(shape[d] for d in order), width], like.dtype)
    return made.transpose(*(order.index(d) for d in range(3)), 3)


def _without_lead(x, like):
    """Returns `x` without the leading dimensions that `_four` added to `like`."""
    return x if like.ndim == 4 else x.reshape(*like.shape[:-2], *x.shape[2:])


def _four(x):
    return x if x.ndim == 4 else x.reshape((1,) * (4 - x.ndim) + x.shape)


def as_heads(*arrays):
    """Returns the arrays with four dimensions, the last contiguous; None if the kernels do not support them."""
    lead, dtype = arrays[0].shape[:-2], arrays[0].dtype
    if len(lead) > 2 or (dtype is not F32 and not is_half(arrays[0])):
        return None
    found = []
    for x in arrays:
        if x.dtype is not dtype and (dtype is F32 or x.dtype != dtype):
            return None
        if x.shape[:-2] != lead or not x.size:
            return None
        if x.strides[-1] != x.itemsize and x.shape[-1] > 1:
            x = in_rows(x)
        found.append(_four(x))
    return found


_NO_MASK = np.zeros((1, 1, 1, 1), F32)


def added_mask(mask, shape):
    """Returns what is added to scores of the shape (repeating without memory), or None if the kernels do not take it.

    >>> from tensorgrad.kernels.compiled.attention import added_mask
    >>> added = added_mask(np.array([True, False]), (3, 1, 4, 2))
    >>> added.shape, added.strides, added[2, 0, 3].tolist()
    ((3, 1, 4, 2), (0, 0, 0, 4), [0.0, -inf])
    """
    if mask is None:
        return _NO_MASK
    if mask.dtype is not F32 and mask.dtype != bool and not is_half(mask):
        return None
    fewer = mask[tuple(slice(None) if step else slice(1) for step in mask.strides)]
    if is_half(fewer):
        fewer = in_dtype(fewer, F32)
    elif fewer.dtype is not F32:
        fewer = np.where(fewer, F32.type(0), F32.type(-math.inf))
    if not fewer.flags.carray:
        fewer = fewer.copy("C")
    more = len(shape) - fewer.ndim
    if more < 0 or not all([n in (1, m) for n, m in zip(fewer.shape, shape[more:])]):
        return None  # the mask has dimensions that query, key and value do not have
    strides = (0,) * more + tuple([step if n > 1 else 0 for n, step in zip(fewer.shape, fewer.strides)])
    return np.ndarray(shape, F32, fewer, 0, strides)  # `broadcast_to` makes what kernels must not write, and is slow


# --- backward --------------------------------------------------------------------------------------------------------


@inner(fastmath={"contract"})
def _again(scores, pitch, wide, scale, logs):
    """Recomputes the weights from the scores, in place; query j's begin at `j pitch`."""
    for j in range(logs.size):
        row, log = scores[j * pitch : j * pitch + wide], logs[j]
        for k in range(wide):
            away = row[k] * scale - log
            row[k] = exp_below(F(0.0) if away > F(0.0) else away)


@inner(fastmath={"contract"})
def _scaled_and_masked(scores, pitch, keys, scale, mask, at, query_step, key_step, count):
    """scores[query, key] = scale · scores[query, key] + mask, where the mask's numbers begin at `at`."""
    for j in range(count):
        row, begin = scores[j * pitch : j * pitch + keys], at + j * query_step
        for k in range(keys):
            row[k] = row[k] * scale + mask[begin + k * key_step]


@inner
def _cut_later(shares, pitch, wide, first_key, first_query, count):
    for j in range(count):
        shares[j * pitch + min(wide, max(0, first_query + j + 1 - first_key)) : j * pitch + wide] = F(0.0)


@inner(fastmath={"contract"})
def _slopes(shares, slopes, pitch, wide, less, scale):
    for j in range(less.size):
        p, to, off = shares[j * pitch : j * pitch + wide], slopes[j * pitch : j * pitch + wide], less[j]
        for k in range(wide):
            to[k] = p[k] * ((to[k] - off) * scale)


# Products read rows of float32 that fill registers. (An array, where its first row begins, the distance between rows.)


@inner
def _themselves(x, at, step, count, features, packed, pitch, brain):
    """Rows of `features` numbers: those of x, if they need no zeros up to `pitch`."""
    if pitch == features:
        return x, at, step
    _pack(x, at, step, count, features, packed, pitch)
    return packed, NO, pitch


@inner
def _widened(x, at, step, count, features, packed, pitch, brain):
    """The same of numbers of two bytes."""
    widened_rows(x, at, step, features, packed, pitch, count, brain)
    fill_up(packed, pitch, count, features)
    return packed, NO, pitch


@inner
def _room_for_zeros(count, features, pitch):
    return np.empty(0 if pitch == features else count * pitch, F32)


@inner
def _room(count, features, pitch):
    return np.empty(count * pitch, F32)


def _attention_grad_loop(stored: Storage):
    rows_of, room = (_widened, _room) if stored is TWO_BYTES else (_themselves, _room_for_zeros)
    scratch, read, keep = stored.scratch, stored.read, stored.keep
    own = stored.heads

    @inner
    def unpack(rows, pitch, count, features, x, at, step, brain):
        """Stores rows; row i of x begins at `at + i step`."""
        for i in range(count):
            begin = at + i * step
            keep(rows[i * pitch : i * pitch + features], x[begin : begin + features], brain)

    @shared(f"void({own}, {own}, {own}, {own}, {own}, float32[:,:,::1], boolean, {_HEADS}, boolean, float32, int64, "
            f"{own}, {own}, {own}, boolean, int64, int64)")  # fmt: skip
    def loop(g4, q4, k4, v4, out4, logs, masked, mask4, causal, scale, tile, gq4, gk4, gv4, brain, first, last):
        heads, length, less = q4.shape[1:]
        source, narrow = v4.shape[2:]
        features, width = even(less, LANES), even(narrow, LANES)
        padded = even(source, _KEYS) if source > _KEYS else even(source, LANES)
        keys = min(_KEYS, padded)
        g, q, k, v, out, mask = flat(g4), flat(q4), flat(k4), flat(v4), flat(out4), flat(mask4)
        (mb, mh, ms), mk = steps(mask4), mask4.strides[3] // 4
        gq, gk, gv = flat(gq4), flat(gk4), flat(gv4)
        (gb, gh, gs), (qb, qh, qs), (kb, kh, ks) = steps(g4), steps(q4), steps(k4)
        (vb, vh, vs), (ob, oh, os) = steps(v4), steps(out4)
        (gqb, gqh, gqs), (gkb, gkh, gks), (gvb, gvh, gvs) = steps(gq4), steps(gk4), steps(gv4)
        k_turned, v_turned = np.empty(less * padded, F32), np.empty(narrow * padded, F32)
        packed_k, packed_v = room(source, less, features), room(source, narrow, narrow)
        packed_q, packed_g, packed_out = room(tile, less, features), room(tile, narrow, width), scratch(narrow)
        sum_k, sum_v = np.empty((padded + EVEN) * features, F32), np.empty((padded + EVEN) * width, F32)
        sum_q, inner = np.empty((tile + PAD) * features, F32), np.empty(tile, F32)
        shares, slopes = np.empty((tile + PAD) * keys, F32), np.empty((tile + PAD) * keys, F32)
        for head in range(first, last):
            b, h = head // heads, head % heads
            rows_k, k_at, k_step = rows_of(k, b * kb + h * kh, ks, source, less, packed_k, features, brain)
            rows_v, v_at, v_step = rows_of(v, b * vb + h * vh, vs, source, narrow, packed_v, narrow, brain)
            turn_rows(rows_k, k_at, k_step, source, less, F(1.0), k_turned, padded)
            turn_rows(rows_v, v_at, v_step, source, narrow, F(1.0), v_turned, padded)
            sum_k[:], sum_v[:] = F(0.0), F(0.0)
            for begin in range(0, length, tile):
                count = min(tile, length - begin)
                at = b * qb + h * qh + begin * qs
                rows_q, q_at, q_step = rows_of(q, at, qs, count, less, packed_q, features, brain)
                at = b * gb + h * gh + begin * gs
                rows_g, g_at, g_step = rows_of(g, at, gs, count, narrow, packed_g, width, brain)
                for j in range(count):
                    at, place = b * ob + h * oh + (begin + j) * os, g_at + j * g_step
                    row = read(out[at : at + narrow], packed_out, brain)
                    inner[j] = row_dot(rows_g[place : place + narrow], row)
                end = min(source, begin + count) if causal else source
                for start in range(0, end, _KEYS):
                    # If more keys follow, whole blocks of rows: the excess must be zeros.
                    several = min(_KEYS, source - start, even(end - start, EVEN))
                    wide = min(keys, even(several, LANES))
                    across(rows_q, q_at, q_step, k_turned, start, padded, less, shares, 0, keys, True, count,
                           wide)  # fmt: skip
                    across(rows_g, g_at, g_step, v_turned, start, padded, narrow, slopes, 0, keys, True, count,
                           wide)  # fmt: skip
                    if masked:
                        at = b * mb + h * mh + begin * ms + start * mk
                        _scaled_and_masked(shares, keys, several, scale, mask, at, ms, mk, count)
                        _again(shares, keys, wide, F(1.0), logs[b, h, begin : begin + count])
                    else:
                        _again(shares, keys, wide, scale, logs[b, h, begin : begin + count])
                    if causal and start + several > begin + 1:
                        _cut_later(shares, keys, wide, start, begin, count)
                    along(shares, 0, keys, rows_g, g_at, g_step, count, sum_v, start * width, width, False,
                          several, width)  # fmt: skip
                    _slopes(shares, slopes, keys, wide, inner[:count], scale)
                    along(slopes, 0, keys, rows_q, q_at, q_step, count, sum_k, start * features, features, False,
                          several, features)  # fmt: skip
                    across(slopes, 0, keys, rows_k, k_at + start * k_step, k_step, several, sum_q, 0, features,
                           start == 0, count, features)  # fmt: skip
                unpack(sum_q, features, count, less, gq, b * gqb + h * gqh + begin * gqs, gqs, brain)
            unpack(sum_k, features, source, less, gk, b * gkb + h * gkh, gks, brain)
            unpack(sum_v, width, source, narrow, gv, b * gvb + h * gvh, gvs, brain)

    return loop


def _attention_grad():
    loops = [_attention_grad_loop(stored) for stored in STORAGES]

    def kernel(g, q, k, v, mask, dropout_mask, out, kept, is_causal, scale, need):
        if dropout_mask is not None or need[3] or kept is None:
            return NotImplemented
        given = as_heads(g, q, k, v, out)
        if given is None or kept.dtype is not F32:
            return NotImplemented
        batch, heads, length, features = given[1].shape
        source, width = given[3].shape[2:]
        mask4 = added_mask(mask, (batch, heads, length, source))
        if mask4 is None:
            return NotImplemented
        made = beside(given[1:4])
        if made is None:
            made = [result_like(x, n) for x, n in zip(given[1:4], (features, features, width), strict=True)]
        logs = np.ascontiguousarray(kept).reshape(batch, heads, length)
        work = batch * heads * length * source * (3 * features + 2 * width + 32) // 16
        tile = min(_tile_of(length), _CAUSAL_GRAD) if is_causal else _tile_of(length)
        args = (*map(bits, given), logs, mask is not None, mask4, is_causal, F(scale), tile, *map(bits, made))
        thread_pool.run(loops[is_half(q)], batch * heads, (*args, q.dtype.char == "E"), work)
        return *(_without_lead(x, q) for x in made), None

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"attention": _attention, "attention_grad": _attention_grad}
