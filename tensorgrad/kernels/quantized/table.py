"""Which op takes quantized tensors. Views, copies and reordering work on the integers; they need one scale for all."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tensorgrad.rows.kernel_tables import OPS, REGISTRY, array_kernel
from tensorgrad.storage.quantized import QuantizedArray, limits

_ON_INTS = (
    "view", "reshape", "expand", "unsqueeze", "squeeze_dims", "squeeze", "permute", "transpose", "t", "diagonal",
    "unfold",
    "select", "slice", "new_axes", "index_select", "flip", "as_strided", "gather", "repeat",
)  # fmt: skip
_ON_NUMBERS = ("max_pool_values", "avg_pool", "adaptive_avg_pool", "mean", "clamp", "leaky_relu", "hardtanh")
_ANY_SCHEME = ("alias", "clone_copy")


def _on_ints(name: str, array: QuantizedArray, *rest: Any) -> QuantizedArray:
    if array.axis is not None and name not in _ANY_SCHEME:
        raise RuntimeError(f"{name}: Setting strides is possible only on uniformly quantized tensor")
    return array.of_ints(np.asarray(array_kernel(OPS[name].kernel, np)(array.ints, *rest)))


def _on_numbers(name: str, array: QuantizedArray, *rest: Any) -> QuantizedArray:
    """Computes with the numbers; the result has the same scale and zero point."""
    from tensorgrad.kernels.array.quantized_tensors import like

    _uniform(name, array)
    return like(array_kernel(OPS[name].kernel, np)(array.numbers(), *rest), array)


def _relu(array: QuantizedArray) -> QuantizedArray:
    _uniform("relu", array)
    return array.of_ints(np.maximum(array.ints, array.zero_point).astype(array.ints.dtype))


def _of_known_range(name: str, array: QuantizedArray) -> QuantizedArray:
    """Computes with the numbers; the result has the scale and zero point of its range, as PyTorch fixes it."""
    from tensorgrad.kernels.array.quantized_tensors import quantized

    _uniform(name, array)
    low, _ = limits(array.kind)
    scale, zero_point = _RANGES[name]
    made = array_kernel(OPS[name].kernel, np)(array.numbers())
    return quantized(np, made, np.asarray(scale), np.asarray(zero_point + low), -1, array.kind.name)


def _joined(name: str, join: Any, arrays: Any, dim: int) -> QuantizedArray:
    """Joins integers; those with another meaning than the first become such."""
    from tensorgrad.kernels.array.quantized_tensors import like

    first = arrays[0]
    for array in arrays:
        _uniform(name, array)
    same = [a if (a.scale, a.zero_point) == (first.scale, first.zero_point) else like(a.numbers(), first)
            for a in arrays]  # fmt: skip
    return first.of_ints(join([a.ints for a in same], dim))


def _uniform(name: str, array: QuantizedArray) -> None:
    if array.axis is not None:
        raise RuntimeError(f"{name}: expected a tensor with one scale, got one with a scale for each channel")


def _compared(name: str, a: Any, b: Any) -> np.ndarray:
    numbers = [x.numbers() if isinstance(x, QuantizedArray) else x for x in (a, b)]
    return getattr(np, name)(*numbers)


def _refused(array: QuantizedArray, dtype: Any) -> None:
    raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")


_RANGES = {"sigmoid": (1 / 256, 0), "hardsigmoid": (1 / 256, 0), "tanh": (2 / 256, 128)}
_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
                "ge": "greater_equal"}  # fmt: skip

REGISTRY["quantized", "device"] = {
    **{name: partial(_on_ints, name) for name in (*_ON_INTS, *_ANY_SCHEME)},
    **{name: partial(_on_numbers, name) for name in _ON_NUMBERS},
    **{name: partial(_compared, function) for name, function in _COMPARISONS.items()},
    **{name: partial(_of_known_range, name) for name in _RANGES},
    "cat": partial(_joined, "cat", np.concatenate),
    "stack": partial(_joined, "stack", np.stack),
    "relu": _relu,
    "to_copy": _refused,
    "dequantized": QuantizedArray.numbers,
    "int_repr": lambda array: array.ints.copy(),
}
