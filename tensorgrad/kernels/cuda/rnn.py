"""LSTM and GRU layers whose sequences all have the same length: one launch for all time steps, and the products.

The counterpart of `kernels/array/rnn.py`, whose docstrings say what the arrays hold. States of more numbers than fit
into a block's shared memory, projections, and sequences of different lengths are left to it. 16-bit arrays are computed
in float32, as there.
"""

from __future__ import annotations

from functools import cache, partial, wraps

import cupy
import numpy as np

from tensorgrad.kernels.array import rnn as general
from tensorgrad.kernels.cuda import matmul
from tensorgrad.kernels.cuda.reduce import sum_
from tensorgrad.kernels.cuda.runtime import cublas, program

MOST_THREADS = 1024
SHARED_BYTES = 48 << 10
# Blocks that a large GPU runs at once: with more sequences than that, a block computes several of them.
AT_ONCE = 132


@cache
def _function(name: str, dtype: str, rows: int):
    return program.function("rnn", name, dtype, ROWS=rows)


def in_single_precision(kernel):
    """Makes a kernel compute 16-bit arrays in float32, as the general ones do."""
    return wraps(kernel)(partial(general.in_single_precision(lambda _, *given: kernel(*given)), cupy))


class _Layer:
    """How a layer's sequences are divided among blocks. `ready` is False if the kernels do not support it."""

    def __init__(self, dtype, sizes, h, shared: int):
        self.batch, self.hidden = h.shape
        self.dtype, self.steps = program.NAME[dtype], len(sizes)
        self.ready = (
            self.dtype in ("float32", "float64") and bool(self.steps) and sizes[0] == sizes[-1] == self.batch
            and self.hidden > 0 and self.batch > 0
        )  # fmt: skip
        self.rows = next(rows for rows in (1, 2, 4) if rows == 4 or self.batch <= rows * AT_ONCE)
        self.bytes = shared * self.rows * self.hidden * dtype.itemsize  # `shared` numbers per element of the state
        self.ready = self.ready and self.bytes <= SHARED_BYTES

    def launch(self, name: str, gates: int, *arrays, reverse: bool) -> None:
        threads = min(-(-gates * self.hidden // 32) * 32, MOST_THREADS)
        _function(name, self.dtype, self.rows)(
            (-(-self.batch // self.rows),), (threads,),
            (*arrays, np.int64(self.steps), np.int32(self.batch), np.int32(self.hidden), np.bool_(reverse)),
            shared_mem=self.bytes,
        )  # fmt: skip


def _projected(x, w_ih, bias):
    return matmul.linear(x, w_ih, bias)


def _against_states(slopes, states, first, batch: int, reverse: bool):
    """Computes slopesᵀ times the states that the steps began with: those of the step before, or `first`."""
    one, rest = (slice(-batch, None), slice(0, -batch)) if reverse else (slice(0, batch), slice(batch, None))
    out = cupy.empty((slopes.shape[1], states.shape[1]), states.dtype)
    cublas.gemm(slopes[one].T, first, out)
    if len(states) > batch:
        before = states[batch:] if reverse else states[:-batch]
        cublas.gemm(slopes[rest].T, before, out, 1, 1)
    return out


def _plain(*arrays):
    return [cupy.ascontiguousarray(a) for a in arrays]


@in_single_precision
def lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse, batch_first):
    """Runs an LSTM layer: (out, h, c, acts, cells)."""
    layer = _Layer(x.dtype, sizes, c0, 6)
    if w_hr is not None or not layer.ready:
        return NotImplemented
    acts = _projected(general.by_step(x, sizes, batch_first), w_ih, b_ih if b_hh is None else b_ih + b_hh)
    weight, h0, c0 = _plain(w_hh.T, h0, c0)
    out, cells = (cupy.empty((len(x), layer.hidden), x.dtype) for _ in range(2))
    h, c = cupy.empty_like(h0), cupy.empty_like(c0)
    layer.launch("lstm", 4, acts, weight, h0, c0, out, cells, h, c, reverse=reverse)
    return general.by_sequence(out, sizes, batch_first), h, c, acts, cells


@in_single_precision
def lstm_grad(grads, x, h, c, w_ih, w_hh, w_hr, out, acts, cells, sizes, reverse, batch_first):
    """Computes the gradients of x, h, c, w_ih, w_hh, the biases and w_hr."""
    layer = _Layer(x.dtype, sizes, c, 10)
    if w_hr is not None or not layer.ready:
        return NotImplemented
    g, x, out = (general.by_step(rows, sizes, batch_first) for rows in (grads[0], x, out))
    g, h0, c0, weight, acts, cells, out = _plain(g, h, c, w_hh, acts, cells, out)
    dh, dc, slopes = grads[1].copy(), grads[2].copy(), cupy.empty_like(acts)
    layer.launch("lstm_grad", 4, g, dh, dc, acts, cells, c0, weight, slopes, reverse=reverse)
    bias = sum_(slopes, 0, False, None)
    gw_hh = _against_states(slopes, out, h0, layer.batch, reverse)
    gx = general.by_sequence(matmul.product(slopes, w_ih), sizes, batch_first)
    return gx, dh, dc, matmul.product(slopes.T, x), gw_hh, bias, bias.copy(), None


@in_single_precision
def gru(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, batch_first):
    """Runs a GRU layer: (out, h, acts)."""
    layer = _Layer(x.dtype, sizes, h0, 4)
    if not layer.ready:
        return NotImplemented
    gates, (weight, h0) = _projected(general.by_step(x, sizes, batch_first), w_ih, b_ih), _plain(w_hh.T, h0)
    out, acts = cupy.empty((len(x), layer.hidden), x.dtype), cupy.empty((len(x), 4 * layer.hidden), x.dtype)
    bias, h = np.int64(0) if b_hh is None else cupy.ascontiguousarray(b_hh), cupy.empty_like(h0)
    layer.launch("gru", 3, gates, weight, bias, h0, out, acts, h, reverse=reverse)
    return general.by_sequence(out, sizes, batch_first), h, acts


@in_single_precision
def gru_grad(grads, x, h, w_ih, w_hh, out, acts, sizes, reverse, batch_first):
    """Computes the gradients of x, h, w_ih, w_hh, b_ih and b_hh."""
    layer = _Layer(x.dtype, sizes, h, 7)
    if not layer.ready:
        return NotImplemented
    g, x, out = (general.by_step(rows, sizes, batch_first) for rows in (grads[0], x, out))
    g, h0, weight, acts, out = _plain(g, h, w_hh, acts, out)
    dh = grads[1].copy()
    gates, inside = (cupy.empty((len(x), 3 * layer.hidden), x.dtype) for _ in range(2))
    layer.launch("gru_grad", 3, g, dh, acts, out, h0, weight, gates, inside, reverse=reverse)
    gw_hh = _against_states(inside, out, h0, layer.batch, reverse)
    gx = general.by_sequence(matmul.product(gates, w_ih), sizes, batch_first)
    gw_ih = matmul.product(gates.T, x)
    return gx, dh, gw_ih, gw_hh, sum_(gates, 0, False, None), sum_(inside, 0, False, None)
