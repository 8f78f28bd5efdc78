"""Recurrent networks: `torch.lstm`, `gru`, `rnn_tanh`, `rnn_relu`, and their single steps (cells).

One direction of one layer is one op over all time steps (see `kernels/array/rnn.py` for the order of the rows), with a
backward kernel. The twins are the same recurrences step by step in simpler ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.kernels.array import rnn as kernels
from tensorgrad.ops.join import cat
from tensorgrad.ops.linalg.matmul import linear
from tensorgrad.ops.nn.dropout import dropout
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import Tensor

# --- one step, in simpler ops ----------------------------------------------------------------------------------------


def _lstm_step(x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr=None):
    i, f, g, o = (linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h if w_hr is None else linear(h, w_hr)), c


def _gru_step(x, h, w_ih, w_hh, b_ih, b_hh):
    r_x, z_x, n_x = linear(x, w_ih, b_ih).chunk(3, -1)
    r_h, z_h, n_h = linear(h, w_hh, b_hh).chunk(3, -1)
    n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
    return n + (z_x + z_h).sigmoid() * (h - n)


def _rnn_step(x, h, w_ih, w_hh, b_ih, b_hh, relu):
    inside = linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)
    return inside.relu() if relu else inside.tanh()


def _over_time(x, states, sizes, reverse, batch_first, step: Callable):
    """Runs `step(rows, *states) -> states` over all time steps.

    Returns the rows of the first state at all steps, and the final states.
    """
    x, rows = kernels.by_step(x, sizes, batch_first), []
    for start, end, n in kernels.steps(sizes, reverse):
        new = step(x[start:end], *[s[:n] for s in states])
        states = [s if len(old) == n else cat([s, old[n:]]) for s, old in zip(new, states, strict=True)]
        rows.append(new[0])
    return kernels.by_sequence(cat(rows[::-1] if reverse else rows), sizes, batch_first), *states


def _lstm_twin(x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse, batch_first):
    weights = w_ih, w_hh, b_ih, b_hh, w_hr
    return _over_time(x, [h, c], sizes, reverse, batch_first, lambda rows, h, c: _lstm_step(rows, h, c, *weights))


def _gru_twin(x, h, w_ih, w_hh, b_ih, b_hh, sizes, reverse, batch_first):
    weights = w_ih, w_hh, b_ih, b_hh
    return _over_time(x, [h], sizes, reverse, batch_first, lambda rows, h: [_gru_step(rows, h, *weights)])


def _rnn_twin(x, h, w_ih, w_hh, b_ih, b_hh, sizes, reverse, relu, batch_first):
    weights = w_ih, w_hh, b_ih, b_hh
    return _over_time(x, [h], sizes, reverse, batch_first, lambda rows, h: [_rnn_step(rows, h, *weights, relu)])


# --- rows ------------------------------------------------------------------------------------------------------------


def _sizes(x, h, *others) -> list[tuple]:
    """Returns shapes and dtypes of a layer's outputs and cache: the states of all steps, then those of `others`."""
    return [((len(x), h.shape[1]), x.dtype), *((getattr(other, "shape", other), x.dtype) for other in others)]


_lstm = op(
    "lstm_layer(x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, sizes: any = (), reverse: bool = False, "
    "batch_first: bool = False)",
    "rnn.lstm", twin=_lstm_twin, outputs=("out", "h_n", "c_n"), differentiable_outputs=3, cache=("acts", "cells"),
    backward_kernel="rnn.lstm_grad", backward_name="LstmLayerBackward0", where=(),
    shape=lambda x, h, c, *rest: _sizes(x, h, h, c, (len(x), 4 * c.shape[1]), (len(x), c.shape[1])),
)  # fmt: skip
_gru = op(
    "gru_layer(x, h, w_ih, w_hh, b_ih=None, b_hh=None, sizes: any = (), reverse: bool = False, "
    "batch_first: bool = False)",
    "rnn.gru", twin=_gru_twin, outputs=("out", "h_n"), differentiable_outputs=2, cache=("acts",),
    backward_kernel="rnn.gru_grad", backward_name="GruLayerBackward0", where=(),
    shape=lambda x, h, *rest: _sizes(x, h, h, (len(x), 4 * h.shape[1])),
)  # fmt: skip
_rnn = op(
    "rnn_layer(x, h, w_ih, w_hh, b_ih=None, b_hh=None, sizes: any = (), reverse: bool = False, relu: bool = False, "
    "batch_first: bool = False)",
    "rnn.rnn", twin=_rnn_twin, outputs=("out", "h_n"), differentiable_outputs=2,
    backward_kernel="rnn.rnn_grad", backward_name="RnnLayerBackward0", where=(),
    shape=lambda x, h, *rest: _sizes(x, h, h),
)  # fmt: skip


