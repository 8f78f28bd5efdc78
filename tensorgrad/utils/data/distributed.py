"""The sampler for distributed training, where each process reads its share of a data set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tensorgrad as torch
from tensorgrad import distributed
from tensorgrad.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Yields every `num_replicas`-th index, starting at `rank`, of an order that all processes share.

    All shares have the same length: some samples are repeated or, with `drop_last`, some are left out.

    Args:
        dataset: any object with a length.
        num_replicas: the number of processes; by default taken from `torch.distributed`.
        rank: the number of this process; by default taken from `torch.distributed`.
        shuffle: whether the order is random, and changes with each `set_epoch`.
        seed: the seed of the order; must be the same in all processes.
        drop_last: whether to leave samples out rather than repeat some.

    Raises:
        ValueError: If `rank` is not between 0 and `num_replicas - 1`.
        RuntimeError: If `num_replicas` or `rank` is not given and there is no process group.

    >>> from tensorgrad.utils.data.distributed import DistributedSampler
    >>> [list(DistributedSampler(range(5), num_replicas=2, rank=rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if (num_replicas is None or rank is None) and not distributed.is_available():
            raise RuntimeError(
                "Requires distributed package to be available; without it DistributedSampler needs num_replicas and "
                "rank"
            )
        num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
        rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.shuffle, self.seed, self.drop_last = 0, shuffle, seed, drop_last
        size = len(dataset)
        self.num_samples = size // num_replicas if drop_last else math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(size, generator=generator).tolist()
        else:
            order = list(range(size))
        # Past the end, the order starts over.
        return iter([order[i % size] for i in range(self.rank, self.total_size, self.num_replicas)])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch. Call this before each epoch, or every epoch has the same order."""
        self.epoch = epoch
