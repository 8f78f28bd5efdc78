"""`Work`: an operation that has begun, and the thread that keeps asynchronous ones moving."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from tensorgrad.distributed.errors import DistBackendError
from tensorgrad.futures import Future, LazyFuture
from tensorgrad.system import forks

__all__ = ["Work"]

PATIENT_AFTER = 2e-3  # seconds of polling without a pause ...
SECONDS_PER_BYTE = 2e-9  # ... and for large messages longer: MPI moves them while it is polled
LONGEST_PAUSE = 1e-3  # seconds between polls after that
THREAD_PAUSE = 1e-3  # between those of the thread: each takes Python's lock from the program
CHECK_EVERY = 0.05  # seconds between looking for members that have ended
SIGN_AFTER = 5.0  # seconds of waiting, after which the store is told who waits
GRACE = 0.5  # seconds that a message from a member that has ended may still need
NO_TIMEOUT = timedelta(0)

_yield: Callable[[], Any] = getattr(os, "sched_yield", lambda: time.sleep(0))


class Work:
    """A collective or a transfer that has begun: what functions return for `async_op=True`.

    Do not use the tensors of the operation before `wait()` has returned.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> work = dist.all_reduce(torch.ones(2), async_op=True)
    >>> work.wait(), work.is_completed()
    (True, True)
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        group: Any,
        name: str,
        requests: list[Any],
        finish: Callable[[], None],
        tensors: list[Any],
        nbytes: int,
        number: int = -1,
    ) -> None:
        self._group, self._name, self._requests, self._number = group, name, requests, number
        self._finish: Callable[[], None] | None = finish
        self._tensors, self._nbytes = tensors, nbytes
        self._since = group.clock.now()
        self._done, self._error, self._source = False, None, -1  # type: bool, BaseException | None, int
        self._lock = forks.adopt(threading.Lock())  # not re-entrant: a callback must not poll again
        self._callbacks: list[Callable[[], None]] = []

    # --- what programs call ---

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Waits until the operation is complete, and its results are in the tensors.

        Args:
            timeout: how long to wait; by default the group's timeout, counted from the operation's start.

        Raises:
            DistBackendError: it failed, took too long, or a member of the group has ended.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.barrier(async_op=True).wait()
        True
        >>> dist.destroy_process_group()
        """
        if not self._done:
            self._drive(timeout)
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Returns whether the operation has ended, with or without success.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> work = dist.barrier(async_op=True)
        >>> work.wait() and work.is_completed()
        True
        >>> dist.destroy_process_group()
        """
        return self._done or self._poll()

    def is_success(self) -> bool:
        """Returns whether the operation has ended without an error.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> work = dist.barrier(async_op=True)
        >>> work.wait() and work.is_success()
        True
        >>> dist.destroy_process_group()
        """
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Returns the error that ended the operation, or None.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.barrier(async_op=True).exception()
        >>> dist.destroy_process_group()
        """
        return self._error

    def result(self) -> list[Any]:
        """Waits, and returns the tensors that hold the results.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.all_reduce(torch.ones(2), async_op=True).result()
        [tensor([1., 1.])]
        >>> dist.destroy_process_group()
        """
        self.wait()
        return list(self._tensors)

    def source_rank(self) -> int:
        """Returns the global rank that a message came from, after `wait`. For receiving only.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.barrier(async_op=True).source_rank()
        -1
        >>> dist.destroy_process_group()
        """
        return self._source

    _source_rank = source_rank

    def synchronize(self) -> None:
        """Waits: on the CPU the same as `wait`.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.barrier(async_op=True).synchronize()
        >>> dist.destroy_process_group()
        """
        self.wait()

    def get_future(self) -> Future:
        """Returns a future whose value is the list of result tensors.

        What `then` makes of it is computed by the thread that waits for it, not before.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        >>> future.then(lambda f: f.value()[0] * 2).wait()
        tensor([2., 2.])
        >>> dist.destroy_process_group()
        """
        return LazyFuture(self.result, self.is_completed, self._when_done)

    # --- how it comes to its end ---

    def _poll(self) -> bool:
        """Makes progress, and completes the operation if everything has arrived."""
        if self._done or not self._lock.acquire(blocking=False):
            return self._done
        try:
            if self._done:
                return True
            if not all([request.completed() for request in self._requests]):  # each is polled
                return False
            self._complete()
        except BaseException as error:
            self._fail(error)
        finally:
            self._lock.release()
        self._announce()
        return True

    def _complete(self) -> None:
        if self._finish is not None:
            self._finish()
        if self._name.startswith("recv"):
            source = self._requests[-1].source
            self._source = self._group.ranks[source]
        self._requests, self._finish, self._done = [], None, True

    def _fail(self, error: BaseException) -> None:
        """Ends the operation with an error. MPI may still write: its arrays live on with the group."""
        self._error = error
        self._group._fail(error, self._requests)
        self._done = True

    def _announce(self) -> None:
        while self._callbacks:
            self._callbacks.pop(0)()

    def _drive(self, timeout: timedelta) -> None:
        """Polls until the operation has ended: first without a pause, then ever less often."""
        clock = self._group.clock
        start = clock.now()
        limit = self._since + self._group.timeout.total_seconds() if timeout <= NO_TIMEOUT else start + (
            timeout.total_seconds()
        )  # fmt: skip
        patient = start + PATIENT_AFTER + SECONDS_PER_BYTE * self._nbytes
        next_check, missing_since, pause = start + CHECK_EVERY, 0.0, 2e-5
        sign = start + min(SIGN_AFTER, (limit - start) / 2) if self._number >= 0 else math.inf
        while not self._poll():
            now = clock.now()
            if now < patient:
                _yield()
            else:
                clock.sleep(pause)
                pause = min(pause * 1.1, LONGEST_PAUSE)
            if now >= next_check:
                next_check = now + CHECK_EVERY
                if missing := self._group._missing():
                    missing_since = missing_since or now
                    if now - missing_since >= GRACE:
                        self._give_up(f"{self._name}: rank {', '.join(map(str, missing))} has ended")
                if now >= sign:
                    sign = math.inf
                    self._group._waits(self._number)
                if now >= limit:
                    who = self._group._absent(self._number) if self._number >= 0 else ""
                    waited = round((now - (self._since if timeout <= NO_TIMEOUT else start)) * 1000)
                    self._give_up(f"Timed out waiting {waited}ms for {self._name} operation to complete{who}")

    def _give_up(self, message: str) -> None:
        with self._lock:
            if not self._done:
                self._fail(DistBackendError(message))
        self._announce()

    def _when_done(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        if self._done:
            self._announce()


class _Progress:
    """A daemon thread that polls asynchronous operations, so that they go on while the program computes."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.lock = forks.lock()
        self.process = 0  # the one that has the thread: a forked child starts its own
        self.arrivals: SimpleQueue = SimpleQueue()

    def watch(self, work: Work) -> None:
        with self.lock:
            if self.process != os.getpid():
                self.works, self.process, self.arrivals = [], os.getpid(), SimpleQueue()
                threading.Thread(target=self.run, name="tensorgrad-communication", daemon=True).start()
            self.works.append(work)
            self.arrivals.put(None)

    def run(self) -> None:
        while True:
            while not self.works:
                self.arrivals.get()
            with self.lock:
                works = list(self.works)
            ended = [work for work in works if work._poll()]
            if ended:
                with self.lock:
                    self.works = [work for work in self.works if work not in ended]
            else:
                time.sleep(THREAD_PAUSE)
            works = ended = []  # a waiting thread must keep nothing alive


PROGRESS = _Progress()
