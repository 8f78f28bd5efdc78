"""Whole tensors from the shards of DTensors, and shards from whole tensors; also those that only rank 0 has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.distributed.checkpoint.local_pieces import is_sharded
from tensorgrad.distributed.collectives.broadcasts import broadcast
from tensorgrad.distributed.collectives.objects import broadcast_object_list
from tensorgrad.distributed.process_group import get_rank
from tensorgrad.distributed.tensor import DTensor
from tensorgrad.distributed.tensor._utils import compute_local_shape_and_global_offset

__all__ = ["broadcast_whole", "each_tensor", "on_cpu", "shard_like", "whole"]


def each_tensor(function: Callable[[Any], Any], value: Any) -> Any:
    """The same nested dicts and lists, with a function applied to all tensors."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: each_tensor(function, item) for key, item in value.items()}
    return type(value)(each_tensor(function, item) for item in value) if type(value) in (list, tuple) else value


def on_cpu(tensor: Any) -> Any:
    """The tensor, or its copy in main memory if it is elsewhere."""
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


def whole(tensor: Any) -> Any:
    """The whole of a DTensor, which all ranks of its mesh must ask for; other tensors as they are."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def shard_like(value: Any, target: Any) -> Any:
    """A whole tensor placed as a DTensor; if the target is none, or the value is one, the value as it is.

    Raises: ValueError if the sizes differ.
    """
    if not is_sharded(target) or is_sharded(value) or not isinstance(value, torch.Tensor):
        return value
    if tuple(value.shape) != tuple(target.shape):
        raise ValueError(f"a tensor of size {tuple(target.shape)} is expected, got one of size {tuple(value.shape)}")
    mesh, placements = target.device_mesh, target.placements
    sizes, offsets = compute_local_shape_and_global_offset(value.shape, mesh, placements)
    piece = value.detach()[tuple(slice(start, start + n) for start, n in zip(offsets, sizes))]
    piece = piece.to(mesh.device_type if target.is_meta else target.device, copy=True)
    return DTensor.from_local(
        piece, mesh, placements, run_check=False, shape=torch.Size(target.shape), stride=target.stride()
    )


class _Sent(NamedTuple):
    """In place of a tensor that rank 0 sends."""

    shape: tuple[int, ...]
    dtype: Any


def broadcast_whole(value: Any, keep: Callable[[tuple[Any, ...], Any], Any]) -> Any:
    """What rank 0 has: nested dicts and lists with whole tensors. They are sent one by one.

    Args:
        value: rank 0's value; that of other ranks is not used.
        keep: from the path of keys and the whole tensor, what to keep of it, such as a shard.

    Raises: ValueError in all ranks if rank 0 has a DTensor.
    """
    first = get_rank() == 0
    tensors: list[Any] = []

    def described(tensor: Any) -> _Sent:
        if is_sharded(tensor):
            raise ValueError(
                "broadcast_from_rank0: rank 0 must have whole tensors, but one of its tensors is a DTensor"
            )
        tensors.append(tensor.detach())
        return _Sent(tuple(tensor.shape), tensor.dtype)

    answer: list[Any] = [None]
    try:
        answer = [each_tensor(described, value) if first else None]
    except ValueError as error:
        answer = [error]
    broadcast_object_list(answer, 0)
    if isinstance(answer[0], ValueError):
        raise answer[0]
    queue = iter(tensors)

    def received(path: tuple[Any, ...], item: Any) -> Any:
        if isinstance(item, _Sent):
            tensor = (
                on_cpu(next(queue)).contiguous() if first else torch.empty(item.shape, dtype=item.dtype, device="cpu")
            )
            broadcast(tensor, 0)
            return keep(path, tensor)
        if isinstance(item, dict):
            return {key: received((*path, key), part) for key, part in item.items()}
        if type(item) in (list, tuple):
            return type(item)(received((*path, i), part) for i, part in enumerate(item))
        return item

    return received((), answer[0])
