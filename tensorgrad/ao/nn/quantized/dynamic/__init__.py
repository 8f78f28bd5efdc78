"""Modules with quantized weights whose inputs are quantized when they run, with the range that they have."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.ao.nn.quantized import modules, products
from tensorgrad.nn import Module
from tensorgrad.tensor import Tensor

__all__ = ["GRU", "LSTM", "Linear", "LinearReLU"]


class Linear(modules.Linear):
    """A Linear with quantized weights and float inputs and results.

    >>> from tensorgrad.ao.quantization import quantize_dynamic
    >>> quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(4, 2)))[0].weight().dtype
    torch.qint8
    """

    def forward(self, x: Tensor) -> Tensor:
        made = products.linear_dynamic(x, self.weight(), self.bias(), products.reduced_range())
        return torch.relu(made) if self._relu else made

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU" if self._relu else "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}, "
            f"qscheme={self.weight().qscheme()}"
        )


class LinearReLU(Linear):
    """The same with a ReLU."""

    _relu = True


class _Recurrent(Module):
    """What LSTM and GRU have in common: for each layer and direction two pairs of weights and a bias."""

    _name: str

    def __init__(self, mod: Any, qconfig: Any):
        super().__init__()
        for name in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"):
            setattr(self, name, getattr(mod, name))
        if getattr(mod, "proj_size", 0):
            raise RuntimeError("quantize_dynamic: layers with proj_size cannot be quantized")
        self._params = torch.nn.ModuleDict()
        for layer in range(self.num_layers):
            for back in range(1 + self.bidirectional):
                for kind in ("ih", "hh"):
                    suffix = f"{kind}_l{layer}{'_reverse' * back}"
                    params, observer = modules.LinearPackedParams(), qconfig.weight()
                    weight = getattr(mod, f"weight_{suffix}")
                    observer(weight)
                    bias = getattr(mod, f"bias_{suffix}").detach() if self.bias else None
                    params.pair = modules.quantized_weight(weight, observer), bias
                    self._params[suffix] = params

    def _product(self, suffix: str, x: Tensor) -> Tensor:
        weight, bias = self._params[suffix].pair
        return products.linear_dynamic(x, weight, bias, True)

    def _step(self, given: Tensor, suffix: str, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _states(self) -> int:
        return 1

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Returns the results of all steps, and the last state of each layer and direction."""
        alone = input.ndim == 2
        x = input.unsqueeze(0 if self.batch_first else 1) if alone else input
        x = x.transpose(0, 1) if self.batch_first else x
        directions = 1 + self.bidirectional
        shape = self.num_layers * directions, x.shape[1], self.hidden_size
        if hx is None:
            states = (torch.zeros(shape),) * self._states()
        else:
            states = hx if isinstance(hx, tuple) else (hx,)
            states = tuple(s.unsqueeze(1) if alone else s for s in states)
        last: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            sides = []
            for back in range(directions):
                suffix = f"l{layer}{'_reverse' * back}"
                state = tuple(s[layer * directions + back] for s in states)
                given, steps = self._product(f"ih_{suffix}", x), range(len(x))
                made: list[Any] = [None] * len(x)
                for n in reversed(steps) if back else steps:
                    state = self._step(given[n], suffix, state)
                    made[n] = state[0]
                sides.append(torch.stack(made))
                last.append(state)
            x = torch.cat(sides, 2) if back else sides[0]
            if self.dropout and self.training and layer + 1 < self.num_layers:
                x = torch.nn.functional.dropout(x, self.dropout)
        x = x.transpose(0, 1) if self.batch_first else x
        finals = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        if alone:
            x, finals = x.squeeze(0 if self.batch_first else 1), tuple(f.squeeze(1) for f in finals)
        return x, finals if self._states() > 1 else finals[0]

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the module for a float one with a `qconfig`."""
        return cls(mod, mod.qconfig)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        more = [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join([str(self.input_size), str(self.hidden_size), *more])

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


class LSTM(_Recurrent):
    """An LSTM with quantized weights."""

    def _states(self) -> int:
        return 2

    def _step(self, given: Tensor, suffix: str, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        gates = given + self._product(f"hh_{suffix}", state[0])
        i, f, g, o = gates.chunk(4, -1)
        cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell), cell


class GRU(_Recurrent):
    """A GRU with quantized weights."""

    def _step(self, given: Tensor, suffix: str, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        r, z, n = given.chunk(3, -1)
        hr, hz, hn = self._product(f"hh_{suffix}", state[0]).chunk(3, -1)
        update = torch.sigmoid(z + hz)
        new = torch.tanh(n + torch.sigmoid(r + hr) * hn)
        return ((state[0] - new) * update + new,)
