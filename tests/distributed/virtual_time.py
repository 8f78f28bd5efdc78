"""Time that passes only when everybody sleeps, so that a test of waits takes milliseconds and always goes the same way.

Functions run as threads that take turns: exactly one runs, until it sleeps; then the one whose sleep ends first goes
on, and the time is the end of its sleep. So machines that wait for each other, or for a timeout of ten minutes, can be
played in any order.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import Any

import tensorgrad.distributed as dist
from tensorgrad.distributed.elastic.rendezvous import RendezvousParameters
from tensorgrad.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from tensorgrad.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
from tensorgrad.distributed.stores.store import wait_until
from tensorgrad.system.clock import Clock

HANG = 100  # real seconds that one turn may take
END = 1e6  # seconds of virtual time after which nobody waits for anything sensible


class VirtualTime:
    """A clock, and what runs by it."""

    def __init__(self) -> None:
        self.time = 0.0
        self.clock = Clock(lambda: self.time, self.sleep)
        self._sleepers: list[tuple[float, int, threading.Event]] = []
        self._numbers = itertools.count()
        self._idle = threading.Event()  # the one whose turn it was sleeps, or has ended
        self._over = False
        self._players: tuple[threading.Thread, ...] = ()

    def sleep(self, seconds: float) -> None:
        """Ends this turn. Alone, without `run`, it moves the time."""
        if threading.current_thread() not in self._players:
            self.time += seconds
            return
        turn = threading.Event()
        heapq.heappush(self._sleepers, (self.time + max(0.0, seconds), next(self._numbers), turn))
        self._idle.set()
        turn.wait()
        if self._over:
            raise SystemExit

    def run(self, *functions: Callable[[], Any]) -> list[Any]:
        """Runs functions to their end, and returns what they return, or the exceptions that they raise."""
        results: list[Any] = [None] * len(functions)
        self._over = False

        def play(index: int) -> None:
            try:
                self.sleep(0)
                results[index] = functions[index]()
            except Exception as error:
                results[index] = error
            finally:
                self._idle.set()

        self._players = tuple(threading.Thread(target=play, args=(i,), daemon=True) for i in range(len(functions)))
        for player in self._players:
            self._let(player.start)
        while self._sleepers and self.time < END:
            self.time, _, turn = heapq.heappop(self._sleepers)
            self._let(turn.set)
        waiting, self._over = len(self._sleepers), True
        while self._sleepers:
            self._let(heapq.heappop(self._sleepers)[2].set)
        assert not waiting, f"{waiting} functions still wait after {END:g} seconds"
        return results

    def _let(self, someone: Callable[[], Any]) -> None:
        self._idle.clear()
        someone()
        assert self._idle.wait(HANG), "a function waits by another clock"


class Store(dist.HashStore):
    """A store whose waits pass virtual time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def _wait(self, keys, timeout):
        if not wait_until(lambda: self.check(keys), timeout, self._clock):
            raise dist.DistStoreError("Wait timeout")


class Machines(VirtualTime):
    """Machines that keep what they know in one store, and whose time passes when all of them wait."""

    def __init__(self, least, most, **more):
        super().__init__()
        self.least, self.most, self.more, self.store = least, most, more, Store(self.clock)

    def handler(self):
        parameters = RendezvousParameters("c10d", "", "job", self.least, self.most, local_addr="127.0.0.1", **self.more)
        backend = C10dRendezvousBackend(self.store, "job")
        return create_handler(self.store, backend, parameters, self.clock)

    def works(self, handler, until):
        """A machine that takes part gives signs of life, for some time or until something happens."""
        while not until():
            self.sleep(0.5)
            handler._change(handler._beat)
