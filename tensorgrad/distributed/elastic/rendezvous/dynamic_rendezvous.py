"""The handler of machines that may come late and leave: they agree by data that each of them changes in turn."""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from tensorgrad.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from tensorgrad.distributed.elastic.rendezvous.rounds import Round
from tensorgrad.distributed.stores.store import PrefixStore, Store
from tensorgrad.distributed.stores.tcp_store import TCPStore
from tensorgrad.system import forks
from tensorgrad.system.clock import SYSTEM, Clock
from tensorgrad.system.ports import ReservedPort

__all__ = [
    "DynamicRendezvousHandler", "RendezvousBackend", "RendezvousSettings", "RendezvousTimeout", "Token",
    "create_handler",
]  # fmt: skip

Token = Any
Result = TypeVar("Result")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.25  # seconds between two looks at who has come

_NUMBERS = itertools.count()  # of the handlers of this process


class RendezvousBackend(ABC):
    """Where machines keep what they all know."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name."""

    @abstractmethod
    def get_state(self) -> tuple[bytes, Token] | None:
        """Returns what is stored, and a token that stands for this version; None if there is nothing.

        Raises:
            RendezvousConnectionError: it cannot be reached.
            RendezvousStateError: what is stored is corrupt.
        """

    @abstractmethod
    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Stores something, unless another version than the token's is there.

        Args:
            state: what to store.
            token: of the version that it replaces; None if there was nothing.

        Returns:
            What is stored now, its token, and whether that is the new state; None if there is nothing.
        """


class RendezvousTimeout:
    """How long to wait.

    Args:
        join: for the least number of machines; 600 seconds if None.
        last_call: for more machines than that; 30 seconds if None.
        close: for the end; 30 seconds if None.
        heartbeat: for a sign of life to be told; 5 seconds if None.

    Raises:
        ValueError: a time is not positive.

    >>> from tensorgrad.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout
    >>> RendezvousTimeout().last_call.seconds
    30
    """

    def __init__(
        self,
        join: timedelta | None = None,
        last_call: timedelta | None = None,
        close: timedelta | None = None,
        heartbeat: timedelta | None = None,
    ) -> None:
        self._times: dict[str, timedelta] = {}
        for name, given, seconds in (
            ("join", join, 600), ("last_call", last_call, 30), ("close", close, 30), ("heartbeat", heartbeat, 5),
        ):  # fmt: skip
            time = timedelta(seconds=seconds) if given is None else given
            if time <= timedelta(0):
                raise ValueError(f"The {name} timeout ({time}) must be positive.")
            self._times[name] = time

    @property
    def join(self) -> timedelta:
        """For the least number of machines."""
        return self._times["join"]

    @property
    def last_call(self) -> timedelta:
        """For more machines than that."""
        return self._times["last_call"]

    @property
    def close(self) -> timedelta:
        """For the end."""
        return self._times["close"]

    @property
    def heartbeat(self) -> timedelta:
        """For a sign of life to be told."""
        return self._times["heartbeat"]


@dataclass(repr=False, eq=False, frozen=True)
class RendezvousSettings:
    """What all machines of a rendezvous have in common.

    Args:
        run_id: the name of the job.
        min_nodes, max_nodes: how many machines take part.
        timeout: how long to wait.
        keep_alive_interval: between two signs of life.
        keep_alive_max_attempt: how many of them may be missing before a machine counts as lost.
    """

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int


class DynamicRendezvousHandler(RendezvousHandler):
    """Brings machines together that may come late, leave, or be lost. Made by `from_backend`.

    Every machine reads what all know, changes it, and writes it back if no other machine was faster; else it tries
    again. A machine counts as lost when its counter has not changed for some time, by the clock of the one that looks.

    Args:
        settings: what all machines have in common.
        backend: where they keep what they know.
        store: in which ranks find each other.
        local_addr: how others reach this machine; its name if None.
        clock: by which it waits.

    Raises:
        ValueError: the job has no name, or the numbers of machines do not fit.
    """

    def __init__(
        self,
        settings: RendezvousSettings,
        backend: RendezvousBackend,
        store: Store,
        local_addr: str | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        if not settings.run_id:
            raise ValueError("The run id must be a non-empty string.")
        if settings.min_nodes < 1:
            raise ValueError(f"The minimum number of nodes ({settings.min_nodes}) must be greater than zero.")
        if settings.max_nodes < settings.min_nodes:
            raise ValueError(
                f"The maximum number of nodes ({settings.max_nodes}) must be greater than or equal to the minimum "
                f"number of nodes ({settings.min_nodes})."
            )
        self._settings, self._backend, self._store, self._clock = settings, backend, store, clock
        self._address = local_addr or socket.getfqdn()
        self._node = f"{self._address} {os.getpid():010} {next(_NUMBERS):06}"
        self._lock = forks.lock()  # the thread that gives signs of life changes the state, too
        self._heard: dict[str, tuple[int, float]] = {}  # each machine's counter, and when it was seen to change
        self._looked = clock.now()
        self._stop_beating: Callable[[], None] = lambda: None
        self._server: TCPStore | None = None
        self._reserved: ReservedPort | None = None

    @classmethod
    def from_backend(
        cls,
        run_id: str,
        store: Store,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        timeout: RendezvousTimeout | None = None,
        keep_alive_interval: int = 5,
        keep_alive_max_attempt: int = 3,
        clock: Clock = SYSTEM,
    ) -> DynamicRendezvousHandler:
        """Returns a handler.

        Args:
            run_id: the name of the job.
            store: in which ranks find each other.
            backend: where machines keep what they all know.
            min_nodes, max_nodes: how many machines take part.
            local_addr: how others reach this machine; its name if None.
            timeout: how long to wait.
            keep_alive_interval: seconds between two signs of life.
            keep_alive_max_attempt: how many of them may be missing before a machine counts as lost.
            clock: by which it waits.

        >>> import tensorgrad.distributed as dist
        >>> from tensorgrad.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
        >>> from tensorgrad.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
        >>> store = dist.HashStore()
        >>> backend = C10dRendezvousBackend(store, "job1")
        >>> handler = DynamicRendezvousHandler.from_backend("job1", store, backend, 1, 1, "127.0.0.1")
        >>> info = handler.next_rendezvous()
        >>> info.rank, info.world_size, handler.shutdown(), handler.is_closed()
        (0, 1, True, True)
        """
        interval = timedelta(seconds=keep_alive_interval)
        settings = RendezvousSettings(
            run_id, min_nodes, max_nodes, timeout or RendezvousTimeout(), interval, keep_alive_max_attempt
        )
        return cls(settings, backend, store, local_addr, clock)

    @property
    def settings(self) -> RendezvousSettings:
        """What all machines have in common."""
        return self._settings

    def get_backend(self) -> str:
        """Returns the backend's name."""
        return self._backend.name

    @property
    def use_agent_store(self) -> bool:
        """Whether ranks use a store that the machine of rank 0 serves; not if TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1."""
        return os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def next_rendezvous(self) -> RendezvousInfo:
        """Leaves the round that this machine takes part in, if any, and waits until the next one is complete.

        Raises:
            RendezvousClosedError: the job has ended.
            RendezvousGracefulExitError: the job has ended, and there was no room for this machine in it.
            RendezvousTimeoutError: there were not enough machines in time.
            RendezvousConnectionError: what machines know of each other cannot be reached.
        """
        settings, clock = self._settings, self._clock
        self._stop_beating()
        self._change(self._leave_complete)
        begin, pause = clock.now(), SHORTEST_PAUSE
        enough: float | None = None  # when the least number of machines was there
        while True:
            over = enough is not None and clock.now() - enough >= settings.timeout.last_call.total_seconds()
            state, taking_part = self._change(lambda state: self._join(state, over))  # noqa: B023
            if state.closed:
                raise RendezvousClosedError(f"the rendezvous {settings.run_id!r} is closed")
            if taking_part:
                break
            count, now = len(state.participants), clock.now()
            if self._node not in state.participants or count < settings.min_nodes:
                enough = None
            elif enough is None:
                enough = now
            if now - begin > settings.timeout.join.total_seconds():
                self._change(lambda state: state.remove(self._node))
                raise RendezvousTimeoutError(
                    f"{count} of at least {settings.min_nodes} nodes came within "
                    f"{settings.timeout.join.total_seconds():g} s"
                )
            clock.sleep(pause)
            pause = min(pause * 1.2, LONGEST_PAUSE)
        self._begin_beating()
        rank, store = state.participants[self._node], PrefixStore(self._name(state.number), self._store)
        port = None
        if rank == 0 and self.use_agent_store:
            self._server = TCPStore(self._address, 0, None, True, wait_for_workers=False)
            port = self._server.port
        elif rank == 0:
            self._reserved = ReservedPort()  # for the process of rank 0, which will listen on it
            port = self._reserved.number
        where = RendezvousStoreInfo.build(rank, store, self._address, port)
        return RendezvousInfo(store, rank, len(state.participants), where)

    def is_closed(self) -> bool:
        """Returns whether the job has ended."""
        return self._change(lambda state: None)[0].closed

    def set_closed(self) -> None:
        """Ends the job: machines that wait get an error."""

        def close(state: Round) -> None:
            state.closed = True

        self._change(close)

    def num_nodes_waiting(self) -> int:
        """Returns how many machines wait for the next round. Those that take part make room by leaving this one."""
        return len(self._change(lambda state: None)[0].waiting)

    def get_run_id(self) -> str:
        """Returns the name of the job."""
        return self._settings.run_id

    def shutdown(self) -> bool:
        """Ends the job. Returns whether others could be told."""
        self._stop_beating()
        try:
            self.set_closed()
        except RendezvousError:
            return False
        return True

    def _name(self, number: int) -> str:
        return f"torch.rendezvous.{self._settings.run_id}.{number}"

    def _leave_complete(self, state: Round) -> None:
        if state.complete and self._node in state.participants:
            state.remove(self._node)

    def _join(self, state: Round, last_call_over: bool) -> bool:
        if state.closed:
            if self._node in state.spare:
                raise RendezvousGracefulExitError(
                    f"the rendezvous {self._settings.run_id!r} is closed: no other machine had to be replaced"
                )
            state.remove(self._node)
            return False
        settings = self._settings
        taking_part = state.join(self._node, settings.min_nodes, settings.max_nodes, last_call_over)
        self._beat(state)
        return taking_part

    def _beat(self, state: Round) -> None:
        """Gives a sign of life, if it is time to."""
        if self._node not in (*state.participants, *state.waiting, *state.spare):
            return
        before, when = self._heard.get(self._node, (0, -1e9))
        if state.pulses.get(self._node) != before or self._clock.now() - when >= self._interval() / 2:
            state.pulses[self._node] = before + 1
            self._heard[self._node] = before + 1, self._clock.now()

    def _interval(self) -> float:
        return self._settings.keep_alive_interval.total_seconds()

    def _drop_lost(self, state: Round) -> None:
        """Removes machines that have given no sign of life for too long."""
        now, silence = self._clock.now(), self._interval() * self._settings.keep_alive_max_attempt
        slept, self._looked = now - self._looked > silence + self._interval(), now  # then the others may be fine
        for node, pulse in list(state.pulses.items()):
            before, when = self._heard.get(node, (-1, 0.0))
            if before != pulse or (slept and node != self._node):
                self._heard[node] = pulse, now
            elif node != self._node and now - when > silence:
                state.remove(node)
        self._heard = {node: self._heard[node] for node in self._heard if node in state.pulses}

    def _change(self, change: Callable[[Round], Result]) -> tuple[Round, Result]:
        """Changes what all machines know: again, if another machine was faster. Returns it, and the change's result."""
        with self._lock:
            while True:
                found = self._backend.get_state()
                before, token = found if found is not None else (b"", None)
                state = Round.from_bytes(before) if before else Round()
                self._drop_lost(state)
                result = change(state)
                after = state.to_bytes()
                if after == before:
                    return state, result
                written = self._backend.set_state(after, token)
                if written is not None and written[2]:
                    return state, result
                self._clock.sleep(random.uniform(0, SHORTEST_PAUSE))

    def _begin_beating(self) -> None:
        """Starts the thread that gives signs of life; it ends with this object."""
        stop = threading.Event()
        arguments = (weakref.ref(self), stop, self._interval())
        threading.Thread(target=_keep_alive, args=arguments, name="tensorgrad-rendezvous", daemon=True).start()
        self._stop_beating = stop.set
        weakref.finalize(self, stop.set)


