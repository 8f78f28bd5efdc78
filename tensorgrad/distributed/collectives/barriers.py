"""Waiting for all processes."""

from __future__ import annotations

from typing import Any

from tensorgrad.distributed.collectives import checks
from tensorgrad.distributed.collectives.begin import begin
from tensorgrad.distributed.group import ProcessGroup, or_default
from tensorgrad.distributed.work import NO_TIMEOUT, Work

__all__ = ["barrier"]


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None
) -> Work | None:
    """Waits until all processes of a group have called it.

    Args:
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.
        device_ids: accepted; changes nothing.
        timeout: a timedelta; by default the group's.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.barrier()
    >>> dist.destroy_process_group()
    """
    if checks.outside(group, "barrier"):
        return None
    chosen = or_default(group)
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    limit = NO_TIMEOUT if timeout is None else timeout
    return begin(chosen, "barrier", lambda comm: [comm.barrier()], lambda: None, [], [], async_op, limit, list)
