"""LSTM and GRU layers: all time steps in one launch, with the products of the hidden state in our own tiles.

A thread takes some of the sequences through all steps and never waits for others. Backward, it stops every few steps:
the gradients of the gates are then multiplied with what the steps began with, for the gradients of the weights, while
they are in a cache. (If the weights are large, that is one product of whole matrices afterwards.) Every number is
summed for its own sequence, or over the rows of all sequences in order, so results do not depend on how many sequences
a thread takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array import rnn as general
from tensorgrad.kernels.compiled import functions, matmul, rnn_few
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.gates import gru_slopes, lstm_slopes
from tensorgrad.kernels.compiled.layout import in_rows
from tensorgrad.kernels.compiled.rnn_steps import empty, gru_units, lstm_units, outer_rows, schedule, takes
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import MATRIX, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.simd.panels import EVEN, PAD, across, along, flat
from tensorgrad.kernels.compiled.simd.vectors import LANES, NO, turn
from tensorgrad.settings import get_num_threads

_SEQUENCES, _FEWEST = 16, 4  # that a thread takes through all steps at a time: at most, and if there are few
_JOINT = 1 << 17  # numbers of both weights that are multiplied together: beyond that, each is read from farther away
_ROWS_AT_ONCE = 256  # rows of gradients that stay in a second-level cache, beside the weights' gradients
_DEEP = np.int64(128)  # of them that are multiplied at a time: three registers of each stay in a first-level cache
_UNIT = np.int64(EVEN)  # rows of a weight's gradient that a thread takes at a time
_PANEL = np.int64(3 * LANES)  # columns of a panel of weights: its rows are read one after the other, however many
_STEPS, _ROW = "int64[::1]", "float32[::1]"


@inner
def _whole(n):
    return (n + LANES - 1) // LANES * LANES


@inner
def _apart(n):
    """Returns how far to place rows of so many numbers apart: whole registers, and no power of two (for a cache)."""
    whole = _whole(n)
    return whole + LANES if whole % 128 == 0 else whole


@inner
def _place(row, column, depth):
    """Returns where a weight's number is in its panels, each of `depth` rows of _PANEL columns."""
    return (column // _PANEL * depth + row) * _PANEL + column % _PANEL


@inner
def _carried(source, at, out, to, count):
    at, to = np.uint64(at), np.uint64(to)  # an index that could be negative is not vectorized
    for k in range(np.uint64(count)):
        out[to + k] = source[at + k]


@inner
def _added(source, at, out, to, count):
    at, to = np.uint64(at), np.uint64(to)
    for k in range(np.uint64(count)):
        out[to + k] += source[at + k]


@inner
def _times_panels(a, at, step, panels, depth, out, to, pitch, wide, rows):
    """Computes `rows` rows of `wide` numbers: those of `a`, of `depth` numbers and `step` apart, times the panels."""
    for p in range(0, wide, _PANEL):
        across(a, at, step, panels, p * depth, _PANEL, depth, out, to + p, pitch, True, rows, min(_PANEL, wide - p))


@lru_cache(maxsize=1)
def _turned_loop():
    @shared(f"void({_ROW}, {_ROW}, int64, int64, int64, int64, int64)")
    def turned(weight, panels, columns, row, depth, first, last):
        """Writes `columns` columns of a weight as rows of panels, from `row` on; LANES of its rows are a unit."""
        several = weight.size // columns
        for unit in range(first, last):
            j = unit * LANES
            present, whole = min(LANES, several - j), columns - columns % LANES
            for k in range(0, whole, LANES):
                turn(weight, j * columns + k, columns, present, panels, _place(row + k, j, depth), _PANEL, LANES)
            for k in range(whole, columns):
                for i in range(present):
                    panels[_place(row + k, j + i, depth)] = weight[(j + i) * columns + k]

    return turned


@lru_cache(maxsize=1)
def _beside_loop():
    @shared(f"void({_ROW}, {_ROW}, int64, int64, int64, int64, int64)")
    def beside(weight, panels, columns, column, depth, first, last):
        """Writes rows of a weight, of `columns` numbers, as rows of panels, from `column` on."""
        for k in range(first, last):
            at = 0
            while at < columns:
                count = min(columns - at, _PANEL - (column + at) % _PANEL)
                _carried(weight, k * columns + at, panels, _place(k, column + at, depth), count)
                at += count

    return beside


def _empty_panels(depth, columns):
    return empty(-(-columns // int(_PANEL)) * int(_PANEL) * depth)


def _turned(*weights):
    """Returns transposed weights, one below the other, in panels."""
    depth, row = sum([weight.shape[1] for weight in weights]), 0
    panels = _empty_panels(depth, len(weights[0]))
    for weight in weights:
        given = (in_rows(weight).reshape(-1), panels, weight.shape[1], row, depth)
        thread_pool.run(_turned_loop(), -(-len(weight) // LANES), given, 2 * weight.size)
        row += weight.shape[1]
    return panels


def _beside(*weights):
    """Returns weights beside each other in panels."""
    depth, column = len(weights[0]), 0
    panels = _empty_panels(depth, sum([weight.shape[1] for weight in weights]))
    for weight in weights:
        given = (in_rows(weight).reshape(-1), panels, weight.shape[1], column, depth)
        thread_pool.run(_beside_loop(), depth, given, 2 * weight.size)
        column += weight.shape[1]
    return panels


def _stretches(starts, counts):
    """Divides the steps, from the last one on, into stretches of _ROWS_AT_ONCE rows: (begin, end, first row, rows)."""
    found, starts, counts = [], starts.tolist(), counts.tolist()
    end = len(counts)
    while end:
        begin, rows = end - 1, counts[end - 1]
        while begin and rows + counts[begin - 1] <= _ROWS_AT_ONCE:
            begin -= 1
            rows += counts[begin]
        found.append((begin, end, min(starts[begin], starts[end - 1]), rows))
        end = begin
    return found


def _spaced(columns: int) -> int:
    """Does what `_apart` does, in Python."""
    whole = -(-columns // LANES) * LANES
    return whole + LANES if whole % 128 == 0 else whole


@inner
def _add_products(left, at, step, right, start, pitch, deep, out, rows, wide, fresh, edge, first, last):
    """Adds Σₖ left[k, r] right[k, c], over `deep` rows k, to units of the `rows` rows r of `out`."""
    for unit in range(first, last):
        row = unit * _UNIT
        high = min(_UNIT, rows - row)
        whole = high == _UNIT
        target, to = (out, row * wide) if whole else (edge, NO)
        if not whole and not fresh:
            _carried(out, row * wide, edge, NO, high * wide)
        for k in range(0, deep, _DEEP):
            along(left, at + k * step + row, step, right, start + k * pitch, pitch, min(_DEEP, deep - k), target, to,
                  wide, fresh and k == 0, high, wide)  # fmt: skip
        if not whole:
            _carried(edge, NO, out, row * wide, high * wide)


@lru_cache(maxsize=1)
def _weights_loop():
    @shared(f"void({_ROW}, {_ROW}, {_ROW}, {_ROW}, UniTuple(int64, 9), int64, int64)")
    def weights(slopes, inputs, gw_hh, gw_ih, sizes, first, last):
        """Adds products to the gradients of both weights, those of the two parts of `inputs`."""
        step, pitch, ahead, beside, deep, rows, to_h, to_x, fresh = sizes
        edge = np.empty((_UNIT + PAD) * max(to_h, to_x), F32)
        _add_products(slopes, ahead, step, inputs, NO, pitch, deep, gw_hh, rows, to_h, fresh > 0, edge, first, last)
        _add_products(slopes, NO, step, inputs, beside, pitch, deep, gw_ih, rows, to_x, fresh > 0, edge, first, last)

    return weights


class _Weights:
    """The gradients of a layer's weights, to which products are added stretch by stretch.

    `slopes`: for each row of the stretch, the gradients of the gates; those that the weight of the hidden state sees
    begin `ahead`. `inputs`: the hidden state that the row's step began with, and x, which begins `beside`.
    """

    def __init__(self, gates, hidden, features, rows, ahead=0):
        self.rows, self.step, self.ahead = gates * hidden, _spaced(gates * hidden + ahead), ahead
        self.sizes, self.wide = (hidden, features), tuple(-(-n // LANES) * LANES for n in (hidden, features))
        self.beside, self.pitch = self.wide[0], _spaced(sum(self.wide))
        self.slopes, self.inputs = empty(rows * self.step + PAD), empty(rows * self.pitch)
        if self.wide != self.sizes:
            self.inputs.fill(0)  # what is beside the inputs is multiplied, too
        self.hh, self.ih = (empty(self.rows * wide) for wide in self.wide)
        self.fresh = True

    def add(self, rows: int) -> None:
        """Adds the products of a stretch."""
        sizes = (self.step, self.pitch, self.ahead, self.beside, rows, self.rows, *self.wide, self.fresh)
        given = (self.slopes, self.inputs, self.hh, self.ih, sizes)
        thread_pool.run(_weights_loop(), -(-self.rows // int(_UNIT)), given, rows * self.rows * sum(self.wide) // 16)
        self.fresh = False

    def found(self):
        """Returns the gradients of the weights of x and of the hidden state."""
        given = (self.ih, self.wide[1], self.sizes[1]), (self.hh, self.wide[0], self.sizes[0])
        return [in_rows(w.reshape(self.rows, wide)[:, :n]) for w, wide, n in given]


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


def _lstm():
    _turned_loop(), rnn_few.lstm_loop()

    @shared(f"void({MATRIX}, {_ROW}, {_ROW}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {_STEPS}, {_STEPS}, "
            f"{_STEPS}, int64, int64, int64, int64)")  # fmt: skip
    def loop(x, panels, bias, h, c, acts, cells, out, starts, counts, outer, apart, several, first, last):
        batch, hidden = h.shape
        features, wide = x.shape[1], _whole(4 * hidden)
        depth = hidden + features
        step = _apart(depth)  # of the rows that are multiplied: the hidden state, and the input beside it
        inside, rows = np.empty((several + PAD) * wide, F32), np.empty(several * step, F32)
        all_x, all_h, all_c = flat(x), flat(h), flat(c)
        all_acts, all_cells, all_out = flat(acts), flat(cells), flat(out)
        for unit in range(first, last):
            low, high = unit * several, min((unit + 1) * several, batch)
            matmul.copied(all_h, low * hidden, hidden, rows, NO, step, high - low, hidden)
            for t in range(starts.size):
                present = min(high, counts[t]) - low
                if present <= 0:
                    continue
                top, far = starts[t] + low, outer[t] + low * apart
                matmul.copied(all_x, far * features, apart * features, rows, hidden, step, present, features)
                _times_panels(rows, NO, step, panels, depth, inside, NO, wide, wide, present)
                for r in range(present):
                    n, o, s = top + r, (far + r * apart) * hidden, (low + r) * hidden
                    lstm_units(inside, r * wide, bias, NO, all_c, s, all_acts, n * 4 * hidden, all_cells, n * hidden,
                               all_out, o, rows, r * step, hidden)  # fmt: skip
            matmul.copied(rows, NO, step, all_h, low * hidden, hidden, high - low, hidden)

    def kernel(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse, batch_first):
        if w_hr is not None or not x.size or not takes(x, h0, c0, w_ih, w_hh, b_ih, b_hh) or not h0.size:
            return NotImplemented
        if len(h0) <= rnn_few.SEQUENCES:
            return rnn_few.lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, batch_first)
        bias = np.zeros(len(w_ih), F32) if b_ih is None else b_ih + b_hh
        x, hidden = in_rows(x), h0.shape[1]
        acts, out, cells = empty(len(x), len(w_ih)), empty(len(x), hidden), empty(len(x), hidden)
        h, c, several = np.array(h0, order="C"), np.array(c0, order="C"), _together(len(h0))
        starts, counts = schedule(sizes, reverse)
        steps = (starts, counts, *outer_rows(starts, sizes, batch_first))
        args = (x, _turned(w_hh, w_ih), bias, h, c, acts, cells, out, *steps, several)
        thread_pool.run(loop, -(-len(h) // several), args, acts.size * (hidden + x.shape[1] + 64) // 16)
        return out, h, c, acts, cells

    return kernel


@inner(fastmath={"contract"})
def _lstm_slopes_rest(above, g, back, d, carried, e, acts, a, cells, c, old, o, slopes, s, sums, m, hidden, begin):
    """Does what `lstm_slopes` does, for the units of the cell from `begin` on, which fill no register."""
    one = F(1.0)
    for k in range(begin, hidden):
        inputs, forget = acts[a + k], acts[a + hidden + k]
        new, output = acts[a + 2 * hidden + k], acts[a + 3 * hidden + k]
        to_h, t = above[g + k] + back[d + k], functions.tanh(cells[c + k])
        to_c = carried[e + k] + to_h * output * (one - t * t)
        carried[e + k] = to_c * forget
        found = (
            to_c * new * (inputs * (one - inputs)), to_c * old[o + k] * (forget * (one - forget)),
            to_c * inputs * (one - new * new), to_h * output * t * (one - output),
        )  # fmt: skip
        for n in range(4):
            slopes[s + n * hidden + k] = found[n]
            sums[m + n * hidden + k] += found[n]


def _lstm_grad():
    _beside_loop(), _weights_loop()

    @shared(f"void({MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {_ROW}, "
            f"{_ROW}, {MATRIX}, {_ROW}, {MATRIX}, {_STEPS}, {_STEPS}, {_STEPS}, UniTuple(int64, 8), int64, int64)"
            )  # fmt: skip
    def loop(g, dh, dc, acts, cells, out, x, h0, c0, panels, slopes, sums, inputs, gx, starts, counts, outer, sizes,
             first, last):  # fmt: skip
        """Computes the gradients, and beside them `inputs`: for each row the hidden state its step began with, and x.

        This is done for the steps `begin` ... `end` - 1, the first row of which is `base`. The panels are the weight of
        the hidden state, and beside it that of x unless `gx` is empty.
        """
        apart, several, begin, end, base, step, pitch, beside = sizes
        batch, hidden = dc.shape
        features, to_x, blocks = x.shape[1], gx.shape[1], hidden // LANES
        wide = _whole(hidden + to_x)
        product = np.empty((several + PAD) * wide, F32)
        all_g, all_dh, all_dc = flat(g), flat(dh), flat(dc)
        all_acts, all_cells, all_out, all_x, all_gx = flat(acts), flat(cells), flat(out), flat(x), flat(gx)
        all_h0, all_c0, all_sums = flat(h0), flat(c0), flat(sums)
        for unit in range(first, last):
            low, high = unit * several, min((unit + 1) * several, batch)
            for t in range(end - 1, begin - 1, -1):
                present = min(high, counts[t]) - low
                if present <= 0:
                    continue
                top, far = starts[t] + low, outer[t] + low * apart
                for r in range(present):
                    n, m, at = top + r, far + r * apart, low + r
                    old, o, state, p = all_c0, at * hidden, all_h0, at * hidden
                    if t > 0 and at < counts[t - 1]:
                        old, o = all_cells, (starts[t - 1] + at) * hidden
                        state, p = all_out, (outer[t - 1] + at * apart) * hidden
                    _carried(state, p, inputs, (n - base) * pitch, hidden)
                    _carried(all_x, m * features, inputs, (n - base) * pitch + beside, features)
                    lstm_slopes(all_g, m * hidden, all_dh, at * hidden, all_dc, at * hidden, all_acts, n * 4 * hidden,
                                all_cells, n * hidden, old, o, slopes, (n - base) * step, all_sums, at * 4 * hidden,
                                hidden, blocks)  # fmt: skip
                    if blocks * LANES < hidden:
                        _lstm_slopes_rest(all_g, m * hidden, all_dh, at * hidden, all_dc, at * hidden, all_acts,
                                          n * 4 * hidden, all_cells, n * hidden, old, o, slopes, (n - base) * step,
                                          all_sums, at * 4 * hidden, hidden, blocks * LANES)  # fmt: skip
                row = (top - base) * step
                _times_panels(slopes, row, step, panels, 4 * hidden, product, NO, wide, wide, present)
                matmul.copied(product, NO, wide, all_dh, low * hidden, hidden, present, hidden)
                matmul.copied(product, hidden, wide, all_gx, far * to_x, apart * to_x, present, to_x)

    def kernel(grads, x, h0, c0, w_ih, w_hh, w_hr, out, acts, cells, sizes, reverse, batch_first):
        g, gh, gc = grads
        if w_hr is not None or not x.size or not out.size:
            return NotImplemented
        if not takes(g, gh, gc, x, h0, c0, w_ih, w_hh, out, acts, cells):
            return NotImplemented
        given = [in_rows(a) for a in (acts, cells, out, x, h0, c0)]
        dh, dc = np.array(gh, order="C"), np.array(gc, order="C")
        sums, several = np.zeros((len(dh), acts.shape[1]), F32), _together(len(dh))
        hidden, features = out.shape[1], x.shape[1]
        joint = acts.shape[1] * (hidden + features) <= _JOINT
        starts, counts = schedule(sizes, reverse)
        outer, apart = outer_rows(starts, sizes, batch_first)
        if joint:
            stretches, panels, gx = _stretches(starts, counts), _beside(w_hh, w_ih), empty(*x.shape)
            weights = _Weights(4, hidden, features, max(rows for *_, rows in stretches))
            slopes, inputs, spaces = weights.slopes, weights.inputs, (weights.step, weights.pitch, weights.beside)
        else:
            stretches, panels, gx = [(0, len(sizes), 0, len(x))], _beside(w_hh), np.empty((len(x), 0), F32)
            slopes, inputs = np.empty(acts.shape, F32), np.empty((len(x), hidden + features), F32)
            spaces = (4 * hidden, hidden + features, hidden)
        arrays = (in_rows(g), dh, dc, *given, panels, slopes.reshape(-1), sums, inputs.reshape(-1), gx)
        for begin, end, base, rows in stretches:
            args = (*arrays, starts, counts, outer, (apart, several, begin, end, base, *spaces))
            work = rows * acts.shape[1] * (hidden + gx.shape[1] + 64) // 16
            thread_pool.run(loop, -(-len(dh) // several), args, work)
            if joint:
                weights.add(rows)
        bias = sums.sum(0)
        if joint:
            gw_ih, gw_hh = weights.found()
        else:
            gx = general.by_sequence(_times(matmul.mm, slopes, w_ih), sizes, batch_first)
            gw = _times(matmul.tn, slopes, inputs)  # one product: slopes are read once
            gw_hh, gw_ih = in_rows(gw[:, :hidden]), in_rows(gw[:, hidden:])
        return gx, dh, dc, gw_ih, gw_hh, bias, bias.copy(), None

    return kernel


# --- GRU -------------------------------------------------------------------------------------------------------------


def _gru():
    _turned_loop(), rnn_few.gru_loop()

    @shared(f"void({MATRIX}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {MATRIX}, {MATRIX}, {MATRIX}, {_STEPS}, {_STEPS}, "
            f"{_STEPS}, int64, int64, int64, int64)")  # fmt: skip
    def loop(x, both, of_h, of_x, bias, h, acts, out, starts, counts, outer, apart, several, first, last):
        """Gates in the order reset, update, new; `acts` also holds the hidden state's contribution to the new gate."""
        batch, hidden = h.shape
        features, more, one = x.shape[1], _whole(2 * hidden), _whole(hidden)
        depth, step = hidden + features, _apart(hidden + features)
        fresh, wide = more + one, more + 2 * one
        inside, rows = np.empty((several + PAD) * wide, F32), np.empty(several * step, F32)
        all_x, all_h, all_acts, all_out = flat(x), flat(h), flat(acts), flat(out)
        for unit in range(first, last):
            low, high = unit * several, min((unit + 1) * several, batch)
            matmul.copied(all_h, low * hidden, hidden, rows, NO, step, high - low, hidden)
            for t in range(starts.size):
                present = min(high, counts[t]) - low
                if present <= 0:
                    continue
                top, far = starts[t] + low, outer[t] + low * apart
                matmul.copied(all_x, far * features, apart * features, rows, hidden, step, present, features)
                _times_panels(rows, NO, step, both, depth, inside, NO, wide, more, present)
                _times_panels(rows, NO, step, of_h, hidden, inside, more, wide, one, present)
                _times_panels(rows, hidden, step, of_x, features, inside, fresh, wide, one, present)
                for r in range(present):
                    i, a, o = r * wide, (top + r) * 4 * hidden, (far + r * apart) * hidden
                    gru_units(inside, i, inside, i + more, inside, i + fresh, bias, NO, rows, r * step, all_acts, a,
                              all_out, o, hidden)  # fmt: skip
            matmul.copied(rows, NO, step, all_h, low * hidden, hidden, high - low, hidden)

    def kernel(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, batch_first):
        if not x.size or not h0.size or not takes(x, h0, w_ih, w_hh, b_ih, b_hh):
            return NotImplemented
        if len(h0) <= rnn_few.SEQUENCES:
            return rnn_few.gru(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, batch_first)
        x, hidden, several = in_rows(x), h0.shape[1], _together(len(h0))
        bias = np.zeros(4 * hidden, F32)
        if b_ih is not None:
            bias[: 3 * hidden] = b_ih
            bias[: 2 * hidden] += b_hh[: 2 * hidden]
            bias[3 * hidden :] = b_hh[2 * hidden :]
        acts, out, h = empty(len(x), 4 * hidden), empty(len(x), hidden), np.array(h0, order="C")
        starts, counts = schedule(sizes, reverse)
        both, of_h, of_x = w_hh[: 2 * hidden], w_hh[2 * hidden :], w_ih[2 * hidden :]
        panels = _turned(both, w_ih[: 2 * hidden]), _turned(of_h), _turned(of_x)
        args = (x, *panels, bias, h, acts, out, starts, counts, *outer_rows(starts, sizes, batch_first), several)
        thread_pool.run(loop, -(-len(h) // several), args, len(x) * 3 * hidden * (hidden + x.shape[1] + 64) // 16)
        return out, h, acts

    return kernel


@inner(fastmath={"contract"})
def _gru_slopes_rest(above, g, back, d, acts, a, old, o, slopes, s, i, sums, m, begin, hidden):
    """Does what `gru_slopes` does, for the units of the cell from `begin` on, which fill no register."""
    one = F(1.0)
    for k in range(begin, hidden):
        reset, update = acts[a + k], acts[a + hidden + k]
        new, kept = acts[a + 2 * hidden + k], acts[a + 3 * hidden + k]
        to_h = above[g + k] + back[d + k]
        to_new = to_h * (one - update) * (one - new * new)
        to_update = to_h * (old[o + k] - new) * (update * (one - update))
        to_reset, within = to_new * kept * (reset * (one - reset)), to_new * reset
        back[d + k] = to_h * update
        slopes[s + k], slopes[s + hidden + k], slopes[s + 2 * hidden + k] = to_new, to_reset, to_update
        slopes[i + k], slopes[i + hidden + k], slopes[i + 2 * hidden + k] = to_reset, to_update, within
        sums[m + k] += to_reset
        sums[m + hidden + k] += to_update
        sums[m + 2 * hidden + k] += to_new
        sums[m + 3 * hidden + k] += within


def _gru_grad():
    _beside_loop(), _weights_loop()

    @shared(f"void({MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {MATRIX}, {_ROW}, {_ROW}, {_ROW}, {MATRIX}, "
            f"{_ROW}, {MATRIX}, {_STEPS}, {_STEPS}, {_STEPS}, UniTuple(int64, 8), int64, int64)")  # fmt: skip
    def loop(g, dh, acts, out, x, h0, of_h, of_x, slopes, sums, inputs, gx, starts, counts, outer, sizes, first, last):
        """Computes the gradients of the gates: for each row new (of x), reset, update, and new (of the hidden state).

        Beside them are the `inputs`, and the steps are those of `_lstm_grad`. `gx` is empty, or the gradient of x.
        """
        apart, several, begin, end, base, step, pitch, beside = sizes
        batch, hidden = dh.shape
        features, to_x, blocks = x.shape[1], gx.shape[1], hidden // LANES
        one, deep = _whole(hidden), 3 * hidden
        wide = one + _whole(to_x)
        product = np.empty((several + PAD) * wide, F32)
        all_g, all_dh, all_acts, all_out, all_x = flat(g), flat(dh), flat(acts), flat(out), flat(x)
        all_h0, all_gx, all_sums = flat(h0), flat(gx), flat(sums)
        for unit in range(first, last):
            low, high = unit * several, min((unit + 1) * several, batch)
            for t in range(end - 1, begin - 1, -1):
                present = min(high, counts[t]) - low
                if present <= 0:
                    continue
                top, far = starts[t] + low, outer[t] + low * apart
                for r in range(present):
                    n, m, at = top + r, far + r * apart, low + r
                    old, o, s = all_h0, at * hidden, (n - base) * step
                    if t > 0 and at < counts[t - 1]:
                        old, o = all_out, (outer[t - 1] + at * apart) * hidden
                    _carried(old, o, inputs, (n - base) * pitch, hidden)
                    _carried(all_x, m * features, inputs, (n - base) * pitch + beside, features)
                    gru_slopes(all_g, m * hidden, all_dh, at * hidden, all_acts, n * 4 * hidden, old, o, slopes, s,
                               slopes, s + hidden, all_sums, at * 4 * hidden, hidden, blocks)  # fmt: skip
                    if blocks * LANES < hidden:
                        _gru_slopes_rest(all_g, m * hidden, all_dh, at * hidden, all_acts, n * 4 * hidden, old, o,
                                         slopes, s, s + hidden, all_sums, at * 4 * hidden, blocks * LANES,
                                         hidden)  # fmt: skip
                row = (top - base) * step
                _times_panels(slopes, row + hidden, step, of_h, deep, product, NO, wide, one, present)
                if to_x:
                    _times_panels(slopes, row, step, of_x, deep, product, one, wide, wide - one, present)
                for r in range(present):
                    _added(product, r * wide, all_dh, (low + r) * hidden, hidden)
                    _carried(product, r * wide + one, all_gx, (far + r * apart) * to_x, to_x)

    def kernel(grads, x, h0, w_ih, w_hh, out, acts, sizes, reverse, batch_first):
        g, gh = grads
        if not x.size or not out.size or not takes(g, gh, x, h0, w_ih, w_hh, out, acts):
            return NotImplemented
        acts, out, x, h0 = (in_rows(a) for a in (acts, out, x, h0))
        hidden, features, dh, several = out.shape[1], x.shape[1], np.array(gh, order="C"), _together(len(gh))
        sums, joint = np.zeros((len(dh), 4 * hidden), F32), 3 * hidden * (hidden + features) <= _JOINT
        starts, counts = schedule(sizes, reverse)
        outer, apart = outer_rows(starts, sizes, batch_first)
        turned = np.concatenate((w_ih[2 * hidden :], w_ih[: 2 * hidden]))  # new, reset, update, as the slopes
        if joint:
            stretches, panels, gx = _stretches(starts, counts), _beside(turned), empty(*x.shape)
            weights = _Weights(3, hidden, features, max(rows for *_, rows in stretches), hidden)
            slopes, inputs, spaces = weights.slopes, weights.inputs, (weights.step, weights.pitch, weights.beside)
        else:
            stretches, panels, gx = [(0, len(sizes), 0, len(x))], empty(0), np.empty((len(x), 0), F32)
            slopes, inputs = np.empty((len(x), 4 * hidden), F32), np.empty((len(x), hidden + features), F32)
            spaces = (4 * hidden, hidden + features, hidden)
        arrays = (in_rows(g), dh, acts, out, x, h0, _beside(w_hh), panels, slopes.reshape(-1), sums,
                  inputs.reshape(-1), gx)  # fmt: skip
        for begin, end, base, rows in stretches:
            args = (*arrays, starts, counts, outer, (apart, several, begin, end, base, *spaces))
            thread_pool.run(loop, -(-len(dh) // several), args, rows * 3 * hidden * (hidden + gx.shape[1] + 64) // 16)
            if joint:
                weights.add(rows)
        if joint:
            gw_ih, gw_hh = weights.found()
        else:
            of_x = in_rows(slopes[:, : 3 * hidden])
            gx = general.by_sequence(_times(matmul.mm, of_x, turned), sizes, batch_first)
            gw_ih = _times(matmul.tn, of_x, in_rows(inputs[:, hidden:]))
            gw_hh = _times(matmul.tn, in_rows(slopes[:, hidden:]), in_rows(inputs[:, :hidden]))
        gw_ih, bias = np.concatenate((gw_ih[hidden:], gw_ih[:hidden])), sums.sum(0)
        gb_hh = np.concatenate((bias[: 2 * hidden], bias[3 * hidden :]))
        return gx, dh, gw_ih, gw_hh, bias[: 3 * hidden].copy(), gb_hh

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "lstm": _lstm,
    "lstm_grad": matmul.beside(_lstm_grad),
    "gru": _gru,
    "gru_grad": matmul.beside(_gru_grad),
}
