"""Recurrent layers on few sequences: the weights are read where they are, once a step, and never copied.

Panels (rnn.py) are for reading weights many times. For one sequence of a few dozen steps, making them takes longer than
all products. Here each number of a step is an inner product of a weight's row and the hidden state. What the input
contributes is one product of matrices before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import lcm

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import functions
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import in_rows
from tensorgrad.kernels.compiled.rnn_steps import empty, gru_units, lstm_units, outer_rows, schedule, takes
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.vectors import (
    DOTS,
    DOTS_LINE,
    DOTS_PAIR,
    NO,
    PARTS,
    block_dots,
    line_dots,
    pair_dots,
)  # fmt: skip
from tensorgrad.rows.kernel_tables import run_kernel

SEQUENCES = 4  # up to which reading the weights again costs less than copying them
_BATCH = np.int64(SEQUENCES)
_ALONE, _PAIRED, (_HIGH, _ACROSS) = DOTS_LINE[1], DOTS_PAIR[1], DOTS
_SPARE = np.int64(lcm(_ALONE, _PAIRED, _ACROSS) + PARTS)  # columns beyond the last one that blocks may write
_STEPS, _ROW = "int64[::1]", "float32[::1]"


@inner(fastmath={"contract"})
def _products(rows, depth, w, places, several, sums, pitch, columns):
    """Computes sums[r pitch + c] = Σₖ rows[r depth + k] w[c depth + k]; `places` has the rows of `w`."""
    count = depth // PARTS
    sums[: several * pitch] = F(0.0)
    r = 0
    while r < several and count > 0:
        at, to = r * depth, r * pitch
        if several - r == 1:
            for c in range(0, columns, _ALONE):
                line_dots(rows, at, depth, w, places, c, count, sums, to + c, pitch)
            r += 1
        elif several - r == 2:
            for c in range(0, columns, _PAIRED):
                pair_dots(rows, at, depth, w, places, c, count, sums, to + c, pitch)
            r += 2
        else:
            for c in range(0, columns, _ACROSS):
                block_dots(rows, at, depth, w, places, c, count, sums, to + c, pitch)
            r += _HIGH
    whole = count * PARTS
    if whole < depth:
        for r in range(several):
            for c in range(columns):
                total = sums[r * pitch + c]
                for k in range(whole, depth):
                    total += rows[r * depth + k] * w[c * depth + k]
                sums[r * pitch + c] = total


@inner
def _beginnings(columns, depth):
    """Returns where each row of a weight begins; those beyond the last one are that one again."""
    places = np.empty(columns + _SPARE, np.int64)
    for c in range(places.size):
        places[c] = min(c, columns - 1) * depth
    return places


@inner
def _copied(source, out):
    for k in range(source.size):
        out[k] = source[k]


@lru_cache(maxsize=1)
def lstm_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_STEPS}, {_STEPS}, {_STEPS}, "
            "UniTuple(int64, 3), int64, int64)")  # fmt: skip
    def lstm_of_few(ahead, w, h, c, acts, cells, out, starts, counts, outer, sizes, first, last):
        """`ahead`: what x and the biases contribute to the gates."""
        batch, hidden, apart = sizes
        columns = 4 * hidden
        pitch, places = columns + _SPARE, _beginnings(columns, hidden)
        sums, rows = np.empty((_BATCH + _HIGH) * pitch, F32), np.zeros((_BATCH + _HIGH) * hidden, F32)
        _copied(h, rows)
        for t in range(starts.size):
            present = counts[t]
            _products(rows, hidden, w, places, present, sums, pitch, columns)
            for r in range(present):
                n, m = starts[t] + r, outer[t] + r * apart
                lstm_units(sums, r * pitch, ahead, m * columns, c, r * hidden, acts, n * columns, cells, n * hidden,
                           out, m * hidden, rows, r * hidden, hidden)  # fmt: skip
        _copied(rows[: batch * hidden], h)

    return lstm_of_few


@lru_cache(maxsize=1)
def gru_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_STEPS}, {_STEPS}, {_STEPS}, UniTuple(int64, 3), "
            "int64, int64)")  # fmt: skip
    def gru_of_few(ahead, w, bias, h, acts, out, starts, counts, outer, sizes, first, last):
        """`ahead`: what x and all biases contribute, but for that of the hidden state for the new gate: `bias`."""
        batch, hidden, apart = sizes
        columns = 3 * hidden
        pitch, places = columns + _SPARE, _beginnings(columns, hidden)
        sums, rows = np.empty((_BATCH + _HIGH) * pitch, F32), np.zeros((_BATCH + _HIGH) * hidden, F32)
        added = np.zeros(4 * hidden, F32)
        _copied(bias, added[3 * hidden :])
        _copied(h, rows)
        for t in range(starts.size):
            present = counts[t]
            _products(rows, hidden, w, places, present, sums, pitch, columns)
            for r in range(present):
                n, m, i = starts[t] + r, outer[t] + r * apart, r * pitch
                _copied(ahead[m * columns : m * columns + 2 * hidden], added)
                gru_units(sums, i, sums, i + 2 * hidden, ahead, m * columns + 2 * hidden, added, NO, rows, r * hidden,
                          acts, n * 4 * hidden, out, m * hidden, hidden)  # fmt: skip
        _copied(rows[: batch * hidden], h)

    return gru_of_few


@inner(fastmath={"contract"})
def _tanh_of_sums(a, b, to):
    for k in range(to.size):
        to[k] = functions.tanh(a[k] + b[k])


@inner
def _relu_of_sums(a, b, to):
    for k in range(to.size):
        total = a[k] + b[k]
        to[k] = F(0.0) if total < F(0.0) else total


@lru_cache(maxsize=1)
def rnn_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, boolean, {_STEPS}, {_STEPS}, UniTuple(int64, 3), int64, int64)")
    def rnn_of_few(ahead, w, h, out, relu, counts, outer, sizes, first, last):
        """`ahead`: what x and the biases contribute."""
        batch, hidden, apart = sizes
        pitch, places = hidden + _SPARE, _beginnings(hidden, hidden)
        sums, rows = np.empty((_BATCH + _HIGH) * pitch, F32), np.zeros((_BATCH + _HIGH) * hidden, F32)
        _copied(h, rows)
        for t in range(counts.size):
            present = counts[t]
            _products(rows, hidden, w, places, present, sums, pitch, hidden)
            for r in range(present):
                m = (outer[t] + r * apart) * hidden
                more, state = sums[r * pitch : r * pitch + hidden], rows[r * hidden : (r + 1) * hidden]
                if relu:
                    _relu_of_sums(ahead[m : m + hidden], more, state)
                else:
                    _tanh_of_sums(ahead[m : m + hidden], more, state)
                _copied(state, out[m : m + hidden])
        _copied(rows[: batch * hidden], h)

    return rnn_of_few


def _flat(*arrays):
    return [a.reshape(-1) for a in arrays]


def _run(loop, given, steps, batch, hidden, apart):
    work = len(steps[0]) * batch * hidden * hidden
    thread_pool.run(loop, 1, (*given, *steps, (batch, hidden, apart)), work // 4)


def lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, batch_first):
    """The results of `kernels/array/rnn.lstm`, for arrays that kernels support and up to SEQUENCES sequences."""
    hidden, (starts, counts) = h0.shape[1], schedule(sizes, reverse)
    first, apart = outer_rows(starts, sizes, batch_first)
    ahead = run_kernel("linear", x, w_ih, None if b_ih is None else b_ih + b_hh)
    acts, cells, out = empty(len(x), 4 * hidden), empty(len(x), hidden), empty(len(x), hidden)
    h, c = np.array(h0, order="C"), np.array(c0, order="C")
    given = _flat(in_rows(ahead), in_rows(w_hh), h, c, acts, cells, out)
    _run(lstm_loop(), given, (starts, counts, first), len(h), hidden, apart)
    return out, h, c, acts, cells


def gru(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, batch_first):
    """The results of `kernels/array/rnn.gru`, for arrays that kernels support and up to SEQUENCES sequences."""
    hidden, (starts, counts) = h0.shape[1], schedule(sizes, reverse)
    first, apart = outer_rows(starts, sizes, batch_first)
    bias, own = b_ih, np.zeros(hidden, F32)
    if b_ih is not None:
        bias = b_ih.copy()
        bias[: 2 * hidden] += b_hh[: 2 * hidden]
        own = in_rows(b_hh[2 * hidden :])
    ahead = run_kernel("linear", x, w_ih, bias)
    acts, out, h = empty(len(x), 4 * hidden), empty(len(x), hidden), np.array(h0, order="C")
    given = _flat(in_rows(ahead), in_rows(w_hh), own, h, acts, out)
    _run(gru_loop(), given, (starts, counts, first), len(h), hidden, apart)
    return out, h, acts


def _rnn() -> Callable:
    rnn_loop()

    def kernel(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, relu, batch_first):
        if not x.size or not h0.size or len(h0) > SEQUENCES or not takes(x, h0, w_ih, w_hh, b_ih, b_hh):
            return NotImplemented
        starts, counts = schedule(sizes, reverse)
        first, apart = outer_rows(starts, sizes, batch_first)
        ahead = run_kernel("linear", x, w_ih, None if b_ih is None else b_ih + b_hh)
        out, h = empty(len(x), h0.shape[1]), np.array(h0, order="C")
        given = (*_flat(in_rows(ahead), in_rows(w_hh), h, out), relu)
        _run(rnn_loop(), given, (counts, first), len(h), h.shape[1], apart)
        return out, h

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"rnn": _rnn}
