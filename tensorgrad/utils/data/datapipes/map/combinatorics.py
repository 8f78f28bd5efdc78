"""The datapipe that changes the order of samples."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tensorgrad.utils.data.datapipes._shuffling import Shuffles
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["ShufflerIterDataPipe"]


class ShufflerIterDataPipe(Shuffles, IterDataPipe):
    """Yields the samples of a datapipe with indices in random order (method `shuffle`).

    Args:
        datapipe: The samples.
        indices: Their indices or keys; by default from 0 to its length.

    >>> from tensorgrad.utils.data.datapipes.map import SequenceWrapper
    >>> list(SequenceWrapper("abcd").shuffle().set_seed(0))
    ['c', 'a', 'b', 'd']
    """

    def __init__(self, datapipe: Any, *, indices: list | None = None) -> None:
        self.datapipe = datapipe
        self.indices: Any = list(range(len(datapipe))) if indices is None else indices
        self._rng = random.Random()
        self._shuffled_indices: list = self.indices

    def reset(self) -> None:
        """Draws the next order."""
        self._shuffled_indices = self.indices
        self._begin_order()
        if self._enabled:  # PyTorch reads them from their end
            self._shuffled_indices = self._rng.sample(self.indices, len(self.indices))[::-1]

    def __iter__(self) -> Iterator[Any]:
        for index in self._shuffled_indices:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
