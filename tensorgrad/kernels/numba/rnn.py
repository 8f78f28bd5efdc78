"""LSTM and GRU layers: all time steps in one launch, with the products of the hidden state in our own tiles.

A thread takes some of the sequences through all steps and never waits for others. The gradients of the weights are
products of whole matrices afterwards. Every number is summed for its own sequence, so results do not depend on how many
sequences a thread takes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array import rnn as general
from tensorgrad.kernels.numba import functions, matmul
from tensorgrad.kernels.numba.functions import F
from tensorgrad.kernels.numba.runtime import thread_pool
from tensorgrad.kernels.numba.runtime.language import inner
from tensorgrad.kernels.numba.runtime.launch import shared
from tensorgrad.kernels.numba.simd.panels import LANES, PAD, across, flat
from tensorgrad.kernels.numba.softmax import MATRIX
from tensorgrad.settings import get_num_threads

_SEQUENCES, _FEWEST = 16, 4  # that a thread takes through all steps at a time: at most, and if there are few
_STEPS = "int64[::1]"


def _takes(*arrays) -> bool:
    return all(a is None or (a.__class__ is np.ndarray and a.dtype is F32) for a in arrays)


def _padded(weight):
    """Copies a matrix so that its rows are whole registers, spaced to use the cache evenly."""
    width = -(-weight.shape[1] // LANES) * LANES
    wide = np.zeros((weight.shape[0], width + LANES * (width % 128 == 0)), F32)
    wide[:, : weight.shape[1]] = weight
    return wide


@inner
def _whole(n):
    return (n + LANES - 1) // LANES * LANES


def _schedule(sizes, reverse):
    """Returns the first row and number of sequences of each step, in the order of computation."""
    counts = np.array(sizes, np.int64)
    starts = np.cumsum(counts) - counts
    return (starts[::-1].copy(), counts[::-1].copy()) if reverse else (starts, counts)


def _previous(out, h0, sizes, reverse):
    """Returns for every row of `out` the state that its step began with."""
    if sizes[-1] != sizes[0]:
        return general.previous(np, out, h0, sizes, reverse)
    return np.concatenate((out[len(h0) :], h0) if reverse else (h0, out[: -len(h0)]))


def _inputs(out, h0, x, sizes, reverse):
    """Returns for every row the state that its step began with, and beside it the row of x."""
    hidden, first = out.shape[1], len(h0)
    both = np.empty((len(x), hidden + x.shape[1]), F32)
    both[:, hidden:] = x
    if sizes[-1] != sizes[0]:
        both[:, :hidden] = general.previous(np, out, h0, sizes, reverse)
    elif reverse:
        both[:-first, :hidden], both[-first:, :hidden] = out[first:], h0
    else:
        both[:first, :hidden], both[first:, :hidden] = h0, out[:-first]
    return both


def _together(batch: int) -> int:
    """Returns how many sequences a thread takes at a time: fewer if other threads would have none."""
    return max(_FEWEST, min(_SEQUENCES, -(-batch // get_num_threads())))


def _times(product: Callable, a, b):
    """Runs a function of `matmul` on two matrices, or NumPy if that declines."""
    found = product(a, b)
    if found is not NotImplemented:
        return found
    return (a.T if product is matmul.tn else a) @ (b.T if product is matmul.nt else b)


# --- LSTM ------------------------------------------------------------------------------------------------------------


@inner(fastmath={"contract"})
def _lstm_cell(row, inside, bias, state, kept, out):
    """Gates in the order input, forget, cell, output: `inside` before and `row` after their activation functions."""
    hidden = state.size
    both, new, output = row[: 2 * hidden], row[2 * hidden : 3 * hidden], row[3 * hidden : 4 * hidden]
    in2, in3 = inside[2 * hidden : 3 * hidden], inside[3 * hidden : 4 * hidden]
    b2, b3 = bias[2 * hidden : 3 * hidden], bias[3 * hidden : 4 * hidden]
    for k in range(both.size):
        both[k] = functions.sigmoid(inside[k] + bias[k])
    inputs, forget = row[:hidden], row[hidden : 2 * hidden]
    for k in range(hidden):
        new[k] = functions.tanh(in2[k] + b2[k])
        state[k] = forget[k] * state[k] + inputs[k] * new[k]
    for k in range(hidden):
        output[k] = functions.sigmoid(in3[k] + b3[k])
        kept[k] = state[k]
        out[k] = output[k] * functions.tanh(state[k])


def _lstm():
    @shared(f"void({MATRIX}, {MATRIX}, {MATRIX}, float32[::1], {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, "
            f"{MATRIX}, {_STEPS}, {_STEPS}, int64, int64, int64)")  # fmt: skip
    def loop(x, w_ih, weight, bias, h, c, acts, cells, out, starts, counts, several, first, last):
        batch, hidden = h.shape
        pitch, wide = weight.shape[1], _whole(4 * hidden)
        inside = np.empty((several + PAD, wide), F32)
        all_h, all_weight, sums, features = flat(h), flat(weight), flat(inside), x.shape[1]
        all_x, all_w_ih = flat(x), flat(w_ih)
        for unit in range(first, last):
            low, high = unit * several, min((unit + 1) * several, batch)
            for t in range(starts.size):
                rows = min(high, counts[t]) - low
                if rows <= 0:
                    continue
                across(all_x, (starts[t] + low) * features, features, all_w_ih, 0, pitch, features, sums, 0, wide,
                       True, rows, wide)  # fmt: skip
                across(all_h, low * hidden, hidden, all_weight, 0, pitch, hidden, sums, 0, wide, False, rows, wide)
                for r in range(rows):
                    n = starts[t] + low + r
                    _lstm_cell(acts[n], inside[r], bias, c[low + r], cells[n], out[n])
                    row, to = out[n], h[low + r]
                    for k in range(hidden):
                        to[k] = row[k]

    def kernel(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse):
        if w_hr is not None or not x.size or not _takes(x, h0, c0, w_ih, w_hh, b_ih, b_hh) or not h0.size:
            return NotImplemented
        bias = np.zeros(len(w_ih), F32) if b_ih is None else b_ih + b_hh
        x, hidden = np.ascontiguousarray(x), h0.shape[1]
        acts = np.empty((len(x), len(w_ih)), F32)
        out, cells = np.empty((len(x), hidden), F32), np.empty((len(x), hidden), F32)
        h, c, several = np.array(h0, order="C"), np.array(c0, order="C"), _together(len(h0))
        args = (x, _padded(w_ih.T), _padded(w_hh.T), bias, h, c, acts, cells, out, *_schedule(sizes, reverse), several)
        thread_pool.run(loop, -(-len(h) // several), args, acts.size * (hidden + x.shape[1] + 64) // 16)
        return out, h, c, acts, cells

    return kernel


@inner(fastmath={"contract"})
def _lstm_slopes(above, back, carried, row, cell, old, to):
    """Computes the gradients of the gates before their activations; that of the previous cell state in `carried`."""
    hidden, one = cell.size, F(1.0)
    inputs, forget = row[:hidden], row[hidden : 2 * hidden]
    new, output = row[2 * hidden : 3 * hidden], row[3 * hidden : 4 * hidden]
    t0, t1, t2, t3 = to[:hidden], to[hidden : 2 * hidden], to[2 * hidden : 3 * hidden], to[3 * hidden : 4 * hidden]
    for k in range(hidden):
        to_h, o, t = above[k] + back[k], output[k], functions.tanh(cell[k])
        t3[k] = to_h * t * (o * (one - o))
        carried[k] += to_h * o * (one - t * t)
    for k in range(hidden):
        i, new_k = inputs[k], new[k]
        t0[k] = carried[k] * new_k * (i * (one - i))
        t2[k] = carried[k] * i * (one - new_k * new_k)
    for k in range(hidden):
        f = forget[k]
        t1[k] = carried[k] * old[k] * (f * (one - f))
        carried[k] *= f


def _lstm_grad():
    @shared(f"void({MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, "
            f"{MATRIX}, {_STEPS}, {_STEPS}, int64, int64, int64)")  # fmt: skip
    def loop(g, dh, dc, acts, cells, c0, weight, slopes, sums, starts, counts, several, first, last):
        batch, hidden = dc.shape
        pitch, wide = weight.shape[1], _whole(hidden)
        product = np.empty((several + PAD, wide), F32)
        all_slopes, all_weight, all_product = flat(slopes), flat(weight), flat(product)
        for unit in range(first, last):
            low, high = unit * several, min((unit + 1) * several, batch)
            for t in range(starts.size - 1, -1, -1):
                rows = min(high, counts[t]) - low
                if rows <= 0:
                    continue
                for r in range(rows):
                    n, at = starts[t] + low + r, low + r
                    old = cells[starts[t - 1] + at] if t > 0 and at < counts[t - 1] else c0[at]
                    _lstm_slopes(g[n], dh[at], dc[at], acts[n], cells[n], old, slopes[n])
                    row, total = slopes[n], sums[at]
                    for k in range(row.size):
                        total[k] += row[k]
                across(all_slopes, (starts[t] + low) * 4 * hidden, 4 * hidden, all_weight, 0, pitch, 4 * hidden,
                       all_product, 0, wide, True, rows, wide)  # fmt: skip
                for r in range(rows):
                    row, to = product[r], dh[low + r]
                    for k in range(hidden):
                        to[k] = row[k]

    def kernel(grads, x, h0, c0, w_ih, w_hh, w_hr, out, acts, cells, sizes, reverse):
        g, gh, gc = grads
        if w_hr is not None or not x.size or not out.size:
            return NotImplemented
        if not _takes(g, gh, gc, x, h0, c0, w_ih, w_hh, out, acts, cells):
            return NotImplemented
        g, acts, cells, out, c0 = (np.ascontiguousarray(a) for a in (g, acts, cells, out, c0))
        slopes, dh, dc = np.empty(acts.shape, F32), np.array(gh, order="C"), np.array(gc, order="C")
        sums, several = np.zeros((len(dh), acts.shape[1]), F32), _together(len(dh))
        args = (g, dh, dc, acts, cells, c0, _padded(w_hh), slopes, sums, *_schedule(sizes, reverse), several)
        thread_pool.run(loop, -(-len(dh) // several), args, acts.size * (out.shape[1] + 64) // 16)
        gx, bias, hidden = _times(matmul.mm, slopes, w_ih), sums.sum(0), out.shape[1]
        weights = _times(matmul.tn, slopes, _inputs(out, h0, x, sizes, reverse))  # one product: slopes are read once
        gw_hh, gw_ih = weights[:, :hidden].copy(), weights[:, hidden:].copy()
        return gx, dh, dc, gw_ih, gw_hh, bias, bias.copy(), None

    return kernel


# --- GRU -------------------------------------------------------------------------------------------------------------


@inner(fastmath={"contract"})
def _gru_cell(row, more, bias, state, kept, out):
    """Gates in the order reset, update, new; `kept` also holds the hidden state's contribution to the new gate."""
    hidden = state.size
    both, new, inner = kept[: 2 * hidden], kept[2 * hidden : 3 * hidden], kept[3 * hidden : 4 * hidden]
    for k in range(both.size):
        both[k] = functions.sigmoid(row[k] + (more[k] + bias[k]))
    x2, m2, b2 = row[2 * hidden : 3 * hidden], more[2 * hidden : 3 * hidden], bias[2 * hidden : 3 * hidden]
    reset, update = kept[:hidden], kept[hidden : 2 * hidden]
    for k in range(hidden):
        inner[k] = m2[k] + b2[k]
        new[k] = functions.tanh(x2[k] + reset[k] * inner[k])
    for k in range(hidden):
        out[k] = new[k] + update[k] * (state[k] - new[k])
        state[k] = out[k]


