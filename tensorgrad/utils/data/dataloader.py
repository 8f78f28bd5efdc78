"""The loader: batches of a data set, in an order that is PyTorch's from the same seed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import Any, Generic, TypeVar

from tensorgrad.utils.data.collate import default_collate, default_convert
from tensorgrad.utils.data.dataset import IterableDataset, Subset, TensorDataset
from tensorgrad.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed

T_co = TypeVar("T_co", covariant=True)

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


def get_worker_info() -> None:
    """What a worker process knows of itself; ``None`` in the main process, where all loading happens."""
    return None


class DataLoader(Generic[T_co]):
    """Iterates over a data set in batches.

    Args:
        dataset: a :class:`Dataset`, anything with ``__getitem__`` and ``__len__``, or an :class:`IterableDataset`.
        batch_size: samples per batch; ``None`` gives the samples themselves.
        shuffle: read in a new random order each time.
        sampler: numbers of the samples, in the order to read them.
        batch_sampler: lists of numbers, one for each batch; instead of the four settings above and ``drop_last``.
        collate_fn: makes a batch of a list of samples; by default :func:`default_collate`.
        drop_last: leave out a last batch that is not full.
        generator: where random numbers come from; the default one if ``None``.
        num_workers: must be 0: loading happens in the main process.
        pin_memory, timeout, worker_init_fn, prefetch_factor, persistent_workers, in_order: accepted; they concern
            workers and CUDA.

    Raises:
        ValueError: settings that exclude each other; the text names them.
        NotImplementedError: ``num_workers`` greater than 0.

    Example::

        >>> import tensorgrad as torch
        >>> from tensorgrad.utils.data import DataLoader, TensorDataset
        >>> for x, y in DataLoader(TensorDataset(torch.zeros(5, 2), torch.arange(5)), batch_size=3):
        ...     print(x.shape, y)
        torch.Size([3, 2]) tensor([0, 1, 2])
        torch.Size([2, 2]) tensor([3, 4])
    """

    _initialized = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context)
        iterable = isinstance(dataset, IterableDataset)
        _check_choices(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size = None
        if sampler is None:
            if iterable:
                sampler = repeat(None)
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.prefetch_factor, self.timeout = num_workers, prefetch_factor, timeout
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.multiprocessing_context = worker_init_fn, multiprocessing_context
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self._iterable = iterable
        self._expected: int | None = None  # what len() promised, for an iterable data set
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Any]:
        return _Batches(self)

    def __len__(self) -> int:
        if not self._iterable:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        size = self._expected = len(self.dataset)
        if self.batch_size is None:
            return size
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


class _Batches(Iterator[Any]):
    """One pass over a loader."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._yielded = 0
        # PyTorch draws a seed for its workers here, even if there are none; whoever draws next must see that.
        draw_seed(loader.generator)
        if loader._iterable:
            self._batches = _in_sequence(loader)
        else:
            numbers = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
            self._batches = map(_fetcher(loader), iter(numbers))

    def __next__(self) -> Any:
        batch = next(self._batches)
        self._yielded += 1
        expected = self._loader._expected
        if expected is not None and self._yielded > expected:
            warnings.warn(
                f"Length of IterableDataset {self._loader.dataset} was reported to be {expected}(when accessing "
                f"len(dataloader)), but {self._yielded} samples have been fetched. ",
                stacklevel=2,
            )
        return batch

    def __len__(self) -> int:
        return len(self._loader)


def _fetcher(loader: DataLoader) -> Callable[[Any], Any]:
    """The function from a sample's number, or a list of them, to what the loader gives."""
    dataset, collate_fn = loader.dataset, loader.collate_fn
    if loader.batch_sampler is None:
        return lambda number: collate_fn(dataset[number])
    rows = _rows(dataset) if collate_fn is default_collate else None
    if rows is not None:
        return rows
    several = getattr(dataset, "__getitems__", None)
    if several:
        return lambda numbers: collate_fn(several(numbers))
    return lambda numbers: collate_fn([dataset[number] for number in numbers])


def _rows(dataset: Any) -> Callable[[list[int]], list] | None:
    """How to read a whole batch of rows at once, where that gives the same as reading and stacking them one by one."""
    if type(dataset) is Subset:
        inner, indices = _rows(dataset.dataset), dataset.indices
        return None if inner is None else lambda numbers: inner([indices[i] for i in numbers])
    if type(dataset) is not TensorDataset or any(tensor.requires_grad for tensor in dataset.tensors):
        return None
    return lambda numbers: [tensor[numbers] for tensor in dataset.tensors]


def _in_sequence(loader: DataLoader) -> Iterator[Any]:
    """The batches of an iterable data set."""
    samples, size = iter(loader.dataset), loader.batch_size
    if size is None:
        yield from map(loader.collate_fn, samples)
        return
    while batch := list(islice(samples, size)):
        if loader.drop_last and len(batch) < size:
            return
        yield loader.collate_fn(batch)


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool, context: Any
) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers > 0:
        raise NotImplementedError(
            f"DataLoader: num_workers={num_workers}, but there are no worker processes; use num_workers=0, which loads "
            "in the main process and gives the same batches"
        )
    if prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
            "multiprocessing, otherwise set prefetch_factor to None."
        )
    if persistent:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if context is not None:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
            f"num_workers={num_workers}"
        )


def _check_choices(
    iterable: bool,
    batch_size: Any,
    shuffle: Any,
    sampler: Iterable | None,
    batch_sampler: Iterable | None,
    drop_last: bool,
) -> None:
    if iterable:
        given = (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler))
        for name, value in given:
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
