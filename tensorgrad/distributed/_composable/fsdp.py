"""`torch.distributed._composable.fsdp`: the former place of `torch.distributed.fsdp`."""

from tensorgrad.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)

__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "fully_shard",
    "register_fsdp_forward_method",
]  # fmt: skip
