"""Helpers for distributed modules: parameters that are checked and broadcast, containers of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.collectives.reductions import start_copies
from tensorgrad.distributed.group import ProcessGroup

__all__: list[str] = []


def _apply_to_tensors(fn: Callable[[Any], Any], container: Any) -> Any:
    """Applies a function to every tensor in nested lists, tuples, dicts and sets."""
    if isinstance(container, torch.Tensor):
        return fn(container)
    if isinstance(container, dict):
        return type(container)((key, _apply_to_tensors(fn, value)) for key, value in container.items())
    if isinstance(container, tuple) and hasattr(container, "_fields"):
        return type(container)(*(_apply_to_tensors(fn, item) for item in container))
    if isinstance(container, (list, tuple, set)):
        return type(container)(_apply_to_tensors(fn, item) for item in container)
    return container


def _verify_param_shape_across_processes(
    process_group: ProcessGroup, tensors: Iterable[Any], logger: Any = None
) -> None:
    """Raises: RuntimeError if the parameters' shapes are not the same on all ranks."""
    own = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors]
    everywhere: list[Any] = [None] * process_group.size()
    collectives.all_gather_object(everywhere, own, process_group)
    rank = process_group.rank()
    for other, theirs in enumerate(everywhere):
        if len(theirs) != len(own):
            raise RuntimeError(
                f"DDP expects same model across all ranks, but Rank {rank} has {len(own)} params, while rank {other} "
                f"has inconsistent {len(theirs)} params."
            )
        for index, (mine, its) in enumerate(zip(own, theirs)):
            if mine != its:
                raise RuntimeError(
                    f"params[{index}] in this process with sizes {list(mine[0])} ({mine[1]}) appears not to match "
                    f"sizes {list(its[0])} ({its[1]}) of the same param in process {other}."
                )


def _sync_params_and_buffers(
    process_group: ProcessGroup, module_states: list[Any], broadcast_bucket_size: int, src: int
) -> None:
    """Broadcasts tensors from one rank of the group; the others' are overwritten.

    Those in main memory travel together, as bytes, up to `broadcast_bucket_size` of them in one message.
    """
    together = [tensor for tensor in module_states if tensor._array.__class__ is np.ndarray]
    apart = [tensor for tensor in module_states if tensor._array.__class__ is not np.ndarray]
    works = [collectives.broadcast(tensor, group=process_group, async_op=True, group_src=src) for tensor in apart]
    first = 0
    while first < len(together):
        size, last = 0, first
        while last < len(together) and (last == first or size + _room(together[last]) <= broadcast_bucket_size):
            size, last = size + _room(together[last]), last + 1
        _broadcast_together(process_group, together[first:last], size, src)
        first = last
    for work in works:
        if work is not None:
            work.wait()


def _room(tensor: Any) -> int:
    """The bytes that a tensor takes in a message: a multiple of 16, so that each begins at an aligned address."""
    return -(-tensor._array.nbytes // 16) * 16


def _broadcast_together(group: ProcessGroup, tensors: list[Any], size: int, source: int) -> None:
    message, place = np.empty(size, np.uint8), 0
    parts = []
    for tensor in tensors:
        array = tensor._array
        parts.append(message[place : place + array.nbytes].view(array.dtype).reshape(array.shape))
        place += _room(tensor)
    sends = group.rank() == source
    if sends:
        for tensor, part in zip(tensors, parts):
            part[...] = tensor._array
    collectives.broadcast(torch.from_numpy(message), group=group, group_src=source)
    if not sends:
        for tensor, part in zip(tensors, parts):
            tensor._array[...] = part
            tensor._storage.bump()


def _copy_in_shared_memory(group: ProcessGroup, tensors: list[Any], source: int, kept: dict[int, Any]) -> None:
    """What `_sync_params_and_buffers` does, for tensors in main memory and a group for which `sums_in_place`.

    `kept` belongs to the caller, and has the arrays' bytes from one call to the next.
    """
    flat, apart = [], []
    for place, tensor in enumerate(tensors):
        array = tensor._array
        before, values = kept.get(place, (None, None))
        if before is not array:
            if array.flags.carray:
                values = array.reshape(-1).view(np.uint8)
                kept[place] = array, values
            else:
                values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                apart.append((array, values))
        flat.append(values)
    start_copies(flat, source, group)
    if group.rank() != source:
        for array, values in apart:
            array[...] = values.view(array.dtype).reshape(array.shape)
        for tensor in tensors:
            tensor._storage.bump()


def _sync_module_states(
    module: Any,
    process_group: ProcessGroup,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Iterable[str] = (),
    broadcast_buffers: bool = True,
) -> None:
    """Broadcasts a module's parameters and, if wanted, its buffers from one rank of the group."""
    ignored = set(params_and_buffers_to_ignore)
    states = [tensor.detach() for name, tensor in module.named_parameters() if name not in ignored]
    if broadcast_buffers:
        states += [tensor.detach() for name, tensor in module.named_buffers() if name not in ignored]
    _sync_params_and_buffers(process_group, states, broadcast_bucket_size, src)
