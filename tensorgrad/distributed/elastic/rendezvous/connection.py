"""A machine's connection to the others of its job: a store that one of them serves, which also decides the plan."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tensorgrad.distributed.elastic.membership import Membership, Plan, Settings
from tensorgrad.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousError
from tensorgrad.distributed.errors import DistNetworkError, DistStoreError, QueueEmptyError
from tensorgrad.distributed.stores.store import PrefixStore
from tensorgrad.distributed.stores.tcp_store import TCPStore
from tensorgrad.system.clock import SYSTEM, Clock

__all__ = ["Rendezvous", "is_here", "split_endpoint"]

DEFAULT_PORT = 29400  # of the backend c10d
PULSE = 0.5  # seconds between two signs of life, unless `keep_alive_interval` is shorter
PATIENCE = timedelta(seconds=30)  # for an answer of the store


def split_endpoint(endpoint: str, default_port: int) -> tuple[str, int]:
    """Host and port of `host`, `host:port` or `[address]:port`. Raises: ValueError.

    >>> from tensorgrad.distributed.elastic.rendezvous.connection import split_endpoint
    >>> split_endpoint("node1:29500", 0), split_endpoint("[::1]", 29400)
    (('node1', 29500), ('::1', 29400))
    """
    host, colon, port = endpoint.strip().rpartition(":")
    if not colon or endpoint.endswith("]"):
        host, port = endpoint.strip(), str(default_port)
    host = host.removeprefix("[").removesuffix("]") or "localhost"
    if not port.isdecimal() or int(port) >= 2**16:
        raise ValueError(f"the rendezvous endpoint {endpoint!r} has no valid port: expected host:port")
    return host, int(port)


def is_here(host: str) -> bool:
    """Whether a host name or address is one of this machine: whether a socket can be bound to it.

    >>> from tensorgrad.distributed.elastic.rendezvous.connection import is_here
    >>> is_here("127.0.0.1"), is_here("192.0.2.1")
    (True, False)
    """
    with suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as trial:
                trial.bind(address)
                return True
    return False


class Rendezvous:
    """One machine's part. Raises: RendezvousConnectionError if the store cannot be reached or made.

    Args:
        endpoint: where the store is, as (host, port); port 0 lets the system choose, for a job of one machine.
        run_id: the name of the job.
        processes: how many this machine starts.
        settings: of the job.
        configs: PyTorch's `--rdzv-conf`: `rank` (of the machine), `is_host`, `keep_alive_interval`.
        local_addr: how others reach this machine.
        clock: by which it waits, and the job is decided.
    """

    def __init__(
        self,
        endpoint: tuple[str, int],
        run_id: str,
        processes: int,
        settings: Settings,
        configs: dict[str, Any],
        local_addr: str | None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.host, self.port = endpoint
        self.clock = clock
        self.settings, self.processes = settings, processes
        self.id, self.name = os.urandom(8).hex(), local_addr or socket.gethostname()
        self.interval = min(PULSE, float(configs.get("keep_alive_interval", PULSE)))
        self.last_pulse, self.pulses = float("-inf"), 0
        self.membership: Membership | None = None
        rank = int(configs.get("rank", 0))
        self.server = self._connect(rank, configs)
        self.port = self.server.port
        self.store = PrefixStore(f"agents/{run_id}", self.server)
        self.address = (local_addr or self.host) if self.membership is not None else self.host
        self._join(rank, run_id)

    def _connect(self, rank: int, configs: dict[str, Any]) -> TCPStore:
        """The store, served by this machine if it is the one."""
        settings, wait = self.settings, timedelta(seconds=self.settings.join_timeout)
        alone = settings.max_nodes == 1
        given = str(configs.get("is_host", "")).lower()
        if settings.static:
            mine = rank == 0
        elif given in ("1", "true", "0", "false"):
            mine = given in ("1", "true")
        else:
            mine = alone or is_here(self.host)
        try:
            if mine:
                try:
                    store = TCPStore(self.host, self.port, None, True, PATIENCE)
                    self.membership = Membership(settings, self.clock.now())
                    return store
                except DistNetworkError as error:
                    if alone or settings.static or given:
                        raise RendezvousConnectionError(
                            f"port {self.port} of {self.host} is in use, perhaps by another job: choose one with "
                            f"--{'master-port' if settings.static else 'rdzv-endpoint'}, or use --standalone ({error})"
                        ) from None
            store = TCPStore(self.host, self.port, None, False, wait)  # the other agent of this machine has it
            store.set_timeout(PATIENCE)
            return store
        except DistNetworkError as error:
            raise RendezvousConnectionError(f"no rendezvous at {self.host}:{self.port}: {error}") from None

    def _join(self, rank: int, run_id: str) -> None:
        """Tells the deciding machine what this one brings."""
        settings = self.settings
        if self.membership is not None:
            self.store.set("nodes", json.dumps([settings.min_nodes, settings.max_nodes]))
            self.store.set(f"pulse/{self.id}", "0")
            order = rank if settings.static else 0
            self.membership.join(self.id, order, self.processes, self.name, self.clock.now())
            self._publish()
            return
        try:
            theirs = tuple(json.loads(self.store.get("nodes")))
        except DistStoreError:
            raise RendezvousConnectionError(
                f"the store at {self.host}:{self.port} serves another job, not {run_id!r}: compare --rdzv-id"
            ) from None
        if theirs != (settings.min_nodes, settings.max_nodes):
            raise RendezvousError(
                f"this node was started with --nnodes {settings.min_nodes}:{settings.max_nodes}, the job has "
                f"{theirs[0]}:{theirs[1]}"
            )
        self.store.set(f"pulse/{self.id}", "0")
        order = rank if settings.static else self.store.add("order", 1)
        self._tell("join", order=order, processes=self.processes, name=self.name)

    def _tell(self, kind: str, **more: Any) -> None:
        self.store.queue_push("messages", json.dumps({"kind": kind, "id": self.id, **more}))

    def exchange(self) -> Plan:
        """Gives a sign of life, and returns what to do now. Raises: RendezvousError if the store is gone."""
        now = self.clock.now()
        try:
            if now - self.last_pulse >= self.interval:
                self.last_pulse, self.pulses = now, self.pulses + 1
                self.store.set(f"pulse/{self.id}", str(self.pulses))
                if self.membership is not None:
                    for id in list(self.membership.nodes):
                        self.membership.pulse(id, int(self.store.get(f"pulse/{id}")), now)
            if self.membership is not None:
                self._decide(now)
                return self.membership.plan
            if self.store.check([f"refused/{self.id}"]):
                raise RendezvousError(self.store.get(f"refused/{self.id}").decode())
            found = json.loads(self.store.get("plan"))
            found["members"] = [tuple(member) for member in found["members"]]
            return Plan(**found)
        except (DistNetworkError, DistStoreError) as error:
            raise RendezvousConnectionError(
                f"the node that serves the rendezvous at {self.host}:{self.port} has gone: {error}"
            ) from None

    def _decide(self, now: float) -> None:
        """The deciding machine's part: reads messages, and publishes a plan that has changed."""
        members = self.membership
        assert members is not None
        with suppress(QueueEmptyError):
            while True:
                self._hear(json.loads(self.store.queue_pop("messages", False)), now)
        members.step(now)
        self._publish()

    def _hear(self, message: dict[str, Any], now: float) -> None:
        members, id = self.membership, message["id"]
        assert members is not None
        if message["kind"] == "join":
            refusal = members.join(id, message["order"], message["processes"], message["name"], now)
            if refusal:
                self.store.set(f"refused/{id}", refusal)
        elif message["kind"] == "leave":
            members.leave(id, now)
        elif message["kind"] == "done":
            members.done(id, message["round"])
        elif message["kind"] == "failed":
            members.failed(message["round"], message["failures"], now)

    def _publish(self) -> None:
        assert self.membership is not None
        text = json.dumps(self.membership.plan.to_dict())
        if text != getattr(self, "_published", None):
            self._published = text
            self.store.set("plan", text)

    def report(self, kind: str, round: int, **more: Any) -> None:
        """Tells the deciding machine that the processes here are "done", or have "failed"."""
        with suppress(DistNetworkError):
            self._tell(kind, round=round, **more)

    def leave(self, reason: str) -> None:
        """Ends this machine's part before the job has ended: the others go on, if they can."""
        with suppress(DistNetworkError, DistStoreError):
            if self.membership is None:
                self._tell("leave")
            elif self.membership.plan.state != "end":
                self.membership.end(False, f"{self.name}, which serves the rendezvous, {reason}")
                self._publish()
                self.wait_for_others()

    def wait_for_others(self, seconds: float = 5.0) -> None:
        """At the end: the deciding machine stays until the others have read the last plan."""
        with suppress(DistNetworkError, DistStoreError):
            if self.membership is None:
                self._tell("leave")
                return
            end = self.clock.now() + seconds
            self.membership.nodes.pop(self.id, None)
            while self.membership.nodes and self.clock.now() < end:
                with suppress(QueueEmptyError):
                    self._hear(json.loads(self.store.queue_pop("messages", False)), self.clock.now())
                    continue
                self.clock.sleep(0.02)
