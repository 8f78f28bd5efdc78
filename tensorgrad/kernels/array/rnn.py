"""Recurrent layers over plain arrays: one direction of one layer, all time steps.

Sequences are packed: `sizes[t]` rows of `x` belong to step t, and these numbers never grow, since longer sequences come
first. (In a batch of equal lengths they are all the same.) With `batch_first`, which needs equal lengths, the rows of
`x`, of the output and of their gradients are ordered by sequence instead; those of `acts` and `cells` never are.
Whatever does not depend on the previous step is one matrix product for all steps; the loop over time does the rest.
"""

from __future__ import annotations

from functools import wraps

import numpy as np


def steps(sizes, reverse):
    """Returns (first row, last row + 1, number of sequences) of each time step, in the order of computation."""
    found, start = [], 0
    for n in sizes:
        found.append((start, start + n, n))
        start += n
    return found[::-1] if reverse else found


def by_step(rows, sizes, batch_first):
    """Returns rows (of an array or a tensor) in the order of steps."""
    if not batch_first or not sizes:
        return rows
    return rows.reshape(sizes[0], len(sizes), rows.shape[1]).swapaxes(0, 1).reshape(rows.shape)


def by_sequence(rows, sizes, batch_first):
    """Returns rows that are in the order of steps as the caller has them."""
    if not batch_first or not sizes:
        return rows
    return rows.reshape(len(sizes), sizes[0], rows.shape[1]).swapaxes(0, 1).reshape(rows.shape)


def previous(xp, out, h0, sizes, reverse):
    """Returns for every row of `out` the hidden state that its step began with."""
    rows = xp.empty_like(out)
    state = h0.copy()
    for start, end, n in steps(sizes, reverse):
        rows[start:end] = state[:n]
        state[:n] = out[start:end]
    return rows


def _projected(xp, x, w_ih, b_ih, b_hh=None):
    gates = xp.matmul(x, w_ih.T)
    if b_ih is not None:
        gates += b_ih if b_hh is None else b_ih + b_hh
    return gates


def _wide(arrays):
    return [a.astype(np.float32) if hasattr(a, "dtype") and a.dtype.itemsize == 2 else a for a in arrays]


def in_single_precision(kernel):
    """Makes a kernel compute 16-bit arrays in float32."""

    @wraps(kernel)
    def wrapped(xp, *given):
        listed = given[0].__class__ is list  # the gradients of a backward kernel
        dtype = (given[0][0] if listed else given[0]).dtype
        if dtype.itemsize > 2:
            return kernel(xp, *given)
        results = kernel(xp, *[_wide(a) if a.__class__ is list else _wide([a])[0] for a in given])
        if results is NotImplemented:
            return results
        return tuple(None if r is None else r.astype(dtype) for r in results)

    return wrapped


# --- LSTM ------------------------------------------------------------------------------------------------------------
# Gates in the order input, forget, cell, output. A sigmoid is a tanh: σ(a) = (tanh(a / 2) + 1) / 2; so one call of tanh
# computes all four, with halves before and after.


def _lstm_scales(xp, hidden, dtype):
    scale = xp.full(4 * hidden, 0.5, dtype)
    scale[2 * hidden : 3 * hidden] = 1
    return scale, xp.where(scale == 1, dtype.type(0), scale)


@in_single_precision
def lstm(xp, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse, batch_first):
    """(out, h, c, acts, cells): outputs (N, P), last states (B, P) and (B, H), gates (N, 4H), cell states (N, H)."""
    x = by_step(x, sizes, batch_first)
    acts, hidden = _projected(xp, x, w_ih, b_ih, b_hh), w_hh.shape[0] // 4
    scale, offset = _lstm_scales(xp, hidden, acts.dtype)
    out = xp.empty((len(x), h0.shape[1]), acts.dtype)
    cells = xp.empty((len(x), hidden), acts.dtype)
    h, c, weight = h0.copy(), c0.copy(), xp.ascontiguousarray(w_hh.T)
    for start, end, n in steps(sizes, reverse):
        gates = acts[start:end]
        gates += xp.matmul(h[:n], weight)
        gates *= scale
        xp.tanh(gates, out=gates)
        gates *= scale
        gates += offset
        cell = gates[:, hidden : 2 * hidden] * c[:n]
        cell += gates[:, :hidden] * gates[:, 2 * hidden : 3 * hidden]
        cells[start:end] = c[:n] = cell
        xp.tanh(cell, out=cell)
        cell *= gates[:, 3 * hidden :]
        h[:n] = out[start:end] = cell if w_hr is None else xp.matmul(cell, w_hr.T)
    return by_sequence(out, sizes, batch_first), h, c, acts, cells


