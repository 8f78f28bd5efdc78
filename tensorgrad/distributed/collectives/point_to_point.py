"""Messages from one process to another: send, receive, and batches of both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tensorgrad.distributed.collectives import buffers, checks
from tensorgrad.distributed.collectives.begin import begin
from tensorgrad.distributed.group import (
    ProcessGroup,
    canonical_rank,
    get_global_rank,
    not_in_group,
    or_default,
    warn_not_in_group,
)
from tensorgrad.distributed.work import Work

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def _not_self(group: ProcessGroup, rank: int, kind: str) -> None:
    if group.rank() == rank:
        raise ValueError(f"Invalid {kind} rank: {kind} rank should not be the same as the rank of the current process.")
    checks.rank_exists("send" if kind == "destination" else "recv", group, rank)


def _send(name: str, tensor: Any, dst: Any, group: Any, tag: int, group_dst: Any, async_op: bool) -> Work | None:
    chosen = or_default(group)
    rank = canonical_rank(chosen, dst, group_dst)
    checks.tensor(tensor, "tensor")
    _not_self(chosen, rank, "destination")
    if not_in_group(group):
        warn_not_in_group(name)
        return None
    array = buffers.flat(tensor, chosen)
    return begin(
        chosen,
        f"send to rank {chosen.ranks[rank]}",
        lambda comm: [comm.send(buffers.as_bytes(array), rank, tag)],
        lambda: None,
        [tensor],
        [array],
        async_op,
    )


def _receive(name: str, tensor: Any, src: Any, group: Any, tag: int, group_src: Any) -> Work | None:
    checks.tensor(tensor, "tensor")
    if not_in_group(group):
        warn_not_in_group(name)
        return None
    chosen = or_default(group)
    rank = None if src is None and group_src is None else canonical_rank(chosen, src, group_src)
    if rank is not None:
        _not_self(chosen, rank, "source")
    array = buffers.target(tensor, chosen)
    return begin(
        chosen,
        "recv from any rank" if rank is None else f"recv from rank {chosen.ranks[rank]}",
        lambda comm: [comm.receive(buffers.as_bytes(array), rank, tag)],
        lambda: buffers.store(tensor, array),
        [tensor],
        [array],
        True,
    )


def isend(
    tensor: Any,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begins to send a tensor to one process. Do not change the tensor before `wait()` of the result has returned.

    Args:
        tensor: what to send.
        dst: the receiver's global rank.
        group: the group; the default one if None.
        tag: a number that the receiver gives as well.
        group_dst: the receiver's rank within the group, instead of `dst`.

    Returns:
        A `Work`; None if this process is not in the group.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> if dist.get_world_size() > 1:
    ...     dist.isend(torch.ones(2), dst=1).wait()
    >>> dist.destroy_process_group()
    """
    return _send("isend", tensor, dst, group, tag, group_dst, True)


def irecv(
    tensor: Any,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begins to receive a tensor from one process.

    Args:
        tensor: to receive into; as many bytes as the sender sends.
        src: the sender's global rank; None for any.
        group: the group; the default one if None.
        tag: the number that the sender gave.
        group_src: the sender's rank within the group, instead of `src`.

    Returns:
        A `Work`; None if this process is not in the group.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> if dist.get_world_size() > 1:
    ...     dist.irecv(torch.empty(2), src=1).wait()
    >>> dist.destroy_process_group()
    """
    return _receive("irecv", tensor, src, group, tag, group_src)


def send(
    tensor: Any,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Sends a tensor to one process; see `isend`.

    Raises:
        ValueError: the receiver is this process.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> if dist.get_world_size() > 1:
    ...     dist.send(torch.ones(2), dst=1)
    >>> dist.destroy_process_group()
    """
    _send("send", tensor, dst, group, tag, group_dst, False)


def recv(
    tensor: Any,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receives a tensor from one process; see `irecv`.

    Returns:
        The sender's global rank; -1 if this process is not in the group.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> if dist.get_world_size() > 1:
    ...     sender = dist.recv(torch.empty(2), src=1)
    >>> dist.destroy_process_group()
    """
    work = _receive("recv", tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One transfer of a batch; see `batch_isend_irecv`.

    Args:
        op: `isend` or `irecv`.
        tensor: what to send, or to receive into.
        peer: the other's global rank.
        group: the group; the default one if None.
        tag: a number that both sides give.
        group_peer: the other's rank within the group, instead of `peer`.

    Raises:
        ValueError: the op is neither of the two.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.P2POp(dist.isend, torch.ones(2), 0).peer
    0
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Any,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        checks.tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = or_default(group)
        self.group_peer = canonical_rank(self.group, peer, group_peer)
        self.peer = get_global_rank(self.group, self.group_peer)

    def __repr__(self) -> str:
        own = self.group.rank()
        source, target = (own, self.group_peer) if self.op is isend else (self.group_peer, own)
        return (
            f"P2POp({self.op.__name__} pg={self.group.group_name}, group_src={source}, group_dst={target},  "
            f"{self.tensor.shape}, {self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begins several transfers, and returns their `Work`\\ s.

    Raises:
        ValueError: the list holds something else, or its items are of different groups.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> ring = [dist.P2POp(dist.isend, torch.ones(2), 1)] if dist.get_world_size() > 1 else []
    >>> works = dist.batch_isend_irecv(ring) if ring else []
    >>> dist.destroy_process_group()
    """
    if not isinstance(p2p_op_list, list) or not all(isinstance(item, P2POp) for item in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if any(item.group is not p2p_op_list[0].group for item in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    works = []
    with p2p_op_list[0].group.together() if p2p_op_list else nullcontext():
        for item in p2p_op_list:
            peer = "group_dst" if item.op is isend else "group_src"
            works.append(item.op(item.tensor, group=item.group, tag=item.tag, **{peer: item.group_peer}))
    return [work for work in works if work is not None]
