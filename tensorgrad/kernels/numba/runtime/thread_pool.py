"""The threads that share the work of one kernel.

A kernel does a range of its work at a call, and workers do others meanwhile. Each worker is a thread with a mailbox
(mailbox.py). One that has nothing to do spins a moment (spin.py) before it sleeps, so that it takes a microsecond to
publish a range where kernels follow upon each other; to wake a sleeping worker takes some tens. A range that its worker
has not begun is stolen back: on a busy machine the worker may be long in coming. Only work of a certain size is shared.

Compiled kernels (launch.py) are started by compiled code, and Python's lock is not needed for it. Functions in Python,
which call NumPy, can be shared as well; these are called as `function(*arguments, first, last)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.numba.runtime import mailbox
from tensorgrad.kernels.numba.runtime.mailbox import (
    CALLED,
    CROWDED,
    DONE,
    FAILED,
    FINISHED,
    IN_PYTHON,
    MOST,
    NOTHING,
    TASK,
    WORKERS,
    WRONG,
)  # fmt: skip
from tensorgrad.kernels.numba.runtime.row import WAITING
from tensorgrad.kernels.numba.runtime.unsuited import Unsuited
from tensorgrad.settings import get_num_threads
from tensorgrad.system import forks

GRAIN = 24576  # elements (of ordinary cost) that are worth a thread
WAKING = 131072  # elements that are worth waking threads up
_FEW = 4  # threads among which a few parts are divided well enough
IN_PYTHON_MOST = 8  # threads for a function in Python: more would wait for its lock longer than they compute
_SOON = 1e-3  # seconds after another kernel: it is worth it, too, as more will come
SPIN_TIME = 200_000  # nanoseconds that a worker spins before it sleeps
_GRACE = 4_000  # nanoseconds, until the thread that published a call in Python holds the lock no longer
_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None  # the C library
_NAP = 5e-5  # seconds between looks at a task that takes long


class _Call:
    """A call in Python that was published for a worker, unless it is stolen back: the first that claims it does it.

    To claim it once more changes nothing, so that a thread that was interrupted can do all again.
    """

    __slots__ = ("arguments", "claims", "first", "function", "last")

    def __init__(self, function: Callable, arguments: tuple, first: int, last: int) -> None:
        self.function, self.arguments, self.first, self.last = function, arguments, first, last
        self.claims: list = []

    def claim(self, who: Any) -> bool:
        self.claims.append(who)
        return self.claims[0] is who

    def do(self) -> None:
        self.function(*self.arguments, self.first, self.last)


class _Worker:
    """A thread that does ranges of work for the thread that has taken it, and its mailbox."""

    __slots__ = ("address", "alarm", "asleep", "call", "done", "error", "loops", "sleepers", "task", "work", "workers")

    def __init__(self) -> None:
        self.loops = WAITING.ready
        box = mailbox.allocate(self.loops.divide.address, SPIN_TIME)
        self.task, self.done, self.workers = box[TASK : TASK + 1], box[DONE : DONE + 1], box[WORKERS : WORKERS + MOST]
        self.address = box.ctypes.data
        self.alarm: SimpleQueue = SimpleQueue()
        self.asleep = False
        self.sleepers: tuple[list[_Worker], int] | None = None  # whom it is to wake in its turn, and its number there
        self.work: tuple | None = None  # what a kernel is given: it stays in memory as long as this one may write to it
        self.call: _Call | None = None
        self.error: BaseException | None = None
        threading.Thread(target=self.serve, name="tensorgrad kernel", daemon=True).start()

    def wake(self) -> None:
        """Wakes the thread if it sleeps. It may come too late, and finds nothing to do."""
        if self.asleep:
            self.asleep = False
            self.alarm.put(None)

    def publish(self, call: _Call) -> None:
        """Has the worker do a call."""
        self.error = None
        self.call = call
        self.done[0], self.task[0] = NOTHING, IN_PYTHON
        self.wake()

    def steal(self) -> _Call | None:
        """The call that was published, if the worker has not begun it."""
        call = self.call
        if call is None or not call.claim(None):
            return None
        self.task[0] = NOTHING
        self.call = None
        self.done[0] = FINISHED
        return call

    def wait(self) -> bool:
        """Waits until the thread has done what it began. Returns whether that failed."""
        if self.done[0] == NOTHING and not self.loops.done(self.address, SPIN_TIME):
            while self.done[0] == NOTHING:
                time.sleep(_NAP)
        return bool(self.done[0] == FAILED)

    def serve(self) -> None:
        """The thread: does what is published, for ever."""
        while True:
            why = self.loops.serve(self.address, SPIN_TIME, _GRACE)
            if why == CALLED:
                self.run_call()
                continue
            if why == CROWDED:
                _change_processor()
                continue
            self.asleep = True
            if self.task[0] == NOTHING:
                self.alarm.get()
            self.asleep = False
            sleepers, self.sleepers = self.sleepers, None
            if sleepers is not None:
                _wake(*sleepers)

    def run_call(self) -> None:
        """Does the call that was published, unless it was stolen back."""
        call = self.call
        if call is None or not call.claim(self):
            return
        self.task[0] = NOTHING
        try:
            call.do()
        except BaseException as error:  # it belongs to the thread that waits
            self.error = error
        call = self.call = None  # nothing is kept alive by a thread that waits
        self.done[0] = FINISHED


_EACH = 3  # sleepers that a thread wakes


def _wake(sleepers: list[_Worker], number: int) -> None:
    """Wakes the first of those that sleep, who wake the others: number n those from number _EACH (n + 1) on.

    Waking one takes some microseconds, too much for the thread that starts a kernel to spend on each.
    """
    for n in range(_EACH * (number + 1), min(_EACH * (number + 2), len(sleepers))):
        sleeper = sleepers[n]
        if sleeper.work is None:  # too late: what there was to do is done
            continue
        if sleeper.asleep:
            sleeper.sleepers = sleepers, n
            sleeper.wake()
        else:
            _wake(sleepers, n)


def _change_processor() -> None:
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


# Every worker is in one of the first two, and goes from one to the other without a call of a function: signals are
# handled, and threads take turns, after calls and at the ends of loops only. So an exception of a signal handler loses
# none, and two threads never take the same.
_idle: list[_Worker] = []  # those that no thread has taken
_held: dict[int, list[_Worker]] = {}  # those that a thread has taken
_all: list[_Worker] = []
_making = forks.lock()
_last = 0.0  # when a kernel that can be shared was started


def _forget() -> None:
    """In a child after a fork the threads are gone: the next kernel starts others."""
    global _idle, _held, _all
    _idle, _held, _all = [], {}, []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _take(held: list[_Worker], wanted: int, asleep: bool) -> list[_Worker]:
    """Up to so many workers that are idle; as many as there are threads less one exist at most.

    `held`: the list that they go to. `asleep`: also those that sleep, and new ones.
    """
    base, idle = len(held), _idle
    if WAITING.ready is None:
        WAITING.available()
        return []
    while len(held) < base + wanted:
        if idle:
            worker = idle[-1]  # the one that worked last
            if worker.asleep and not asleep:
                break
            del idle[-1]
            held += (worker,)
        elif not asleep or not _make(held):
            break
    return held[base:]


def _make(held: list[_Worker]) -> bool:
    """Makes a worker, if there may be another, or finds those of threads that have ended. Whether there is one."""
    with _making:
        if len(_all) < get_num_threads() - 1:
            try:
                worker = _Worker()
            except RuntimeError as error:
                if "thread" not in str(error):
                    raise
                return False  # the system has no thread left: those that are there will do
            list(map(list.append, (_all, held), (worker, worker)))
            return True
        there = _threads()
        for thread, left in list(_held.items()):
            if thread not in there:
                _release(left, 0)
                del _held[thread]
    return bool(_idle)


def _threads() -> Any:
    """The threads that there are, by Python's numbers for them.

    Without the garbage collector: it runs Python's code, and where another thread is just being made, Python 3.11
    waits for ever (https://github.com/python/cpython/issues/106883).
    """
    collects = gc.isenabled()
    try:
        gc.disable()
        return sys._current_frames().keys()
    finally:
        if collects:
            gc.enable()


def _release(held: list[_Worker], base: int) -> bool:
    """Gives back the workers in `held` from number `base` on, when they have done what they began; whether that failed.

    Nothing ends this early: a worker would go on writing to arrays whose owner thinks that nothing does.
    """
    interrupted, failed = None, False
    while len(held) > base:
        try:
            while len(held) > base:  # the first one last: the arguments are in its mailbox
                held[-1].steal()
                failed |= held[-1].wait()
                _release_idle(held, len(held) - 1)
        except BaseException as interrupt:
            interrupted = interrupt
    if interrupted is not None:
        raise interrupted
    return failed


def _release_idle(held: list[_Worker], base: int) -> None:
    """Gives back workers that have nothing to do any more."""
    idle = _idle
    while len(held) > base:
        worker = held[-1]
        worker.work = None
        del held[-1]
        idle += (worker,)


def _inside() -> bool:
    """Whether this thread is inside of another call of `run`, as in a signal handler."""
    count, place = 0, sys._getframe()
    while place is not None:
        count += place.f_code is run.__code__
        place = place.f_back  # type: ignore[assignment]
    return count > 1


def shares(in_python: bool, length: int, elements: int) -> int:
    """How many threads so much work is worth."""
    most = IN_PYTHON_MOST if in_python else MOST
    return max(1, min(get_num_threads(), elements // GRAIN, length, most))


def parts(fewest: int = 1) -> int:
    """Into how many parts work should be divided, where that changes no result, so that threads end at about the same
    time: `fewest`, or more for many threads."""
    threads = get_num_threads()
    return max(fewest, 2 * threads if threads > _FEW else threads)


def run(kernel: Any, length: int, arguments: tuple, elements: int) -> None:
    """Runs `kernel` over 0 ... length, by as many threads as `elements` (of work in all) are worth.

    `kernel` is a compiled kernel (launch.py) or a function in Python. Raises: what it raises, in whichever thread;
        Unsuited for an array that must not be written, has gaps, or numbers that compiled kernels are not made for.
    """
    global _last
    held, base = _NONE, 0
    try:
        workers: Any = ()
        address = getattr(kernel, "address", None)
        if elements >= 2 * GRAIN:
            now = time.perf_counter()
            asleep, _last = elements >= WAKING or now - _last < _SOON, now
            me = threading.get_ident()
            held = _held.get(me) or _held.setdefault(me, [])
            if held and not _inside():  # an exception ended a call before it gave these back
                _release(held, 0)
            base = len(held)
            workers = _take(held, shares(address is None, length, elements) - 1, asleep)
        if address is None:
            _share(kernel, length, arguments, workers, held, base)
        elif workers:
            _launch(kernel, length, arguments, workers, held, base)
        else:
            kernel.launch(address, arguments, length, 0, 0)
    except BaseException as error:
        if len(held) > base:  # an error, or whatever a signal handler raised at any moment
            _release(held, base)
        if error.__class__ is TypeError and _unsuited(arguments):
            raise Unsuited from None
        raise


_NONE: list[_Worker] = []


def _unsuited(argument: Any) -> bool:
    if isinstance(argument, tuple):
        return any(map(_unsuited, argument))
    return isinstance(argument, np.ndarray) and (
        not argument.flags.carray or (argument.dtype.kind == "f" and argument.dtype != F32)
    )  # fmt: skip


def _launch(kernel: Any, length: int, arguments: tuple, workers: list[_Worker], held: list[_Worker], base: int) -> None:
    """Runs a compiled kernel in this thread and those of the workers."""
    lead, sleepers = workers[0], []
    for i, worker in enumerate(workers):
        lead.workers[i], worker.work = worker.address, arguments
        if worker.asleep:
            sleepers.append(worker)
    if sleepers:
        _wake(sleepers, -1)
    happened = kernel.launch(kernel.address, arguments, length, lead.address, len(workers))
    if not happened:
        _release_idle(held, base)
    elif _release(held, base) or happened & WRONG:
        kernel.launch(kernel.address, arguments, length, 0, 0)  # raises it where it is seen
        raise RuntimeError(f"{kernel.__name__}: failed in one of its threads")


def _share(function: Callable, length: int, arguments: tuple, workers, held: list[_Worker], base: int) -> None:
    """Calls function(*arguments, first, last) for the parts of 0 ... length, in several threads."""
    if not workers:
        function(*arguments, 0, length)
        return
    step = -(-length // (len(workers) + 1))
    used = workers[: -(-length // step) - 1]
    for i, worker in enumerate(used, 1):
        worker.publish(_Call(function, arguments, i * step, min((i + 1) * step, length)))
    function(*arguments, 0, step)
    for worker in used:
        call = worker.steal()
        if call is not None:
            call.do()
    for worker in used:
        worker.wait()
    errors = [worker.error for worker in used if worker.error is not None]
    for worker in used:
        worker.error = None  # its traceback keeps arrays alive
    _release(held, base)
    if errors:
        raise errors.pop()
