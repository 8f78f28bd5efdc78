"""What `state_dict` of a `FullyShardedDataParallel` returns: the three forms of `StateDictType`.

The names are those of the model without wrappers. Parameters are whole tensors, or `DTensor`s whose pieces are rows.
"""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.fsdp.api import StateDictConfig, StateDictType
from tensorgrad.distributed.fsdp.flat_group import FLAT_PARAM, FlatGroup
from tensorgrad.distributed.tensor._utils import compute_local_shape_and_global_offset
from tensorgrad.distributed.tensor.dtensor import DTensor, as_dtensor
from tensorgrad.distributed.tensor.placement_types import Replicate, Shard

__all__ = ["PREFIX", "WRAPPED", "clean", "in_rows", "local_part", "on_cpu", "reform", "renamed", "whole_of"]

WRAPPED = "_fsdp_wrapped_module"
PREFIX = WRAPPED + "."


def clean(tensor_name: str) -> str:
    """A name without the parts that wrappers add.

    >>> from tensorgrad.distributed.fsdp.model_states import clean
    >>> clean("_fsdp_wrapped_module.0._checkpoint_wrapped_module.weight")
    '0.weight'
    """
    return tensor_name.replace(PREFIX, "").replace("_checkpoint_wrapped_module.", "")


def renamed(state: dict[str, Any], before: str, after: str) -> None:
    """Replaces a prefix of the names in a state dictionary, which keeps its order."""
    items = list(state.items())
    state.clear()
    state.update((after + name[len(before) :] if name.startswith(before) else name, value) for name, value in items)


def in_rows(tensor: Any, mesh: DeviceMesh) -> Any:
    """A whole tensor as a `DTensor` of which each rank has some rows; a number without dimensions as it is."""
    if not tensor.dim():
        return tensor
    placements = (*[Replicate()] * (mesh.ndim - 1), Shard(0))
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    piece = tensor.detach()[tuple(slice(start, start + n) for start, n in zip(offsets, sizes))].clone()
    return DTensor.from_local(
        piece, mesh, placements, run_check=False, shape=torch.Size(tensor.shape), stride=tensor.stride()
    )


def whole_of(value: Any) -> Any:
    """The whole of a `DTensor`, for which all ranks must ask; other values as they are."""
    if not isinstance(value, DTensor):
        return value
    return as_dtensor(value._local_tensor.to(value.device_mesh.device_type), value._spec).full_tensor()


def on_cpu(tensor: Any) -> Any:
    """The tensor, or its copy in main memory if it is elsewhere; that of a `DTensor` has the same ranks."""
    if isinstance(tensor, DTensor):
        local = tensor._local_tensor
        return tensor if local.device.type == "cpu" else as_dtensor(local.cpu(), tensor._spec)
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


def local_part(group: FlatGroup, mesh: DeviceMesh) -> Any:
    """The vector of all parameters, as a `DTensor` in the same memory."""
    kept = max(min(group.total - group.rank * group.part, group.part), 0)
    placements = (*[Replicate()] * (mesh.ndim - 1), Shard(0))
    return DTensor.from_local(
        group.flat.detach()[:kept], mesh, placements, run_check=False, shape=torch.Size([group.total]), stride=(1,)
    )


def reform(
    state: dict[str, Any],
    prefix: str,
    group: FlatGroup,
    mesh: DeviceMesh,
    form: StateDictType,
    config: StateDictConfig,
    returned: bool,
) -> None:
    """Gives what a state dictionary has of one unit its form, in place.

    Args:
        state: the dictionary, with clean names and with whole parameters, or with the vector if that is the form.
        prefix: of the unit's names.
        group: the unit's parameters.
        mesh: the ranks that have pieces.
        form: the form.
        config: where tensors are put.
        returned: whether this rank has the state at all.
    """
    if form is StateDictType.LOCAL_STATE_DICT:
        if group.parameters:
            part = local_part(group, mesh)
            state[prefix + FLAT_PARAM] = on_cpu(part) if config.offload_to_cpu else part
        return
    for p in group.parameters:
        key = prefix + p.name
        if not returned:
            state.pop(key, None)
        elif key in state:
            tensor = state[key].detach()
            tensor = in_rows(tensor, mesh) if form is StateDictType.SHARDED_STATE_DICT else tensor.clone()
            state[key] = on_cpu(tensor) if config.offload_to_cpu else tensor
