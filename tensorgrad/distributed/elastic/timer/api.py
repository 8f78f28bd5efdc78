"""Timers: what clients and servers of any kind have in common."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["RequestQueue", "TimerClient", "TimerRequest", "TimerServer", "configure", "expires"]

_log = logging.getLogger(__name__)


@dataclass
class TimerRequest:
    """A timer that begins, or ends.

    Args:
        worker_id: of the process.
        scope_id: the name of the timer.
        expiration_time: when it runs out, as `time.time()`; a negative number ends it.
    """

    __slots__ = ("expiration_time", "scope_id", "worker_id")
    worker_id: Any
    scope_id: str
    expiration_time: float


class TimerClient(ABC):
    """A process's side."""

    @abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Begins a timer."""

    @abstractmethod
    def release(self, scope_id: str) -> None:
        """Ends a timer."""


class RequestQueue(ABC):
    """From where a server gets requests."""

    @abstractmethod
    def size(self) -> int:
        """Returns how many requests wait."""

    @abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Returns at most `size` requests, after at most `timeout` seconds."""


class TimerServer(ABC):
    """Watches timers in a thread, and ends the processes whose timers have run out.

    Args:
        request_queue: from where requests come.
        max_interval: seconds to wait for a request before the timers are looked at again.
        daemon: whether the thread ends with the program.
        now: the clock of the clients, `time.time`: it must be the same in all processes.
    """

    def __init__(
        self,
        request_queue: RequestQueue,
        max_interval: float,
        daemon: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._request_queue, self._max_interval, self._daemon = request_queue, max_interval, daemon
        self._now = now
        self._watchdog_thread: threading.Thread | None = None
        self._stop_signaled = False

    @abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Begins and ends timers."""

    @abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Forgets the timers of processes."""

    @abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """Returns the timers that have run out by then, for each process."""

    @abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """Ends a process. Returns whether it is gone."""

    def _run_watchdog(self) -> None:
        """Looks at requests and timers once."""
        self.register_timers(self._request_queue.get(max(1, self._request_queue.size()), self._max_interval))
        gone = set()
        for worker, expired in self.get_expired_timers(self._now()).items():
            _log.info("ending process %s: %s took too long", worker, [request.scope_id for request in expired])
            try:
                if self._reap_worker(worker):
                    gone.add(worker)
            except Exception:
                _log.exception("process %s could not be ended", worker)
                gone.add(worker)
        self.clear_timers(gone)

    def _watchdog_loop(self) -> None:
        while not self._stop_signaled:
            try:
                self._run_watchdog()
            except Exception:
                _log.exception("a request for a timer could not be served")

    def start(self) -> None:
        """Starts the thread."""
        self._watchdog_thread = threading.Thread(
            target=self._watchdog_loop, name="tensorgrad-timers", daemon=self._daemon
        )
        self._watchdog_thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop_signaled = True
        if self._watchdog_thread is not None:
            self._watchdog_thread.join(self._max_interval)
            self._watchdog_thread = None


_CLIENT: list[TimerClient] = []  # the one that `configure` has set


def configure(timer_client: TimerClient) -> None:
    """Sets the client that `expires` uses."""
    _CLIENT[:] = [timer_client]


@contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Iterator[None]:
    """If the block takes longer, the server may end this process.

    Args:
        after: seconds.
        scope: the name of the timer; by default file and line of the caller.
        client: the client; by default the one that was configured.

    Raises:
        RuntimeError: there is no client.

    >>> import multiprocessing
    >>> from tensorgrad.distributed.elastic import timer
    >>> timer.configure(timer.LocalTimerClient(multiprocessing.get_context("spawn").Queue()))
    >>> with timer.expires(after=60):
    ...     print("done in time")
    done in time
    """
    if client is None:
        if not _CLIENT:
            raise RuntimeError("Configure timer client before using countdown timers.")
        client = _CLIENT[0]
    if scope is None:
        frame = inspect.stack()[2]  # behind the context manager
        scope = f"{frame.filename}#{frame.lineno}"
    client.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        client.release(scope)
