"""`torch.distributed.fsdp.fully_sharded_data_parallel`: names that raise an error when used."""

from tensorgrad.distributed.fsdp.absent import *  # noqa: F403
