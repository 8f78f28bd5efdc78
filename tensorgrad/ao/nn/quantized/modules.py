"""Quantized modules: what `convert` puts in place of those that were observed."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.ao.nn import intrinsic
from tensorgrad.ao.nn.quantized import arithmetic, products
from tensorgrad.nn import Module
from tensorgrad.tensor import Tensor


def quantized_weight(weight: Tensor, observer: Any) -> Tensor:
    """The weights with the scales that an observer, which has seen them, chooses."""
    scales, zeros = observer.calculate_qparams()
    values, dtype = weight.detach().float(), observer.dtype
    if "channel" in observer.qscheme.name:
        exact = observer.qscheme is not torch.per_channel_affine_float_qparams
        scales, zeros = (scales.double(), zeros.long()) if exact else (scales, zeros)
        return torch.quantize_per_channel(values, scales, zeros, observer.ch_axis, dtype)
    return torch.quantize_per_tensor(values, float(scales), int(zeros), dtype)


def observed_weight(mod: Any, qconfig: Any) -> Tensor:
    """The quantized weights of a float module, or of one that trained with rounded weights."""
    observer = getattr(mod, "weight_fake_quant", None) or qconfig.weight()
    observer(mod.weight)
    return quantized_weight(mod.weight, observer)


def _result_params(mod: Any) -> tuple[float, int]:
    scale, zero_point = mod.activation_post_process.calculate_qparams()
    return float(scale), int(zero_point)


class Quantize(Module):
    """Quantizes its input.

    >>> from tensorgrad.ao.nn.quantized import Quantize
    >>> Quantize(0.5, 10, torch.quint8)(torch.ones(1)).int_repr()
    tensor([12], dtype=torch.uint8)
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: Any, zero_point: Any, dtype: Any, factory_kwargs: Any = None):
        super().__init__()
        self.register_buffer("scale", torch.tensor([float(scale)]))
        self.register_buffer("zero_point", torch.tensor([int(zero_point)]))
        self.dtype = dtype

    def forward(self, X: Tensor) -> Tensor:
        return torch.quantize_per_tensor(X, float(self.scale), int(self.zero_point), self.dtype)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        """Returns the module for a QuantStub that was observed."""
        return Quantize(*_result_params(mod), mod.activation_post_process.dtype)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """Returns the numbers that a quantized tensor stands for."""

    def forward(self, Xq: Tensor) -> Tensor:
        return Xq.dequantize()

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        """Returns the module for a DeQuantStub."""
        return DeQuantize()


class LinearPackedParams(Module):
    """The weights and bias of a quantized Linear; in a state_dict a pair, as in PyTorch."""

    def __init__(self, dtype: Any = torch.qint8):
        super().__init__()
        self.dtype = dtype
        # A pair, since a bias may be a Parameter, which a module would take for one of its own.
        self.pair: tuple[Tensor, Tensor | None] = (
            torch.quantize_per_tensor(torch.zeros(1, 1), 1.0, 0, torch.qint8),
            None,
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}dtype"] = self.dtype
        destination[f"{prefix}_packed_params"] = self.pair

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: Any, missing: list, *rest: Any
    ) -> None:
        for name in ("dtype", "_packed_params"):
            if f"{prefix}{name}" not in state_dict:
                missing.append(f"{prefix}{name}")
        self.dtype = state_dict.pop(f"{prefix}dtype", self.dtype)
        self.pair = state_dict.pop(f"{prefix}_packed_params", self.pair)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, *rest)

    def extra_repr(self) -> str:
        return repr(self.pair)


class _OfPackedParams(Module):
    """What modules with packed weights have in common: they are not printed with the module."""

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


class _WithResult(Module):
    """What quantized modules have in common: the scale and zero point of their results."""

    scale: float
    zero_point: int

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}scale"] = torch.tensor(self.scale)
        destination[f"{prefix}zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: Any, missing: list, *rest: Any
    ) -> None:
        for name, kind in (("scale", float), ("zero_point", int)):
            if f"{prefix}{name}" in state_dict:
                setattr(self, name, kind(state_dict.pop(f"{prefix}{name}")))
            else:
                missing.append(f"{prefix}{name}")
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, *rest)


