"""Attention of float16 and bfloat16, tile by tile as in attention.py, rounded where PyTorch's kernel rounds.

Keys and values become float32 a block at a time, and results are rounded once. In between, what PyTorch does is seen in
the results: it takes blocks of 512 keys, whose weights are rounded exponentials relative to the largest score so far,
and are rounded again before they multiply the values. They are divided by their sums last. Each sum consists of 16
partial sums, and of the weights of a block's last few keys, which are added one by one (and are better exponentials).

Source: kernels/array/attention.py, which computes the same as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.attention import CONSTANT, CUBE, KEYS, LINEAR, LOG2_E, SQUARE, VECTOR
from tensorgrad.kernels.compiled.attention import (
    add_mask,
    add_scaled,
    added_mask,
    as_heads,
    even,
    fill_up,
    hide_later,
    result_like,
    steps,
    tiles_of,
    turn_rows,
)
from tensorgrad.kernels.compiled.casts import bits
from tensorgrad.kernels.compiled.functions import F, exp, log
from tensorgrad.kernels.compiled.moments import row_dot, row_sum
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inlined, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.panels import LANES, PAD, across, along, flat
from tensorgrad.kernels.compiled.simd.small_weights import of_bfloat16, of_float16, to_bfloat16, to_float16
from tensorgrad.kernels.compiled.simd.two_bytes import FLOAT32, TWO_BYTES, rounded, widened, widened_rows

_OWN, _NUMBERS = TWO_BYTES.heads, FLOAT32.heads
_LEAST = F(-127.0)


@inner(forceinline=True)
def _rough_exp(x):
    """Does what `_rough_exp` of kernels/array/attention.py does; nothing is fused, so the bits are its."""
    power = x * LOG2_E
    fraction = power - np.floor(power)
    power -= ((CUBE * fraction + SQUARE) * fraction + LINEAR) * fraction + CONSTANT
    power = power if power > _LEAST else _LEAST
    return np.int32((power + F(127.0)) * F(8388608.0)).view(np.float32)


@inner
def _rounded_in_place(row, brain):
    if brain:
        for i in range(row.size):
            row[i] = of_bfloat16(to_bfloat16(row[i]))
    else:
        for i in range(row.size):
            row[i] = of_float16(to_float16(row[i]))


@inlined
def _finite(top):
    """What is subtracted from scores; of a query that sees no key yet, nothing."""
    return F(0.0) if top == -np.inf else top


# --- tiles of queries: scores[key, query] ----------------------------------------------------------------------------


@inner
def _raise(scores, scale, causal, first_key, first_query, masked, mask, at, key_step, query_step, count, top, none):
    """Scales and masks scores. Raises `top` to each query's largest, and counts those that are nan."""
    for k in range(scores.shape[0]):
        row = scores[k]
        for j in range(row.size):
            row[j] *= scale
        if causal:
            hide_later(scores[k : k + 1], first_key + k, first_query)
        if masked:
            add_mask(scores[k : k + 1], mask, at + k * key_step, key_step, query_step, count)
        for j in range(top.size):
            top[j] = row[j] if row[j] > top[j] else top[j]
            none[j] += F(0.0) if row[j] == row[j] else F(1.0)


@inner
def _weights(scores, whole, base, partial, brain):
    """Turns scores into rounded weights; their sums before that are written to the first row of `partial`.

    The exponentials of the first `whole` keys are rough.
    """
    for n in range(VECTOR):
        partial[n, :] = F(0.0)
    for k in range(whole):
        row, total = scores[k], partial[k % VECTOR]
        for j in range(base.size):
            share = _rough_exp(row[j] - base[j])
            row[j] = share
            total[j] += share
        _rounded_in_place(row, brain)
    total, half = partial[0], VECTOR
    while half > 1:
        half //= 2
        for n in range(half):
            here, other = partial[n], partial[n + half]
            for j in range(base.size):
                here[j] += other[j]
    for k in range(whole, scores.shape[0]):
        row = scores[k]
        for j in range(base.size):
            share = exp(row[j] - base[j])
            row[j] = share
            total[j] += share
        _rounded_in_place(row, brain)


