"""Weight-only quantization: weights are stored in 8 or 4 bits, and everything is computed in floating point.

A decoder reads all its weights for each token, so a token takes as long as reading them: with a quarter or an eighth of
the bytes, a fraction of the time. Weights become floating-point numbers in the registers of the processor
(kernels/compiled/quantized.py).

The quantized weights are plain tensors of integers, buffers of the module: so `state_dict`, `torch.save`, safetensors,
`pickle`, `copy.deepcopy` and `to` need nothing more. They have no gradients; inputs, biases and whatever is added to
the model, such as LoRA's factors, do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import Embedding, Linear, Module
from tensorgrad.ops.nn.small_weights import int4_linear, int4_weights, int8_linear, int8_weights, packed_int4
from tensorgrad.storage import recycling
from tensorgrad.tensor import Tensor

_LEAST = 1e-12  # a scale, for weights that are all zero
_AT_A_TIME = 1 << 20  # weights that are quantized at a time, so that what is computed on the way takes little memory


def _by_rows(weight: Tensor, quantized: Callable[[Tensor], dict[str, Tensor | None]]) -> dict[str, Tensor | None]:
    """What `quantized` makes of the weights: of some rows at a time."""
    rows, depth = weight.shape
    step = max(1, _AT_A_TIME // max(depth, 1))
    parts = [quantized(weight[first : first + step].detach().float()) for first in range(0, max(rows, 1), step)]
    joined: dict[str, Tensor | None] = {}
    for name, first in parts[0].items():
        joined[name] = None if first is None else torch.cat([part[name] for part in parts])
    return joined


def _int8(weight: Tensor) -> dict[str, Tensor | None]:
    """The weights as int8, from -127 to 127, and a scale for each row."""
    return _by_rows(weight, lambda numbers: _int8_rows(numbers, weight.dtype))


def _int8_rows(numbers: Tensor, dtype: torch.dtype) -> dict[str, Tensor | None]:
    scales = (numbers.abs().amax(1) / 127).clamp(min=_LEAST)
    stored = (numbers / scales.unsqueeze(1)).round().clamp(-127, 127).to(torch.int8)
    return {"weight": stored, "scales": scales.to(dtype)}


def _int4(weight: Tensor, group: int, symmetric: bool) -> dict[str, Tensor | None]:
    """The weights in 4 bits, packed, and a scale for each group of a row (and if not symmetric, a zero)."""
    return _by_rows(weight, lambda numbers: _int4_rows(numbers, weight.dtype, group, symmetric))


def _int4_rows(numbers: Tensor, dtype: torch.dtype, group: int, symmetric: bool) -> dict[str, Tensor | None]:
    rows, depth = numbers.shape
    numbers = torch.nn.functional.pad(numbers, (0, -depth % group)).reshape(rows, -1, group)
    low, high = numbers.amin(2, keepdim=True), numbers.amax(2, keepdim=True)
    if symmetric:
        scales = (torch.maximum(-low / 8, high / 7)).clamp(min=_LEAST)
        zeros, stored = None, (numbers / scales).round().clamp(-8, 7) + 8
    else:
        scales = ((high - low) / 15).clamp(min=_LEAST)
        zeros, stored = low + 8 * scales, ((numbers - low) / scales).round().clamp(0, 15)
    return {
        "weight": packed_int4(stored.reshape(rows, -1)),
        "scales": scales.squeeze(2).to(dtype).contiguous(),
        "zeros": None if zeros is None else zeros.squeeze(2).to(dtype).contiguous(),
    }


class _Quantized(Module):
    """What the modules have in common: `weight`, `scales` and perhaps `zeros` are buffers."""

    weight: Any
    scales: Tensor
    zeros: Tensor | None

    def _take(self, made: dict[str, Tensor | None], of: Module) -> None:
        for name, tensor in made.items():
            self.register_buffer(name, tensor)
        self.training = of.training

    def dequantize(self) -> Tensor:
        """Returns the weights that the module computes with, as floating-point numbers."""
        raise NotImplementedError


class Int8Linear(_Quantized, Linear):
    """A `Linear` with int8 weights and a scale for each output feature.

    >>> from tensorgrad.quantized import Int8Linear
    >>> layer = Int8Linear(torch.nn.Linear(64, 32))
    >>> layer.weight.dtype, layer(torch.zeros(2, 64)).shape
    (torch.int8, torch.Size([2, 32]))
    """

    def __init__(self, linear: Linear):
        Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._take(self._made(linear.weight), linear)
        self.register_parameter("bias", linear.bias)

    def _made(self, weight: Tensor) -> dict[str, Tensor | None]:
        return _int8(weight)

    def forward(self, input: Tensor) -> Tensor:
        return int8_linear(input, self.weight, self.scales, self.bias)

    def dequantize(self) -> Tensor:
        return int8_weights(self.weight, self.scales)


class Int4Linear(Int8Linear):
    """A `Linear` with weights of 4 bits, and a scale for each group of adjacent weights of an output feature.

    `weight` is packed: uint8, (out_features, bytes of a row). A weight is (stored - 8) * scale + zero.
    """

    def __init__(self, linear: Linear, group: int = 128, symmetric: bool = True):
        self.__dict__["_how"] = group, symmetric
        super().__init__(linear)
        self.group, self.symmetric = group, symmetric

    def _made(self, weight: Tensor) -> dict[str, Tensor | None]:
        return _int4(weight, *self.__dict__.pop("_how"))

    def forward(self, input: Tensor) -> Tensor:
        return int4_linear(input, self.weight, self.scales, self.zeros, self.bias)

    def dequantize(self) -> Tensor:
        return int4_weights(self.weight, self.scales, self.zeros)[:, : self.in_features]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, group={self.group}, symmetric={self.symmetric}"


class Int8Embedding(_Quantized, Embedding):
    """An `Embedding` with int8 weights and a scale for each row. Its weights have no gradients."""

    def __init__(self, embedding: Embedding):
        Module.__init__(self)
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        self.padding_idx, self.max_norm, self.norm_type = embedding.padding_idx, None, embedding.norm_type
        self.scale_grad_by_freq, self.sparse = False, False
        self._take(self._made(embedding.weight), embedding)

    def _made(self, weight: Tensor) -> dict[str, Tensor | None]:
        return _int8(weight)

    def forward(self, input: Tensor) -> Tensor:
        rows = input.reshape(-1)
        parts: Any = [None if t is None else t.index_select(0, rows) for t in (self.weight, self.scales, *self._more())]
        made = self._numbers(*parts)
        return made.reshape(*input.shape, self.embedding_dim)

    def _more(self) -> tuple[Any, ...]:
        return ()

    def _numbers(self, weight: Tensor, scales: Tensor) -> Tensor:
        return int8_weights(weight, scales)

    def dequantize(self) -> Tensor:
        return self._numbers(self.weight, self.scales, *self._more())


class Int4Embedding(Int8Embedding):
    """An `Embedding` with weights of 4 bits, and a scale for each group of adjacent weights of a row."""

    def __init__(self, embedding: Embedding, group: int = 128, symmetric: bool = True):
        self.__dict__["_how"] = group, symmetric
        super().__init__(embedding)
        self.group, self.symmetric = group, symmetric

    def _made(self, weight: Tensor) -> dict[str, Tensor | None]:
        return _int4(weight, *self.__dict__.pop("_how"))

    def _more(self) -> tuple[Any, ...]:
        return (self.zeros,)

    def _numbers(self, weight: Tensor, scales: Tensor, zeros: Tensor | None = None) -> Tensor:
        return int4_weights(weight, scales, zeros)[:, : self.embedding_dim]


def quantize(
    model: Module,
    dtype: str,
    *,
    group: int = 128,
    symmetric: bool = True,
    filter: Callable[[Module, str], bool] | None = None,
) -> Module:
    """Stores the weights of a model's `Linear` and `Embedding` modules in 8 or 4 bits, and returns the model.

    The modules are replaced in the model, which keeps its structure and its names. A weight that several modules share,
    such as that of an embedding and the last layer, is quantized for each of them. Modules of subclasses, and
    embeddings with `max_norm`, stay as they are. The memory of the old weights is returned to the system.

    Args:
        model: the model; if it is a `Linear` or an `Embedding` itself, the result takes its place.
        dtype: "int8" (a scale for each row), or "int4" (a scale for each group of a row).
        group: for "int4": how many adjacent weights have a scale in common; 32, 64 or 128.
        symmetric: for "int4": whether a group has a scale alone, or also a zero.
        filter: if it is given, only modules for which `filter(module, name)` is true are quantized.

    Raises:
        ValueError: For another `dtype` or `group`.
        TypeError: If the model is not a module.

    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    >>> import tensorgrad
    >>> tensorgrad.quantize(model, "int8")[2].weight.dtype
    torch.int8
    """
    if not isinstance(model, Module):
        raise TypeError(f"quantize: expected a module, got {type(model).__name__}")
    if dtype not in ("int8", "int4"):
        raise ValueError(f"quantize: expected 'int8' or 'int4', got {dtype!r}")
    if dtype == "int4" and group not in (32, 64, 128):
        raise ValueError(f"quantize: expected groups of 32, 64 or 128 weights, got {group}")
    done: dict[int, Module] = {}  # by the id of a module of the model: ids of two of them are not the same

    def made(module: Module, name: str) -> Module:
        if id(module) not in done:
            done[id(module)] = _replacement(module, dtype, group, symmetric) if wanted(module, name) else module
        return done[id(module)]

    def wanted(module: Module, name: str) -> bool:
        suited = type(module) is Linear or (type(module) is Embedding and module.max_norm is None)
        return suited and module.weight.is_floating_point() and (filter is None or filter(module, name))

    _replace_children(model, made)
    result = made(model, "")
    recycling.release()
    return result


def _replace_children(model: Module, made: Callable[[Module, str], Module]) -> None:
    """Only parents are listed: a child that is replaced is gone at once, and its weights with it."""
    for prefix, parent in [(prefix, module) for prefix, module in model.named_modules() if module._modules]:
        for name, child in parent._modules.items():
            if child is not None:
                parent._modules[name] = made(child, f"{prefix}.{name}".lstrip("."))


def _replacement(module: Module, dtype: str, group: int, symmetric: bool) -> Module:
    linear = isinstance(module, Linear)
    if dtype == "int8":
        return (Int8Linear if linear else Int8Embedding)(module)  # type: ignore[arg-type]
    return (Int4Linear if linear else Int4Embedding)(module, group, symmetric)  # type: ignore[arg-type]
