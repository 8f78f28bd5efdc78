"""What each op is in ONNX, in tables by family.

A translation is a function `(g, ...)` of a builder (onnx/builder.py) and the op's arguments, with the names that its
row has. Tensors are values of the graph, numbers are numbers; `g.dtype` and `g.shape` describe the result. It returns
the value, or the values, of the result.
"""

from __future__ import annotations

from tensorgrad.onnx.translations import attention, index, nn, pointwise, random, recurrent, reduce, shape
from tensorgrad.onnx.translations.table import TABLE

__all__ = ["TABLE", "attention", "index", "nn", "pointwise", "random", "recurrent", "reduce", "shape"]
