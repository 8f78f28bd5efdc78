"""Iterators over a loader: in the main process, or with workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorgrad as torch
from tensorgrad import distributed
from tensorgrad.system.processes import require_processes
from tensorgrad.utils.data import fetch, worker
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from tensorgrad.utils.data.graph_settings import apply_random_seed, apply_sharding, shared_generator
from tensorgrad.utils.data.pinning import pinner
from tensorgrad.utils.data.sampler import draw_seed


def _place() -> tuple[int, int]:
    """Returns how many processes there are in a distributed program, and the number of this one."""
    return (distributed.get_world_size(), distributed.get_rank()) if distributed.is_initialized() else (1, 0)


class _BaseDataLoaderIter(Iterator[Any]):
    """The common base: the sampler's order, the seed, and a check against the reported length.

    Its attributes are PyTorch's where torchdata's loader, whose iterators are subclasses, uses them.
    """

    def __init__(self, loader: Any) -> None:
        # Keeps no reference to the loader: a loader with persistent workers refers to its iterator, so this would be a
        # reference cycle.
        self._dataset, self._num_workers = loader.dataset, loader.num_workers
        self._pin: Callable[[Any], Any] | None = pinner(loader)
        self._dataset_kind, self._auto_collation = loader._dataset_kind, loader._auto_collation
        self._collate_fn, self._drop_last = loader.collate_fn, loader.drop_last
        self._timeout, self._persistent_workers = loader.timeout, loader.persistent_workers
        self._pin_memory, self._pin_memory_device = False, ""  # this class does it
        self._world_size, self._rank = _place()
        self._read(loader)
        self._shared_seed = self._draw_shared_seed(loader.generator)
        # PyTorch draws a seed for its workers here, even if there are none; later random numbers depend on that.
        self._base_seed = draw_seed(loader.generator)

    def _draw_shared_seed(self, generator: Any) -> int | None:
        """Draws what the datapipes' own seeds are drawn with, in the main process and in every worker."""
        if not isinstance(self._dataset, IterDataPipe):
            return None
        seed = torch.tensor(draw_seed(generator))
        if distributed.is_initialized():
            distributed.broadcast(seed, src=0)
        apply_random_seed(self._dataset, shared_generator(int(seed)))
        return int(seed)

    def _read(self, loader: Any) -> None:
        """Begins a pass."""
        self._index_sampler = loader._index_sampler
        self._sampler_iter = iter(self._index_sampler)
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._num_yielded = 0

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begins a pass with the same iterator."""
        self._read(loader)
        self._shared_seed = self._draw_shared_seed(loader.generator)

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        batch = self._next_data()
        self._num_yielded += 1
        if self._pin is not None:
            batch = self._pin(batch)
        expected = self._IterableDataset_len_called
        if expected is not None and self._num_yielded > expected:
            self._warn_of_length(expected)
        return batch

    def _warn_of_length(self, expected: int) -> None:
        text = (
            f"Length of IterableDataset {self._dataset} was reported to be {expected}(when accessing "
            f"len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._num_workers:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker: see get_worker_info()."
            )
        warnings.warn(text, stacklevel=3)

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Makes each batch when it is requested."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if loader.timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        if isinstance(loader.dataset, IterDataPipe | MapDataPipe):
            apply_sharding(loader.dataset, self._world_size, self._rank)
        self._batches: Iterator[Any]
        if loader._iterable:
            self._batches = fetch.in_sequence(loader.dataset, loader.collate_fn, loader.batch_size, loader.drop_last)
        else:
            make = fetch.by_number(loader.dataset, loader.collate_fn, loader._auto_collation)
            self._batches = map(make, self._sampler_iter)

    def _next_data(self) -> Any:
        return next(self._batches)


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Has workers make the batches, each up to `prefetch_factor` batches in advance.

    Tasks go to the workers in turn. With `in_order`, batches are returned in the order of the tasks: each is read from
    its worker's pipe when its turn comes, and workers keep batches that are ready earlier.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if loader.prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        self._epoch = 0
        self._most = loader.prefetch_factor * loader.num_workers  # maximum number of unanswered tasks
        self._iterable, self._in_order = loader._iterable, loader.in_order
        require_processes(f"DataLoader(num_workers={loader.num_workers})")
        from tensorgrad.utils.data.worker_pool import WorkerPool, context_of

        self._pool = WorkerPool(
            context_of(loader.multiprocessing_context),
            worker.Orders(
                dataset=loader.dataset,
                iterable=loader._iterable,
                batched=loader._auto_collation,
                batch_size=loader.batch_size,
                drop_last=loader.drop_last,
                collate_fn=loader.collate_fn,
                worker_init_fn=loader.worker_init_fn,
                base_seed=self._base_seed,
                num_workers=loader.num_workers,
                place=(self._world_size, self._rank)
                if isinstance(loader.dataset, IterDataPipe | MapDataPipe)
                else None,
            ),
        )
        self._begin()
        self._draw_shared_seed(loader.generator)  # PyTorch draws one more, for the pass that has begun

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begins the next epoch with the same workers."""
        super()._reset(loader, first_iter)
        self._begin()

    def _begin(self) -> None:
        self._epoch += 1
        self._sent = 0
        self._due: dict[int, int] = {}  # task -> its worker, in the order of the tasks
        self._unanswered = [0] * self._num_workers  # the number of unanswered tasks of each worker
        self._active = [True] * self._num_workers  # False once a worker's part of an iterable data set is exhausted
        self._turn = 0  # the worker that is next in turn
        for _ in range(self._most):
            self._send_next()

    @property
    def _workers(self) -> list[Any]:
        """The worker processes."""
        return self._pool.processes

    def _shutdown_workers(self) -> None:
        """Stops the workers. This also happens after the last batch, or when the iterator is garbage-collected."""
        self._pool.stop()

    def _send_next(self) -> None:
        """Sends the next task, if there is one, to the next worker that can take it."""
        try:
            numbers = next(self._sampler_iter)
        except StopIteration:
            return
        number = self._next_worker()
        if number is None:
            return
        self._pool.send(number, (self._epoch, self._sent, self._shared_seed if self._iterable else numbers))
        self._due[self._sent] = number
        self._unanswered[number] += 1
        self._sent += 1

    def _next_worker(self) -> int | None:
        # Out of order, a slow worker's tasks go to the others. In order, that would not deliver any batch sooner.
        most = self._most // max(1, sum(self._active))
        for _ in range(self._num_workers):
            number, self._turn = self._turn, (self._turn + 1) % self._num_workers
            if self._active[number] and (self._in_order or self._unanswered[number] < most):
                return number
        return None

    def _next_data(self) -> Any:
        since = self._pool.clock()
        while self._due:
            if self._pool.stopped:
                raise RuntimeError("DataLoader: the workers of this iterator have been stopped; create a new iterator")
            first, number = next(iter(self._due.items()))
            if self._in_order:
                if not self._active[number]:  # it has nothing left for this task
                    del self._due[first]
                    continue
                number, answer = self._pool.receive([number], self._timeout, since)
            else:
                number, answer = self._pool.receive(sorted(set(self._due.values())), self._timeout, since)
            epoch, task, kind, value = answer
            if epoch != self._epoch:  # left over from an epoch that was not finished
                continue
            del self._due[task]
            self._unanswered[number] -= 1
            if kind == worker.ENDED:
                self._end(number)
                self._send_next()
                continue
            self._send_next()
            if kind == worker.FAILED:
                raise value.error()
            return value
        if not self._persistent_workers:
            self._pool.stop()
        raise StopIteration

    def _end(self, number: int) -> None:
        """Handles the end of a worker's part of an iterable data set."""
        self._active[number] = False
        self._due = {task: whose for task, whose in self._due.items() if whose != number}
        if not self._persistent_workers:
            self._pool.dismiss(number)
