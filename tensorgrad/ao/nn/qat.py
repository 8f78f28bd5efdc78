"""Modules that train with rounded weights: what `prepare_qat` puts in place of the float ones."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.ao.nn import intrinsic
from tensorgrad.nn import functional as F
from tensorgrad.tensor import Tensor


def _taken(made: Any, mod: nn.Module, qconfig: Any) -> Any:
    """Gives a new module the parameters and settings of a float one, and a fake quantization of its weights."""
    nn.Module.__init__(made)
    made.__dict__.update({k: v for k, v in mod.__dict__.items() if k not in ("_parameters", "_buffers", "_modules")})
    made._parameters.update(mod._parameters)
    made._buffers.update(mod._buffers)
    made.qconfig = qconfig
    made.weight_fake_quant = qconfig.weight()
    return made


def _conv(module: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The module's convolution with other weights."""
    padding = module.padding
    if module.padding_mode != "zeros":
        sides = [n for pad in reversed(padding) for n in (pad, pad)]
        input, padding = F.pad(input, sides, mode=module.padding_mode), 0
    return F.conv2d(input, weight, bias, module.stride, padding, module.dilation, module.groups)


class _Rounded(nn.Module):
    """What the modules have in common."""

    weight_fake_quant: Any
    _relu = False

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the module for a float one, which has a `qconfig`."""
        inner = mod[0] if isinstance(mod, intrinsic._FusedModule) else mod
        return _taken(cls.__new__(cls), inner, mod.qconfig)


class Linear(_Rounded, nn.Linear):
    """A Linear whose weights are rounded."""

    def forward(self, input: Tensor) -> Tensor:
        made = F.linear(input, self.weight_fake_quant(self.weight), self.bias)
        return F.relu(made) if self._relu else made


class LinearReLU(Linear):
    """A Linear whose weights are rounded, and a ReLU."""

    _relu = True


class Conv2d(_Rounded, nn.Conv2d):
    """A Conv2d whose weights are rounded."""

    def forward(self, input: Tensor) -> Tensor:
        made = _conv(self, input, self.weight_fake_quant(self.weight), self.bias)
        return F.relu(made) if self._relu else made


class ConvReLU2d(Conv2d):
    """A Conv2d whose weights are rounded, and a ReLU."""

    _relu = True


class ConvBn2d(Conv2d):
    """A Conv2d whose weights are rounded as they will be when the BatchNorm2d behind it is part of them."""

    bn: nn.BatchNorm2d

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the module for a float one, which has a `qconfig`."""
        made = super().from_float(mod)
        made.bn = mod[1]
        return made

    def forward(self, input: Tensor) -> Tensor:
        bn = self.bn
        factor = bn.weight / torch.sqrt(bn.running_var + bn.eps)
        along = factor.reshape(-1, 1, 1, 1)
        conv = _conv(self, input, self.weight_fake_quant(self.weight * along), None)
        conv = conv / factor.reshape(1, -1, 1, 1)
        if self.bias is not None:
            conv = conv + self.bias.reshape(1, -1, 1, 1)
        made = bn(conv)
        return F.relu(made) if self._relu else made


class ConvBnReLU2d(ConvBn2d):
    """The same with a ReLU behind it."""

    _relu = True
