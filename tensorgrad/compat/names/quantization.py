"""`torch.quantization`: the former name of `torch.ao.quantization`."""

from tensorgrad.ao.quantization import *  # noqa: F403
