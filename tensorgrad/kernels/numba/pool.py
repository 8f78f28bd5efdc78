"""The threads that share the work of one kernel.

A kernel does a range of its work at a call, and other threads others meanwhile. Whoever has nothing to do waits a
moment in a loop (waiting.py) before it sleeps, so that handing over a range takes a microsecond where kernels follow
upon each other; from sleep it takes some tens. A range that a thread has not begun with is taken back: on a busy
machine it may be long in coming. Only work of a certain size is shared.

Compiled kernels (launch.py) are started by compiled code, and Python's lock is not needed for it. Functions in Python,
which call NumPy, can be shared as well; these are called as `function(*arguments, first, last)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba.board import (
    CALLED,
    CROWDED,
    DIVIDE,
    DONE,
    FAILED,
    FINISHED,
    GIVER,
    IN_PYTHON,
    MOST,
    NOTHING,
    PATIENCE,
    SIZE,
    TASK,
    TEAM,
    WRONG,
)  # fmt: skip
from tensorgrad.kernels.numba.table import WAITING, Unsuited
from tensorgrad.settings import get_num_threads

GRAIN = 24576  # elements (of ordinary cost) that are worth a thread
ROUSING = 131072  # elements that are worth waking threads up
_SOON = 1e-3  # seconds after another kernel: it is worth it, too, as more will come
ROUNDS = 800  # of a quarter of a microsecond, that a thread waits awake
_GRACE = 140  # pauses, until the one who handed over a call in Python holds the lock no longer
_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None  # the C library
_NAP = 5e-5  # seconds between looks at a task that takes long


class _Worker:
    """A thread that does ranges of work for whoever has taken it, and its board."""

    __slots__ = ("address", "asleep", "calls", "done", "error", "loops", "task", "team", "wake")

    def __init__(self) -> None:
        memory = np.zeros(SIZE + 15, np.int64)
        start = -memory.ctypes.data % 128 // 8  # lines of the cache are 64 bytes, or 128
        board = memory[start : start + SIZE]
        self.task, self.done, self.team = board[TASK : TASK + 1], board[DONE : DONE + 1], board[TEAM : TEAM + MOST]
        self.address = self.team[0] = board.ctypes.data
        self.loops = WAITING.ready
        self.done[0], board[DIVIDE], board[PATIENCE] = FINISHED, self.loops.divide.address, ROUNDS
        board[GIVER] = -1
        self.wake: SimpleQueue = SimpleQueue()
        self.asleep = False
        self.calls: list[tuple] = []  # a call in Python, until somebody begins with it
        self.error: BaseException | None = None
        threading.Thread(target=self.serve, name="tensorgrad kernel", daemon=True).start()

    def ring(self) -> None:
        """Wakes the thread if it sleeps. It may come too late, and finds nothing to do."""
        if self.asleep:
            self.asleep = False
            self.wake.put(None)

    def give(self, *call) -> None:
        """Has the thread call function(*arguments, first, last)."""
        self.error = None
        self.calls.append(call)
        self.done[0], self.task[0] = NOTHING, IN_PYTHON
        self.ring()

    def take_back(self) -> tuple | None:
        """The call that was given, if the thread has not begun with it."""
        try:
            call = self.calls.pop()
        except IndexError:
            return None
        self.task[0] = NOTHING
        self.done[0] = FINISHED
        return call

    def wait(self) -> bool:
        """Waits until the thread has done what it began. Returns whether that failed."""
        if self.done[0] == NOTHING and not self.loops.done(self.address, ROUNDS):
            while self.done[0] == NOTHING:
                time.sleep(_NAP)
        return bool(self.done[0] == FAILED)

    def serve(self) -> None:
        """The thread: does what is given, for ever."""
        while True:
            why = self.loops.serve(self.address, ROUNDS, _GRACE)
            if why == CALLED:
                self.call()
                continue
            if why == CROWDED:
                _move()
                continue
            self.asleep = True
            if self.task[0] == NOTHING:
                self.wake.get()
            self.asleep = False

    def call(self) -> None:
        """The call that was given, unless somebody has taken it back."""
        try:
            function, arguments, first, last = self.calls.pop()
        except IndexError:
            return
        self.task[0] = NOTHING
        try:
            function(*arguments, first, last)
        except BaseException as error:  # it belongs to whoever waits
            self.error = error
        function = arguments = None  # nothing is kept alive by a thread that waits
        self.done[0] = FINISHED


def _move() -> None:
    """Takes this thread to another processor than that which it shares with one that works, if there is another.

    Some systems leave two busy threads on one processor for seconds, with the next one idle.
    """
    here = getattr(_LIBRARY, "sched_getcpu", None)
    if here is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            all_of_them = os.sched_getaffinity(0)
            others = all_of_them - {here()}
            if others:
                os.sched_setaffinity(0, others)
                os.sched_setaffinity(0, all_of_them)


_idle: list[_Worker] = []
_count = 0  # of all workers
_making = threading.Lock()
_last = 0.0  # when a kernel that can be shared was started


def _forget() -> None:
    """In a child after a fork the threads are gone: the next kernel starts others."""
    global _idle, _count, _making
    _idle, _count, _making = [], 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _take(wanted: int, asleep: bool) -> list[_Worker]:
    """Up to so many workers that nobody uses now; as many as there are threads less one exist at most.

    `asleep`: also those that sleep, and new ones.
    """
    global _count
    taken: list[_Worker] = []
    if WAITING.ready is None:
        WAITING.available()
        return taken
    while len(taken) < wanted:
        try:
            taken.append(_idle.pop())  # the one that worked last
            if taken[-1].asleep and not asleep:
                _idle.append(taken.pop())
                break
        except IndexError:
            if not asleep:
                break
            with _making:
                if _count >= get_num_threads() - 1:
                    break
                try:
                    taken.append(_Worker())
                except RuntimeError:  # the system has no thread left: those that are there will do
                    break
                _count += 1
    return taken


def _give_back(workers: list[_Worker]) -> bool:
    """Waits until the workers have done what they began; whether that failed. Nothing ends this early.

    Else a worker would go on writing to arrays that are gone.
    """
    interrupted, failed, left = None, False, list(workers)
    while left:
        try:
            failed |= left[-1].wait()
            left.pop()
        except KeyboardInterrupt as interrupt:
            interrupted = interrupt
    _idle.extend(workers)
    if interrupted is not None:
        raise interrupted
    return failed


def run(kernel: Any, length: int, arguments: tuple, elements: int) -> None:
    """Runs `kernel` over 0 ... length, by as many threads as `elements` (of work in all) are worth.

    `kernel` is a compiled kernel (launch.py) or a function in Python. Raises: what it raises, in whichever thread;
        Unsuited for an array that must not be written, has gaps, or numbers that compiled kernels are not made for.
    """
    global _last
    workers: Any = ()
    if elements >= 2 * GRAIN:
        now = time.perf_counter()
        asleep, _last = elements >= ROUSING or now - _last < _SOON, now
        workers = _take(min(get_num_threads(), elements // GRAIN, length, MOST) - 1, asleep)
    address = getattr(kernel, "address", None)
    try:
        if address is None:
            _share(kernel, length, arguments, workers)
        elif workers:
            _launch(kernel, length, arguments, workers)
        else:
            kernel.launch(address, arguments, length, 0, 0)
    except TypeError:
        if _unsuited(arguments):
            raise Unsuited from None
        raise


def _unsuited(argument: Any) -> bool:
    if isinstance(argument, tuple):
        return any(map(_unsuited, argument))
    return isinstance(argument, np.ndarray) and (
        not argument.flags.carray or (argument.dtype.kind == "f" and argument.dtype != F32)
    )  # fmt: skip


def _launch(kernel: Any, length: int, arguments: tuple, workers: list[_Worker]) -> None:
    """Runs a compiled kernel in this thread and those of the workers."""
    lead = workers[0]
    lead.ring()
    for i in range(1, len(workers)):  # each board begins with its own place
        lead.team[i] = workers[i].address
        workers[i].ring()
    happened = WRONG
    try:
        happened = kernel.launch(kernel.address, arguments, length, lead.address, len(workers))
    finally:
        if not happened:
            _idle.extend(workers)
        elif _give_back(workers):
            happened |= WRONG
    if happened & WRONG:
        kernel.launch(kernel.address, arguments, length, 0, 0)  # raises it where it is seen
        raise RuntimeError(f"{kernel.__name__}: failed in one of its threads")


def _share(function: Callable, length: int, arguments: tuple, workers) -> None:
    """Calls function(*arguments, first, last) for the parts of 0 ... length, in several threads."""
    if not workers:
        function(*arguments, 0, length)
        return
    step = -(-length // (len(workers) + 1))
    used = workers[: -(-length // step) - 1]
    for i, worker in enumerate(used, 1):
        worker.give(function, arguments, i * step, min((i + 1) * step, length))
    try:
        function(*arguments, 0, step)
        for worker in used:
            call = worker.take_back()
            if call is not None:
                function(*arguments, *call[2:])
    finally:
        for worker in used:
            worker.take_back()  # if something was raised
        _give_back(workers)
    errors = [worker.error for worker in used if worker.error is not None]
    for worker in used:
        worker.error = None  # its traceback keeps arrays alive
    if errors:
        raise errors.pop()
