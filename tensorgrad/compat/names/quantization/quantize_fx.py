"""`torch.quantization.quantize_fx`: the former name of `torch.ao.quantization.quantize_fx`."""

from tensorgrad.ao.quantization.quantize_fx import *  # noqa: F403
