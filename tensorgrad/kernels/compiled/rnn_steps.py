"""What all kernels of recurrent layers share: where the rows of each step are, and a step of one sequence.

Rows of `x` and `out` may be ordered by sequence; the row of step t and sequence b is `outer[t] + b apart`.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled import functions
from tensorgrad.kernels.compiled.gates import gru_step, lstm_step
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.simd.vectors import LANES
from tensorgrad.storage.fresh import aligned


def takes(*arrays) -> bool:
    """Whether kernels support all of these arrays (None stands for no array)."""
    return all(a is None or (a.__class__ is np.ndarray and a.dtype is F32) for a in arrays)


def empty(*shape):
    """Memory for results that products read."""
    return aligned(math.prod(shape), F32).reshape(shape)


def schedule(sizes, reverse):
    """Returns the first row and number of sequences of each step, in the order of computation."""
    counts = np.array(sizes, np.int64)
    starts = np.cumsum(counts) - counts
    return (starts[::-1].copy(), counts[::-1].copy()) if reverse else (starts, counts)


def outer_rows(starts, sizes, batch_first):
    """Returns the first sequence's row in `x` and `out` at each step, and how far those of the others are apart."""
    return (starts // sizes[0], len(sizes)) if batch_first else (starts, 1)


@inner(fastmath={"contract"})
def lstm_units(inside, i, bias, b, state, s, acts, a, cells, c, out, o, h, n, hidden):
    """Does what `lstm_step` does, for all units of a cell."""
    whole = hidden // LANES
    lstm_step(inside, i, bias, b, state, s, acts, a, cells, c, out, o, h, n, hidden, whole)
    for k in range(whole * LANES, hidden):  # they fill no register
        inputs = functions.sigmoid(inside[i + k] + bias[b + k])
        forget = functions.sigmoid(inside[i + hidden + k] + bias[b + hidden + k])
        new = functions.tanh(inside[i + 2 * hidden + k] + bias[b + 2 * hidden + k])
        output = functions.sigmoid(inside[i + 3 * hidden + k] + bias[b + 3 * hidden + k])
        cell = forget * state[s + k] + inputs * new
        acts[a + k], acts[a + hidden + k], acts[a + 2 * hidden + k], acts[a + 3 * hidden + k] = (
            inputs, forget, new, output,
        )  # fmt: skip
        state[s + k] = cells[c + k] = cell
        out[o + k] = h[n + k] = output * functions.tanh(cell)


@inner(fastmath={"contract"})
def gru_units(inside, i, more, m, fresh, f, bias, b, state, s, acts, a, out, o, hidden):
    """Does what `gru_step` does, for all units of a cell."""
    whole = hidden // LANES
    gru_step(inside, i, more, m, fresh, f, bias, b, state, s, acts, a, out, o, hidden, whole)
    for k in range(whole * LANES, hidden):
        reset = functions.sigmoid(inside[i + k] + bias[b + k])
        update = functions.sigmoid(inside[i + hidden + k] + bias[b + hidden + k])
        kept = more[m + k] + bias[b + 3 * hidden + k]
        new = functions.tanh(fresh[f + k] + bias[b + 2 * hidden + k] + reset * kept)
        acts[a + k], acts[a + hidden + k], acts[a + 2 * hidden + k], acts[a + 3 * hidden + k] = reset, update, new, kept
        state[s + k] = out[o + k] = new + update * (state[s + k] - new)
