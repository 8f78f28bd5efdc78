"""LSTM layers: what each time step does beside its matrix product, in one visit of the gates, forward and back.

The products, and everything else, are those of kernels/array/rnn.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array import rnn as general
from tensorgrad.kernels.numba import functions, pool
from tensorgrad.kernels.numba.functions import F, compiled
from tensorgrad.kernels.numba.rows import _MATRIX


def _takes(*arrays) -> bool:
    return all(a is None or (a.__class__ is np.ndarray and a.dtype is F32) for a in arrays)


def _lstm():
    @compiled(f"void({_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, int64, int64)")
    def step(gates, product, c, cells, h, first, last):
        hidden = c.shape[1]
        for n in range(first, last):
            row, more, state, kept, out = gates[n], product[n], c[n], cells[n], h[n]
            both, m0 = row[: 2 * hidden], more[: 2 * hidden]
            new, m2 = row[2 * hidden : 3 * hidden], more[2 * hidden : 3 * hidden]
            output, m3 = row[3 * hidden :], more[3 * hidden :]
            for k in range(both.size):
                both[k] = functions.sigmoid(both[k] + m0[k])
            inputs, forget = row[:hidden], row[hidden : 2 * hidden]
            for k in range(out.size):
                new[k] = functions.tanh(new[k] + m2[k])
                state[k] = forget[k] * state[k] + inputs[k] * new[k]
            for k in range(out.size):
                output[k] = functions.sigmoid(output[k] + m3[k])
                kept[k] = state[k]
                out[k] = output[k] * functions.tanh(state[k])

    def kernel(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse):
        if w_hr is not None or not x.size or not _takes(x, h0, c0, w_ih, w_hh, b_ih, b_hh) or not h0.size:
            return NotImplemented
        acts = general._projected(x, w_ih, b_ih, b_hh)
        hidden = h0.shape[1]
        out, cells = np.empty((len(x), hidden), F32), np.empty((len(x), hidden), F32)
        h, c, weight = np.array(h0, order="C"), np.array(c0, order="C"), np.ascontiguousarray(w_hh.T)
        product = np.empty((len(h), 4 * hidden), F32)
        for start, end, n in general.steps(sizes, reverse):
            np.dot(h[:n], weight, product[:n])
            pool.run(step, n, (acts[start:end], product, c, cells[start:end], out[start:end]), 8 * n * hidden)
            h[:n] = out[start:end]
        return out, h, c, acts, cells

    return kernel


def _lstm_grad():
    @compiled(
        f"void({_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, {_MATRIX}, int64, int64)",
    )
    def step(g, dh, dc, acts, cells, before, slopes, first, last):
        hidden, one = cells.shape[1], F(1.0)
        for n in range(first, last):
            row, to, above, back, carried, cell, old = acts[n], slopes[n], g[n], dh[n], dc[n], cells[n], before[n]
            inputs, forget, new, output = (
                row[:hidden], row[hidden : 2 * hidden], row[2 * hidden : 3 * hidden], row[3 * hidden :],
            )  # fmt: skip
            t0, t1, t2, t3 = to[:hidden], to[hidden : 2 * hidden], to[2 * hidden : 3 * hidden], to[3 * hidden :]
            for k in range(cell.size):
                to_h, o, t = above[k] + back[k], output[k], functions.tanh(cell[k])
                t3[k] = to_h * t * (o * (one - o))
                carried[k] += to_h * o * (one - t * t)
            for k in range(cell.size):
                i, new_k = inputs[k], new[k]
                t0[k] = carried[k] * new_k * (i * (one - i))
                t2[k] = carried[k] * i * (one - new_k * new_k)
            for k in range(cell.size):
                f = forget[k]
                t1[k] = carried[k] * old[k] * (f * (one - f))
                carried[k] *= f

    def kernel(g, gh, gc, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, out, acts, cells, sizes, reverse):
        if w_hr is not None or not x.size or not out.size:
            return NotImplemented
        if not _takes(g, gh, gc, x, h0, c0, w_ih, w_hh, out, acts, cells):
            return NotImplemented
        g, acts, cells, out = (np.ascontiguousarray(a) for a in (g, acts, cells, out))
        slopes, before = np.empty(acts.shape, F32), general.previous(np, cells, c0, sizes, reverse)
        dh, dc = np.array(gh, order="C"), np.array(gc, order="C")
        hidden = out.shape[1]
        for start, end, n in reversed(general.steps(sizes, reverse)):
            here = slice(start, end)
            args = (g[here], dh, dc, acts[here], cells[here], before[here], slopes[here])
            pool.run(step, n, args, 8 * n * hidden)
            np.dot(slopes[here], w_hh, dh[:n])
        gx, gw_ih, bias = general._input_gradients(x, w_ih, slopes)
        gw_hh = slopes.T @ general.previous(np, out, h0, sizes, reverse)
        return gx, dh, dc, gw_ih, gw_hh, bias, bias.copy(), np.empty(0, F32)

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {"lstm": _lstm, "lstm_grad": _lstm_grad}
