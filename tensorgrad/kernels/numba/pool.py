"""The threads that share the work of one kernel.

A kernel is called as `kernel(*arguments, first, last)` for ranges of its work, and lets other threads run meanwhile.
Whoever has nothing to do waits a moment in a loop (waiting.py) before it sleeps, so that handing over a range takes a
few microseconds where kernels follow upon each other; from sleep it takes some tens. Only work of a certain size is
shared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

import numpy as np

from tensorgrad.kernels.numba.table import WAITING
from tensorgrad.settings import get_num_threads

GRAIN = 32768  # elements (of ordinary cost) that are worth a thread
ROUNDS = 400  # of a quarter of a microsecond, that a thread waits awake
GRACE = 140  # pauses, until the one who handed over work holds Python's lock no longer


class _Worker:
    """A thread that does ranges of work for whoever has taken it.

    `given` and `finished` count the ranges. While both sides are awake they look at the counts, without a lock. A side
    that goes to sleep says so first and then looks once more; the other puts a token into its bell. A bell may have
    rung in vain, so whoever wakes looks again.
    """

    __slots__ = (
        "asleep", "awaited", "bell", "calls", "done", "error", "finished", "given", "revoked", "tasks", "todo", "wake",
    )  # fmt: skip

    def __init__(self) -> None:
        counts = np.zeros((2, 16), np.int64)  # no line of the cache holds both
        self.given, self.finished = counts[0, :1], counts[1, :1]
        self.todo, self.done = self.given.ctypes.data, self.finished.ctypes.data  # where they are
        self.tasks = 0
        self.wake: SimpleQueue = SimpleQueue()
        self.bell: SimpleQueue = SimpleQueue()
        self.asleep = self.awaited = self.revoked = False
        self.calls: list[tuple] = []  # what is given, until somebody begins with it
        self.error: BaseException | None = None
        threading.Thread(target=self.serve, name="tensorgrad kernel", daemon=True).start()

    def give(self, *call) -> None:
        """Has the thread run kernel(*arguments, first, last)."""
        self.error, self.revoked = None, False
        self.calls.append(call)
        self.tasks += 1
        self.given[0] = self.tasks
        if self.asleep:
            self.wake.put(None)

    def take_back(self) -> tuple | None:
        """What was given, if the thread has not begun with it: on a busy machine it may be long in coming."""
        call = self._taken()
        if call is not None:
            self.revoked = True
        return call

    def _taken(self) -> tuple | None:
        try:
            return self.calls.pop()
        except IndexError:
            return None

    def wait(self) -> None:
        """Waits until the thread has done what it began."""
        if self.revoked:
            return
        if WAITING.ready is not None and self.finished[0] != self.tasks:
            WAITING.ready(0, 0, self.done, int(self.finished[0]), ROUNDS, 0)
        while self.finished[0] != self.tasks:
            self.awaited = True
            if self.finished[0] != self.tasks:
                self.bell.get()
        self.awaited = False

    def serve(self) -> None:
        """The thread: does what is given, for ever."""
        count = 0
        while True:
            if WAITING.ready is None or self.awaited:
                self.finished[0] = count
            else:  # says so where Python's lock is not held
                WAITING.ready(self.done, count, self.todo, count, ROUNDS, GRACE)
            if self.awaited:
                self.bell.put(None)
            while self.given[0] == count:
                self.asleep = True
                if self.given[0] == count:
                    self.wake.get()
                self.asleep = False
            count = int(self.given[0])
            call = self._taken()
            if call is not None:
                kernel, arguments, first, last = call
                try:
                    kernel(*arguments, first, last)
                except BaseException as error:  # it belongs to whoever waits
                    self.error = error
                call = kernel = arguments = None  # nothing is kept alive by a thread that waits


_idle: list[_Worker] = []
_count = 0  # of all workers
_making = threading.Lock()


def _forget() -> None:
    """In a child after a fork the threads are gone: the next kernel starts others."""
    global _idle, _count, _making
    _idle, _count, _making = [], 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _take(wanted: int) -> list[_Worker]:
    """Up to so many workers that nobody uses now; as many as there are threads less one exist at most."""
    global _count
    taken: list[_Worker] = []
    while len(taken) < wanted:
        try:
            taken.append(_idle.pop())
        except IndexError:
            with _making:
                if _count >= get_num_threads() - 1:
                    break
                _count += 1
            taken.append(_Worker())
    return taken


def run(kernel: Callable, length: int, arguments: tuple, elements: int) -> None:
    """Runs `kernel` over 0 ... length, by as many threads as `elements` (of work in all) are worth.

    Raises: what the kernel raises, in whichever thread.
    """
    parts = min(get_num_threads(), elements // GRAIN, length)
    if parts <= 1:
        kernel(*arguments, 0, length)
        return
    workers = _take(parts - 1)
    if WAITING.ready is None:
        WAITING.available()
    step = -(-length // (len(workers) + 1))
    used = workers[: -(-length // step) - 1]
    for i, worker in enumerate(used, 1):
        worker.give(kernel, arguments, i * step, min((i + 1) * step, length))
    try:
        kernel(*arguments, 0, step)
        for worker in used:
            call = worker.take_back()
            if call is not None:
                kernel(*arguments, *call[2:])
    finally:
        for worker in used:
            worker.take_back()  # if something was raised
            worker.wait()
        _idle.extend(workers)
    errors = [worker.error for worker in used if worker.error is not None]
    for worker in used:
        worker.error = None  # its traceback keeps arrays alive
    if errors:
        raise errors.pop()