class Linear(_OfPackedParams, _WithResult):
    """A quantized Linear: quantized input, weights and result."""

    _relu = False

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = torch.qint8):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.scale, self.zero_point = 1.0, 0
        self._packed_params = LinearPackedParams(dtype)
        weight = torch.quantize_per_tensor(torch.zeros(out_features, in_features), 1.0, 0, torch.qint8)
        self.set_weight_bias(weight, torch.zeros(out_features) if bias_ else None)

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        """Replaces the weights, which are quantized, and the bias."""
        self._packed_params.pair = w, b

    def weight(self) -> Tensor:
        """Returns the quantized weights."""
        return self._packed_params.pair[0]

    def bias(self) -> Tensor | None:
        """Returns the bias."""
        return self._packed_params.pair[1]

    def forward(self, x: Tensor) -> Tensor:
        return products.linear(x, self.weight(), self.bias(), self.scale, self.zero_point, self._relu)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the module for a float one that was observed."""
        inner = mod[0] if isinstance(mod, intrinsic._FusedModule) else mod
        made = cls(inner.in_features, inner.out_features)
        made.set_weight_bias(observed_weight(inner, mod.qconfig), inner.bias)
        if hasattr(mod, "activation_post_process") and hasattr(made, "scale"):
            made.scale, made.zero_point = _result_params(mod)
        return made

    def _get_name(self) -> str:
        return "QuantizedLinearReLU" if self._relu else "QuantizedLinear"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, "
            f"zero_point={self.zero_point}, qscheme={self.weight().qscheme()}"
        )


class LinearReLU(Linear):
    """A quantized Linear with a ReLU."""

    _relu = True


class Conv2d(_WithResult):
    """A quantized Conv2d: quantized input, weights and result."""

    _relu = False

    def __init__(self, conv: Any):
        super().__init__()
        self._settings = {
            name: getattr(conv, name)
            for name in (
                "in_channels",
                "out_channels",
                "kernel_size",
                "stride",
                "padding",
                "dilation",
                "groups",
                "padding_mode",
            )
        }
        self.__dict__.update(self._settings)
        self.scale, self.zero_point = 1.0, 0
        weight = torch.quantize_per_tensor(conv.weight.detach(), 1.0, 0, torch.qint8)
        self.pair: tuple[Tensor, Tensor | None] = weight, conv.bias

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        """Replaces the weights, which are quantized, and the bias."""
        self.pair = w, b

    def weight(self) -> Tensor:
        """Returns the quantized weights."""
        return self.pair[0]

    def bias(self) -> Tensor | None:
        """Returns the bias."""
        return self.pair[1]

    def forward(self, input: Tensor) -> Tensor:
        s = self._settings
        return products.conv(input, *self.pair, s["stride"], s["padding"], s["dilation"], s["groups"],
                             s["padding_mode"], self.scale, self.zero_point, self._relu)  # fmt: skip

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the module for a float one that was observed."""
        inner = mod[0] if isinstance(mod, intrinsic._FusedModule) else mod
        if hasattr(inner, "bn"):  # trained with a batch norm, which becomes part of the weights
            weight, bias = torch.nn.utils.fusion.fuse_conv_bn_weights(
                inner.weight, inner.bias, inner.bn.running_mean, inner.bn.running_var, inner.bn.eps, inner.bn.weight,
                inner.bn.bias,
            )  # fmt: skip
            inner.weight, inner.bias = weight, bias
        made = cls(inner)
        made.set_weight_bias(observed_weight(inner, mod.qconfig), inner.bias)
        if hasattr(mod, "activation_post_process"):
            made.scale, made.zero_point = _result_params(mod)
        return made

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"], destination[f"{prefix}bias"] = self.pair
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: Any, missing: list, *rest: Any
    ) -> None:
        if f"{prefix}weight" in state_dict:
            self.set_weight_bias(state_dict.pop(f"{prefix}weight"), state_dict.pop(f"{prefix}bias", None))
        else:
            missing.append(f"{prefix}weight")
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def extra_repr(self) -> str:
        return (
            f"{self._settings['in_channels']}, {self._settings['out_channels']}, "
            f"kernel_size={self._settings['kernel_size']}, stride={self._settings['stride']}, scale={self.scale}, "
            f"zero_point={self.zero_point}"
        )


class ConvReLU2d(Conv2d):
    """A quantized Conv2d with a ReLU."""

    _relu = True


