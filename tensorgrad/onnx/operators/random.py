"""Random numbers, which are this library's own: no other runtime draws the same."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.onnx.operators.table import bounded, dtype_of, operator


def _generator(seed: float | None) -> Any:
    """The generator of a seed in the file; without one, everybody's."""
    return None if seed is None else torch.Generator().manual_seed(int(seed))


def _uniform(shape: Any, low: float = 0.0, high: float = 1.0, seed: float | None = None) -> Any:
    return torch.rand(bounded(shape), generator=_generator(seed)) * (high - low) + low


def _normal(shape: Any, mean: float = 0.0, scale: float = 1.0, seed: float | None = None) -> Any:
    return torch.randn(bounded(shape), generator=_generator(seed)) * scale + mean


@operator("RandomUniform")
def random_uniform(shape: Any, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None) -> Any:
    return _uniform(shape, low, high, seed).to(dtype_of(dtype))


@operator("RandomNormal")
def random_normal(shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None) -> Any:
    return _normal(shape, mean, scale, seed).to(dtype_of(dtype))


@operator("RandomUniformLike")
def random_uniform_like(
    x: Any, dtype: Any = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Any:
    return _uniform(x.shape, low, high, seed).to(x.dtype if dtype is None else dtype_of(dtype))


@operator("RandomNormalLike")
def random_normal_like(
    x: Any, dtype: Any = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Any:
    return _normal(x.shape, mean, scale, seed).to(x.dtype if dtype is None else dtype_of(dtype))


@operator("Bernoulli")
def bernoulli(x: Any, dtype: Any = None, seed: float | None = None) -> Any:
    return torch.bernoulli(x, generator=_generator(seed)).to(x.dtype if dtype is None else dtype_of(dtype))


@operator("Multinomial")
def multinomial(x: Any, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Any:
    bounded([x.shape[0], sample_size])
    return torch.multinomial(x.softmax(-1), sample_size, True, generator=_generator(seed)).to(dtype_of(dtype))
