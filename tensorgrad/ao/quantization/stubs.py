"""Where a model's tensors become quantized, and where they end to be."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn import Module
from tensorgrad.tensor import Tensor


class _Stub(Module):
    def __init__(self, qconfig: Any = None):
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class QuantStub(_Stub):
    """Observes its input; `convert` makes it quantize."""


class DeQuantStub(_Stub):
    """Returns its input; `convert` makes it dequantize."""


class QuantWrapper(Module):
    """A module between a QuantStub and a DeQuantStub."""

    def __init__(self, module: Module):
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant, self.dequant = QuantStub(qconfig), DeQuantStub(qconfig)
        self.module = module
        self.train(module.training)

    def forward(self, X: Tensor) -> Tensor:
        return self.dequant(self.module(self.quant(X)))