# --- layers and directions -------------------------------------------------------------------------------------------


class _Mode:
    """A kind of recurrent network: how one direction of a layer is run, and its number of weights."""

    def __init__(self, name: str, states: int, run: Callable):
        self.name, self.states, self.run = name, states, run


def _run_lstm(x, states, weights, has_biases, sizes, reverse, batch_first):
    w_ih, w_hh, *rest = weights
    biases, projection = (rest[:2], rest[2:]) if has_biases else ((None, None), rest)
    out, h, c = _lstm(x, *states, w_ih, w_hh, *biases, *(projection or (None,)), sizes, reverse, batch_first)
    return out, (h, c)


def _cast_in_parts(x: Tensor) -> bool:
    """Returns whether autocast casts the products only, and not the state, as it does on the CPU."""
    state = LOCAL.autocast
    return state is not None and "cpu" in state.on and x.is_cpu


def _run_gru(x, states, weights, has_biases, sizes, reverse, batch_first):
    run: Callable = _gru_twin if _cast_in_parts(x) else _gru
    out, h = run(x, *states, *weights, *(() if has_biases else (None, None)), sizes, reverse, batch_first)
    return out, (h,)


def _runs_rnn(relu: bool):
    def run(x, states, weights, has_biases, sizes, reverse, batch_first):
        out, h = _rnn(x, *states, *weights, *(() if has_biases else (None, None)), sizes, reverse, relu, batch_first)
        return out, (h,)

    return run


MODES = {
    "lstm": _Mode("lstm", 2, _run_lstm),
    "gru": _Mode("gru", 1, _run_gru),
    "rnn_tanh": _Mode("rnn_tanh", 1, _runs_rnn(False)),
    "rnn_relu": _Mode("rnn_relu", 1, _runs_rnn(True)),
}


def _network(
    mode: _Mode, x, states, params, has_biases, num_layers, rate, train, bidirectional, sizes, batch_first=False
):  # fmt: skip
    """Runs all layers over rows. Returns (rows of the last, final states (layers · directions, B, ...))."""
    directions = 2 if bidirectional else 1
    per = len(params) // (num_layers * directions)
    if per * num_layers * directions != len(params):
        raise RuntimeError(
            f"{mode.name}: got {len(params)} weights for {num_layers} layers of {directions} direction(s)"
        )
    finals: list[tuple] = []
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            at = layer * directions + direction
            weights = params[at * per : (at + 1) * per]
            out, final = mode.run(x, [s[at] for s in states], weights, has_biases, sizes, direction == 1, batch_first)
            outs.append(out)
            finals.append(final)
        x = outs[0] if directions == 1 else cat(outs, -1)
        if rate and train and layer < num_layers - 1:
            x = dropout(x, rate, True)
    from tensorgrad.ops.join import stack

    return x, [stack(column) for column in zip(*finals, strict=True)]


