"""`torch.distributed.fsdp.api`: names that raise an error when used."""

from tensorgrad.distributed.fsdp.absent import *  # noqa: F403
