"""Modules of quantized networks."""

from tensorgrad.ao.nn import intrinsic, qat, quantized

__all__ = ["intrinsic", "qat", "quantized"]
