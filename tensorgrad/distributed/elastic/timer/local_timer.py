"""Timers of the processes of one machine, by a queue of `multiprocessing`."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tensorgrad.distributed.elastic.timer.api import RequestQueue, TimerClient, TimerRequest, TimerServer

__all__ = ["LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue"]


class LocalTimerClient(TimerClient):
    """A process's side: it sends requests by a queue of `multiprocessing`."""

    def __init__(self, mp_queue: Any) -> None:
        self._mp_queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Begins a timer."""
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        """Ends a timer."""
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, -1))


class MultiprocessingRequestQueue(RequestQueue):
    """Requests from a queue of `multiprocessing`."""

    def __init__(self, mp_queue: Any) -> None:
        self._mp_queue = mp_queue

    def size(self) -> int:
        """Returns how many requests wait."""
        return int(self._mp_queue.qsize())

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Returns at most `size` requests, after at most `timeout` seconds."""
        found: list[TimerRequest] = []
        end = time.monotonic() + timeout
        with suppress(queue.Empty):
            while len(found) < size:
                found.append(self._mp_queue.get(timeout=max(0.0, end - time.monotonic())))
        return found


class LocalTimerServer(TimerServer):
    """Kills the processes of this machine whose timers have run out.

    Args:
        mp_queue: the queue of the clients.
        max_interval: seconds between two looks at the timers.
        daemon: whether its thread ends with the program.
        now: the clock of the clients, `time.time`: it must be the same in all processes.
    """

    def __init__(
        self, mp_queue: Any, max_interval: float = 60, daemon: bool = True, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon, now)
        self._timers: dict[tuple[int, str], TimerRequest] = {}

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Begins and ends timers."""
        for request in timer_requests:
            key = request.worker_id, request.scope_id
            if request.expiration_time < 0:
                self._timers.pop(key, None)
            else:
                self._timers[key] = request

    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Forgets the timers of processes."""
        self._timers = {key: request for key, request in self._timers.items() if key[0] not in worker_ids}

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """Returns the timers that have run out by then, for each process."""
        expired: dict[Any, list[TimerRequest]] = {}
        for request in self._timers.values():
            if request.expiration_time <= deadline:
                expired.setdefault(request.worker_id, []).append(request)
        return expired

    def _reap_worker(self, worker_id: int) -> bool:
        with suppress(ProcessLookupError):
            os.kill(worker_id, getattr(signal, "SIGKILL", signal.SIGTERM))
        return True
