"""A worker: a process that makes batches for a loader. It receives tasks and sends its answers through one pipe.

A task is `(epoch, number, numbers)`: the pass over the data set it belongs to, the number of the batch, and the indices
of the samples (or a single index; for an iterable data set, which the worker simply continues to read, None; for a
datapipe, the seed of this pass). The answer is `(epoch, number, kind, value)`: a BATCH, FAILED with a `Failure`, or
ENDED once an iterable data set is exhausted; later tasks of that epoch get no answer. The first message of a worker is
READY, which belongs to no task.

A worker exits when its pipe is closed, for whatever reason, so no worker outlives its main process.
"""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.settings import limit_threads
from tensorgrad.utils.data import channel, fetch
from tensorgrad.utils.data.collate import default_collate
from tensorgrad.utils.data.graph_settings import apply_random_seed, apply_sharding, shared_generator

READY, BATCH, FAILED, ENDED = range(4)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Information about a worker, as seen from inside it.

    Args:
        id: the worker's number, starting at 0.
        num_workers: the number of workers.
        seed: the worker's random seed: the loader's seed plus `id`.
        dataset: the worker's copy of the data set.
        rng, worker_method: used by PyTorch for workers that are threads; here they always have these values.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: None = None
    worker_method: str = "multiprocessing"


class _This:
    """Holds this process's `WorkerInfo`; None in the main process."""

    info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Returns information about the current worker process; `None` in the main process.

    An iterable data set uses it to yield only its worker's share, since every worker reads a copy of the whole set.

    >>> from tensorgrad.utils.data import DataLoader, IterableDataset, get_worker_info
    >>> class Numbers(IterableDataset):
    ...     def __iter__(self):
    ...         info = get_worker_info()
    ...         return iter(range(6)) if info is None else iter(range(info.id, 6, info.num_workers))
    >>> list(DataLoader(Numbers(), batch_size=None))
    [0, 1, 2, 3, 4, 5]
    """
    return _This.info


class Failure(NamedTuple):
    """An error from a worker, in a form that can be sent to the main process."""

    kind: bytes  # the type, pickled separately since not every type can be pickled, or imported on the other side
    text: str

    @classmethod
    def of(cls, error: Exception, worker: int) -> Failure:
        """Converts an error, including its traceback as text."""
        try:
            kind = pickle.dumps(type(error))
        except Exception:
            kind = pickle.dumps(RuntimeError)
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(kind, f"Caught {type(error).__name__} in DataLoader worker process {worker}.\nOriginal {lines}")

    def error(self) -> BaseException:
        """Returns the error to raise: of the same type if it can be created from one string, else a RuntimeError."""
        try:
            kind = pickle.loads(self.kind)
            return kind(_Text(self.text) if issubclass(kind, KeyError) else self.text)
        except Exception:
            return RuntimeError(self.text)


class _Text(str):
    """A string whose `repr`, which is what a KeyError shows, keeps its line breaks."""

    def __repr__(self) -> str:
        return str(self)


class Orders(NamedTuple):
    """The loader's settings that a worker needs."""

    dataset: Any
    iterable: bool
    batched: bool
    batch_size: int | None
    drop_last: bool
    collate_fn: Callable
    worker_init_fn: Callable[[int], Any] | None
    base_seed: int
    num_workers: int
    place: tuple[int, int] | None = None  # of a datapipe: how many processes share it, and the number of this one


def main(connection: Any, orders: Orders, number: int) -> None:
    """Runs worker `number` until its pipe is closed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker would otherwise run the main program's handler
    answers: queue.SimpleQueue = queue.SimpleQueue()
    answers.put(channel.dumps((0, 0, READY, None)))
    # A separate thread sends, so that the next batch is made while this one waits to be read.
    threading.Thread(target=_send_all, args=(connection, answers), daemon=True).start()
    try:
        _seed(orders.base_seed, number)
        _This.info = WorkerInfo(number, orders.num_workers, orders.base_seed + number, orders.dataset)
        _work(connection, answers, orders, number)
    except KeyboardInterrupt:
        pass  # the main process got it as well, and reports it
    answers.put(None)


def _seed(base_seed: int, number: int) -> None:
    """Seeds the three random number generators as PyTorch does, and limits the worker to one thread."""
    import tensorgrad as torch

    limit_threads(1)  # without a warning, which every worker would repeat
    random.seed(base_seed + number)
    torch.manual_seed(base_seed + number)
    # Hashed, because NumPy uses the same generator: with the seed above it would repeat the same random numbers.
    np.random.seed(np.random.SeedSequence([number, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4))


def _work(connection: Any, answers: queue.SimpleQueue, orders: Orders, number: int) -> None:
    """Does one task after another, until the pipe is closed."""
    begun, ended = 0, False  # the epoch that is being read, and whether its data is exhausted
    try:
        broken = None
        if orders.place is not None:
            processes, rank = orders.place
            apply_sharding(orders.dataset, orders.num_workers * processes, number * processes + rank)
        if orders.worker_init_fn is not None:
            orders.worker_init_fn(number)
    except Exception as error:
        broken = Failure.of(error, number)
    while True:
        try:
            received = channel.receive(connection)
        except (EOFError, ConnectionError):
            return
        epoch, task, numbers = channel.loads(received)
        kind, value = FAILED, broken
        try:
            if broken is None:
                if epoch != begun:
                    make = _maker(orders, numbers)
                    begun, ended = epoch, False
                if ended:
                    continue
                kind, value = BATCH, make(numbers)
        except Exception as error:
            ended = orders.iterable and isinstance(error, StopIteration)
            kind, value = (ENDED, None) if ended else (FAILED, Failure.of(error, number))
        answers.put(_packed((epoch, task, kind, value), orders.collate_fn is default_collate, number))
        del received, value  # frees the memory for the next batch


def _maker(orders: Orders, seed: Any) -> Callable[[Any], Any]:
    """Returns the function from a task to its batch; for an iterable data set it raises StopIteration at the end."""
    dataset, collate_fn = orders.dataset, orders.collate_fn
    if not orders.iterable:
        return fetch.by_number(dataset, collate_fn, orders.batched)
    if seed is not None:
        apply_random_seed(dataset, shared_generator(seed))
    batches = fetch.in_sequence(dataset, collate_fn, orders.batch_size, orders.drop_last)
    return lambda _: next(batches)


def _packed(answer: tuple, fresh: bool, number: int) -> list[Any]:
    """Packs an answer into a message; if that fails, packs an answer that reports the failure.

    Unless the batch is `fresh`, its data is copied: the data set may reuse the same array for the next batch before
    this one has been sent.
    """
    epoch, task, _, _ = answer
    try:
        message, *blocks = channel.dumps(answer)
    except Exception as error:
        failure = Failure.of(error, number)
        text = f"{failure.text}\nThe batch was created, but sending it to the main process failed."
        return channel.dumps((epoch, task, FAILED, failure._replace(text=text)))
    return [message, *(blocks if fresh else map(bytes, blocks))]


def _send_all(connection: Any, answers: queue.SimpleQueue) -> None:
    """Runs the sending thread."""
    try:
        while (answer := answers.get()) is not None:
            channel.send(connection, answer)
            del answer
    except ConnectionError:
        pass  # the other end is closed, which the main thread notices as well
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # otherwise the main process would wait forever
