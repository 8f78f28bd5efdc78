"""The piece of a tensor that this process holds: all of it, or a shard of a DTensor."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.checkpoint.metadata import ChunkStorageMetadata

__all__ = ["is_sharded", "local_box", "local_tensor"]


def is_sharded(value: Any) -> bool:
    """Whether it is a DTensor."""
    return isinstance(value, torch.Tensor) and hasattr(value, "placements") and hasattr(value, "device_mesh")


def local_tensor(value: Any) -> Any:
    """The values in this process; writing to them changes the tensor."""
    return value._local_tensor.detach() if is_sharded(value) else value.detach()


def local_box(value: Any) -> ChunkStorageMetadata | None:
    """The part of the whole that is in this process; None if it has none of it.

    Raises: ValueError for a DTensor whose pieces are terms of a sum.
    """
    if not is_sharded(value):
        return ChunkStorageMetadata(torch.Size([0] * value.ndim), torch.Size(value.shape))
    if value.device_mesh.get_coordinate() is None:
        return None
    if any(placement.is_partial() for placement in value.placements):
        raise ValueError(
            f"a DTensor with the placements {value.placements} holds terms of a sum, which no checkpoint can hold; "
            "redistribute it to Replicate() or Shard(dim) first"
        )
    layout = import_module("tensorgrad.distributed.tensor._utils")
    sizes, offsets = layout.compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    if 0 in sizes and 0 not in value.shape:
        return None
    return ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
