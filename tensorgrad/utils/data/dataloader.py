"""The loader: reads a data set in batches. With the same seed, the order is PyTorch's."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from multiprocessing.context import BaseContext
from typing import Any, Generic, TypeVar

from tensorgrad.utils.data import fetch
from tensorgrad.utils.data.collate import default_collate as default_collate
from tensorgrad.utils.data.collate import default_convert as default_convert
from tensorgrad.utils.data.datapipes.datapipe import (
    IterDataPipe,
    MapDataPipe,
    _IterDataPipeSerializationWrapper,
    _MapDataPipeSerializationWrapper,
)
from tensorgrad.utils.data.dataset import Dataset, IterableDataset
from tensorgrad.utils.data.graph_settings import apply_sharding, apply_shuffle_settings
from tensorgrad.utils.data.iterators import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)
from tensorgrad.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from tensorgrad.utils.data.worker import get_worker_info as get_worker_info  # PyTorch has it here too

T_co = TypeVar("T_co", covariant=True)
_collate_fn_t = Callable[[list], Any]
_worker_init_fn_t = Callable[[int], None]

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _DatasetKind:
    """Whether samples are read by index or one after another."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> Any:
        """Returns an object whose `fetch(index)` returns a batch, as torchdata's loader uses it."""
        fetcher = fetch.ByNumber if kind == _DatasetKind.Map else fetch.InSequence
        return fetcher(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler):
    """Yields None for ever: what is read in sequence needs no indices."""

    def __iter__(self) -> Iterator[None]:
        return repeat(None)


def _sharding_worker_init_fn(worker_init_fn: Any, world_size: int, rank_id: int, worker_id: int) -> None:
    """Gives a worker its share of a datapipe, then calls the program's own function."""
    info = get_worker_info()
    assert info is not None
    apply_sharding(info.dataset, info.num_workers * world_size, worker_id * world_size + rank_id)
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


class DataLoader(Generic[T_co]):
    """Iterates over a data set in batches.

    Args:
        dataset: a `Dataset`, anything with `__getitem__` and `__len__`, an `IterableDataset`, or a datapipe: then
            `shuffle` switches its shufflers on or off, and each worker reads its share of what is behind a
            `sharding_filter`.
        batch_size: number of samples per batch; `None` yields individual samples.
        shuffle: whether to read in a new random order in each epoch.
        sampler: yields sample indices, in the order to read them.
        batch_sampler: yields lists of indices, one for each batch; mutually exclusive with `batch_size`,
            `shuffle`, `sampler` and `drop_last`.
        collate_fn: combines a list of samples into a batch; by default `default_collate`.
        drop_last: whether to drop the last batch if it is incomplete.
        generator: the random number generator; the default one if `None`.
        num_workers: number of processes that load batches; with 0, the main process loads them.
        prefetch_factor: number of batches that each worker loads in advance; by default 2.
        persistent_workers: whether to keep the workers from one epoch to the next.
        worker_init_fn: called in each worker before it begins, with the worker's number.
        timeout: maximum number of seconds to wait for a batch; 0 means no limit.
        multiprocessing_context: how workers are started: "fork", "spawn", "forkserver" or a `multiprocessing`
            context. The default is the method set with `multiprocessing.set_start_method`; if none was set, "fork" on
            Linux and Python's default elsewhere. Methods other than "fork" need a data set that can be pickled.
            Choose "spawn" if other threads of the program multiply matrices at the same time: OpenBLAS may hang after a
            fork.
        in_order: whether batches are yielded in the sampler's order, or as soon as they are ready.
        pin_memory: whether to copy batches into pinned memory, which a GPU can read directly; without a GPU, this only
            warns.
        pin_memory_device: accepted for compatibility.

    In worker i, `random`, NumPy and this package are seeded as in PyTorch: `torch.initial_seed()` is a number that
    the main process draws for each iterator (from `generator`), plus i.

    Raises:
        ValueError, TypeError: If settings exclude each other; the message names them.

    While iterating, an error in a worker is raised with its own type and with its traceback in the message.
    RuntimeError is raised if a worker dies, or does not deliver a batch within `timeout`.

    >>> from tensorgrad.utils.data import DataLoader, TensorDataset
    >>> for x, y in DataLoader(TensorDataset(torch.zeros(5, 2), torch.arange(5)), batch_size=3):
    ...     print(x.shape, y)
    torch.Size([3, 2]) tensor([0, 1, 2])
    torch.Size([2, 2]) tensor([3, 4])
    >>> list(DataLoader(range(5), batch_size=3, num_workers=1))
    [tensor([0, 1, 2]), tensor([3, 4])]
    """

    _initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co] | Sequence[T_co],
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
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        iterable = isinstance(dataset, IterableDataset)
        if isinstance(dataset, IterDataPipe):
            dataset = _IterDataPipeSerializationWrapper(dataset)
            # As PyTorch does: a shuffler that has to be added, with a warning, is not read.
            apply_shuffle_settings(dataset, shuffle)
            shuffle = None
        elif isinstance(dataset, MapDataPipe):
            dataset = _MapDataPipeSerializationWrapper(dataset)
        _check_choices(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size = None
        data: Any = dataset
        if sampler is None:
            if iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(data, generator=generator)
            else:
                sampler = SequentialSampler(data)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last = data, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.timeout = num_workers, timeout
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.multiprocessing_context = worker_init_fn, multiprocessing_context
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self._dataset_kind = _DatasetKind.Iterable if iterable else _DatasetKind.Map
        self._IterableDataset_len_called: int | None = None  # the length that len() reported, for an iterable data set
        self._iterator: Any = None  # the iterator of persistent workers
        self._initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """How workers are started; can be set to a context or the name of a start method. `None` is the default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, value: Any) -> None:
        if value is not None and not self.num_workers:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                f"num_workers={self.num_workers}"
            )
        if isinstance(value, str):
            valid = multiprocessing.get_all_start_methods()
            if value not in valid:
                raise ValueError(
                    f"multiprocessing_context option should specify a valid start method in {valid!r}, but got "
                    f"multiprocessing_context={value!r}"
                )
            value = multiprocessing.get_context(value)
        if value is not None and not isinstance(value, BaseContext):
            raise TypeError(
                "multiprocessing_context option should be a valid context object or a string specifying the start "
                f"method, but got multiprocessing_context={value}"
            )
        self._context = value

    def check_worker_number_rationality(self) -> None:
        """Warns if there are more workers than processors."""
        affinity = getattr(os, "sched_getaffinity", None)
        processors = len(affinity(0)) if affinity else os.cpu_count() or 1
        if self.num_workers > processors:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number "
                f"of worker in current system is {processors}"
                f"{'' if affinity else ' (`cpuset` is not taken into account)'}, which is smaller than what this "
                "DataLoader is going to create. Please be aware that excessive worker creation might get DataLoader "
                "running slow or even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
                stacklevel=3,
            )

    @property
    def _iterable(self) -> bool:
        return self._dataset_kind == _DatasetKind.Iterable

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        """Yields the tasks: lists of indices, or single indices."""
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return _MultiProcessingDataLoaderIter(self) if self.num_workers else _SingleProcessDataLoaderIter(self)

    def __iter__(self) -> Iterator[Any]:
        if not self.persistent_workers or not self.num_workers:
            return self._get_iterator()
        if self._iterator is None or self._iterator._pool.stopped:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        size = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return size
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
            "multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


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
