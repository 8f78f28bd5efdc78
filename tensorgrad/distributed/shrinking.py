"""`shrink_group`: a group goes on without some of its members."""

from __future__ import annotations

import logging
from typing import Any

from tensorgrad.distributed.group import GroupMember, ProcessGroup
from tensorgrad.distributed.mpi.communicator import MPICommunicator
from tensorgrad.distributed.process_group import _GROUPS, _make, _registered, destroy_process_group
from tensorgrad.distributed.single import SingleCommunicator

__all__ = ["SHRINK_ABORT", "SHRINK_DEFAULT", "shrink_group"]

SHRINK_DEFAULT, SHRINK_ABORT = 0x00, 0x01
_LOGGER = logging.getLogger(__name__)


def shrink_group(
    ranks_to_exclude: list[int],
    group: ProcessGroup | None = None,
    shrink_flags: int = SHRINK_DEFAULT,
    pg_options: Any = None,
) -> ProcessGroup:
    """Makes a smaller group of the members that stay, in place of a group. Only they call it.

    If the default group is shrunk, all other groups are destroyed, the new group is the default one, and ranks are
    counted anew. After the process of a member has ended, an operation raises an error; then the others may go on by
    `SHRINK_ABORT`, unless it was the process that has the store. In PyTorch, groups of the backend "nccl" alone can be
    shrunk.

    Args:
        ranks_to_exclude: the ranks within the group of those that leave it.
        group: the group; the default one if None.
        shrink_flags: `SHRINK_DEFAULT`, or `SHRINK_ABORT` after an operation of the group has failed.
        pg_options: accepted; it changes nothing.

    Returns:
        The new group.

    Raises:
        TypeError: the ranks are not a list of integers.
        ValueError: there are no such ranks, or none would stay.
        RuntimeError: this process is to leave the group.
        DistBackendError: an operation of the group has failed, and `SHRINK_ABORT` was not given.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.shrink_group([0])
    Traceback (most recent call last):
        ...
    ValueError: Cannot shrink a process group with size 1. Group must have at least 2 ranks to support shrinking.
    >>> dist.destroy_process_group()
    """
    _check_arguments(ranks_to_exclude, shrink_flags)
    chosen = _registered(group)
    if chosen.size() <= 1:
        raise ValueError(
            f"Cannot shrink a process group with size {chosen.size()}. Group must have at least 2 ranks to support "
            "shrinking."
        )
    _check_ranks(ranks_to_exclude, chosen)
    if shrink_flags != SHRINK_ABORT:
        chosen.check_usable()
    stay = [rank for rank in range(chosen.size()) if rank not in ranks_to_exclude]
    is_default = chosen is GroupMember.WORLD
    others = [name for name, other in _GROUPS.by_name.items() if other is not chosen]
    if is_default and others:
        _LOGGER.warning("Shrinking the default group destroys %d other groups: %s", len(others), ", ".join(others))
    assert isinstance(chosen.communicator, MPICommunicator)
    places = [chosen.communicator.ranks[rank] for rank in stay]
    name = _GROUPS.name_in_common(f"{places} left of {chosen.group_name}")
    destroy_process_group(chosen)
    smaller = _make(
        name,
        SingleCommunicator() if len(stay) == 1 else None,
        chosen.communicator.world,
        list(range(len(stay))) if is_default else [chosen.ranks[rank] for rank in stay],
        chosen.store,
        chosen.backend,
        chosen.timeout,
        "default:shrunken" if is_default else f"{chosen.group_name}:shrunk",
        places,
    )
    if is_default:
        GroupMember.WORLD = smaller
    return smaller


def _check_arguments(ranks_to_exclude: Any, shrink_flags: Any) -> None:
    if not isinstance(ranks_to_exclude, list):
        raise TypeError(
            f"ranks_to_exclude must be a list, but got {type(ranks_to_exclude).__name__}. Example: [1, 3, 5] to "
            "exclude ranks 1, 3, and 5."
        )
    if not ranks_to_exclude:
        raise ValueError(
            "ranks_to_exclude cannot be empty. To shrink a group, you must specify at least one rank to exclude. "
            "Example: [failed_rank_id]"
        )
    if not isinstance(shrink_flags, int) or shrink_flags not in (SHRINK_DEFAULT, SHRINK_ABORT):
        raise ValueError(
            f"Invalid shrink_flags value: {shrink_flags}. Must be one of: SHRINK_DEFAULT ({SHRINK_DEFAULT}) or "
            f"SHRINK_ABORT ({SHRINK_ABORT}). Use SHRINK_ABORT to abort ongoing operations before shrinking."
        )


def _check_ranks(ranks_to_exclude: list[Any], group: ProcessGroup) -> None:
    size, seen = group.size(), set()
    for place, rank in enumerate(ranks_to_exclude):
        if not isinstance(rank, int):
            raise TypeError(
                f"All elements in ranks_to_exclude must be integers. Element at index {place} is "
                f"{type(rank).__name__}: {rank}"
            )
        if not 0 <= rank < size:
            raise ValueError(
                f"Rank {rank} at index {place} is out of bounds for group size {size}. Valid ranks are in range "
                f"[0, {size - 1}]."
            )
        if rank in seen:
            raise ValueError(
                f"Duplicate rank {rank} found in ranks_to_exclude at index {place}. Each rank can only be excluded "
                "once."
            )
        seen.add(rank)
    if len(seen) == size:
        raise ValueError(
            f"Cannot exclude all {size} ranks from process group. At least one rank must remain. Excluding "
            f"{len(seen)} ranks."
        )
    if group.rank() in seen:
        raise RuntimeError(
            f"Current rank {group.rank()} is in the exclusion list and should not call shrink_group(). Only "
            "non-excluded ranks should participate in the shrinking operation. Excluded ranks should terminate their "
            "processes instead."
        )
