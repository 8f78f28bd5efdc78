"""The threads that share the work of one kernel.

A call of a kernel runs one range of its work while workers run the others. Each worker is a thread with a mailbox
(mailbox.py). An idle worker spins briefly (spin.py) before it sleeps, so publishing a range takes a microsecond if
kernels follow each other closely; waking a sleeping worker takes tens of microseconds. Where the system has semaphores
for it, workers sleep without ever taking the GIL: many of them would wait for each other, and for the program. A range
that its worker has not begun is stolen back: on a busy machine the worker may take long to arrive. Only work above a
certain size is shared.

Compiled kernels (launch.py) are started by compiled code, which releases the GIL for those that take longer than to
wake a thread: threads that passed the GIL on at each short kernel would mostly wait. Python functions that call NumPy
can be shared as well; they are called as `function(*arguments, first, last)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.runtime import mailbox
from tensorgrad.kernels.compiled.runtime.mailbox import (
    ASLEEP,
    CALLED,
    CROWDED,
    DONE,
    EACH,
    FAILED,
    FINISHED,
    IN_PYTHON,
    MOST,
    NOTHING,
    SEMAPHORE,
    SLEEPS,
    TASK,
    WORKERS,
    WRONG,
)  # fmt: skip
from tensorgrad.kernels.compiled.runtime.row import WAITING
from tensorgrad.kernels.compiled.runtime.timing import GIL_RELEASE, POLL, RECENT, SPIN, SPIN_OF_MANY
from tensorgrad.kernels.compiled.runtime.unsuited import Unsuited
from tensorgrad.settings import SETTINGS, get_num_threads
from tensorgrad.system import forks, processors, threads
from tensorgrad.system.c_library import c_library

GRAIN = 24576  # elements (of ordinary cost) that justify a thread
WAKING = 131072  # elements that justify waking threads; a kernel with less work keeps the GIL, too
_KEEPS_GIL = -1  # in the place of a number of workers
_MANY = 5  # threads, from which on work is divided into more parts than threads
IN_PYTHON_MOST = 8  # threads for a Python function: more would wait for the GIL longer than they compute
_LIBRARY = c_library()


class _Call:
    """A call in Python published for a worker, unless it is stolen back: the first thread to claim it runs it.

    Claiming it again changes nothing, so an interrupted thread can repeat its steps.
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
    """A thread that runs ranges of work for the thread that has taken it, and its mailbox."""

    __slots__ = (
        "address", "alarm", "box", "call", "done", "error", "loops", "sleepers", "sleeps", "task", "team", "work",
    )  # fmt: skip

    def __init__(self) -> None:
        self.loops = WAITING.ready
        many = _MANY <= get_num_threads() <= processors.processors()
        box = self.box = mailbox.allocate(self.loops.divide.address, SPIN_OF_MANY if many else SPIN)
        self.task, self.done = box[TASK : TASK + 1], box[DONE : DONE + 1]
        self.address = box.ctypes.data
        place = ctypes.c_void_p(self.address + 8 * SEMAPHORE)
        self.sleeps = _LIBRARY is not None and self.loops.sleeps and _LIBRARY.sem_init(place, 0, 0) == 0
        box[SLEEPS] = self.sleeps
        self.alarm: SimpleQueue = SimpleQueue()  # for a thread that sleeps in Python
        self.sleepers: tuple[list[_Worker], int] | None = None  # the workers it is to wake in turn, and its index there
        self.team: list[_Worker] = []  # those whose addresses are in its mailbox
        self.work: tuple | None = None  # a kernel's arguments: kept alive while threads may write to them
        self.call: _Call | None = None
        self.error: BaseException | None = None
        threads.start("tensorgrad kernel", self.serve)

    @property
    def asleep(self) -> bool:
        return bool(self.box[ASLEEP])

    def wake(self) -> None:
        """Wakes the thread if it is asleep. It may wake too late and find nothing to do."""
        if self.sleeps:
            self.loops.wake(self.address)
        elif self.box[ASLEEP]:
            self.box[ASLEEP] = 0
            self.alarm.put(None)

    def publish(self, call: _Call) -> None:
        """Gives the worker a call to run."""
        self.error = None
        self.call = call
        self.done[0], self.task[0] = NOTHING, IN_PYTHON
        self.wake()

    def steal(self) -> _Call | None:
        """Takes back the published call and returns it; None if the worker has begun it."""
        call = self.call
        if call is None or not call.claim(None):
            return None
        self.task[0] = NOTHING
        self.call = None
        self.done[0] = FINISHED
        return call

    def wait(self) -> bool:
        """Waits until the thread has finished what it began. Returns whether that failed."""
        if self.done[0] == NOTHING and not self.loops.done(self.address, SPIN):
            while self.done[0] == NOTHING:
                time.sleep(POLL / 1e9)
        return bool(self.done[0] == FAILED)

    def serve(self) -> None:
        """The thread's loop: runs what is published, forever."""
        while True:
            why = self.loops.serve(self.address, SPIN, GIL_RELEASE)
            if why == CALLED:
                self.run_call()
                continue
            if why == CROWDED:
                _change_processor()
                continue
            self.box[ASLEEP] = 1
            if self.task[0] == NOTHING:
                self.alarm.get()
            self.box[ASLEEP] = 0
            sleepers, self.sleepers = self.sleepers, None
            if sleepers is not None:
                _wake(*sleepers)

    def run_call(self) -> None:
        """Runs the published call, unless it was stolen back."""
        call = self.call
        if call is None or not call.claim(self):
            return
        self.task[0] = NOTHING
        try:
            call.do()
        except BaseException as error:  # raised in the thread that waits
            self.error = error
        call = self.call = None  # a waiting thread must keep nothing alive
        self.done[0] = FINISHED


