"""Sending what one process has to all: the same tensor, or a part for each."""

from __future__ import annotations

from typing import Any

from tensorgrad.distributed.collectives import buffers, checks
from tensorgrad.distributed.collectives.begin import begin
from tensorgrad.distributed.group import ProcessGroup, canonical_rank, or_default
from tensorgrad.distributed.work import Work

__all__ = ["broadcast", "scatter"]


def broadcast(
    tensor: Any,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Sends a tensor from one process to all others, which receive it into theirs.

    Args:
        tensor: what to send, or to receive into; the same shape and dtype everywhere.
        src: the sender's global rank.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.
        group_src: the sender's rank within the group, instead of `src`.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.broadcast(torch.ones(2), src=0)
    >>> dist.destroy_process_group()
    """
    if checks.outside(group, "broadcast"):
        return None
    chosen = or_default(group)
    root = canonical_rank(chosen, src, group_src)
    checks.tensor(tensor, "tensor")
    checks.rank_exists("broadcast", chosen, root)
    mine = chosen.rank() == root
    array = buffers.flat(tensor, chosen) if mine else buffers.target(tensor, chosen)
    return begin(
        chosen,
        "broadcast",
        lambda comm: [comm.broadcast(buffers.as_bytes(array), root)],
        lambda: None if mine else buffers.store(tensor, array),
        [tensor],
        [array],
        async_op,
        alike=lambda: [tensor, f"from rank {chosen.ranks[root]}"],
    )


def scatter(
    tensor: Any,
    scatter_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Sends every process one tensor of a list that one process has.

    Args:
        tensor: to receive into; the same shape and dtype everywhere.
        scatter_list: on the sender one tensor per process, elsewhere None.
        src: the sender's global rank; 0 by default.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.
        group_src: the sender's rank within the group, instead of `src`.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.zeros(2)
    >>> dist.scatter(x, [torch.ones(2)], src=0)
    >>> x
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    checks.tensor(tensor, "tensor")
    inputs = scatter_list or []
    if inputs:
        checks.tensors(inputs, "scatter_list")
    checks.same_dtype(tensor, inputs)
    if checks.outside(group, "scatter"):
        return None
    chosen = or_default(group)
    src = 0 if src is None and group_src is None else src
    root = canonical_rank(chosen, src, group_src)
    checks.rank_exists("scatter", chosen, root)
    mine = chosen.rank() == root
    checks.one_per_rank(
        "scatter", tensor, inputs, chosen.size(), mine, argument="scatter_list", end="source", list_of="input"
    )
    given = buffers.concatenated([buffers.flat(part, chosen) for part in inputs]) if mine else None
    received = buffers.target(tensor, chosen)
    return begin(
        chosen,
        "scatter",
        lambda comm: [
            comm.scatter(None if given is None else buffers.as_bytes(given), buffers.as_bytes(received), root)
        ],
        lambda: buffers.store(tensor, received),
        [tensor],
        [received] if given is None else [received, given],
        async_op,
        alike=lambda: [tensor, f"from rank {chosen.ranks[root]}"],
    )
