"""The `forward` of recurrent layers and cells, written in TorchScript: see `nn_modules.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.jit.scripting.values import Operator
from tensorgrad.tensor import Tensor

# ruff: noqa: UP045
# mypy: ignore-errors


def with_batch(input: Tensor, dims: int, place: int, name: str) -> Tensor:
    """The input, with a dimension for the batch if it has none."""
    if input.dim() != dims - 1 and input.dim() != dims:
        raise ValueError(f"{name}: Expected input to be {dims - 1}D or {dims}D, got {input.dim()}D instead")
    if input.dim() == dims:
        return input
    return input.unsqueeze(place)


def first_state(hx: Optional[Tensor], input: Tensor, sizes: list[int], place: int, batched: bool) -> Tensor:
    """The state to begin with, with a dimension for the batch: the one that was given, or zeros."""
    if hx is None:
        return torch.zeros(sizes, dtype=input.dtype, device=input.device)
    if batched:
        return hx
    return hx.unsqueeze(place)


def lstm(self, input: Tensor, hx: Optional[tuple[Tensor, Tensor]] = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    batched, place = input.dim() == 3, 0 if self.batch_first else 1
    input = with_batch(input, 3, place, "LSTM")
    count, width = self.num_layers * (2 if self.bidirectional else 1), self.hidden_size
    if self.proj_size > 0:
        width = self.proj_size
    h: Optional[Tensor] = None
    c: Optional[Tensor] = None
    if hx is not None:
        h, c = hx
    state = [
        first_state(h, input, [count, input.size(place), width], 1, batched),
        first_state(c, input, [count, input.size(place), self.hidden_size], 1, batched),
    ]
    out, h, c = torch.ops.aten.lstm(
        input, state, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if batched:
        return out, (h, c)
    return out.squeeze(place), (h.squeeze(1), c.squeeze(1))


def layer(name: str, plain: Operator, relu: Operator) -> Callable:
    """The `forward` of a layer with one state: by an operator, or by another if its nonlinearity is relu."""

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
        batched, place = input.dim() == 3, 0 if self.batch_first else 1
        input = with_batch(input, 3, place, name)
        count = self.num_layers * (2 if self.bidirectional else 1)
        h = first_state(hx, input, [count, input.size(place), self.hidden_size], 1, batched)
        if self.mode == "RNN_RELU":
            out, h = relu(
                input, h, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training,
                self.bidirectional, self.batch_first,
            )  # fmt: skip
        else:
            out, h = plain(
                input, h, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training,
                self.bidirectional, self.batch_first,
            )  # fmt: skip
        if batched:
            return out, h
        return out.squeeze(place), h.squeeze(1)

    return forward


def lstm_cell(self, input: Tensor, hx: Optional[tuple[Tensor, Tensor]] = None) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 2
    input = with_batch(input, 2, 0, "LSTMCell")
    h: Optional[Tensor] = None
    c: Optional[Tensor] = None
    if hx is not None:
        h, c = hx
    sizes = [input.size(0), self.hidden_size]
    state = [first_state(h, input, sizes, 0, batched), first_state(c, input, sizes, 0, batched)]
    h, c = torch.ops.aten.lstm_cell(input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if batched:
        return h, c
    return h.squeeze(0), c.squeeze(0)


def cell(name: str, plain: Operator, relu: Operator) -> Callable:
    """The `forward` of a cell with one state: see `layer`."""

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        batched = input.dim() == 2
        input = with_batch(input, 2, 0, name)
        h = first_state(hx, input, [input.size(0), self.hidden_size], 0, batched)
        if name == "RNNCell" and self.nonlinearity != "tanh":
            assert self.nonlinearity == "relu", "the nonlinearity of an RNNCell is tanh or relu"
            h = relu(input, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        else:
            h = plain(input, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if batched:
            return h
        return h.squeeze(0)

    return forward


FORWARDS = {
    nn.LSTM: lstm, nn.LSTMCell: lstm_cell, nn.GRU: layer("GRU", Operator("gru"), Operator("gru")),
    nn.RNN: layer("RNN", Operator("rnn_tanh"), Operator("rnn_relu")),
    nn.GRUCell: cell("GRUCell", Operator("gru_cell"), Operator("gru_cell")),
    nn.RNNCell: cell("RNNCell", Operator("rnn_tanh_cell"), Operator("rnn_relu_cell")),
}  # fmt: skip