def _call(mode: _Mode, args: tuple) -> tuple:
    """Runs `torch.lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)` and,
    packed, `torch.lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)`."""
    if len(args) != 9:
        raise TypeError(f"{mode.name}() takes 9 arguments, got {len(args)}")
    if isinstance(args[3], list | tuple):
        data, batch_sizes, hx, params, has_biases, num_layers, rate, train, bidirectional = args
        states = list(hx) if mode.states == 2 else [hx]
        sizes = tuple(batch_sizes.tolist())
        out, finals = _network(
            mode, data, states, params, has_biases, num_layers, rate, train, bidirectional, sizes
        )  # fmt: skip
        return (out, *finals)
    input, hx, params, has_biases, num_layers, rate, train, bidirectional, batch_first = args
    states = list(hx) if mode.states == 2 else [hx]
    first = batch_first and not (rate and train and num_layers > 1)  # dropout draws its numbers in the order of steps
    x = input.transpose(0, 1) if batch_first and not first else input
    batch, time = x.shape[:2] if first else x.shape[1::-1]
    rows, finals = _network(
        mode, x.reshape(time * batch, x.shape[2]), states, params, has_biases, num_layers, rate, train, bidirectional,
        (batch,) * time, first,
    )  # fmt: skip
    out = rows.reshape(*x.shape[:2], rows.shape[-1])
    return (out.transpose(0, 1) if batch_first and not first else out, *finals)


@composite("function")
def lstm(*args: Any) -> tuple:
    """Runs a long short-term memory over whole sequences (Hochreiter & Schmidhuber, 1997), as `torch.nn.LSTM` does.

    The arguments are (input, (h, c), weights, has_biases, num_layers, dropout, train, bidirectional, batch_first), or
    for packed sequences (data, batch_sizes, (h, c), weights, has_biases, num_layers, dropout, train, bidirectional).

    Returns:
        (output, h_n, c_n).

    >>> cell = torch.nn.LSTM(2, 3)
    >>> state = torch.zeros(1, 4, 3), torch.zeros(1, 4, 3)
    >>> out, h, c = torch.lstm(torch.ones(5, 4, 2), state, list(cell.parameters()), True, 1, 0.0, True, False, False)
    >>> out.shape
    torch.Size([5, 4, 3])
    """
    return _call(MODES["lstm"], args)


@composite("function")
def gru(*args: Any) -> tuple:
    """Runs gated recurrent units over whole sequences (Cho et al., 2014), as `torch.nn.GRU` does.

    The arguments are (input, h, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for
    packed sequences (data, batch_sizes, h, weights, has_biases, num_layers, dropout, train, bidirectional).

    Returns:
        (output, h_n).

    >>> cell = torch.nn.GRU(2, 3)
    >>> weights = list(cell.parameters())
    >>> out, h = torch.gru(torch.ones(5, 4, 2), torch.zeros(1, 4, 3), weights, True, 1, 0.0, True, False, False)
    >>> out.shape, h.shape
    (torch.Size([5, 4, 3]), torch.Size([1, 4, 3]))
    """
    return _call(MODES["gru"], args)


@composite("function")
def rnn_tanh(*args: Any) -> tuple:
    """Runs the recurrence h = tanh(W x + b + U h + d) over whole sequences (Elman, 1990), as `torch.nn.RNN` does.

    The arguments are (input, h, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for
    packed sequences (data, batch_sizes, h, weights, has_biases, num_layers, dropout, train, bidirectional).

    Returns:
        (output, h_n).

    >>> cell = torch.nn.RNN(2, 3)
    >>> weights = list(cell.parameters())
    >>> out, h = torch.rnn_tanh(torch.ones(5, 4, 2), torch.zeros(1, 4, 3), weights, True, 1, 0.0, True, False, False)
    >>> out.shape
    torch.Size([5, 4, 3])
    """
    return _call(MODES["rnn_tanh"], args)


@composite("function")
def rnn_relu(*args: Any) -> tuple:
    """Runs the recurrence h = max(0, W x + b + U h + d) over whole sequences, as `torch.nn.RNN` does with "relu".

    The arguments are (input, h, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for
    packed sequences (data, batch_sizes, h, weights, has_biases, num_layers, dropout, train, bidirectional).

    Returns:
        (output, h_n).

    >>> cell = torch.nn.RNN(2, 3, nonlinearity="relu")
    >>> weights = list(cell.parameters())
    >>> out, h = torch.rnn_relu(torch.ones(5, 4, 2), torch.zeros(1, 4, 3), weights, True, 1, 0.0, True, False, False)
    >>> out.shape
    torch.Size([5, 4, 3])
    """
    return _call(MODES["rnn_relu"], args)


