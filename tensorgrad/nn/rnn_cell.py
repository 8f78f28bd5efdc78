"""Recurrent layers one time step at a time: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import init
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


class RNNCellBase(Module):
    """Base of the cells: two weights and two biases, stacked over the gates.

    Args:
        input_size, hidden_size: the numbers of features of the input and of the state.
        bias: whether there are `bias_ih` and `bias_hh`, (num_chunks·hidden_size).
        num_chunks: the number of gates: 4 in an LSTM, 3 in a GRU, and 1 otherwise.

    `weight_ih` is (num_chunks·hidden_size, input_size), `weight_hh` (num_chunks·hidden_size, hidden_size).

    >>> cell = torch.nn.GRUCell(3, 5)
    >>> isinstance(cell, torch.nn.modules.rnn.RNNCellBase), cell.weight_ih.shape
    (True, torch.Size([15, 3]))
    """

    nonlinearity = "tanh"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates, options = num_chunks * hidden_size, {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(torch.empty((gates, input_size), **options))
        self.weight_hh = Parameter(torch.empty((gates, hidden_size), **options))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(torch.empty(gates, **options)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new initial values, uniformly from ±1/√hidden_size."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        text += "" if self.bias is True else f", bias={self.bias}"
        return text + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}")

    def _step(self, function: Any, input: Tensor, states: tuple | None, count: int) -> Any:
        """Runs `function` on a batch; a single input is temporarily made a batch of one."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        for i, state in enumerate(states or ()):
            if state.ndim not in (1, 2):
                which = f"hx[{i}]" if name == "LSTMCell" else "hidden"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {state.ndim}D instead")
        batched = input.ndim == 2
        x = input if batched else input.unsqueeze(0)
        if states is None:
            zeros = torch.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            states = (zeros,) * count
        elif not batched:
            states = tuple(s.unsqueeze(0) for s in states)
        hx = states if count == 2 else states[0]
        found = function(x, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if batched:
            return found
        return tuple(s.squeeze(0) for s in found) if count == 2 else found.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of a plain recurrence: h = tanh(W x + b + U h + d), or max(0, ...) with `nonlinearity="relu"`.

    Args:
        input_size, hidden_size: features of the input (batch, input_size) and of the state (batch, hidden_size).
        bias: whether there are b and d.
        nonlinearity: `tanh` or `relu`.

    >>> torch.nn.RNNCell(10, 20)(torch.zeros(3, 10)).shape
    torch.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        functions = {"tanh": torch.rnn_tanh_cell, "relu": torch.rnn_relu_cell}
        if self.nonlinearity not in functions:
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(functions[self.nonlinearity], input, None if hx is None else (hx,), 1)


class LSTMCell(RNNCellBase):
    """One step of an LSTM (see `tensorgrad.nn.LSTM`): computes (h, c) from an input and the previous (h, c).

    Args:
        input_size, hidden_size: features of the input (batch, input_size) and of the states (batch, hidden_size).
        bias: whether there are biases.

    >>> h, c = torch.nn.LSTMCell(10, 20)(torch.zeros(3, 10))
    >>> h.shape, c.shape
    (torch.Size([3, 20]), torch.Size([3, 20]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return self._step(torch.lstm_cell, input, hx, 2)


class GRUCell(RNNCellBase):
    """One step of gated recurrent units (see `tensorgrad.nn.GRU`).

    Args:
        input_size, hidden_size: features of the input (batch, input_size) and of the state (batch, hidden_size).
        bias: whether there are biases.

    >>> torch.nn.GRUCell(10, 20)(torch.zeros(3, 10)).shape
    torch.Size([3, 20])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(torch.gru_cell, input, None if hx is None else (hx,), 1)
