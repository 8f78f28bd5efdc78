"""A worker: the process that makes batches for a loader. It gets tasks through a pipe and answers through the same.

A task is `(epoch, number, numbers)`: which pass over the data set it belongs to, which batch it is, and the numbers of
the samples (or one number; ignored for an iterable data set, of which the worker reads on). The answer is `(epoch,
number, kind, value)`: a BATCH, FAILED with a `Failure`, or ENDED once an iterable data set has no more; later tasks of
that epoch have no answer. The first message of a worker is READY, which has no task.

The end of the pipe is the end of the worker, whatever happened at its other side: none outlives its main process.
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

from tensorgrad.utils.data import channel, fetch
from tensorgrad.utils.data.collate import default_collate

READY, BATCH, FAILED, ENDED = range(4)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker knows of itself.

    Args:
        id: its number, from 0.
        num_workers: how many there are.
        seed: what its random numbers started from: the loader's seed plus ``id``.
        dataset: its own copy of the data set.
        rng, worker_method: PyTorch's, for workers that are threads; here always these values.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: None = None
    worker_method: str = "multiprocessing"


class _This:
    """Whether this process is a worker."""

    info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """What a worker process knows of itself; ``None`` in the main process.

    An iterable data set asks for it, since every worker reads a copy of the whole: it then gives its own share only.

    Example::

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
    """An error that happened in a worker, on its way to the main process."""

    kind: bytes  # the pickled type: by itself, since not every type can be pickled, or found again
    text: str

    @classmethod
    def of(cls, error: Exception, worker: int) -> Failure:
        """The error with all that its traceback says."""
        try:
            kind = pickle.dumps(type(error))
        except Exception:
            kind = pickle.dumps(RuntimeError)
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(kind, f"Caught {type(error).__name__} in DataLoader worker process {worker}.\nOriginal {lines}")

    def error(self) -> BaseException:
        """The error to raise: of the same type, if that can be made from one text; else a RuntimeError."""
        try:
            kind = pickle.loads(self.kind)
            return kind(_Text(self.text) if issubclass(kind, KeyError) else self.text)
        except Exception:
            return RuntimeError(self.text)


class _Text(str):
    """A text whose `repr`, which is what a KeyError shows, keeps its lines."""

    def __repr__(self) -> str:
        return str(self)


class Orders(NamedTuple):
    """What a worker needs to know of its loader."""

    dataset: Any
    iterable: bool
    batched: bool
    batch_size: int | None
    drop_last: bool
    collate_fn: Callable
    worker_init_fn: Callable[[int], Any] | None
    base_seed: int
    num_workers: int


def main(connection: Any, orders: Orders, number: int) -> None:
    """The life of worker `number`."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked one has the main program's handler, which is not for it
    answers: queue.SimpleQueue = queue.SimpleQueue()
    answers.put(channel.dumps((0, 0, READY, None)))
    # A thread of its own sends, so that the next batch is being made while this one waits for its reader.
    threading.Thread(target=_send_all, args=(connection, answers), daemon=True).start()
    try:
        _seed(orders.base_seed, number)
        _This.info = WorkerInfo(number, orders.num_workers, orders.base_seed + number, orders.dataset)
        _work(connection, answers, orders, number)
    except KeyboardInterrupt:
        pass  # the main process got it as well, and will say so
    answers.put(None)


def _seed(base_seed: int, number: int) -> None:
    """Starts the three streams of random numbers where PyTorch starts them, and limits the worker to one thread."""
    import tensorgrad as torch

    torch.set_num_threads(1)
    random.seed(base_seed + number)
    torch.manual_seed(base_seed + number)
    # Hashed: the same seed as above would give NumPy, whose generator is the same, the same numbers once more.
    np.random.seed(np.random.SeedSequence([number, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4))


def _work(connection: Any, answers: queue.SimpleQueue, orders: Orders, number: int) -> None:
    """Does one task after the other, until the pipe ends."""
    begun, ended = 0, False  # the epoch whose data are being read, and whether there are no more of them
    try:
        broken = None
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
                    make = _maker(orders)
                    begun, ended = epoch, False
                if ended:
                    continue
                kind, value = BATCH, make(numbers)
        except Exception as error:
            ended = orders.iterable and isinstance(error, StopIteration)
            kind, value = (ENDED, None) if ended else (FAILED, Failure.of(error, number))
        answers.put(_packed((epoch, task, kind, value), orders.collate_fn is default_collate, number))
        del received, value  # the memory is better used for the next batch


def _maker(orders: Orders) -> Callable[[Any], Any]:
    """The function from a task to its batch; for an iterable data set it raises StopIteration at the end."""
    dataset, collate_fn = orders.dataset, orders.collate_fn
    if not orders.iterable:
        return fetch.by_number(dataset, collate_fn, orders.batched)
    batches = fetch.in_sequence(dataset, collate_fn, orders.batch_size, orders.drop_last)
    return lambda _: next(batches)


def _packed(answer: tuple, fresh: bool, number: int) -> list[Any]:
    """The answer as a message; if it cannot be one, the answer that says so.

    Unless the batch is `fresh`, its numbers are copied: the data set may fill the same array again for the next batch,
    while this one has not been sent yet.
    """
    epoch, task, _, _ = answer
    try:
        message, *blocks = channel.dumps(answer)
    except Exception as error:
        failure = Failure.of(error, number)
        text = f"{failure.text}\nThe batch itself was made; what failed is sending it to the main process."
        return channel.dumps((epoch, task, FAILED, failure._replace(text=text)))
    return [message, *(blocks if fresh else map(bytes, blocks))]


def _send_all(connection: Any, answers: queue.SimpleQueue) -> None:
    """What the sending thread does."""
    try:
        while (answer := answers.get()) is not None:
            channel.send(connection, answer)
            del answer
    except ConnectionError:
        pass  # nobody listens any more, which the main thread finds out as well
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # or the main process would wait for ever
