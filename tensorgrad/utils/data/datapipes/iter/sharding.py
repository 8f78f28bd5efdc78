"""The datapipe that yields one reader's share."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe

__all__ = ["SHARDING_PRIORITIES", "ShardingFilterIterDataPipe"]


class SHARDING_PRIORITIES(IntEnum):
    """Who shares: processes of a distributed program first, then workers of one loader; or both at once."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


class _ShardingIterDataPipe(IterDataPipe):
    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any) -> None:
        """Sets how many readers there are, and which one this is."""
        raise NotImplementedError


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(_ShardingIterDataPipe):
    """Yields every n-th sample, so that n readers share the samples (method `sharding_filter`).

    `DataLoader` says to each worker, and each process of a distributed program, which share is its own.

    Args:
        source_datapipe: The samples.
        sharding_group_filter: The only kind of readers that share, if given: a member of `SHARDING_PRIORITIES`.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> pipe = IterableWrapper(range(7)).sharding_filter()
    >>> pipe.apply_sharding(3, 1)
    >>> list(pipe)
    [1, 4]
    """

    def __init__(self, source_datapipe: IterDataPipe, sharding_group_filter: Any = None) -> None:
        self.source_datapipe, self.sharding_group_filter = source_datapipe, sharding_group_filter
        self.groups: dict[int, tuple[int, int]] = {}
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(
        self, num_of_instances: int, instance_id: int, sharding_group: Any = SHARDING_PRIORITIES.DEFAULT
    ) -> None:
        """Sets how many readers of a kind there are, and which one this is.

        Raises:
            ValueError: If `instance_id` is not less than `num_of_instances`.
            RuntimeError: If `DEFAULT` and other kinds are mixed.
        """
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        default = SHARDING_PRIORITIES.DEFAULT
        if self.groups and (sharding_group == default) != (default in self.groups):
            raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.groups[sharding_group] = num_of_instances, instance_id
        self.num_of_instances, self.instance_id = 1, 0
        for group in sorted(self.groups):
            if self.sharding_group_filter in (None, group):
                number, place = self.groups[group]
                self.num_of_instances *= number
                self.instance_id = self.instance_id * number + place

    def __iter__(self) -> Iterator[Any]:
        yield from islice(self.source_datapipe, self.instance_id, None, self.num_of_instances)

    def __len__(self) -> int:
        size = len(self.source_datapipe)
        return size // self.num_of_instances + (self.instance_id < size % self.num_of_instances)
