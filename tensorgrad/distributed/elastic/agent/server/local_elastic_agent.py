"""An agent whose processes are those of its own machine."""

from __future__ import annotations

import os
import signal
from string import Template
from typing import Any

from tensorgrad.distributed.elastic.agent.server.api import (
    DEFAULT_ROLE,
    RunResult,
    SimpleElasticAgent,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from tensorgrad.distributed.elastic.local_agent import raising
from tensorgrad.distributed.elastic.multiprocessing import PContext, start_processes
from tensorgrad.distributed.elastic.output import LogsSpecs
from tensorgrad.system.processors import share

__all__ = ["LocalElasticAgent"]

SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


class LocalElasticAgent(SimpleElasticAgent):
    """Runs a job's processes on this machine. If the agent is killed, a small watchdog process ends them.

    Args:
        spec: what processes.
        logs_specs: where their output goes.
        start_method: of `multiprocessing`, for functions.
        exit_barrier_timeout: seconds that an agent whose processes have ended well waits for the others.
        log_line_prefix_template: what stands before lines that are copied to the console.
        shutdown_timeout: seconds that processes have to end by themselves.
        health_check_server, uninterruptible_state_timeout: not included.

    Raises:
        ValueError: an option is not included.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.elastic.agent.server import WorkerSpec
    >>> from tensorgrad.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    >>> from tensorgrad.distributed.elastic.multiprocessing import DefaultLogsSpecs
    >>> from tensorgrad.distributed.elastic.rendezvous import RendezvousParameters
    >>> from tensorgrad.distributed.elastic.rendezvous.registry import get_rendezvous_handler
    >>> handler = get_rendezvous_handler(
    ...     RendezvousParameters("c10d", "localhost:0", "job1", 1, 1, local_addr="localhost")
    ... )
    >>> spec = WorkerSpec("trainer", 2, handler, entrypoint=abs, args=(-3,), monitor_interval=0.01)
    >>> LocalElasticAgent(spec, DefaultLogsSpecs()).run().return_values
    {0: 3, 1: 3}
    >>> handler.shutdown()
    True
    """

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs,
        start_method: str = "spawn",
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
        shutdown_timeout: int = 30,
        health_check_server: Any = None,
        uninterruptible_state_timeout: float | None = None,
    ) -> None:
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        for name, given in (
            ("health_check_server", health_check_server),
            ("uninterruptible_state_timeout", uninterruptible_state_timeout),
        ):
            if given:
                raise ValueError(f"LocalElasticAgent: {name} is not included")
        if os.environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1":
            raise ValueError(
                "LocalElasticAgent: TORCHELASTIC_ENABLE_FILE_TIMER is not included; use a timer.LocalTimerServer"
            )
        self._logs_specs, self._start_method = logs_specs, start_method
        self._log_line_prefix_template = log_line_prefix_template
        self._pcontext: PContext | None = None
        self._meets_at: tuple[str | None, int | None] = None, None
        self._attempt = 0  # at that address: of what ranks leave in a store, those of the next round must not hear

    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Runs the job to its end, and returns how it ended.

        Raises:
            RendezvousError: the machines did not meet.
            SignalException: a signal ended the agent.
        """
        with raising(os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", SIGNALS)):
            return super().run(role)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        spec = worker_group.spec
        address = worker_group.master_addr, worker_group.master_port
        self._attempt = self._attempt + 1 if address == self._meets_at else 0
        self._meets_at = address
        common = {
            "GROUP_RANK": worker_group.group_rank, "GROUP_WORLD_SIZE": worker_group.group_world_size,
            "LOCAL_WORLD_SIZE": spec.local_world_size, "MASTER_ADDR": worker_group.master_addr,
            "MASTER_PORT": worker_group.master_port, "ROLE_NAME": spec.role,
            "TORCHELASTIC_MAX_RESTARTS": spec.max_restarts, "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
            "TORCHELASTIC_RESTART_COUNT": spec.max_restarts - self._remaining_restarts,
            "TORCHELASTIC_USE_AGENT_STORE": spec.rdzv_handler.use_agent_store, "TENSORGRAD_ROUND": self._attempt,
        }  # fmt: skip
        common["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or share(spec.local_world_size)
        variables, arguments, prefixes = {}, {}, {}
        for worker in worker_group.workers:
            local = worker.local_rank
            own = {
                "LOCAL_RANK": local, "RANK": worker.global_rank, "WORLD_SIZE": worker.world_size,
                "ROLE_RANK": worker.role_rank, "ROLE_WORLD_SIZE": worker.role_world_size,
            }  # fmt: skip
            variables[local] = {name: str(value) for name, value in (common | own).items()}
            arguments[local] = tuple(
                Template(value).safe_substitute(local_rank=local) if isinstance(value, str) else value
                for value in spec.args
            )
            if self._log_line_prefix_template:
                prefixes[local] = Template(self._log_line_prefix_template).safe_substitute(
                    role_name=spec.role, rank=worker.global_rank, local_rank=local
                )
        assert spec.entrypoint is not None
        self._pcontext = start_processes(
            spec.role, spec.entrypoint, arguments, variables, self._logs_specs, prefixes, self._start_method
        )
        return self._pcontext.pids()

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown(timeout=self._shutdown_timeout)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        if self._pcontext is not None:
            self._pcontext.close(death_sig, timeout)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        assert self._pcontext is not None
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        result = self._pcontext.wait(0)
        if result is None:
            return RunResult(WorkerState.HEALTHY)
        if result.is_failed():
            failures = {ranks[local]: failure for local, failure in result.failures.items()}
            return RunResult(WorkerState.FAILED, failures=failures)
        values = {ranks[local]: value for local, value in result.return_values.items()}
        return RunResult(WorkerState.SUCCEEDED, values)
