"""Names of PyTorch's first `FullyShardedDataParallel`, which libraries import: they raise an error when used."""

from __future__ import annotations

from tensorgrad.nn.module import Module
from tensorgrad.system.not_included import stand_in

__all__ = ["DataParallelMeshDims", "FlatParameter", "FullyShardedDataParallel"]

_ADVICE = "use torch.distributed.fsdp.fully_shard"
DataParallelMeshDims = stand_in("DataParallelMeshDims", "give fully_shard a mesh of one or two dimensions", __name__)
FlatParameter = stand_in("FlatParameter", _ADVICE, __name__)
FullyShardedDataParallel = stand_in("FullyShardedDataParallel", _ADVICE, __name__, base=Module)
