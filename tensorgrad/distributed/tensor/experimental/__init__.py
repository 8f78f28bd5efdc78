"""`torch.distributed.tensor.experimental`: functions on pieces, implicit replication, rules for custom operators."""

from __future__ import annotations

from tensorgrad.distributed.tensor.experimental._func_map import local_map
from tensorgrad.distributed.tensor.experimental._register_sharding import register_sharding
from tensorgrad.distributed.tensor.experimental.replication import implicit_replication
from tensorgrad.system.not_included import stand_in as _stand_in

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]

context_parallel = _stand_in(
    "context_parallel",
    "divide the heads of attention instead (ColwiseParallel), or the batch",
    __name__,
    "distributed.tensor.experimental.context_parallel",
)