def _wake(sleepers: list[_Worker], number: int) -> None:
    """Wakes the first of the workers that sleep in Python, which wake the others.

    Worker n wakes those from index EACH (n + 1) on.

    Waking one takes microseconds, too long for the thread that starts a kernel to wake them all.
    """
    for n in range(EACH * (number + 1), min(EACH * (number + 2), len(sleepers))):
        sleeper = sleepers[n]
        if sleeper.work is None:  # too late: its work is done
            continue
        if sleeper.asleep:
            sleeper.sleepers = sleepers, n
            sleeper.wake()
        else:
            _wake(sleepers, n)


def _change_processor() -> None:
    """Moves this thread off a processor that it shares with a busy one, if there is another.

    Some systems leave two busy threads on one processor for seconds while the next one is idle.
    """
    here = getattr(_LIBRARY, "sched_getcpu", None)
    if here is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            all_of_them = os.sched_getaffinity(0)
            others = all_of_them - {here()}
            if others:
                os.sched_setaffinity(0, others)
                os.sched_setaffinity(0, all_of_them)


# Every worker is in one of the first two, and moves between them without a function call: signals are handled, and
# threads switch, only after calls and at the ends of loops. So an exception from a signal handler loses no worker, and
# two threads never take the same one.
_idle: list[_Worker] = []  # workers that no thread has taken
_held: dict[int, list[_Worker]] = {}  # workers taken, by thread
_all: list[_Worker] = []
_making = forks.lock()
_last = 0  # nanoseconds: when the last kernel that can be shared was started


def _forget() -> None:
    """Resets the pool in a child after a fork, where its threads are gone: the next kernel starts others."""
    global _idle, _held, _all
    _idle, _held, _all = [], {}, []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _take(held: list[_Worker], wanted: int, asleep: bool) -> list[_Worker]:
    """Takes up to `wanted` idle workers; at most one fewer than the number of threads exist.

    `held`: the list that they are added to. `asleep`: also takes sleeping workers, and makes new ones.
    """
    base, idle = len(held), _idle
    if WAITING.ready is None:
        WAITING.available()
        return []
    if asleep and wanted > 0:
        held += idle[-wanted:]  # no function call before they are removed
        del idle[-wanted:]
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
    """Makes a worker if the limit allows, else frees those of ended threads. Returns whether one is available."""
    with _making:
        if len(_all) < get_num_threads() - 1:
            try:
                worker = _Worker()
            except RuntimeError as error:
                if "thread" not in str(error):
                    raise
                return False  # the system has no threads left: the existing ones must do
            list(map(list.append, (_all, held), (worker, worker)))
            return True
        there = _threads()
        for thread, left in list(_held.items()):
            if thread not in there:
                _release(left, 0)
                del _held[thread]
    return bool(_idle)


def _threads() -> Any:
    """Returns the identifiers of all running threads.

    The garbage collector is off meanwhile: it runs Python code, and Python 3.11 deadlocks if another thread is just
    being created (https://github.com/python/cpython/issues/106883).
    """
    collects = gc.isenabled()
    try:
        gc.disable()
        return sys._current_frames().keys()
    finally:
        if collects:
            gc.enable()


def _release(held: list[_Worker], base: int) -> bool:
    """Frees the workers in `held` from index `base` on when their work is done. Returns whether any failed.

    Nothing ends this early: a worker would go on writing to arrays whose owner no longer expects it.
    """
    interrupted, failed = None, False
    while len(held) > base:
        try:
            while len(held) > base:  # the first one last: its mailbox has the arguments
                held[-1].steal()
                failed |= held[-1].wait()
                _release_idle(held, len(held) - 1)
        except BaseException as interrupt:
            interrupted = interrupt
    if interrupted is not None:
        raise interrupted
    return failed


def _release_idle(held: list[_Worker], base: int) -> None:
    """Frees workers that have nothing left to do."""
    idle, free = _idle, held[base:]
    for worker in free[:1] if free and free[0].sleeps else free:  # the others have none
        worker.work = None
    idle += free  # no function call before they are removed
    del held[base:]


