"""Attention of a few queries on keys and values of 8 bits (kernels/array/quantized.py): a decoder's next tokens.

The keys of a head become float32 in registers, once for up to four queries that share it; so do its values, a few
positions at a time. So a token takes a pass over a quarter of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array import quantized as general
from tensorgrad.kernels.compiled.attention import TOGETHER, add_eight, add_scaled, added_mask, even, steps
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.moments import row_exps
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.panels import flat
from tensorgrad.kernels.compiled.simd.small_weights import PARTS, ROWS, int8_few
from tensorgrad.storage.fresh import fresh

_ROWS, _SCALES = "float32[:,:,:,::1]", "float32[:,:,:]"
_HEADS, _BYTES = "float32[:,:,:,:]", "int8[:,:,:,:]"  # whose strides the loop looks at
_MANY = 64  # queries that share keys, from which on products of matrices pay


@inner
def _widened(v, at, count, out):
    for i in range(np.uint64(count)):
        out[i] = F(v[np.uint64(at) + i])


@inner
def _shares(row, scale, scales, masked, mask, at, step):
    """Turns products into the shares of the positions."""
    top = F(-np.inf)
    for s in range(row.size):
        number = row[s] * (scales[s] * scale)
        if masked:
            number += mask[at + s * step]
        row[s] = number
        top = number if number > top else top
    shift = F(0.0) if masked and top == -np.inf else top
    total = row_exps(row, row, shift)
    share = F(0.0) if masked and total == F(0.0) else F(1.0) / total
    for s in range(row.size):
        row[s] *= share


def _attention():
    @shared(
        f"void({_ROWS}, {_BYTES}, {_SCALES}, {_BYTES}, {_SCALES}, boolean, {_HEADS}, int64, float32, {_ROWS}, "
        "int64, int64)"
    )
    def loop(q4, k4, key_scales, v4, value_scales, masked, mask4, queries, scale, out4, first, last):
        """For units of a batch and a head of keys, to which all `lines` of queries belong: `queries` of each head."""
        heads, lines, depth = q4.shape[1:]
        length, width = v4.shape[2:]
        group = lines // queries
        q, k, v, mask = flat(q4), flat(k4), flat(v4), flat(mask4)
        (kb, kh, _), (vb, vh, _), (mb, mh, ms), mk = steps(k4), steps(v4), steps(mask4), mask4.strides[3] // 4
        pitch, count = even(length, TOGETHER), depth // PARTS
        shares, sums = np.empty((lines, pitch), F32), np.empty(lines * ROWS, F32)
        wide = np.empty(TOGETHER * width, F32)
        for unit in range(first, last):
            b, h = unit // heads, unit % heads
            begin = unit * lines * depth
            x, keys, values = q[begin : begin + lines * depth], b * kb + h * kh, b * vb + h * vh
            for at in range(0, length, ROWS):
                start = min(at, length - ROWS)  # the last block overlaps the one before it
                int8_few(x, lines, depth, k, keys + start * depth, count, sums)
                for m in range(lines):
                    for r in range(ROWS):
                        shares[m, start + r] = sums[m * ROWS + r]
            for m in range(lines):
                place = b * mb + (h * group + m // queries) * mh + m % queries * ms
                _shares(shares[m, :length], scale, key_scales[b, h, :length], masked, mask, place, mk)
                for s in range(length):
                    shares[m, s] *= value_scales[b, h, s]
                out4[b, h, m, :] = F(0.0)
            whole = length - length % TOGETHER
            for s in range(0, whole, TOGETHER):
                _widened(v, values + s * width, TOGETHER * width, wide)
                for m in range(lines):
                    add_eight(out4[b, h, m], wide, 0, width, shares[m, s : s + TOGETHER])
            for s in range(whole, length):
                _widened(v, values + s * width, width, wide)
                for m in range(lines):
                    add_scaled(out4[b, h, m], wide[:width], shares[m, s])

    def kernel(query, key, key_scales, value, value_scales, mask, scale):
        general.int8_attention_shape(query, key, key_scales, value, value_scales, mask)
        batch, all_heads, queries, depth = query.shape
        heads, length, width = value.shape[1:]
        lines = all_heads // heads * queries
        if query.dtype is not F32 or depth % PARTS or length < ROWS or not 0 < lines < _MANY or not query.size:
            return NotImplemented
        if not all(_in_rows(x) for x in (key, value)) or key_scales.dtype is not F32 or value_scales.dtype is not F32:
            return NotImplemented
        if key_scales.strides[-1] != 4 or value_scales.strides[-1] != 4:
            return NotImplemented
        mask4 = added_mask(mask, (batch, all_heads, queries, length))
        if mask4 is None:
            return NotImplemented
        q4 = np.ascontiguousarray(query).reshape(batch, heads, lines, depth)
        out = fresh(batch * heads * lines * width, F32).reshape(batch, heads, lines, width)
        given = q4, key, key_scales, value, value_scales, mask is not None, mask4, queries, F(scale), out
        thread_pool.run(loop, batch * heads, given, key.size + value.size + batch * heads * length * lines * 4)
        return out.reshape(batch, all_heads, queries, width)

    return kernel


def _in_rows(x) -> bool:
    """Whether the positions of a head follow each other without gaps."""
    return x.strides[-1] == 1 and x.strides[-2] == x.shape[-1]


KERNELS: dict[str, Callable[[], Callable]] = {"attention": _attention}
