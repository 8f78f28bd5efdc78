"""Collectives of Python objects, which travel pickled.

Unpickling can run code. These functions accept data only from members of the group, which are processes of the same
job: use them only among processes that trust each other. MPI's connections have no authentication; if the job has a
secret, which the launcher makes, objects travel with a proof of it, and nothing without one is unpickled.
"""

from __future__ import annotations

import pickle
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.collectives.broadcasts import broadcast, scatter
from tensorgrad.distributed.collectives.gathers import all_gather_single, gather
from tensorgrad.distributed.collectives.point_to_point import recv, send
from tensorgrad.distributed.errors import DistBackendError
from tensorgrad.distributed.group import ProcessGroup, canonical_rank, not_in_group, or_default, warn_not_in_group
from tensorgrad.distributed.stores import wire

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
]  # fmt: skip

SIZES, CONTENTS = 1_000_001, 1_000_002  # tags of messages that are objects


def _pickled(value: Any) -> Any:
    """A tensor of bytes, writable and never empty."""
    data = wire.sealed(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _unpickled(data: Any, size: int) -> Any:
    try:
        content = wire.opened(data[:size].numpy().tobytes())
    except ValueError as error:
        raise DistBackendError(f"an object was not unpickled: {error}") from None
    return pickle.loads(content)


def _sizes(data: Any, group: ProcessGroup) -> list[int]:
    """How many bytes every member has."""
    result = torch.zeros(group.size(), dtype=torch.int64, device="cpu")
    all_gather_single(result, torch.tensor([data.numel()], device="cpu"), group)
    return result.tolist()


def _padded(data: Any, size: int) -> Any:
    """The bytes, followed by zeros up to this size."""
    result = torch.zeros(size, dtype=torch.uint8, device="cpu")
    result[: data.numel()] = data
    return result


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Collects a Python object of every process in a list, on all of them.

    Objects are pickled: use it only among processes that trust each other.

    Args:
        object_list: a list with one item per process, which is filled.
        obj: what this process contributes.
        group: the group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = [None]
    >>> dist.all_gather_object(result, {"loss": 0.5})
    >>> result
    [{'loss': 0.5}]
    >>> dist.destroy_process_group()
    """
    if not_in_group(group):
        warn_not_in_group("all_gather_object")
        return
    chosen = or_default(group)
    if len(object_list) < chosen.size():
        raise ValueError(f"all_gather_object: object_list needs {chosen.size()} items, got {len(object_list)}")
    data = _pickled(obj)
    sizes = _sizes(data, chosen)
    rows = torch.empty(chosen.size(), max(sizes), dtype=torch.uint8, device="cpu")
    all_gather_single(rows, _padded(data, max(sizes)), chosen)
    for index, size in enumerate(sizes):
        object_list[index] = _unpickled(rows[index], size)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
) -> None:
    """Collects a Python object of every process in a list, on one of them.

    Objects are pickled: use it only among processes that trust each other.

    Args:
        obj: what this process contributes.
        object_gather_list: on the receiver a list with one item per process, which is filled; elsewhere None.
        dst: the receiver's global rank; 0 by default.
        group: the group; the default one if None.
        group_dst: the receiver's rank within the group, instead of `dst`.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = [None]
    >>> dist.gather_object("hello", result, dst=0)
    >>> result
    ['hello']
    >>> dist.destroy_process_group()
    """
    if not_in_group(group):
        warn_not_in_group("gather_object")
        return
    chosen = or_default(group)
    root = canonical_rank(chosen, 0 if dst is None and group_dst is None else dst, group_dst)
    mine = chosen.rank() == root
    if mine and not object_gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if not mine and object_gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    data = _pickled(obj)
    sizes = _sizes(data, chosen)
    rows = [torch.empty(max(sizes), dtype=torch.uint8, device="cpu") for _ in sizes] if mine else None
    gather(_padded(data, max(sizes)), rows, group=chosen, group_dst=root)
    if rows is not None and object_gather_list is not None:
        for index, size in enumerate(sizes):
            object_gather_list[index] = _unpickled(rows[index], size)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Sends a list of Python objects from one process to all others.

    Objects are pickled: use it only among processes that trust each other.

    Args:
        object_list: what to send; on the others a list of the same length, which is filled.
        src: the sender's global rank; 0 by default.
        group: the group; the default one if None.
        device: accepted; changes nothing.
        group_src: the sender's rank within the group, instead of `src`.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.broadcast_object_list(["a", 1], src=0)
    >>> dist.destroy_process_group()
    """
    if not_in_group(group):
        warn_not_in_group("broadcast_object_list")
        return
    chosen = or_default(group)
    root = canonical_rank(chosen, 0 if src is None and group_src is None else src, group_src)
    mine = chosen.rank() == root
    parts = [_pickled(item) for item in object_list] if mine else []
    sizes = torch.tensor([part.numel() for part in parts] or [0] * len(object_list), dtype=torch.int64, device="cpu")
    if not object_list:
        return
    broadcast(sizes, group=chosen, group_src=root)
    data = torch.cat(parts) if mine else torch.empty(int(sizes.sum()), dtype=torch.uint8, device="cpu")
    broadcast(data, group=chosen, group_src=root)
    if not mine:
        _fill(object_list, data, sizes.tolist())


def _fill(objects: list[Any], data: Any, sizes: list[int]) -> None:
    place = 0
    for index, size in enumerate(sizes):
        objects[index] = _unpickled(data[place:], size)
        place += size


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
) -> None:
    """Sends every process one object of a list that one process has.

    Objects are pickled: use it only among processes that trust each other.

    Args:
        scatter_object_output_list: a list that is not empty; its first item is set.
        scatter_object_input_list: on the sender one object per process, elsewhere ignored.
        src: the sender's global rank; 0 by default.
        group: the group; the default one if None.
        group_src: the sender's rank within the group, instead of `src`.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = [None]
    >>> dist.scatter_object_list(result, ["mine"], src=0)
    >>> result
    ['mine']
    >>> dist.destroy_process_group()
    """
    if not_in_group(group):
        warn_not_in_group("scatter_object_list")
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    chosen = or_default(group)
    root = canonical_rank(chosen, 0 if src is None and group_src is None else src, group_src)
    mine = chosen.rank() == root
    if mine and (scatter_object_input_list is None or len(scatter_object_input_list) != chosen.size()):
        given = 0 if scatter_object_input_list is None else len(scatter_object_input_list)
        raise ValueError(f"scatter_object_list: scatter_object_input_list needs {chosen.size()} items, got {given}")
    parts = [_pickled(item) for item in scatter_object_input_list or ()] if mine else []
    sizes = torch.tensor([part.numel() for part in parts] or [0] * chosen.size(), dtype=torch.int64, device="cpu")
    broadcast(sizes, group=chosen, group_src=root)
    longest = int(sizes.max())
    data = torch.empty(longest, dtype=torch.uint8, device="cpu")
    rows = [_padded(part, longest) for part in parts] if mine else None
    scatter(data, rows, group=chosen, group_src=root)
    scatter_object_output_list[0] = _unpickled(data, int(sizes[chosen.rank()]))


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Sends a list of Python objects to one process.

    Objects are pickled: use it only among processes that trust each other.

    Args:
        object_list: what to send.
        dst: the receiver's global rank.
        group: the group; the default one if None.
        device, use_batch: accepted; they change nothing.
        group_dst: the receiver's rank within the group, instead of `dst`.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> if dist.get_world_size() > 1:
    ...     dist.send_object_list(["a", 1], dst=1)
    >>> dist.destroy_process_group()
    """
    if not_in_group(group):
        warn_not_in_group("send_object_list")
        return
    chosen = or_default(group)
    rank = canonical_rank(chosen, dst, group_dst)
    parts = [_pickled(item) for item in object_list]
    sizes = torch.tensor([part.numel() for part in parts], dtype=torch.int64, device="cpu")
    send(sizes, group=chosen, tag=SIZES, group_dst=rank)
    if parts:
        send(torch.cat(parts), group=chosen, tag=CONTENTS, group_dst=rank)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receives a list of Python objects from one process.

    Objects are pickled: use it only among processes that trust each other.

    Args:
        object_list: a list of the length that was sent, which is filled.
        src: the sender's global rank; None for any.
        group: the group; the default one if None.
        device, use_batch: accepted; they change nothing.
        group_src: the sender's rank within the group, instead of `src`.

    Returns:
        The sender's global rank; -1 if this process is not in the group.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> if dist.get_world_size() > 1:
    ...     sender = dist.recv_object_list([None, None], src=1)
    >>> dist.destroy_process_group()
    """
    if not_in_group(group):
        warn_not_in_group("recv_object_list")
        return -1
    chosen = or_default(group)
    sizes = torch.zeros(len(object_list), dtype=torch.int64, device="cpu")
    sender = recv(sizes, src, chosen, SIZES, group_src)
    if object_list:
        data = torch.empty(int(sizes.sum()), dtype=torch.uint8, device="cpu")
        recv(data, sender, chosen, CONTENTS)
        _fill(object_list, data, sizes.tolist())
    return sender
