"""Datapipes that change the order of samples."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes._shuffling import Shuffles
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe
from tensorgrad.utils.data.sampler import Sampler, SequentialSampler

__all__ = ["SamplerIterDataPipe", "ShufflerIterDataPipe"]


class SamplerIterDataPipe(IterDataPipe):
    """Yields what a sampler yields for a datapipe.

    Args:
        datapipe: The datapipe, which has a length.
        sampler: The class of the sampler.
        sampler_args, sampler_kwargs: Its further arguments.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper, Sampler
    >>> list(Sampler(IterableWrapper("abc")))
    [0, 1, 2]
    """

    def __init__(
        self,
        datapipe: IterDataPipe,
        sampler: type[Sampler] = SequentialSampler,
        sampler_args: tuple | None = None,
        sampler_kwargs: dict | None = None,
    ) -> None:
        if not isinstance(datapipe, Sized):
            raise AssertionError("Sampler class requires input datapipe implemented `__len__`")
        self.datapipe = datapipe
        self.sampler_args, self.sampler_kwargs = sampler_args or (), sampler_kwargs or {}
        build: Any = sampler
        self.sampler = build(*self.sampler_args, data_source=datapipe, **self.sampler_kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(Shuffles, IterDataPipe):
    """Yields samples in random order: each is drawn from the next `buffer_size` ones (method `shuffle`).

    Args:
        datapipe: The samples.
        buffer_size: From how many samples to draw.
        unbatch_level: How many levels of batches to take apart before.

    Raises:
        AssertionError: If `buffer_size` is not positive.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(6)).shuffle().set_seed(0))
    [3, 4, 0, 2, 5, 1]
    """

    def __init__(self, datapipe: IterDataPipe, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
        self.datapipe = datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level=unbatch_level)
        self.buffer_size = buffer_size
        self._buffer: list = []
        self._rng = random.Random()

    def reset(self) -> None:
        """Takes the next seed."""
        self._buffer = []
        self._begin_order()

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        for sample in self.datapipe:
            if len(self._buffer) < self.buffer_size:
                self._buffer.append(sample)
                continue
            i = self._rng.randint(0, len(self._buffer) - 1)
            sample, self._buffer[i] = self._buffer[i], sample
            yield sample
        while self._buffer:
            yield self._buffer.pop(self._rng.randint(0, len(self._buffer) - 1))

    def __len__(self) -> int:
        return len(self.datapipe)
