"""The datapipe that changes the order of samples."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from tensorgrad.utils.data.sampler import draw_seed

__all__ = ["ShufflerIterDataPipe"]


class ShufflerIterDataPipe(IterDataPipe):
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
        self._enabled, self._rng = True, random.Random()
        self._seed: int | None = None
        self._shuffled_indices: list = self.indices

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Switches shuffling on or off."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Sets the seed for the next time that it is read; later ones are drawn from torch's generator."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Draws the next order."""
        self._shuffled_indices = self.indices
        if self._enabled:
            self._rng.seed(draw_seed() if self._seed is None else self._seed)
            self._seed = None
            self._shuffled_indices = self._rng.sample(self.indices, len(self.indices))[
                ::-1
            ]  # PyTorch reads it from its end

    def __iter__(self) -> Iterator[Any]:
        for index in self._shuffled_indices:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
