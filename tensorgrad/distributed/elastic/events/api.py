"""Events: plain data, and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TypeVar

__all__ = ["Event", "EventMetadataValue", "EventSource", "NodeState", "RdzvEvent"]

EventMetadataValue = str | int | float | bool | None


class EventSource(str, Enum):
    """Who tells: the agent, or a process that it started."""

    AGENT = "AGENT"
    WORKER = "WORKER"


class NodeState(str, Enum):
    """The states of a machine in a rendezvous."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


Kind = TypeVar("Kind", bound="_Data")


class _Data:
    """What events have in common."""

    def serialize(self) -> str:
        """Returns the event as JSON."""
        return json.dumps(asdict(self))  # type: ignore[call-overload]

    __str__ = serialize

    @classmethod
    def _read(cls: type[Kind], data: str | Kind, **enums: type[Enum]) -> Kind:
        if isinstance(data, cls):
            return data
        fields = json.loads(data)  # type: ignore[arg-type]
        return cls(**fields | {name: enum[fields[name]] for name, enum in enums.items()})


@dataclass
class Event(_Data):
    """Something that happened in a job.

    Args:
        name: what.
        source: who tells.
        timestamp: when, in milliseconds.
        metadata: more about it.

    >>> from tensorgrad.distributed.elastic.events import Event, EventSource
    >>> event = Event("begin", EventSource.WORKER, metadata={"rank": 1})
    >>> event.serialize()
    '{"name": "begin", "source": "WORKER", "timestamp": 0, "metadata": {"rank": 1}}'
    >>> Event.deserialize(event.serialize()) == event
    True
    """

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = field(default_factory=dict)

    __str__ = _Data.serialize

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        """Returns the event that JSON describes."""
        return Event._read(data, source=EventSource)


@dataclass
class RdzvEvent(_Data):
    """Something that happened while machines met.

    Args:
        name: what.
        run_id: the name of the job.
        message: in words.
        hostname, pid: who tells.
        node_state: the state of that machine.
        master_endpoint: where the machines meet.
        rank, local_id: of the machine, if known.
        error_trace: the traceback, for an error.

    >>> from tensorgrad.distributed.elastic.events import NodeState, RdzvEvent
    >>> event = RdzvEvent("join", "job1", "joined", "node1", 7, NodeState.RUNNING)
    >>> RdzvEvent.deserialize(str(event)) == event
    True
    """

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    __str__ = _Data.serialize

    @staticmethod
    def deserialize(data: str | RdzvEvent) -> RdzvEvent:
        """Returns the event that JSON describes."""
        return RdzvEvent._read(data, node_state=NodeState)
