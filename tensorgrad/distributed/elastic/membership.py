"""Which machines take part in a job, and what they do next: decided in one place, by plain data.

The machine that runs the store decides; the others follow its `Plan`. A plan says: wait (stop your processes), run
(start them, in these ranks), or end. Nothing here knows of networks or clocks, so that a test can play any order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

__all__ = ["Membership", "Plan", "Settings"]


class Settings(NamedTuple):
    """Of a job. Times are in seconds."""

    min_nodes: int
    max_nodes: int
    max_restarts: int
    static: bool = False  # every machine has its number, and none can be replaced
    join_timeout: float = 600.0  # in which the least number of machines must come
    last_call: float = 30.0  # how long to wait for more than the least number, at the start
    silence: float = 15.0  # after which a machine counts as lost


@dataclass
class Node:
    """A machine that takes part, or waits to."""

    id: str
    order: int  # machines are numbered in this order
    processes: int
    name: str
    pulse: int = -1  # a counter that it increases
    heard: float = 0.0  # when the counter last changed
    done: bool = False


@dataclass
class Plan:
    """What all machines do now. `members` are (id, number of processes, name)."""

    round: int = 0
    state: str = "wait"  # or "run" or "end"
    members: list[tuple[str, int, str]] = field(default_factory=list)
    restarts: int = 0
    ok: bool = True
    message: str = ""
    failures: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Membership:
    """The machines of a job and its plan.

    >>> from tensorgrad.distributed.elastic.membership import Membership, Settings
    >>> members = Membership(Settings(1, 1, 0), now=0.0)
    >>> members.join("a", 0, 2, "host", now=0.0)
    ''
    >>> members.step(now=0.0)
    >>> members.plan.state, members.plan.members
    ('run', [('a', 2, 'host')])
    """

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings, self.plan = settings, Plan(round=1)
        self.nodes: dict[str, Node] = {}
        self.since = now  # when the present wait began
        self.enough: float | None = None  # when there were enough machines
        self.charged = False  # whether this wait cost a restart

    def join(self, id: str, order: int, processes: int, name: str, now: float) -> str:
        """A machine wants to take part. Returns why it may not, or an empty string."""
        if self.settings.static and any(node.order == order for node in self.nodes.values()):
            other = next(node for node in self.nodes.values() if node.order == order)
            return f"node rank {order} is taken by {other.name}"
        if self.settings.static and not 0 <= order < self.settings.max_nodes:
            return f"node rank {order} is not below the number of nodes, {self.settings.max_nodes}"
        self.nodes[id] = Node(id, order, processes, name, heard=now)
        return ""

    def pulse(self, id: str, value: int, now: float) -> None:
        """A machine's counter, as it is now."""
        node = self.nodes.get(id)
        if node is not None and node.pulse != value:
            node.pulse, node.heard = value, now

    def leave(self, id: str, now: float, reason: str = "has left") -> None:
        """A machine ends, or has not been heard of."""
        node = self.nodes.pop(id, None)
        if node is None or self.plan.state == "end":
            return
        if self.settings.static:
            self.end(False, f"node {node.order} ({node.name}) {reason}")
        elif any(member[0] == id for member in self.plan.members):
            if self.plan.state == "run":
                self._wait(now)
            elif self.charged:  # the failure that cost a restart came from this
                self.charged = False
                self.plan.restarts -= 1

    def done(self, id: str, round: int) -> None:
        """All processes of a machine have ended well."""
        if round == self.plan.round and self.plan.state == "run" and id in self.nodes:
            self.nodes[id].done = True

    def failed(self, round: int, failures: dict[str, Any], now: float) -> None:
        """Processes of a machine have failed, in this round."""
        if round != self.plan.round or self.plan.state != "run":
            self.plan.failures.update(failures if self.plan.state == "end" and round == self.plan.round else {})
        elif self.plan.restarts < self.settings.max_restarts:
            self.plan.restarts += 1
            self._wait(now)
            self.charged = True
        else:
            self.plan.failures = failures
            self.end(False, "processes failed")

    def end(self, ok: bool, message: str = "") -> None:
        """Nothing more happens."""
        self.plan.state, self.plan.ok, self.plan.message = "end", ok, message

    def step(self, now: float) -> None:
        """Goes on, if it is time to."""
        for node in [node for node in self.nodes.values() if now - node.heard > self.settings.silence]:
            self.leave(node.id, now, f"has not been heard of for {self.settings.silence:g} seconds")
        if self.plan.state == "wait":
            self._gather(now)
        elif self.plan.state == "run":
            members = [self.nodes[id] for id, *_ in self.plan.members]
            if members and all(node.done for node in members):
                self.end(True)
            elif len(self.nodes) > len(members) < self.settings.max_nodes and not any(node.done for node in members):
                self._wait(now)  # someone has come late

    def _wait(self, now: float) -> None:
        self.plan.round += 1
        self.plan.state, self.since, self.charged = "wait", now, False

    def _gather(self, now: float) -> None:
        settings, again = self.settings, self.plan.round > 1
        # After a failure, only those who have been heard of since are sure to be there.
        ready = [node for node in self.nodes.values() if not again or node.heard > self.since]
        pending = len(self.nodes) - len(ready)
        if len(ready) < settings.min_nodes:
            self.enough = None
            if now - self.since > settings.join_timeout:
                names = ", ".join(node.name for node in ready) or "none"
                self.end(False, f"{len(ready)} of at least {settings.min_nodes} nodes came within "
                         f"{settings.join_timeout:g} seconds: {names}")  # fmt: skip
            return
        self.enough = now if self.enough is None else self.enough
        full = len(ready) >= settings.max_nodes
        if full or (not pending and (again or now - self.enough >= settings.last_call)):
            chosen = sorted(ready, key=lambda node: node.order)[: settings.max_nodes]
            for node in chosen:
                node.done = False
            self.plan.members = [(node.id, node.processes, node.name) for node in chosen]
            self.plan.state = "run"
