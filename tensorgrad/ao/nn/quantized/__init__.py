"""Quantized modules."""

from tensorgrad.ao.nn.quantized import arithmetic, dynamic
from tensorgrad.ao.nn.quantized.modules import (
    ELU,
    BatchNorm2d,
    Conv2d,
    ConvReLU2d,
    DeQuantize,
    Dropout,
    Embedding,
    FloatFunctional,
    Hardswish,
    LeakyReLU,
    Linear,
    LinearReLU,
    QFunctional,
    Quantize,
    ReLU6,
    Softmax,
)

__all__ = [
    "ELU", "BatchNorm2d", "Conv2d", "ConvReLU2d", "DeQuantize", "Dropout", "Embedding", "FloatFunctional", "Hardswish",
    "LeakyReLU", "Linear", "LinearReLU", "QFunctional", "Quantize", "ReLU6", "Softmax", "arithmetic", "dynamic",
]  # fmt: skip
