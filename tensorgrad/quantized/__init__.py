"""Modules with weights of 8 or 4 bits, `tensorgrad.quantize(model, "int8")`, and caches of 8 bits for decoders."""

from tensorgrad.quantized.cache import Int8Cache
from tensorgrad.quantized.weight_only import Int4Embedding, Int4Linear, Int8Embedding, Int8Linear, quantize

__all__ = ["Int4Embedding", "Int4Linear", "Int8Cache", "Int8Embedding", "Int8Linear", "quantize"]
