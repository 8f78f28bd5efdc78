"""Recurrent layers over whole sequences: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import tensorgrad as torch
from tensorgrad.amp.autocast_mode import is_autocast_enabled
from tensorgrad.nn import init
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.nn.utils.rnn import PackedSequence
from tensorgrad.tensor import Tensor


class RNNBase(Module):
    """Base of the recurrent layers: weights of all layers and directions, states, padded and packed input.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
        input_size, hidden_size: the numbers of features of the input and of the hidden state.
        num_layers: the number of stacked recurrent layers.
        bias: whether there are biases.
        batch_first: input and output are (batch, time, features) instead of (time, batch, features).
        dropout: the dropout probability between layers, in training.
        bidirectional: add a second recurrence backwards in time; the outputs of both are concatenated.
        proj_size: the hidden state is projected to this size (LSTM only).

    Layer k has `weight_ih_lk`, (G, features of its input), `weight_hh_lk`, (G, features of its output), and
    `bias_ih_lk` and `bias_hh_lk`, (G), where G is hidden_size times the number of gates: 4 in an LSTM, 3 in a GRU,
    and 1 otherwise. With `proj_size` it also has `weight_hr_lk`, (proj_size, hidden_size). The names of the
    backward direction end in `_reverse`.

    Raises:
        TypeError, ValueError: an argument has the wrong type or an invalid value.

    >>> layer = torch.nn.LSTM(3, 5, num_layers=2)
    >>> isinstance(layer, torch.nn.RNNBase)
    True
    >>> [tuple(p.shape) for p in layer.all_weights[1]]
    [(20, 5), (20, 5), (20,), (20,)]
    """

    __jit_unused_properties__ = ("all_weights",)

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        for layer in range(num_layers):
            for suffix in ("", "_reverse") if bidirectional else ("",):
                for name, shape in self._shapes(layer):
                    weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
                    self.register_parameter(f"{name}_l{layer}{suffix}", weight)
        self.reset_parameters()

    def _shapes(self, layer: int) -> list[tuple[str, tuple[int, ...]]]:
        """Returns names and shapes of the weights of one direction of a layer."""
        gates, out = _GATES[self.mode] * self.hidden_size, self.proj_size or self.hidden_size
        inside = self.input_size if layer == 0 else out * (2 if self.bidirectional else 1)
        shapes: list[tuple[str, tuple[int, ...]]] = [("weight_ih", (gates, inside)), ("weight_hh", (gates, out))]
        if self.bias:
            shapes += [("bias_ih", (gates,)), ("bias_hh", (gates,))]
        return shapes + ([("weight_hr", (self.proj_size, self.hidden_size))] if self.proj_size else [])

    @property
    def _flat_weights_names(self) -> list[str]:
        return [
            f"{name}_l{layer}{suffix}"
            for layer in range(self.num_layers)
            for suffix in (("", "_reverse") if self.bidirectional else ("",))
            for name, _ in self._shapes(layer)
        ]

    @property
    def _flat_weights(self) -> list[Any]:
        """The weights that `forward` uses; a list that was set is used until one of the weights is replaced."""
        own = [getattr(self, name, None) for name in self._flat_weights_names]
        given, instead_of = self.__dict__.get("_given_weights", (None, own))
        return own if given is None or any(a is not b for a, b in zip(own, instead_of, strict=True)) else given

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Any]) -> None:
        self.__dict__["_given_weights"] = weights, [getattr(self, name, None) for name in self._flat_weights_names]

    @property
    def _all_weights(self) -> list[list[str]]:
        flat, per = self._flat_weights_names, len(self._shapes(0))
        return [flat[i : i + per] for i in range(0, len(flat), per)]

    def __getstate__(self) -> dict:
        # PyTorch keeps these as attributes.
        names = ("_flat_weights_names", "_all_weights", "_flat_weights")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in names}}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for name in ("_flat_weights_names", "_all_weights", "_flat_weights"):
            self.__dict__.pop(name, None)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights, one list for each direction of each layer."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Does nothing: the weights need not be contiguous in memory. Accepted for compatibility."""

    def reset_parameters(self) -> None:
        """Draws new initial values, uniformly from ±1/√hidden_size."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        texts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False,
        }  # fmt: skip
        texts += [f"{name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value]
        return ", ".join(texts)

    # --- checks ---

    def _state_sizes(self, batch: int) -> list[tuple[int, int, int]]:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        hidden = (layers, batch, self.proj_size or self.hidden_size)
        return [hidden, (layers, batch, self.hidden_size)] if self.mode == "LSTM" else [hidden]

    def _check_input(self, input: Tensor) -> None:
        weight = self.weight_ih_l0
        if input.dtype is not weight.dtype and not is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.shape[-1]}"
            )  # fmt: skip

    def _check_states(self, states: list[Tensor], batch: int) -> None:
        for k, (state, size) in enumerate(zip(states, self._state_sizes(batch), strict=True)):
            if tuple(state.shape) != size:
                what = f"hidden[{k}]" if len(states) == 2 else "hidden"
                raise RuntimeError(f"Expected {what} size {size}, got {list(state.shape)}")

    # --- the run ---

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Returns the outputs of the last layer at all times, and the final states of all layers.

        Args:
            input: (time, batch, features), (time, features) without a batch, or a packed sequence.
            hx: the initial state (layers · directions, batch, hidden), or a pair of them for an LSTM; by default zeros.

        Raises:
            RuntimeError, ValueError: the shapes or dtypes do not match.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if input.ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        batched, batch_dim = input.ndim == 3, 0 if self.batch_first else 1
        states = None if hx is None else [hx[0], hx[1]] if self.mode == "LSTM" else [hx]
        if states is not None:
            self._check_dims(states, batched)
        if not batched:
            input = input.unsqueeze(batch_dim)
            states = states and [s.unsqueeze(1) for s in states]
        batch = input.shape[batch_dim]
        states = states or self._zeros(batch, input)
        self._check_input(input)
        self._check_states(states, batch)
        out, *final = self._function()(
            input, states if self.mode == "LSTM" else states[0], self._flat_weights, self.bias, self.num_layers,
            self.dropout, self.training, self.bidirectional, self.batch_first,
        )  # fmt: skip
        if not batched:
            out, final = out.squeeze(batch_dim), [s.squeeze(1) for s in final]
        return out, tuple(final) if self.mode == "LSTM" else final[0]

    def _packed(self, input: PackedSequence, hx: Any) -> Any:
        data, sizes, order, back = input
        batch = int(sizes[0])
        states = None if hx is None else [hx[0], hx[1]] if self.mode == "LSTM" else [hx]
        if states is None:
            states = self._zeros(batch, data)
        elif order is not None:
            states = [s.index_select(1, order) for s in states]
        self._check_input(data)
        self._check_states(states, batch)
        out, *final = self._function()(
            data, sizes, states if self.mode == "LSTM" else states[0], self._flat_weights, self.bias, self.num_layers,
            self.dropout, self.training, self.bidirectional,
        )  # fmt: skip
        if back is not None:
            final = [s.index_select(1, back) for s in final]
        return PackedSequence(out, sizes, order, back), tuple(final) if self.mode == "LSTM" else final[0]

    def _check_dims(self, states: list[Tensor], batched: bool) -> None:
        expected = 3 if batched else 2
        if all(s.ndim == expected for s in states):
            return
        kind = "batched" if batched else "unbatched"
        if len(states) == 2:
            dims = ", ".join(f"{s.ndim}-D" for s in states)
            raise RuntimeError(
                f"For {kind} {expected}-D input, hx and cx should also be {expected}-D but got ({dims}) tensors"
            )
        raise RuntimeError(
            f"For {kind} {expected}-D input, hx should also be {expected}-D but got {states[0].ndim}-D tensor"
        )

    def _zeros(self, batch: int, like: Tensor) -> list[Tensor]:
        return [torch.zeros(size, dtype=like.dtype, device=like.device) for size in self._state_sizes(batch)]

    def _function(self) -> Any:
        return getattr(torch, self.mode.lower())


_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _check(
    input_size: Any, hidden_size: Any, num_layers: int, bias: Any, batch_first: Any, dropout: Any, proj_size: int
) -> None:
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:  # type: ignore[operator]
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout > 0 and num_layers == 1:  # type: ignore[operator]
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    for name, value in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(value, int):
            raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNN(RNNBase):
    """The plain recurrent layer h = tanh(W x + b + U h + d) (Elman, 1990), or with max(0, ...) instead of tanh.

    Args:
        input_size, hidden_size, num_layers: see `RNNBase`.
        nonlinearity: "tanh" or "relu".
        bias, batch_first, dropout, bidirectional: see `RNNBase`.

    >>> rnn = torch.nn.RNN(10, 20, num_layers=2)
    >>> output, h = rnn(torch.zeros(5, 3, 10))
    >>> output.shape, h.shape
    (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        if options.get("proj_size"):
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, 0, device, dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997).

    With i, f, o = σ(...) and g = tanh(...) of W x + b + U h + d: c = f c + i g and h = o tanh(c). With `proj_size`,
    h is multiplied by another matrix. Weights are stacked in the order i, f, g, o.

    Args:
        input_size: the number of features of the input.
        hidden_size: the number of features of the hidden state.
        num_layers: the number of stacked recurrent layers; each takes the output of the one below.
        bias: whether there are biases b and d.
        batch_first: input and output are (batch, time, features) instead of (time, batch, features).
        dropout: the dropout probability between layers, in training.
        bidirectional: add a second recurrence backwards in time; the outputs of both are concatenated.
        proj_size: the hidden state is projected to this size; 0 leaves it as it is.

    Called with the input and, if they are not zeros, the states (h, c), each (num_layers · directions, batch, size).

    Raises:
        TypeError, ValueError: an argument has the wrong type or an invalid value.

    >>> lstm = torch.nn.LSTM(10, 20, batch_first=True, bidirectional=True)
    >>> output, (h, c) = lstm(torch.zeros(3, 5, 10))
    >>> output.shape, h.shape
    (torch.Size([3, 5, 40]), torch.Size([2, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., 2014).

    With r, z = σ(W x + b + U h + d): n = tanh(W x + b + r (U h + d)) and h = (1 - z) n + z h. Weights are stacked in
    the order r, z, n.

    Args:
        input_size: the number of features of the input.
        hidden_size: the number of features of the hidden state.
        num_layers: the number of stacked recurrent layers; each takes the output of the one below.
        bias: whether there are biases b and d.
        batch_first: input and output are (batch, time, features) instead of (time, batch, features).
        dropout: the dropout probability between layers, in training.
        bidirectional: add a second recurrence backwards in time; the outputs of both are concatenated.

    Called with the input and, if it is not zero, the state h, (num_layers · directions, batch, hidden_size).

    Raises:
        TypeError, ValueError: an argument has the wrong type or an invalid value.

    >>> gru = torch.nn.GRU(10, 20)
    >>> output, h = gru(torch.zeros(5, 3, 10))
    >>> output.shape, h.shape
    (torch.Size([5, 3, 20]), torch.Size([1, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        if options.get("proj_size"):
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
