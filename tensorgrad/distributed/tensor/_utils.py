"""PyTorch's module of this name: which part of a distributed tensor is where."""

from __future__ import annotations

from collections.abc import Sequence

from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor.placement_types import Placement

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], skip_offset: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the shape of this rank's piece of a tensor, and where it starts in the whole.

    Args:
        global_shape: the shape of the whole.
        mesh: the ranks.
        placements: one for each dimension of the mesh.
        skip_offset: leave the second result empty.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import Shard
    >>> from tensorgrad.distributed.tensor._utils import compute_local_shape_and_global_offset
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> compute_local_shape_and_global_offset((4, 2), dist.init_device_mesh("cpu", (1,)), [Shard(0)])
    ((4, 2), (0, 0))
    >>> dist.destroy_process_group()
    """
    shape, offset = DTensorSpec(mesh, tuple(placements), tuple(global_shape)).local_shape_and_offset()
    return shape, () if skip_offset else offset
