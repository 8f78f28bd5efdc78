"""ONNX's operators as functions of tensors: what a loaded model computes."""

from tensorgrad.onnx.operators import (
    attention,
    classic,
    detection,
    images,
    layers,
    older,
    pointwise,
    quantized,
    random,
    recurrent,
    reductions,
    resizing,
    sequences,
    shapes,
    signals,
    training,
)
from tensorgrad.onnx.operators.table import OPERATORS, SEVERAL, function_of

__all__ = [
    "OPERATORS", "SEVERAL", "attention", "classic", "detection", "function_of", "images", "layers", "older",
    "pointwise", "quantized", "random", "recurrent", "reductions", "resizing", "sequences", "shapes", "signals",
    "training",
]  # fmt: skip