def _gru():
    @shared(f"void({MATRIX}, {MATRIX}, float32[::1], {MATRIX}, {MATRIX}, {MATRIX}, {_STEPS}, {_STEPS}, int64, "
            "int64, int64)")  # fmt: skip
    def loop(gates, weight, bias, h, acts, out, starts, counts, several, first, last):
        batch, hidden = h.shape
        pitch, wide = weight.shape[1], _whole(3 * hidden)
        product = np.empty((several + PAD, wide), F32)
        all_h, all_weight, all_product = flat(h), flat(weight), flat(product)
        for unit in range(first, last):
            low, high = unit * several, min((unit + 1) * several, batch)
            for t in range(starts.size):
                rows = min(high, counts[t]) - low
                if rows <= 0:
                    continue
                across(all_h, low * hidden, hidden, all_weight, 0, pitch, hidden, all_product, 0, wide, True, rows,
                       wide)  # fmt: skip
                for r in range(rows):
                    n = starts[t] + low + r
                    _gru_cell(gates[n], product[r], bias, h[low + r], acts[n], out[n])

    def kernel(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse):
        if not x.size or not h0.size or not _takes(x, h0, w_ih, w_hh, b_ih, b_hh):
            return NotImplemented
        gates, hidden, several = _times(matmul.nt, x, w_ih), h0.shape[1], _together(len(h0))
        if b_ih is not None:
            gates += b_ih
        acts, out = np.empty((len(x), 4 * hidden), F32), np.empty((len(x), hidden), F32)
        h = np.array(h0, order="C")
        bias = np.zeros(3 * hidden, F32) if b_hh is None else np.ascontiguousarray(b_hh)
        args = (gates, _padded(w_hh.T), bias, h, acts, out, *_schedule(sizes, reverse), several)
        thread_pool.run(loop, -(-len(h) // several), args, gates.size * (hidden + 64) // 16)
        return out, h, acts

    return kernel


@inner(fastmath={"contract"})
def _gru_slopes(above, back, row, old, to, inside):
    """Computes the gradients of the gates before their activations.

    `inside`: those that the hidden state's weights see.
    """
    hidden, one = old.size, F(1.0)
    reset, update = row[:hidden], row[hidden : 2 * hidden]
    new, inner = row[2 * hidden : 3 * hidden], row[3 * hidden : 4 * hidden]
    t0, t1, t2 = to[:hidden], to[hidden : 2 * hidden], to[2 * hidden : 3 * hidden]
    i0, i1, i2 = inside[:hidden], inside[hidden : 2 * hidden], inside[2 * hidden : 3 * hidden]
    for k in range(hidden):
        to_h, z, n = above[k] + back[k], update[k], new[k]
        slope = to_h * (one - z) * (one - n * n)
        t2[k] = slope
        i2[k] = slope * reset[k]
        back[k] = to_h * z
        t1[k] = to_h * (old[k] - n) * (z * (one - z))
        i1[k] = t1[k]
    for k in range(hidden):
        r = reset[k]
        t0[k] = t2[k] * inner[k] * (r * (one - r))
        i0[k] = t0[k]


def _gru_grad():
    @shared(f"void({MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {_STEPS}, "
            f"{_STEPS}, int64, int64, int64)")  # fmt: skip
    def loop(g, dh, acts, out, h0, weight, slopes, inside, starts, counts, several, first, last):
        batch, hidden = dh.shape
        pitch, wide = weight.shape[1], _whole(hidden)
        product = np.empty((several + PAD, wide), F32)
        all_inside, all_weight, all_product = flat(inside), flat(weight), flat(product)
        for unit in range(first, last):
            low, high = unit * several, min((unit + 1) * several, batch)
            for t in range(starts.size - 1, -1, -1):
                rows = min(high, counts[t]) - low
                if rows <= 0:
                    continue
                for r in range(rows):
                    n, at = starts[t] + low + r, low + r
                    old = out[starts[t - 1] + at] if t > 0 and at < counts[t - 1] else h0[at]
                    _gru_slopes(g[n], dh[at], acts[n], old, slopes[n], inside[n])
                across(all_inside, (starts[t] + low) * 3 * hidden, 3 * hidden, all_weight, 0, pitch, 3 * hidden,
                       all_product, 0, wide, True, rows, wide)  # fmt: skip
                for r in range(rows):
                    row, to = product[r], dh[low + r]
                    for k in range(hidden):
                        to[k] += row[k]

    def kernel(grads, x, h0, w_ih, w_hh, out, acts, sizes, reverse):
        g, gh = grads
        if not x.size or not out.size or not _takes(g, gh, x, h0, w_ih, w_hh, out, acts):
            return NotImplemented
        g, acts, out, h0 = (np.ascontiguousarray(a) for a in (g, acts, out, h0))
        hidden, dh, several = out.shape[1], np.array(gh, order="C"), _together(len(gh))
        slopes, inside = np.empty((len(x), 3 * hidden), F32), np.empty((len(x), 3 * hidden), F32)
        args = (g, dh, acts, out, h0, _padded(w_hh), slopes, inside, *_schedule(sizes, reverse), several)
        thread_pool.run(loop, -(-len(dh) // several), args, slopes.size * (hidden + 64) // 16)
        gx, gw_ih = _times(matmul.mm, slopes, w_ih), _times(matmul.tn, slopes, x)
        gw_hh = _times(matmul.tn, inside, _previous(out, h0, sizes, reverse))
        return gx, dh, gw_ih, gw_hh, slopes.sum(0), inside.sum(0)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "lstm": _lstm,
    "lstm_grad": matmul.beside(_lstm_grad),
    "gru": matmul.beside(_gru),
    "gru_grad": matmul.beside(_gru_grad),
}