def _inside() -> bool:
    """Returns whether this thread is inside another call of `run`, as in a signal handler."""
    count, place = 0, sys._getframe()
    while place is not None:
        count += place.f_code is run.__code__
        place = place.f_back  # type: ignore[assignment]
    return count > 1


def shares(in_python: bool, length: int, elements: int) -> int:
    """Returns how many threads an amount of work justifies."""
    most = IN_PYTHON_MOST if in_python else MOST
    return max(1, min(get_num_threads(), elements // GRAIN, length, most))


def parts(fewest: int = 1) -> int:
    """Returns into how many parts to divide work, where that changes no result.

    Threads should finish at about the same time: `fewest` parts, or more for many threads.
    """
    threads = get_num_threads()
    return max(fewest, 2 * threads if threads >= _MANY else threads)


def run(kernel: Any, length: int, arguments: tuple, elements: int, alive: Any = None) -> None:
    """Runs `kernel` over 0 ... length, in as many threads as `elements` (the total work) justify.

    `kernel` is a compiled kernel (launch.py) or a Python function. `alive` are arrays that it finds by numbers in its
    arguments (lists.py): like the arguments, they are kept for threads that an exception left running.

    Raises: what it raises, in any thread; Unsuited if an array must not be written, has gaps, or has a dtype that
    compiled kernels do not support.
    """
    global _last
    held, base = _NONE, 0
    try:
        workers: Any = ()
        address = getattr(kernel, "address", None)
        several = elements >= 2 * GRAIN and length > 1 and SETTINGS.threads > 1
        if several:
            now = time.perf_counter_ns()
            asleep, _last = elements >= WAKING or now - _last < RECENT, now
            me = threading.get_ident()
            held = _held.get(me) or _held.setdefault(me, [])
            if held and not _inside():  # an exception ended an earlier call before it freed these
                _release(held, 0)
            base = len(held)
            workers = _take(held, shares(address is None, length, elements) - 1, asleep)
        if address is None:
            _share(kernel, length, arguments, workers, held, base)
        elif workers:
            _launch(kernel, length, arguments, workers, held, base, alive)
        else:
            kernel.launch(address, arguments, length, 0, _KEEPS_GIL if elements < WAKING else 0)
        if _LISTENERS:
            _tell(Heard(kernel, length, arguments, elements, several))
    except BaseException as error:
        if len(held) > base:  # an error, or an exception from a signal handler at any moment
            _release(held, base)
        if error.__class__ is TypeError and _unsuited(arguments):
            raise Unsuited from None
        raise


_NONE: list[_Worker] = []
_LISTENERS: dict[int, list[Heard]] = {}  # by thread


class Heard(NamedTuple):
    """What a thread ran; `several`: other threads may have taken part."""

    kernel: Any
    length: int
    arguments: tuple
    elements: int
    several: bool


def _tell(launch: Heard) -> None:
    heard = _LISTENERS.get(threading.get_ident())
    if heard is not None:
        heard.append(launch)


def heard() -> bool:
    """Whether some thread collects what it runs: a plan may repeat that without the Python around it."""
    return bool(_LISTENERS)


@contextlib.contextmanager
def listening() -> Iterator[list[Heard]]:
    """Collects what this thread runs meanwhile."""
    me = threading.get_ident()
    heard: list[Heard] = []
    before = _LISTENERS.get(me)
    _LISTENERS[me] = heard
    try:
        yield heard
    finally:
        if before is None:
            del _LISTENERS[me]
        else:
            _LISTENERS[me] = before


def _unsuited(argument: Any) -> bool:
    if isinstance(argument, tuple):
        return any(map(_unsuited, argument))
    return isinstance(argument, np.ndarray) and (
        not argument.flags.carray or not (argument.dtype.kind in "iub" or argument.dtype == F32)
    )  # fmt: skip


def _launch(
    kernel: Any, length: int, arguments: tuple, workers: list[_Worker], held: list[_Worker], base: int, alive: Any
) -> None:
    """Runs a compiled kernel in this thread and in the workers."""
    lead = workers[0]
    lead.work = work = arguments if alive is None else (arguments, alive)
    if lead.team != workers:
        lead.box[WORKERS : WORKERS + len(workers)] = [worker.address for worker in workers]
        lead.team = workers
    if not lead.sleeps:
        for worker in workers:
            worker.work = work
        sleepers = [worker for worker in workers if worker.asleep]
        if sleepers:
            _wake(sleepers, -1)
    happened = kernel.launch(kernel.address, arguments, length, lead.address, len(workers))
    if not happened:
        _release_idle(held, base)
    elif _release(held, base) or happened & WRONG:
        kernel.launch(kernel.address, arguments, length, 0, 0)  # raises the error in this thread
        raise RuntimeError(f"{kernel.__name__} failed in one of its threads")


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
