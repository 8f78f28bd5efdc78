"""Modules with weights of 8 or 4 bits: `tensorgrad.quantize(model, "int8")`."""

from tensorgrad.quantized.weight_only import Int4Embedding, Int4Linear, Int8Embedding, Int8Linear, quantize

__all__ = ["Int4Embedding", "Int4Linear", "Int8Embedding", "Int8Linear", "quantize"]
