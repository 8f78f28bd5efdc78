"""The `forward` of recurrent layers and cells, written in TorchScript: see `nn_modules.py`."""

from __future__ import annotations

from typing import Optional

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.tensor import Tensor

# ruff: noqa: UP045
# mypy: ignore-errors


def lstm(self, input: Tensor, hx: Optional[tuple[Tensor, Tensor]] = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    if input.dim() != 2 and input.dim() != 3:
        raise ValueError(f"LSTM: Expected input to be 2D or 3D, got {input.dim()}D instead")
    batched, place = input.dim() == 3, 0 if self.batch_first else 1
    if not batched:
        input = input.unsqueeze(place)
    count = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        width = self.proj_size if self.proj_size > 0 else self.hidden_size
        h = torch.zeros(count, input.size(place), width, dtype=input.dtype, device=input.device)
        c = torch.zeros(count, input.size(place), self.hidden_size, dtype=input.dtype, device=input.device)
    else:
        h, c = hx
        if not batched:
            h, c = h.unsqueeze(1), c.unsqueeze(1)
    result = torch.ops.aten.lstm(
        input, [h, c], self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if not batched:
        return result[0].squeeze(place), (result[1].squeeze(1), result[2].squeeze(1))
    return result[0], (result[1], result[2])


def gru(self, input: Tensor, hx: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
    if input.dim() != 2 and input.dim() != 3:
        raise ValueError(f"GRU: Expected input to be 2D or 3D, got {input.dim()}D instead")
    batched, place = input.dim() == 3, 0 if self.batch_first else 1
    if not batched:
        input = input.unsqueeze(place)
    count = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        hx = torch.zeros(count, input.size(place), self.hidden_size, dtype=input.dtype, device=input.device)
    elif not batched:
        hx = hx.unsqueeze(1)
    out, last = torch.ops.aten.gru(
        input, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if not batched:
        return out.squeeze(place), last.squeeze(1)
    return out, last


def rnn(self, input: Tensor, hx: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
    if input.dim() != 2 and input.dim() != 3:
        raise ValueError(f"RNN: Expected input to be 2D or 3D, got {input.dim()}D instead")
    batched, place = input.dim() == 3, 0 if self.batch_first else 1
    if not batched:
        input = input.unsqueeze(place)
    count = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        hx = torch.zeros(count, input.size(place), self.hidden_size, dtype=input.dtype, device=input.device)
    elif not batched:
        hx = hx.unsqueeze(1)
    if self.mode == "RNN_TANH":
        out, last = torch.ops.aten.rnn_tanh(
            input, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
            self.batch_first,
        )  # fmt: skip
    else:
        out, last = torch.ops.aten.rnn_relu(
            input, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
            self.batch_first,
        )  # fmt: skip
    if not batched:
        return out.squeeze(place), last.squeeze(1)
    return out, last


def lstm_cell(self, input: Tensor, hx: Optional[tuple[Tensor, Tensor]] = None) -> tuple[Tensor, Tensor]:
    if input.dim() != 1 and input.dim() != 2:
        raise ValueError(f"LSTMCell: Expected input to be 1D or 2D, got {input.dim()}D instead")
    batched = input.dim() == 2
    if not batched:
        input = input.unsqueeze(0)
    if hx is None:
        h = torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
        c = h
    else:
        h, c = hx
        if not batched:
            h, c = h.unsqueeze(0), c.unsqueeze(0)
    h, c = torch.ops.aten.lstm_cell(input, [h, c], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if not batched:
        return h.squeeze(0), c.squeeze(0)
    return h, c


def gru_cell(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
    if input.dim() != 1 and input.dim() != 2:
        raise ValueError(f"GRUCell: Expected input to be 1D or 2D, got {input.dim()}D instead")
    batched = input.dim() == 2
    if not batched:
        input = input.unsqueeze(0)
    if hx is None:
        hx = torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
    elif not batched:
        hx = hx.unsqueeze(0)
    h = torch.ops.aten.gru_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if not batched:
        return h.squeeze(0)
    return h


def rnn_cell(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
    if input.dim() != 1 and input.dim() != 2:
        raise ValueError(f"RNNCell: Expected input to be 1D or 2D, got {input.dim()}D instead")
    batched = input.dim() == 2
    if not batched:
        input = input.unsqueeze(0)
    if hx is None:
        hx = torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
    elif not batched:
        hx = hx.unsqueeze(0)
    if self.nonlinearity == "tanh":
        h = torch.ops.aten.rnn_tanh_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    else:
        assert self.nonlinearity == "relu", "the nonlinearity of an RNNCell is tanh or relu"
        h = torch.ops.aten.rnn_relu_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if not batched:
        return h.squeeze(0)
    return h


FORWARDS = {
    nn.LSTM: lstm, nn.GRU: gru, nn.RNN: rnn, nn.LSTMCell: lstm_cell, nn.GRUCell: gru_cell, nn.RNNCell: rnn_cell,
}  # fmt: skip