def _keep_alive(reference: weakref.ref[DynamicRendezvousHandler], stop: threading.Event, interval: float) -> None:
    while not stop.wait(interval):
        handler = reference()
        if handler is None:
            return
        with suppress(RendezvousError):  # the next call of the program says so
            handler._change(handler._beat)
        del handler


def create_handler(
    store: Store, backend: RendezvousBackend, params: RendezvousParameters, clock: Clock = SYSTEM
) -> DynamicRendezvousHandler:
    """Returns the handler that parameters describe.

    Args:
        store: in which ranks find each other.
        backend: where machines keep what they all know.
        params: of the rendezvous; with `join_timeout`, `last_call_timeout`, `close_timeout`, `heartbeat_timeout`,
            `keep_alive_interval` and `keep_alive_max_attempt`, in whole seconds.
        clock: by which it waits.
    """
    seconds = [params.get_as_int(f"{name}_timeout") for name in ("join", "last_call", "close", "heartbeat")]
    timeout = RendezvousTimeout(*(None if value is None else timedelta(seconds=value) for value in seconds))
    more: dict[str, Any] = {name: params.get_as_int(name, default) for name, default in KEEP_ALIVE.items()}
    for name, value in more.items():
        if value is None:
            raise TypeError(f"You passed '{name}=None' as a rendezvous configuration option")
    return DynamicRendezvousHandler.from_backend(
        params.run_id,
        store,
        backend,
        params.min_nodes,
        params.max_nodes,
        params.local_addr,
        timeout,
        clock=clock,
        **more,
    )


KEEP_ALIVE = {"keep_alive_interval": 5, "keep_alive_max_attempt": 3}
