"""`torch.ao`: quantization of models, module by module."""

from tensorgrad.ao import nn, quantization

__all__ = ["nn", "quantization"]
