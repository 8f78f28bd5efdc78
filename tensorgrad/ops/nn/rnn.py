"""Recurrent networks: `torch.lstm`, `gru`, `rnn_tanh`, `rnn_relu`, and single steps of them.

One direction of one layer is one op over all time steps (see `kernels/array/rnn.py` for the layout); its derivative
is one op as well. The twins are the same recurrences step by step in simpler ops, through which second derivatives go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.autograd.gradients import grad as gradients_of
from tensorgrad.autograd.modes import enable_grad
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.kernels.array import rnn as kernels
from tensorgrad.ops.join import cat
from tensorgrad.ops.linalg.matmul import linear
from tensorgrad.ops.nn.dropout import dropout
from tensorgrad.tensor import Tensor

# --- one step, in simpler ops ----------------------------------------------------------------------------------------


def _lstm_step(x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr=None):
    i, f, g, o = (linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    h = o * c.tanh()
    return (h if w_hr is None else linear(h, w_hr)), c, cat([i, f, g, o], -1)


def _gru_step(x, h, w_ih, w_hh, b_ih, b_hh):
    r_x, z_x, n_x = linear(x, w_ih, b_ih).chunk(3, -1)
    r_h, z_h, n_h = linear(h, w_hh, b_hh).chunk(3, -1)
    r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = (n_x + r * n_h).tanh()
    return n + z * (h - n), cat([r, z, n, n_h], -1)


def _rnn_step(x, h, w_ih, w_hh, b_ih, b_hh, relu):
    inside = linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)
    return inside.relu() if relu else inside.tanh()


def _over_time(x, states, sizes, reverse, step: Callable):
    """Runs `step(rows, states) -> (states, kept)` over all time steps.

    Returns: the final states, and for each of the states and of what is kept the rows of all steps.
    """
    found = kernels.steps(sizes, reverse)
    rows: list[tuple] = []
    for start, end, n in found:
        new, kept = step(x[start:end], [s[:n] for s in states])
        states = [s if len(old) == n else cat([s, old[n:]]) for s, old in zip(new, states, strict=True)]
        rows.append((*new, *kept))
    ordered = rows[::-1] if reverse else rows
    return states, [cat(column) for column in zip(*ordered, strict=True)]


def _lstm_twin(x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse):
    def step(rows, states):
        h, c = states
        h, c, acts = _lstm_step(rows, h, c, w_ih, w_hh, b_ih, b_hh, w_hr)
        return [h, c], [acts]

    (h, c), (out, cells, acts) = _over_time(x, [h, c], sizes, reverse, step)
    return out, h, c, acts, cells


def _gru_twin(x, h, w_ih, w_hh, b_ih, b_hh, sizes, reverse):
    def step(rows, states):
        h, acts = _gru_step(rows, states[0], w_ih, w_hh, b_ih, b_hh)
        return [h], [acts]

    (h,), (out, acts) = _over_time(x, [h], sizes, reverse, step)
    return out, h, acts


def _rnn_twin(x, h, w_ih, w_hh, b_ih, b_hh, sizes, reverse, relu):
    (h,), (out,) = _over_time(
        x, [h], sizes, reverse, lambda rows, states: ([_rnn_step(rows, states[0], w_ih, w_hh, b_ih, b_hh, relu)], [])
    )
    return out, h


def _through(twin: Callable, grads, tensors, plain) -> tuple:
    """The gradients of `tensors` through `twin`, differentiable themselves; empty for what is None."""
    with enable_grad():
        inputs = [t if t is None or t.requires_grad else t.detach().requires_grad_() for t in tensors]
        results = twin(*inputs, *plain)[: len(grads)]
        wanted = [t for t in inputs if t is not None]
        found = iter(gradients_of(results, wanted, grads, create_graph=True))
    return tuple(grads[0].new_empty(0) if t is None else next(found) for t in inputs)


def _zeros_for(grads, results) -> list:
    return [r.new_zeros(r.shape) if g is None else g for g, r in zip(grads, results, strict=True)]


# --- LSTM ------------------------------------------------------------------------------------------------------------


def _lstm_backward(grads, x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, out, h_n, c_n, acts, cells, sizes, reverse, needs):
    found = _lstm_grad(
        *_zeros_for(grads[:3], (out, h_n, c_n)), x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, out, acts, cells, sizes, reverse
    )
    return [g if need else None for need, g in zip(needs, found)]


def _lstm_grad_kernel(xp, g, gh, gc, x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, out, acts, cells, sizes, reverse):
    gx, dh, dc, gw_ih, gw_hh, bias, gw_hr = kernels.lstm_grad(
        xp, g, gh, gc, x, h, c, w_ih, w_hh, w_hr, out, acts, cells, sizes, reverse
    )
    return gx, dh, dc, gw_ih, gw_hh, bias, bias.copy(), gw_hr


_lstm = op(
    "lstm_layer(x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, sizes: any = (), reverse: bool = False)",
    "rnn.lstm", twin=_lstm_twin, backward=_lstm_backward, where="",
    wrt=("x", "h", "c", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr"), backward_name="LstmLayerBackward0",
    outputs=("out", "h_n", "c_n", "acts", "cells"), differentiable_outputs=3,
)  # fmt: skip
_lstm_grad = op(
    "lstm_layer_grad(g, gh, gc, x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, result=None, acts=None, "
    "cells=None, sizes: any = (), reverse: bool = False)",
    _lstm_grad_kernel, where="", outputs=("gx", "dh", "dc", "gw_ih", "gw_hh", "gb_ih", "gb_hh", "gw_hr"),
    twin=lambda g, gh, gc, x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, result, acts, cells, sizes, reverse: _through(
        _lstm_twin, (g, gh, gc), (x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr), (sizes, reverse)
    ),
)  # fmt: skip


# --- GRU -------------------------------------------------------------------------------------------------------------


def _gru_backward(grads, x, h, w_ih, w_hh, b_ih, b_hh, out, h_n, acts, sizes, reverse, needs):
    found = _gru_grad(
        *_zeros_for(grads[:2], (out, h_n)), x, h, w_ih, w_hh, b_ih, b_hh, out, acts, sizes, reverse
    )  # fmt: skip
    return [g if need else None for need, g in zip(needs, found)]


_gru = op(
    "gru_layer(x, h, w_ih, w_hh, b_ih=None, b_hh=None, sizes: any = (), reverse: bool = False)",
    "rnn.gru", twin=_gru_twin, backward=_gru_backward, where="", wrt=("x", "h", "w_ih", "w_hh", "b_ih", "b_hh"),
    outputs=("out", "h_n", "acts"), differentiable_outputs=2, backward_name="GruLayerBackward0",
)  # fmt: skip
_gru_grad = op(
    "gru_layer_grad(g, gh, x, h, w_ih, w_hh, b_ih=None, b_hh=None, result=None, acts=None, sizes: any = (), "
    "reverse: bool = False)",
    lambda xp, g, gh, x, h, w_ih, w_hh, b_ih, b_hh, out, acts, sizes, reverse: kernels.gru_grad(
        xp, g, gh, x, h, w_ih, w_hh, out, acts, sizes, reverse
    ),
    where="", outputs=("gx", "dh", "gw_ih", "gw_hh", "gb_ih", "gb_hh"),
    twin=lambda g, gh, x, h, w_ih, w_hh, b_ih, b_hh, result, acts, sizes, reverse: _through(
        _gru_twin, (g, gh), (x, h, w_ih, w_hh, b_ih, b_hh), (sizes, reverse)
    ),
)  # fmt: skip


# --- the plain recurrence --------------------------------------------------------------------------------------------


def _rnn_backward(grads, x, h, w_ih, w_hh, b_ih, b_hh, out, h_n, sizes, reverse, relu, needs):
    found = _rnn_grad(*_zeros_for(grads[:2], (out, h_n)), x, h, w_ih, w_hh, b_ih, b_hh, out, sizes, reverse, relu)
    return [g if need else None for need, g in zip(needs, found)]


def _rnn_grad_kernel(xp, g, gh, x, h, w_ih, w_hh, b_ih, b_hh, out, sizes, reverse, relu):
    *found, bias = kernels.rnn_grad(xp, g, gh, x, h, w_ih, w_hh, out, sizes, reverse, relu)
    return (*found, bias, bias.copy())


_rnn = op(
    "rnn_layer(x, h, w_ih, w_hh, b_ih=None, b_hh=None, sizes: any = (), reverse: bool = False, relu: bool = False)",
    "rnn.rnn", twin=_rnn_twin, backward=_rnn_backward, where="", wrt=("x", "h", "w_ih", "w_hh", "b_ih", "b_hh"),
    outputs=("out", "h_n"), differentiable_outputs=2, backward_name="RnnLayerBackward0",
)  # fmt: skip
_rnn_grad = op(
    "rnn_layer_grad(g, gh, x, h, w_ih, w_hh, b_ih=None, b_hh=None, result=None, sizes: any = (), "
    "reverse: bool = False, relu: bool = False)",
    _rnn_grad_kernel, where="", outputs=("gx", "dh", "gw_ih", "gw_hh", "gb_ih", "gb_hh"),
    twin=lambda g, gh, x, h, w_ih, w_hh, b_ih, b_hh, result, sizes, reverse, relu: _through(
        _rnn_twin, (g, gh), (x, h, w_ih, w_hh, b_ih, b_hh), (sizes, reverse, relu)
    ),
)  # fmt: skip


# --- layers and directions -------------------------------------------------------------------------------------------


class _Mode:
    """What tells the kinds of network apart: how one direction of a layer runs, and how many weights it has."""

    def __init__(self, name: str, states: int, run: Callable):
        self.name, self.states, self.run = name, states, run


def _run_lstm(x, states, weights, has_biases, sizes, reverse):
    w_ih, w_hh, *rest = weights
    biases, projection = (rest[:2], rest[2:]) if has_biases else ((None, None), rest)
    out, h, c, *_ = _lstm(x, *states, w_ih, w_hh, *biases, *(projection or (None,)), sizes, reverse)
    return out, (h, c)


def _run_gru(x, states, weights, has_biases, sizes, reverse):
    out, h, _ = _gru(x, *states, *weights, *(() if has_biases else (None, None)), sizes, reverse)
    return out, (h,)


def _runs_rnn(relu: bool):
    def run(x, states, weights, has_biases, sizes, reverse):
        out, h = _rnn(x, *states, *weights, *(() if has_biases else (None, None)), sizes, reverse, relu)
        return out, (h,)

    return run


MODES = {
    "lstm": _Mode("lstm", 2, _run_lstm),
    "gru": _Mode("gru", 1, _run_gru),
    "rnn_tanh": _Mode("rnn_tanh", 1, _runs_rnn(False)),
    "rnn_relu": _Mode("rnn_relu", 1, _runs_rnn(True)),
}


def _network(mode: _Mode, x, states, params, has_biases, num_layers, rate, train, bidirectional, sizes):
    """All layers over packed rows. Returns (rows of the last layer, final states (layers · directions, B, ...))."""
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
            out, final = mode.run(x, [s[at] for s in states], weights, has_biases, sizes, direction == 1)
            outs.append(out)
            finals.append(final)
        x = outs[0] if directions == 1 else cat(outs, -1)
        if rate and train and layer < num_layers - 1:
            x = dropout(x, rate, True)
    from tensorgrad.ops.join import stack

    return x, [stack(column) for column in zip(*finals, strict=True)]


def _call(mode: _Mode, args: tuple) -> tuple:
    """`torch.lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)` or, packed,
    `torch.lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)`."""
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
    x = input.transpose(0, 1) if batch_first else input
    time, batch = x.shape[:2]
    rows, finals = _network(
        mode, x.reshape(time * batch, x.shape[2]), states, params, has_biases, num_layers, rate, train, bidirectional,
        (batch,) * time,
    )  # fmt: skip
    out = rows.reshape(time, batch, rows.shape[-1])
    return (out.transpose(0, 1) if batch_first else out, *finals)


@composite("function")
def lstm(*args: Any) -> tuple:
    """Long short-term memory over whole sequences (Hochreiter & Schmidhuber, 1997); `torch.nn.LSTM` calls it.

    Args: (input, (h, c), weights, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for packed
    sequences (data, batch_sizes, (h, c), weights, has_biases, num_layers, dropout, train, bidirectional).

    Returns: (output, h_n, c_n).

    >>> import tensorgrad as torch
    >>> cell = torch.nn.LSTM(2, 3)
    >>> state = torch.zeros(1, 4, 3), torch.zeros(1, 4, 3)
    >>> out, h, c = torch.lstm(torch.ones(5, 4, 2), state, list(cell.parameters()), True, 1, 0.0, True, False, False)
    >>> out.shape
    torch.Size([5, 4, 3])
    """
    return _call(MODES["lstm"], args)


@composite("function")
def gru(*args: Any) -> tuple:
    """Gated recurrent units over whole sequences (Cho et al., 2014); `torch.nn.GRU` calls it.

    Args: those of `lstm`, with one state h in place of (h, c). Returns: (output, h_n).

    >>> import tensorgrad as torch
    >>> cell = torch.nn.GRU(2, 3)
    >>> weights = list(cell.parameters())
    >>> out, h = torch.gru(torch.ones(5, 4, 2), torch.zeros(1, 4, 3), weights, True, 1, 0.0, True, False, False)
    >>> out.shape, h.shape
    (torch.Size([5, 4, 3]), torch.Size([1, 4, 3]))
    """
    return _call(MODES["gru"], args)


@composite("function")
def rnn_tanh(*args: Any) -> tuple:
    """The recurrence h = tanh(W x + b + U h + d) over whole sequences (Elman, 1990); `torch.nn.RNN` calls it.

    Args: those of `lstm`, with one state h in place of (h, c). Returns: (output, h_n).

    >>> import tensorgrad as torch
    >>> cell = torch.nn.RNN(2, 3)
    >>> weights = list(cell.parameters())
    >>> out, h = torch.rnn_tanh(torch.ones(5, 4, 2), torch.zeros(1, 4, 3), weights, True, 1, 0.0, True, False, False)
    >>> out.shape
    torch.Size([5, 4, 3])
    """
    return _call(MODES["rnn_tanh"], args)


@composite("function")
def rnn_relu(*args: Any) -> tuple:
    """The recurrence h = max(0, W x + b + U h + d) over whole sequences; `torch.nn.RNN(nonlinearity="relu")` calls it.

    Args: those of `lstm`, with one state h in place of (h, c). Returns: (output, h_n).

    >>> import tensorgrad as torch
    >>> cell = torch.nn.RNN(2, 3, nonlinearity="relu")
    >>> weights = list(cell.parameters())
    >>> out, h = torch.rnn_relu(torch.ones(5, 4, 2), torch.zeros(1, 4, 3), weights, True, 1, 0.0, True, False, False)
    >>> out.shape
    torch.Size([5, 4, 3])
    """
    return _call(MODES["rnn_relu"], args)


# --- single steps ----------------------------------------------------------------------------------------------------


def _check_step(name: str, input: Tensor, states, w_ih, w_hh) -> None:
    """Raises: RuntimeError in PyTorch's words for sizes that do not go together."""
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
    """One step of an LSTM: input (B, I) and states (h, c) of (B, H) to the next (h, c). Weights are (4H, I), (4H, H).

    Raises: RuntimeError for sizes that do not go together.

    >>> import tensorgrad as torch
    >>> cell = torch.nn.LSTMCell(2, 3)
    >>> h, c = torch.lstm_cell(torch.ones(4, 2), (torch.zeros(4, 3), torch.zeros(4, 3)), *cell.parameters())
    >>> h.shape
    torch.Size([4, 3])
    """
    _check_step("lstm_cell", input, hx, w_ih, w_hh)
    h, c = hx
    if input.ndim == 2:
        return _lstm(input, h, c, w_ih, w_hh, b_ih, b_hh, None, (input.shape[0],), False)[1:3]
    return _lstm_step(input, h, c, w_ih, w_hh, b_ih, b_hh)[:2]


@composite("function")
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih=None, b_hh=None) -> Tensor:
    """One step of a GRU: input (B, I) and state (B, H) to the next state. Weights are (3H, I), (3H, H).

    Raises: RuntimeError for sizes that do not go together.

    >>> import tensorgrad as torch
    >>> torch.gru_cell(torch.ones(4, 2), torch.zeros(4, 3), *torch.nn.GRUCell(2, 3).parameters()).shape
    torch.Size([4, 3])
    """
    _check_step("gru_cell", input, [hx], w_ih, w_hh)
    if input.ndim == 2:
        return _gru(input, hx, w_ih, w_hh, b_ih, b_hh, (input.shape[0],), False)[1]
    return _gru_step(input, hx, w_ih, w_hh, b_ih, b_hh)[0]


