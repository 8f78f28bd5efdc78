"""Datapipes that make batches and groups, and take them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import DataChunk, IterDataPipe
from tensorgrad.utils.data.datapipes.utils.common import _check_unpickable_fn

__all__ = ["BatcherIterDataPipe", "GrouperIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe):
    """Yields batches: lists of samples (method `batch`).

    Args:
        datapipe: The samples.
        batch_size: How many are in a batch.
        drop_last: Whether to leave out the last batch if it is incomplete.
        wrapper_class: What makes a batch of a list.

    Raises:
        AssertionError: If `batch_size` is not positive.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(5)).batch(2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, datapipe: IterDataPipe, batch_size: int, drop_last: bool = False, wrapper_class: type = DataChunk
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = (
            datapipe,
            batch_size,
            drop_last,
            wrapper_class,
        )

    def __iter__(self) -> Iterator[Any]:
        batch: list = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        size = len(self.datapipe)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe):
    """Yields the samples of batches (method `unbatch`).

    Args:
        datapipe: The batches, or batches of batches.
        unbatch_level: How many levels to take apart; -1: all.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([[0, 1], [2]]).unbatch())
    [0, 1, 2]
    """

    def __init__(self, datapipe: IterDataPipe, unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        if self.unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        for batch in self.datapipe:
            yield from self._samples(batch, self.unbatch_level)

    def _samples(self, batch: Any, level: int) -> Iterator[Any]:
        is_batch = isinstance(batch, list)
        if level == 0 or (level == -1 and not is_batch):
            yield batch
        elif not is_batch:
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")
        else:
            for inner in batch:
                yield from self._samples(inner, level if level == -1 else level - 1)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe):
    """Yields groups: lists of samples for which a function returns the same (method `groupby`).

    Args:
        datapipe: The samples.
        group_key_fn: The function.
        keep_key: Whether to yield pairs of what it returned and the group.
        buffer_size: How many samples may wait; when as many wait, the largest group is yielded.
        group_size: The size at which a group is yielded; None: at the end.
        guaranteed_group_size: The smallest size of a group that is yielded because too many samples wait; by default
            `group_size`.
        drop_remaining: Whether to leave out smaller ones, rather than raise an error.

    Raises:
        AssertionError: If the sizes do not go together.
        RuntimeError: While reading, if the largest group is too small.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(["a.txt", "b.csv", "c.txt"]).groupby(lambda name: name[-3:]))
    [['a.txt', 'c.txt'], ['b.csv']]
    """

    def __init__(
        self,
        datapipe: IterDataPipe,
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        _check_unpickable_fn(group_key_fn)
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError("group_size must be > 0 and <= buffer_size")
        if guaranteed_group_size is not None and (group_size is None or not 0 < guaranteed_group_size <= group_size):
            raise AssertionError("guaranteed_group_size must be > 0 and <= group_size and group_size must be set")
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.max_buffer_size, self.group_size, self.drop_remaining = buffer_size, group_size, drop_remaining
        self.guaranteed_group_size = group_size if guaranteed_group_size is None else guaranteed_group_size
        self.wrapper_class = DataChunk

    def _group(self, key: Any, samples: list) -> Any:
        group = self.wrapper_class(samples)
        return (key, group) if self.keep_key else group

    def __iter__(self) -> Iterator[Any]:
        groups: dict[Any, list] = {}
        waiting = 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            groups.setdefault(key, []).append(sample)
            waiting += 1
            if len(groups[key]) == self.group_size:
                waiting -= self.group_size
                yield self._group(key, groups.pop(key))
            if waiting == self.max_buffer_size:
                largest = max(groups, key=lambda key: len(groups[key]))
                samples = groups.pop(largest)
                waiting -= len(samples)
                if self.guaranteed_group_size is None or len(samples) >= self.guaranteed_group_size:
                    yield self._group(largest, samples)
                elif not self.drop_remaining:
                    raise RuntimeError("Failed to group items", str(samples))
        for key in tuple(groups):
            yield self._group(key, groups.pop(key))
