"""Names of PyTorch's `torch.distributed.fsdp` that are not included: they raise an error when used."""

from __future__ import annotations

from tensorgrad.system.not_included import stand_in

__all__ = ["DataParallelMeshDims"]

DataParallelMeshDims = stand_in("DataParallelMeshDims", "give fully_shard a mesh of one or two dimensions", __name__)
