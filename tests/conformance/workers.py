"""Processes that share out records. One that ends, for a crash or an error of the GPU, takes one record with it."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

ENDED = "the process ended while this record ran"
LATE = "this record had not ended when the time was up"
GRACE = 20  # seconds for the records that run when the time is up


class _Worker:
    """A process, and the records that it was given and has not answered."""

    def __init__(self, target: Callable) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(target, other), daemon=True)
        self.process.start()
        other.close()
        self.left: deque[Any] = deque()

    def give(self, task: list) -> None:
        self.left = deque(task)
        self.pipe.send(task)

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()


def _serve(target: Callable, pipe: Connection) -> None:
    """In the process: answers each record of each task."""
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        for record in task:
            result, goes_on = target(record)
            pipe.send((result, goes_on))
            if not goes_on:
                return


def share_out(
    target: Callable[[Any], tuple[list[str], bool]], tasks: list[list], processes: int, seconds: float | None = None
) -> Iterator[tuple[Any, list[str]]]:
    """Yields (record, differences) as they come.

    Args:
        target: Returns the differences of a record, and whether its process can go on. A function of a module.
        tasks: Records in groups; a process takes one group at a time.
        processes: How many at the same time.
        seconds: After which no further task begins; `GRACE` seconds later, records that still run are given up.
    """
    waiting, workers = deque(tasks), []
    late = float("inf") if seconds is None else time.monotonic() + seconds
    try:
        for _ in range(min(processes, len(waiting))):
            workers.append(_Worker(target))
            workers[-1].give(waiting.popleft())
        while busy := [worker for worker in workers if worker.left]:
            ready = wait([worker.pipe for worker in busy], timeout=1)
            for worker in [worker for worker in busy if worker.pipe in ready]:
                try:
                    result, goes_on = worker.pipe.recv()
                except (EOFError, OSError):
                    result, goes_on = [ENDED], False
                yield worker.left.popleft(), result
                if not goes_on:
                    rest = list(worker.left)
                    worker.end()
                    workers.remove(worker)
                    if rest:
                        waiting.appendleft(rest)
                    if waiting and time.monotonic() < late:
                        workers.append(_Worker(target))
                        workers[-1].give(waiting.popleft())
                elif not worker.left and waiting and time.monotonic() < late:
                    worker.give(waiting.popleft())
            if time.monotonic() > late + GRACE:
                yield from ((worker.left[0], [LATE]) for worker in workers if worker.left)
                return
    finally:
        for worker in workers:
            worker.end()