# --- single steps ----------------------------------------------------------------------------------------------------


def _check_step(name: str, input: Tensor, states, w_ih, w_hh) -> None:
    """Raises: RuntimeError, with PyTorch's messages, for sizes that do not fit together."""
    if input.shape[-1] != w_ih.shape[1]:
        raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {w_ih.shape[1]}")
    for k, state in enumerate(states):
        if input.ndim == 2 and input.shape[0] != state.shape[0]:
            raise RuntimeError(f"Input batch size {input.shape[0]} doesn't match hidden{k} batch size {state.shape[0]}")
        if state.shape[-1] != w_hh.shape[1]:
            raise RuntimeError(
                f"hidden{k} has inconsistent hidden_size: got {state.shape[-1]}, expected {w_hh.shape[1]}"
            )


@composite("function")
def lstm_cell(input: Tensor, hx, w_ih: Tensor, w_hh: Tensor, b_ih=None, b_hh=None) -> tuple:
    """Computes one step of an LSTM: input (B, I) and states (h, c) of (B, H) to the next (h, c).

    The weights are (4H, I) and (4H, H).

    Raises:
        RuntimeError: If the sizes do not fit together.

    >>> cell = torch.nn.LSTMCell(2, 3)
    >>> h, c = torch.lstm_cell(torch.ones(4, 2), (torch.zeros(4, 3), torch.zeros(4, 3)), *cell.parameters())
    >>> h.shape
    torch.Size([4, 3])
    """
    _check_step("lstm_cell", input, hx, w_ih, w_hh)
    h, c = hx
    if input.ndim == 2 and not _cast_in_parts(input):
        return _lstm(input, h, c, w_ih, w_hh, b_ih, b_hh, None, (input.shape[0],), False)[1:]
    return _lstm_step(input, h, c, w_ih, w_hh, b_ih, b_hh)


@composite("function")
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih=None, b_hh=None) -> Tensor:
    """Computes one step of a GRU: input (B, I) and state (B, H) to the next state. The weights are (3H, I), (3H, H).

    Raises:
        RuntimeError: If the sizes do not fit together.

    >>> torch.gru_cell(torch.ones(4, 2), torch.zeros(4, 3), *torch.nn.GRUCell(2, 3).parameters()).shape
    torch.Size([4, 3])
    """
    _check_step("gru_cell", input, [hx], w_ih, w_hh)
    if input.ndim == 2 and not _cast_in_parts(input):
        return _gru(input, hx, w_ih, w_hh, b_ih, b_hh, (input.shape[0],), False)[1]
    return _gru_step(input, hx, w_ih, w_hh, b_ih, b_hh)


@composite("function")
def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih=None, b_hh=None) -> Tensor:
    """Computes one step of tanh(W x + b + U h + d): input (B, I) and state (B, H) to the next state.

    Raises:
        RuntimeError: If the sizes do not fit together.

    >>> torch.rnn_tanh_cell(torch.ones(4, 2), torch.zeros(4, 3), *torch.nn.RNNCell(2, 3).parameters()).shape
    torch.Size([4, 3])
    """
    _check_step("rnn_tanh_cell", input, [hx], w_ih, w_hh)
    return _rnn_step(input, hx, w_ih, w_hh, b_ih, b_hh, False)


@composite("function")
def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih=None, b_hh=None) -> Tensor:
    """Computes one step of max(0, W x + b + U h + d): input (B, I) and state (B, H) to the next state.

    Raises:
        RuntimeError: If the sizes do not fit together.

    >>> torch.rnn_relu_cell(torch.ones(4, 2), torch.zeros(4, 3), *torch.nn.RNNCell(2, 3).parameters()).shape
    torch.Size([4, 3])
    """
    _check_step("rnn_relu_cell", input, [hx], w_ih, w_hh)
    return _rnn_step(input, hx, w_ih, w_hh, b_ih, b_hh, True)
