"""`torch.distributed.fsdp.fully_sharded_data_parallel`: the settings of that class, which itself is not included."""

from tensorgrad.distributed.fsdp.absent import *  # noqa: F403
from tensorgrad.distributed.fsdp.api import *  # noqa: F403
