"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from tensorgrad.onnx.operators.table import operator


def _gates(value: Any, order: tuple[int, ...]) -> Any:
    parts = value.chunk(len(order), 0)
    return torch.cat([parts[i] for i in order])


# The functions of the gates that are read, by operator.
_ACTIVATIONS = {"LSTM": (["Sigmoid", "Tanh", "Tanh"],), "GRU": (["Sigmoid", "Tanh"],), "RNN": (["Tanh"], ["Relu"])}


def _layer(name: str, order: tuple[int, ...], run: Callable) -> Callable:
    """A recurrent layer. Results are (time, directions, batch, features)."""

    def layer(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, p: Any = None,
              hidden_size: int = 0, direction: str = "forward", linear_before_reset: int = 0, activations: Any = None,
              layout: int = 0) -> Any:  # fmt: skip
        directions = w.shape[0]
        if p is not None or direction not in ("forward", "reverse", "bidirectional"):
            raise NotImplementedError(f"onnx: {name} with peepholes, or of the direction {direction!r}")
        allowed = [kind * directions for kind in _ACTIVATIONS[name]]
        if activations is not None and activations not in allowed:
            raise NotImplementedError(f"onnx: {name} with the functions {activations}")
        if name == "GRU" and not linear_before_reset:
            function: Callable = _gru_reset_first
        else:
            function = torch.rnn_relu if activations == allowed[-1] and name == "RNN" and activations else run
        if layout:
            x, h, c = (t if t is None else t.transpose(0, 1) for t in (x, h, c))
        zeros = torch.zeros(directions, x.shape[1], r.shape[-1], dtype=x.dtype)
        start = [zeros if t is None else t for t in ((h, c) if name == "LSTM" else (h,))]
        made = []
        for i in range(directions):
            weights = [_gates(w[i], order), _gates(r[i], order)]
            weights += [] if b is None else [_gates(part, order) for part in b[i].chunk(2)]
            state = [t[i : i + 1] for t in start]
            given = _backward(x, lengths) if direction == "reverse" or i else x
            out, *last = _run(function, given, lengths, state, weights, b is not None)
            made.append((_backward(out, lengths) if direction == "reverse" or i else out, *last))
        out = torch.stack([m[0] for m in made], 1)
        last = [torch.cat([m[k] for m in made]) for k in range(1, len(made[0]))]
        if layout:
            return (out.permute(2, 0, 1, 3), *(t.transpose(0, 1) for t in last))
        return (out, *last)

    return layer


def _backward(x: Any, lengths: Any) -> Any:
    """Each sequence, from its end on."""
    if lengths is None:
        return x.flip(0)
    at = torch.arange(x.shape[0])[:, None]
    at = torch.where(at < lengths, lengths - 1 - at, at).long()
    return x.gather(0, at[:, :, None].expand(x.shape))


def _run(function: Callable, x: Any, lengths: Any, state: list, weights: list, biased: bool) -> Any:
    start = tuple(state) if function is torch.lstm else state[0]
    if lengths is None:
        return function(x, start, weights, biased, 1, 0.0, False, False, False)
    if function is _gru_reset_first:
        raise NotImplementedError("onnx: GRU with lengths, that resets before the product")
    packed = pack_padded_sequence(x, lengths.long(), enforce_sorted=False)
    start = tuple(s.index_select(1, packed.sorted_indices) for s in state)
    made, *last = function(
        packed.data, packed.batch_sizes, start if function is torch.lstm else start[0], weights, biased, 1, 0.0,
        False, False,
    )  # fmt: skip
    made = PackedSequence(made, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    out, _ = pad_packed_sequence(made, total_length=x.shape[0])
    return (out, *(t.index_select(1, packed.unsorted_indices) for t in last))


def _gru_reset_first(x: Any, h: Any, weights: list, biased: bool, *options: Any) -> Any:
    """A GRU that resets the state before the product, as ONNX does unless it is told otherwise."""
    w, r, *biases = weights
    state, (rr, rz, rn) = h[0], r.chunk(3)
    parts = F.linear(x, w, sum(biases) if biases else None).chunk(3, -1)
    made = []
    for i, n, new in zip(*(part.unbind(0) for part in parts), strict=True):
        reset, keep = torch.sigmoid(i + state @ rr.t()), torch.sigmoid(n + state @ rz.t())
        state = (1 - keep) * torch.tanh(new + (reset * state) @ rn.t()) + keep * state
        made.append(state)
    return torch.stack(made), state[None]


operator("LSTM", several=True)(_layer("LSTM", (0, 2, 3, 1), torch.lstm))  # i o f c -> i f g o
operator("GRU", several=True)(_layer("GRU", (1, 0, 2), torch.gru))  # z r h -> r z n
operator("RNN", several=True)(_layer("RNN", (0,), torch.rnn_tanh))
