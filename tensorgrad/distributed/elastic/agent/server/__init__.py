"""`torch.distributed.elastic.agent.server`: what an agent returns; its classes raise an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tensorgrad.distributed.elastic.multiprocessing.errors import ProcessFailure
from tensorgrad.system.not_included import stand_in

ABSENT = ("ElasticAgent", "SimpleElasticAgent", "Worker", "WorkerGroup", "WorkerSpec")
__all__ = ["RunResult", "WorkerState", *ABSENT]


class WorkerState(str, Enum):
    """The states of the processes of a machine.

    >>> from tensorgrad.distributed.elastic.agent.server import WorkerState
    >>> WorkerState.is_running(WorkerState.HEALTHY)
    True
    """

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Returns whether processes are there, healthy or not."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)


@dataclass
class RunResult:
    """How a job ended on a machine.

    Args:
        state: SUCCEEDED or FAILED.
        return_values: what functions returned, by global rank.
        failures: the processes that failed, by global rank.
    """

    state: WorkerState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Returns whether it failed."""
        return self.state == WorkerState.FAILED


for _name in ABSENT:
    globals()[_name] = stand_in(
        _name,
        "start jobs by torch.distributed.launcher.elastic_launch",
        __name__,
        f"distributed.elastic.agent.server.{_name}",
    )