@inner
def _joined(rows, factors, others, width):
    """rows = factors rows + others, where row j has the factor j; nothing is fused."""
    for j in range(factors.size):
        row, other, factor = rows[j * width : (j + 1) * width], others[j * width : (j + 1) * width], factors[j]
        for d in range(width):
            row[d] *= factor
        for d in range(width):
            row[d] += other[d]


def _tiles():
    @shared(f"void({_OWN}, {_OWN}, {_OWN}, boolean, {_NUMBERS}, boolean, float32, int64, int64, {_OWN}, "
            "float32[:,:,::1], boolean, int64, int64)")  # fmt: skip
    def loop(q4, k4, v4, masked, mask4, causal, scale, tile, parts, out4, logs, brain, first, last):
        heads, length, features = q4.shape[1:]
        source = k4.shape[2]
        width, wide, most = even(features, LANES), even(tile, LANES), min(source, KEYS)
        q, k, v, out, mask = flat(q4), flat(k4), flat(v4), flat(out4), flat(mask4)
        (mb, mh, ms), mk = steps(mask4), mask4.strides[3] // 4
        (qb, qh, qs), (kb, kh, ks), (vb, vh, vs), (ob, oh, os) = steps(q4), steps(k4), steps(v4), steps(out4)
        queries, keys = np.empty(tile * features, F32), np.empty(most * features, F32)
        values = np.empty(most * width, F32)
        turned, scores = np.empty(features * wide, F32), np.empty((most + PAD, wide), F32)
        sums, more = np.empty((wide + PAD) * width, F32), np.empty((wide + PAD) * width, F32)
        top, total, partial = np.empty(wide, F32), np.empty(wide, F32), np.empty((VECTOR, wide), F32)
        work, flat_scores = np.empty((4, wide), F32), scores.reshape(-1)
        new, none, base, shrunk = work[0], work[1], work[2], work[3]
        held_head, held_start = -1, -1
        tiles = (length + tile - 1) // tile
        each = (tiles + parts - 1) // parts
        for unit in range(first, last):
            head, part = unit // parts, unit % parts
            b, h = head // heads, head % heads
            for t in range(part * each, min((part + 1) * each, tiles)):
                begin = t * tile
                count = min(tile, length - begin)
                widened_rows(q, b * qb + h * qh + begin * qs, qs, features, queries, features, count, brain)
                turn_rows(queries, 0, features, count, features, F(1.0), turned, wide)
                top[:], total[:] = -np.inf, F(0.0)
                end = min(source, begin + count) if causal else source
                for start in range(0, end, KEYS):
                    several, present = min(KEYS, end - start), min(KEYS, source - start)
                    if head != held_head or start != held_start:
                        at = b * kb + h * kh + start * ks
                        widened_rows(k, at, ks, features, keys, features, present, brain)
                        at = b * vb + h * vh + start * vs
                        widened_rows(v, at, vs, features, values, width, present, brain)
                        fill_up(values, width, present, features)
                        held_head, held_start = head, start
                    across(keys, 0, features, turned, 0, wide, features, flat_scores, 0, wide, True, several, wide)
                    here = scores[:several]
                    for j in range(wide):
                        new[j], none[j] = top[j], F(0.0)
                    _raise(here, scale, causal and start + several > begin + 1, start, begin, masked, mask,
                           b * mb + h * mh + begin * ms + start * mk, mk, ms, count, new, none)  # fmt: skip
                    for j in range(wide):
                        best = F(np.nan) if none[j] > F(0.0) else new[j]
                        base[j] = _finite(best)
                        shrunk[j] = exp(top[j] - base[j])
                        top[j] = best
                    _weights(here, min(several, present // VECTOR * VECTOR), base, partial, brain)
                    for j in range(wide):
                        total[j] = total[j] * shrunk[j] + partial[0, j]
                    to = more if start else sums
                    along(flat_scores, 0, wide, values, 0, width, several, to, 0, width, True, count, width)
                    if start:
                        _joined(sums, shrunk[:count], more, width)
                for j in range(count):
                    row, at = sums[j * width : j * width + features], b * ob + h * oh + (begin + j) * os
                    whole = F(1.0) if total[j] == F(0.0) else total[j]
                    share = F(1.0) / whole
                    for d in range(features):
                        row[d] *= share
                    rounded(row, out[at : at + features], brain)
                    logs[b, h, begin + j] = _finite(top[j]) + log(whole)

    return loop


# --- one query, such as a decoder's token: scores[key] ---------------------------------------------------------------


@inner
def _largest(row, top):
    """Returns the largest of `top` and a row; nan if one of them is."""
    count = 0
    for i in range(row.size):
        count += row[i] != row[i]
    for i in range(row.size):
        top = row[i] if row[i] > top else top
    return F(np.nan) if count > 0 else top


@inner
def _rough_exps(row, base):
    for i in range(row.size):
        row[i] = _rough_exp(row[i] - base)


@inner
def _exps(row, base):
    for i in range(row.size):
        row[i] = exp(row[i] - base)


def _single():
    @shared(f"void({_OWN}, {_OWN}, {_OWN}, boolean, {_NUMBERS}, boolean, float32, {_OWN}, float32[:,:,::1], boolean, "
            "int64, int64)")  # fmt: skip
    def loop(q4, k4, v4, masked, mask4, causal, scale, out4, logs, brain, first, last):
        """Reads keys and values in order."""
        heads, features, source = q4.shape[1], q4.shape[3], k4.shape[2]
        q, k, v, out, mask = flat(q4), flat(k4), flat(v4), flat(out4), flat(mask4)
        (mb, mh, _), mk = steps(mask4), mask4.strides[3] // 4
        (qb, qh, _), (kb, kh, ks), (vb, vh, vs), (ob, oh, _) = steps(q4), steps(k4), steps(v4), steps(out4)
        scores, sums = np.empty(min(source, KEYS), F32), np.empty(features, F32)
        query, row, more = np.empty(features, F32), np.empty(features, F32), np.empty(features, F32)
        end = 1 if causal else source
        for head in range(first, last):
            b, h = head // heads, head % heads
            at = b * qb + h * qh
            widened(q[at : at + features], query, brain)
            top, total = F(-np.inf), F(0.0)
            for start in range(0, end, KEYS):
                here = scores[: min(KEYS, end - start)]
                for s in range(here.size):
                    at = b * kb + h * kh + (start + s) * ks
                    widened(k[at : at + features], row, brain)
                    here[s] = row_dot(query, row) * scale
                if masked:
                    at = b * mb + h * mh + start * mk
                    for s in range(here.size):
                        here[s] += mask[at + s * mk]
                before, top = top, _largest(here, top)
                base, whole = _finite(top), min(here.size, min(KEYS, source - start) // VECTOR * VECTOR)
                _rough_exps(here[:whole], base)
                _exps(here[whole:], base)
                shrunk = exp(before - base)
                total = total * shrunk + row_sum(here)
                _rounded_in_place(here, brain)
                more[:] = F(0.0)
                for s in range(here.size):
                    at = b * vb + h * vh + (start + s) * vs
                    widened(v[at : at + features], row, brain)
                    add_scaled(more, row, here[s])
                for d in range(features):
                    sums[d] = sums[d] * shrunk if start else F(0.0)
                for d in range(features):
                    sums[d] += more[d]
            total = F(1.0) if total == F(0.0) else total
            share = F(1.0) / total
            for d in range(features):
                sums[d] *= share
            at = b * ob + h * oh
            rounded(sums, out[at : at + features], brain)
            logs[b, h, 0] = _finite(top) + log(total)

    return loop


def _attention() -> Callable:
    tiles, single = _tiles(), _single()

    def kernel(q, k, v, mask, is_causal, scale):
        """The results and the logarithms of the sums of weights; all have four dimensions."""
        given = as_heads(q, k, v)
        if given is None:
            return NotImplemented
        batch, heads, length, features = given[0].shape
        source = given[1].shape[2]
        mask4 = added_mask(mask, (batch, heads, length, source))
        if mask4 is None:
            return NotImplemented
        out, logs = result_like(given[0], features), np.empty((batch, heads, length), F32)
        work, brain = batch * heads * length * source * (2 * features + 16) // 16, q.dtype.char == "E"
        args = (*map(bits, given), mask is not None, mask4, is_causal, F(scale))
        if length == 1:
            thread_pool.run(single, batch * heads, (*args, bits(out), logs, brain), work)
        else:
            tile, parts = tiles_of(length, is_causal, batch * heads)
            thread_pool.run(tiles, batch * heads * parts, (*args, tile, parts, bits(out), logs, brain), work)
        return out, logs

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"attention": _attention}
