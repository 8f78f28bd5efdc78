"""Samplers: the order in which a data set is read. With the same seed, it is PyTorch's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar

import tensorgrad as torch

T_co = TypeVar("T_co", covariant=True)


def draw_seed(generator: Any = None) -> int:
    """Draws a random integer from 0 to 2⁶³ - 1."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


class Sampler(Generic[T_co]):
    """Base class of samplers: define `__iter__`, which yields sample indices (or lists of them, for batches).

    `data_source` is accepted and ignored. Define `__len__` as well if the DataLoader should have a length.

    >>> class Backwards(torch.utils.data.Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> list(torch.utils.data.DataLoader([10, 20, 30], sampler=Backwards(), batch_size=None))
    [30, 20, 10]
    """

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """Yields the indices of a data set in order: 0, 1, 2, ...

    >>> list(torch.utils.data.SequentialSampler([7, 8, 9]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Yields every index once, in random order, or draws indices independently with `replacement`.

    Args:
        data_source: the data set.
        replacement: whether to draw with replacement.
        num_samples: how many indices to draw; by default the length of the data set.
        generator: the random number generator; if `None`, a new one seeded from the default one.

    Raises:
        TypeError: If `replacement` is not a bool.
        ValueError: If `num_samples` is not a positive integer.

    >>> _ = torch.manual_seed(0)
    >>> list(torch.utils.data.RandomSampler(range(4)))
    [2, 3, 0, 1]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self.data_source, self.replacement = data_source, replacement
        self._num_samples, self.generator = num_samples, generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self) -> int:
        """How many indices are drawn; by default the current length of the data set."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = torch.Generator()
            generator.manual_seed(draw_seed())
        if self.replacement:
            for start in range(0, self.num_samples, 32):  # in chunks of the same size as PyTorch's
                size = (min(32, self.num_samples - start),)
                yield from torch.randint(high=n, size=size, dtype=torch.int64, generator=generator).tolist()
        else:
            for _ in range(self.num_samples // n):
                yield from torch.randperm(n, generator=generator).tolist()
            rest = self.num_samples % n
            # PyTorch shuffles again even if nothing is left over, which advances the caller's generator.
            yield from torch.randperm(n, generator=generator).tolist()[:rest]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Yields each of the given indices once, in random order.

    Args:
        indices: the indices.
        generator: the random number generator; the default one if `None`.

    >>> _ = torch.manual_seed(0)
    >>> list(torch.utils.data.SubsetRandomSampler([10, 20, 30]))
    [30, 10, 20]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in torch.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Draws `num_samples` indices; index i has a probability proportional to `weights[i]`.

    Args:
        weights: a 1-D sequence of non-negative weights; they need not add up to 1.
        num_samples: how many indices to draw.
        replacement: whether to draw with replacement.
        generator: the random number generator; the default one if `None`.

    Raises:
        ValueError: If `num_samples` is not a positive integer, `replacement` is not a bool, or `weights` is not
            1-D.

    >>> _ = torch.manual_seed(0)
    >>> list(torch.utils.data.WeightedRandomSampler([0.1, 0.0, 0.9], 5))
    [2, 2, 2, 2, 2]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = torch.as_tensor(weights, dtype=torch.float64)
        if self.weights.dim() != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = torch.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Yields lists of `batch_size` indices from another sampler.

    The last list may be shorter; with `drop_last` it is then left out.

    Raises:
        ValueError: If `batch_size` is not a positive integer, or `drop_last` is not a bool.

    >>> from tensorgrad.utils.data import BatchSampler, SequentialSampler
    >>> list(BatchSampler(SequentialSampler(range(5)), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler: Any = sampler
        self.batch_size, self.drop_last = batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(islice(numbers, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self) -> int:
        size = len(self.sampler)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
