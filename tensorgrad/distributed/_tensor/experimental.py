"""The former place of `torch.distributed.tensor.experimental`."""

from tensorgrad.distributed.tensor.experimental import implicit_replication, local_map, register_sharding

__all__ = ["implicit_replication", "local_map", "register_sharding"]
