"""`torch.distributed.elastic.agent.server`: agents that programs make by themselves; `elastic_launch` has its own."""

from __future__ import annotations

from tensorgrad.distributed.elastic.agent.server.api import (
    ElasticAgent,
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)

__all__ = [
    "ElasticAgent", "RunResult", "SimpleElasticAgent", "Worker", "WorkerGroup", "WorkerSpec", "WorkerState",
]  # fmt: skip
