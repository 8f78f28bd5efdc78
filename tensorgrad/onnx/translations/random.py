"""Random numbers: drawn again in each run, from ONNX's own generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.onnx.builder import Builder, Value, bool, float32
from tensorgrad.onnx.translations.table import translates


def _uniform(g: Builder, low: float, high: float) -> Value:
    like = g.expand(g.constant(np.zeros((), np.float32)), g.shape)
    return g.op("RandomUniformLike", like, low=float(low), high=float(high))


@translates("uniform_fill")
def uniform_fill(g: Builder, input: Value, args: Any, generator: Any) -> Value:
    return g.cast(_uniform(g, *args), g.dtype)


@translates("normal_fill")
def normal_fill(g: Builder, input: Value, args: Any, generator: Any) -> Value:
    like = g.expand(g.constant(np.zeros((), np.float32)), g.shape)
    return g.cast(g.op("RandomNormalLike", like, mean=float(args[0]), scale=float(args[1])), g.dtype)


@translates("mask_like")
def dropout_mask(g: Builder, input: Value, shape: Any, sampler: Any, *args: Any) -> Value:
    if getattr(sampler, "__name__", "") != "dropout_mask":
        raise NotImplementedError(f"random numbers by {getattr(sampler, '__name__', sampler)}")
    kept = 1 - args[0]
    drawn = g.op("Less", _uniform(g, 0, 1), g.constant(kept, float32), dtype=bool)
    return g.op("Mul", g.cast(drawn, g.dtype), g.constant(1 / kept if kept else 0, g.dtype))
