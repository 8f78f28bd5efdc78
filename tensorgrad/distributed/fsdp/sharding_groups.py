"""Which ranks have the parts of a `FullyShardedDataParallel`'s parameters, and which the same parts."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.fsdp.api import ShardingStrategy
from tensorgrad.distributed.group import default_group, get_process_group_ranks
from tensorgrad.distributed.process_group import get_rank, get_world_size, new_group, new_subgroups

__all__ = ["HYBRID", "Ranks", "ranks_for"]

HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


class Ranks(NamedTuple):
    """The strategy that is used, the groups, and the mesh over which states are divided."""

    strategy: ShardingStrategy
    process_group: Any  # what PyTorch calls so: with `NO_SHARD`, the ranks that have all of it
    shards: Any  # the ranks that have the parts; None if each rank has all of them
    replicas: Any  # the ranks that have the same part; None if there are no others
    mesh: DeviceMesh


def ranks_for(
    strategy: ShardingStrategy | None, process_group: Any, device_mesh: DeviceMesh | None, policy: Any, device: str
) -> Ranks:
    """The ranks for a strategy.

    Args:
        strategy: the strategy; `FULL_SHARD` if None.
        process_group: a group, or with a hybrid strategy a pair: the ranks to divide among, and the replicas.
        device_mesh: the same as a mesh, of two dimensions with a hybrid strategy.
        policy: the policy for modules inside.
        device: the type of the device of parameters.

    Raises: ValueError for groups that do not fit.
    """
    if process_group is not None and device_mesh is not None:
        raise ValueError(
            "Cannot pass both process_group and device_mesh at the same time. Please just pass only one of them."
        )
    strategy = strategy or ShardingStrategy.FULL_SHARD
    replicas = None
    if strategy in HYBRID:
        if process_group is None and policy is None and device_mesh is None:
            raise ValueError(
                f"Manual wrapping with {strategy} requires explicit specification of process group or device_mesh."
            )
        group, replicas = _hybrid(process_group, device_mesh, device)
    elif device_mesh is not None:
        group = device_mesh.get_group(0)
    else:
        group = process_group or default_group()
    mesh = device_mesh
    if mesh is None or (mesh.ndim > 1 and strategy not in HYBRID):
        mesh = DeviceMesh(device, get_process_group_ranks(group), _groups=[group])
    if group.size() == 1:
        if strategy is not ShardingStrategy.NO_SHARD:
            warnings.warn(
                f"FSDP is switching to use `NO_SHARD` instead of {strategy} since the world size is 1.", stacklevel=3
            )
        alone = replicas if replicas is not None and replicas.size() > 1 else None
        return Ranks(ShardingStrategy.NO_SHARD, group, None, alone, mesh)
    if strategy is ShardingStrategy.NO_SHARD:
        warnings.warn(
            "The `NO_SHARD` sharding strategy is deprecated. If having issues, please use `DistributedDataParallel` "
            "instead.",
            FutureWarning,
            stacklevel=3,
        )
        return Ranks(strategy, group, None, group, mesh)
    return Ranks(strategy, group, group, replicas, mesh)


def _hybrid(process_group: Any, device_mesh: DeviceMesh | None, device: str) -> tuple[Any, Any]:
    if device_mesh is not None:
        if not isinstance(device_mesh, DeviceMesh) or device_mesh.ndim != 2:
            raise ValueError(f"Expected device_mesh to have ndim=2 but got {device_mesh.ndim}")
        return device_mesh.get_group(1), device_mesh.get_group(0)
    if process_group is None:  # divide inside of each machine
        count = torch.cuda.device_count() if device == "cuda" else 1
        shards, _ = new_subgroups(count)
        replicas = None
        for local in range(count):
            found = new_group(list(range(local, get_world_size(), count)))
            replicas = found if get_rank() % count == local else replicas
        return shards, replicas
    if not (isinstance(process_group, tuple) and len(process_group) == 2):
        raise ValueError(
            "Expected process_group to be passed in as either None or Tuple[dist.ProcessGroup, dist.ProcessGroup] but "
            f"got {type(process_group)}"
        )
    return process_group