@in_single_precision
def lstm_grad(xp, grads, x, h, c, w_ih, w_hh, w_hr, out, acts, cells, sizes, reverse, batch_first):
    """Gradients of x, h, c, w_ih, w_hh, the biases and w_hr from those of the outputs and of the last h and c."""
    (g, gh, gc), h0, c0 = grads, h, c
    g, x, out = (by_step(rows, sizes, batch_first) for rows in (g, x, out))
    hidden, one = w_hh.shape[0] // 4, acts.dtype.type(1)
    i, f, cell, o = (acts[:, k * hidden : (k + 1) * hidden] for k in range(4))
    tanh = xp.tanh(cells)
    through = (one - tanh * tanh) * o  # from the hidden state to the cell state
    slopes = acts * (one - acts)
    slopes[:, :hidden] *= cell
    slopes[:, hidden : 2 * hidden] *= previous(xp, cells, c0, sizes, reverse)
    slopes[:, 2 * hidden : 3 * hidden] = (one - cell * cell) * i
    slopes[:, 3 * hidden :] *= tanh
    dh, dc, down = gh.copy(), gc.copy(), xp.empty_like(g if w_hr is not None else g[:0])
    for start, end, n in reversed(steps(sizes, reverse)):
        to_h = g[start:end] + dh[:n]
        if w_hr is not None:
            down[start:end] = to_h
            to_h = xp.matmul(to_h, w_hr)
        to_c = to_h * through[start:end]
        to_c += dc[:n]
        gates = slopes[start:end]
        gates[:, : 3 * hidden].reshape(n, 3, hidden)[...] *= to_c[:, None]
        gates[:, 3 * hidden :] *= to_h
        dh[:n] = xp.matmul(gates, w_hh)
        to_c *= f[start:end]
        dc[:n] = to_c
    gx, gw_ih, bias = _input_gradients(xp, x, w_ih, slopes)
    gw_hh = xp.matmul(slopes.T, previous(xp, out, h0, sizes, reverse))
    gw_hr = None if w_hr is None else xp.matmul(down.T, o * tanh)
    return by_sequence(gx, sizes, batch_first), dh, dc, gw_ih, gw_hh, bias, bias.copy(), gw_hr


def _input_gradients(xp, x, w_ih, slopes):
    return xp.matmul(slopes, w_ih), xp.matmul(slopes.T, x), slopes.sum(0)


# --- GRU -------------------------------------------------------------------------------------------------------------
# Gates in the order reset, update, new.


@in_single_precision
def gru(xp, x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, batch_first):
    """(out, h, acts): acts (N, 4H) are the gates and the hidden state's contribution to the new gate."""
    x = by_step(x, sizes, batch_first)
    gates_x, hidden = _projected(xp, x, w_ih, b_ih), w_hh.shape[0] // 3
    half = gates_x.dtype.type(0.5)
    acts = xp.empty((len(x), 4 * hidden), gates_x.dtype)
    out = xp.empty((len(x), hidden), gates_x.dtype)
    h, weight = h0.copy(), xp.ascontiguousarray(w_hh.T)
    for start, end, n in steps(sizes, reverse):
        gates, inner = acts[start:end], xp.matmul(h[:n], weight)
        if b_hh is not None:
            inner += b_hh
        both = gates_x[start:end, : 2 * hidden] + inner[:, : 2 * hidden]
        both *= half
        xp.tanh(both, out=both)
        both *= half
        both += half
        gates[:, : 2 * hidden] = both
        gates[:, 3 * hidden :] = inner[:, 2 * hidden :]
        new = both[:, :hidden] * inner[:, 2 * hidden :]
        new += gates_x[start:end, 2 * hidden :]
        xp.tanh(new, out=new)
        gates[:, 2 * hidden : 3 * hidden] = new
        h[:n] = out[start:end] = new + both[:, hidden:] * (h[:n] - new)
    return by_sequence(out, sizes, batch_first), h, acts


