"""`torch.distributed.nn`: collectives through which gradients flow."""

from tensorgrad.distributed.nn.functional import *
