"""Quantized modules."""

from tensorgrad.ao.nn.quantized import dynamic
from tensorgrad.ao.nn.quantized.modules import (
    Conv2d,
    ConvReLU2d,
    DeQuantize,
    Embedding,
    FloatFunctional,
    Linear,
    LinearReLU,
    QFunctional,
    Quantize,
    ReLU6,
)

__all__ = [
    "Conv2d", "ConvReLU2d", "DeQuantize", "Embedding", "FloatFunctional", "Linear", "LinearReLU", "QFunctional",
    "Quantize", "ReLU6", "dynamic",
]  # fmt: skip
