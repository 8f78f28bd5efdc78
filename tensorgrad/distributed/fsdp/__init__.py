"""`torch.distributed.fsdp`: training with parameters, gradients and optimizer state divided among the ranks."""

from __future__ import annotations

from tensorgrad.distributed.fsdp.absent import *
from tensorgrad.distributed.fsdp.api import *
from tensorgrad.distributed.fsdp.fully_shard import *
from tensorgrad.distributed.fsdp.fully_sharded_data_parallel import *
from tensorgrad.distributed.fsdp.policies import *