@composite("function")
def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih=None, b_hh=None) -> Tensor:
    """tanh(W x + b + U h + d), one step: input (B, I) and state (B, H) to the next state.

    Raises: RuntimeError for sizes that do not go together.

    >>> import tensorgrad as torch
    >>> torch.rnn_tanh_cell(torch.ones(4, 2), torch.zeros(4, 3), *torch.nn.RNNCell(2, 3).parameters()).shape
    torch.Size([4, 3])
    """
    _check_step("rnn_tanh_cell", input, [hx], w_ih, w_hh)
    return _rnn_step(input, hx, w_ih, w_hh, b_ih, b_hh, False)


@composite("function")
def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih=None, b_hh=None) -> Tensor:
    """max(0, W x + b + U h + d), one step: input (B, I) and state (B, H) to the next state.

    Raises: RuntimeError for sizes that do not go together.

    >>> import tensorgrad as torch
    >>> torch.rnn_relu_cell(torch.ones(4, 2), torch.zeros(4, 3), *torch.nn.RNNCell(2, 3).parameters()).shape
    torch.Size([4, 3])
    """
    _check_step("rnn_relu_cell", input, [hx], w_ih, w_hh)
    return _rnn_step(input, hx, w_ih, w_hh, b_ih, b_hh, True)