class ReLU6(Module):
    """A ReLU6 of quantized tensors."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return torch.clamp(input, 0.0, 6.0)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> ReLU6:
        """Returns the module for a float one."""
        return ReLU6(mod.inplace)


class OfNumbers(Module):
    """What modules have in common that compute with the numbers, and quantize their result."""

    scale: float
    zero_point: int

    @classmethod
    def from_float(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """Returns the counterpart of a float module, with what it has."""
        made = _OF_NUMBERS[type(mod)].__new__(_OF_NUMBERS[type(mod)])
        Module.__init__(made)
        made.__dict__.update(mod.__dict__)
        made.scale, made.zero_point = scale, zero_point
        return made

    def forward(self, input: Tensor) -> Tensor:
        made = super().forward(input.dequantize())
        return torch.quantize_per_tensor(made, self.scale, self.zero_point, input.dtype)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"


class ELU(OfNumbers, nn.ELU):
    """An ELU of quantized tensors."""


class Softmax(OfNumbers, nn.Softmax):
    """A Softmax of quantized tensors."""


class Hardswish(OfNumbers, _WithResult, nn.Hardswish):
    """A Hardswish of quantized tensors."""


class LeakyReLU(OfNumbers, _WithResult, nn.LeakyReLU):
    """A LeakyReLU of quantized tensors."""


class BatchNorm2d(OfNumbers, _WithResult, nn.BatchNorm2d):
    """A BatchNorm2d of quantized images, with the statistics that it has."""


class Dropout(OfNumbers, nn.Dropout):
    """A Dropout of quantized tensors, which nothing drops out of."""

    def forward(self, input: Tensor) -> Tensor:
        return input


_OF_NUMBERS: dict[type, Any] = {
    nn.ELU: ELU, nn.Softmax: Softmax, nn.Hardswish: Hardswish, nn.LeakyReLU: LeakyReLU, nn.BatchNorm2d: BatchNorm2d,
    nn.Dropout: Dropout,
}  # fmt: skip


class Embedding(_OfPackedParams):
    """An Embedding with weights in 8 bits, and a scale and a zero point for each row."""

    def __init__(self, num_embeddings: int, embedding_dim: int):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self._packed_params = LinearPackedParams(torch.quint8)

    def weight(self) -> Tensor:
        """Returns the quantized weights."""
        return self._packed_params.pair[0]

    def forward(self, indices: Tensor) -> Tensor:
        array = self.weight()._array
        rows = torch.from_numpy(array.ints).index_select(0, indices.reshape(-1)).float()
        scales, zeros = (
            torch.from_numpy(np.asarray(v, np.float32))[indices.reshape(-1)] for v in (array.scale, array.zero_point)
        )
        return ((rows - zeros.unsqueeze(1)) * scales.unsqueeze(1)).reshape(*indices.shape, self.embedding_dim)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the module for a float one with a `qconfig`."""
        made = cls(mod.num_embeddings, mod.embedding_dim)
        made._packed_params.pair = observed_weight(mod, mod.qconfig), None
        return made

    def _get_name(self) -> str:
        return "QuantizedEmbedding"

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, "
            f"dtype={self._packed_params.dtype}, qscheme={self.weight().qscheme()}"
        )


class FloatFunctional(Module):
    """Functions of several tensors as a module, so that their results can be observed.

    >>> from tensorgrad.ao.nn.quantized import FloatFunctional
    >>> FloatFunctional().add(torch.ones(2), torch.ones(2))
    tensor([2., 2.])
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: Any = nn.Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        return self.activation_post_process(torch.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """x + y for a number, which is not observed."""
        return torch.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """x * y."""
        return self.activation_post_process(torch.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """x * y for a number, which is not observed."""
        return torch.mul(x, y)

    def cat(self, x: Any, dim: int = 0) -> Tensor:
        """Joins tensors."""
        return self.activation_post_process(torch.cat(x, dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """relu(x + y)."""
        return self.activation_post_process(torch.relu(torch.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """x @ y."""
        return self.activation_post_process(torch.matmul(x, y))


class QFunctional(_WithResult):
    """The functions of FloatFunctional for quantized tensors: each result is rounded once."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0
        self.activation_post_process = nn.Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError("Functional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        return arithmetic.add(x, y, self.scale, self.zero_point)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """x * y."""
        return arithmetic.mul(x, y, self.scale, self.zero_point)

    def cat(self, x: Any, dim: int = 0) -> Tensor:
        """Joins tensors."""
        numbers = torch.cat([t.dequantize() for t in x], dim)
        return torch.quantize_per_tensor(numbers, self.scale, self.zero_point, torch.quint8)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """relu(x + y)."""
        return arithmetic.add_relu(x, y, self.scale, self.zero_point)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """x @ y."""
        return arithmetic.matmul(x, y, self.scale, self.zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """Returns the module for a FloatFunctional that was observed."""
        made = cls()
        made.scale, made.zero_point = _result_params(mod)
        return made

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"