@in_single_precision
def gru_grad(xp, grads, x, h, w_ih, w_hh, out, acts, sizes, reverse, batch_first):
    """Gradients of x, h, w_ih, w_hh, b_ih and b_hh from those of the outputs and of the last h."""
    (g, gh), h0 = grads, h
    g, x, out = (by_step(rows, sizes, batch_first) for rows in (g, x, out))
    hidden, one = w_hh.shape[0] // 3, acts.dtype.type(1)
    r, z, new, inner = (acts[:, k * hidden : (k + 1) * hidden] for k in range(4))
    before = previous(xp, out, h0, sizes, reverse)
    to_new = (one - z) * (one - new * new)
    to_z = (before - new) * z * (one - z)
    to_r = inner * r * (one - r)
    gates, inside = xp.empty_like(acts[:, : 3 * hidden]), xp.empty_like(acts[:, : 3 * hidden])
    dh = gh.copy()
    for start, end, n in reversed(steps(sizes, reverse)):
        to_h = g[start:end] + dh[:n]
        d_new = to_h * to_new[start:end]
        gates[start:end, 2 * hidden :] = d_new
        gates[start:end, hidden : 2 * hidden] = to_h * to_z[start:end]
        gates[start:end, :hidden] = d_new * to_r[start:end]
        inside[start:end] = gates[start:end]
        inside[start:end, 2 * hidden :] *= r[start:end]
        to_h *= z[start:end]
        dh[:n] = xp.matmul(inside[start:end], w_hh) + to_h
    gx, gw_ih, gb_ih = _input_gradients(xp, x, w_ih, gates)
    return by_sequence(gx, sizes, batch_first), dh, gw_ih, xp.matmul(inside.T, before), gb_ih, inside.sum(0)


# --- the plain recurrence --------------------------------------------------------------------------------------------


@in_single_precision
def rnn(xp, x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, relu, batch_first):
    """(out, h) of h = tanh(W x + U h + b), or max(0, ...)."""
    out = _projected(xp, by_step(x, sizes, batch_first), w_ih, b_ih, b_hh)
    h, weight = h0.copy(), xp.ascontiguousarray(w_hh.T)
    for start, end, n in steps(sizes, reverse):
        state = out[start:end]
        state += xp.matmul(h[:n], weight)
        xp.maximum(state, 0, out=state) if relu else xp.tanh(state, out=state)
        h[:n] = state
    return by_sequence(out, sizes, batch_first), h


@in_single_precision
def rnn_grad(xp, grads, x, h, w_ih, w_hh, out, sizes, reverse, relu, batch_first):
    """Gradients of x, h, w_ih, w_hh and the biases from those of the outputs and of the last h."""
    (g, gh), h0 = grads, h
    g, x, out = (by_step(rows, sizes, batch_first) for rows in (g, x, out))
    gates = (out > 0).astype(out.dtype) if relu else out.dtype.type(1) - out * out
    dh = gh.copy()
    for start, end, n in reversed(steps(sizes, reverse)):
        gates[start:end] *= g[start:end] + dh[:n]
        dh[:n] = xp.matmul(gates[start:end], w_hh)
    gx, gw_ih, bias = _input_gradients(xp, x, w_ih, gates)
    gw_hh = xp.matmul(gates.T, previous(xp, out, h0, sizes, reverse))
    return by_sequence(gx, sizes, batch_first), dh, gw_ih, gw_hh, bias, bias.copy()
