"""An agent: it brings machines together, starts the processes of its own, watches them, and starts them again."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

from tensorgrad.distributed.elastic import events
from tensorgrad.distributed.elastic.metrics import put_metric
from tensorgrad.distributed.elastic.multiprocessing.errors import ProcessFailure
from tensorgrad.distributed.elastic.output import SignalException
from tensorgrad.distributed.elastic.rendezvous.api import RendezvousGracefulExitError, RendezvousHandler
from tensorgrad.distributed.stores.store import Store
from tensorgrad.system.clock import SYSTEM, Clock

__all__ = [
    "DEFAULT_ROLE", "ElasticAgent", "RunResult", "SimpleElasticAgent", "Worker", "WorkerGroup", "WorkerSpec",
    "WorkerState",
]  # fmt: skip

DEFAULT_ROLE = "default"


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


@dataclass
class WorkerSpec:
    """What processes an agent starts, and how.

    Args:
        role: the name of the processes.
        local_world_size: how many each machine starts.
        rdzv_handler: brings the machines together.
        fn: the former name of `entrypoint`.
        entrypoint: a function that can be pickled, or a command.
        args: its arguments; in those that are text, `${local_rank}` is the local rank.
        max_restarts: how often all processes are started again after a failure.
        monitor_interval: seconds between two looks at the processes.
        master_port, master_addr: where the ranks' store is, instead of what the handler says.
        local_addr: how others reach this machine.
        event_log_handler: where the agent's events go: a name among `torch.distributed.elastic.events`' handlers.
        numa_options, duplicate_stdout_filters, duplicate_stderr_filters, virtual_local_rank: not included.

    Raises:
        AssertionError: there is no entrypoint, or a number is not positive.
        ValueError: an option is not included.
    """

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: Callable | None = None
    entrypoint: Callable | str | None = None
    args: tuple = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        for name in ("local_world_size", "monitor_interval"):
            if getattr(self, name) <= 0:
                raise AssertionError(f"WorkerSpec: {name} must be positive, got {getattr(self, name)}")
        if self.fn:
            warnings.warn(
                "WorkerSpec.fn will be deprecated, please use WorkerSpec.entrypoint instead",
                DeprecationWarning,
                stacklevel=3,
            )
            self.entrypoint = self.fn
        if not self.entrypoint:
            raise AssertionError("WorkerSpec: entrypoint is missing")
        for name in ("numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank"):
            if getattr(self, name):
                raise ValueError(f"WorkerSpec: {name} is not included")

    def get_entrypoint_name(self) -> str:
        """Returns the function's name, or the command's without its folder."""
        if isinstance(self.entrypoint, str):
            return os.path.basename(self.entrypoint)
        return getattr(self.entrypoint, "__qualname__", str(self.entrypoint))


class Worker:
    """A process of an agent.

    Args:
        local_rank: its rank on this machine.
        global_rank, world_size: its rank among all processes, and their number.
        role_rank, role_world_size: its rank among those of its role, and their number.
    """

    __slots__ = ["global_rank", "id", "local_rank", "role_rank", "role_world_size", "world_size"]

    def __init__(
        self,
        local_rank: int,
        global_rank: int = -1,
        role_rank: int = -1,
        world_size: int = -1,
        role_world_size: int = -1,
    ) -> None:
        self.id: Any = None  # its number in the process table
        self.local_rank, self.global_rank, self.role_rank = local_rank, global_rank, role_rank
        self.world_size, self.role_world_size = world_size, role_world_size

    def __repr__(self) -> str:
        return f"Worker({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class WorkerGroup:
    """The processes of an agent, as `spec` describes them; ranks and addresses are known after a rendezvous."""

    __slots__ = ["group_rank", "group_world_size", "master_addr", "master_port", "spec", "state", "store", "workers"]

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec, self.state = spec, WorkerState.INIT
        self.workers = [Worker(local_rank) for local_rank in range(spec.local_world_size)]
        self.store: Store | None = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.master_addr: str | None = None
        self.master_port: int | None = None


class ElasticAgent(ABC):
    """What starts and watches the processes of a machine."""

    @abstractmethod
    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Runs the job to its end, and returns how it ended."""

    @abstractmethod
    def get_worker_group(self, role: str = DEFAULT_ROLE) -> WorkerGroup:
        """Returns the processes of a role."""


class SimpleElasticAgent(ElasticAgent):
    """An agent with processes of one role. Subclasses say how to start, stop and watch them.

    All processes are started again if one of them fails here (up to `max_restarts` times), and whenever a machine
    waits to take part. Other machines hear of a failure because this one leaves the round and waits for the next.

    Args:
        spec: what processes.
        exit_barrier_timeout: seconds that an agent whose processes have ended well waits for the others.
        shutdown_timeout: seconds that processes have to end by themselves.
        clock: by which it waits between two looks at them.
    """

    def __init__(
        self, spec: WorkerSpec, exit_barrier_timeout: float = 300, shutdown_timeout: int = 30, clock: Clock = SYSTEM
    ) -> None:
        self._worker_group = WorkerGroup(spec)
        self._remaining_restarts, self._clock = spec.max_restarts, clock
        self._store: Store | None = None
        self._exit_barrier_timeout, self._shutdown_timeout = exit_barrier_timeout, shutdown_timeout
        self._total_execution_time = 0

    def get_worker_group(self, role: str = DEFAULT_ROLE) -> WorkerGroup:
        """Returns the processes."""
        return self._worker_group

    @abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Starts the processes. Returns the id of each, by local rank."""

    @abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Ends the processes, in whatever state they are."""

    @abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Returns how the processes are."""

    @abstractmethod
    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        """Ends the processes by a signal, and by force after `timeout` seconds."""

    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Runs the job to its end, and returns how it ended.

        Raises:
            RendezvousError: the machines did not meet.
            SignalException: a signal ended the agent.
        """
        began, number = self._clock.now(), signal.SIGTERM
        try:
            result = self._invoke_run(role)
            self._total_execution_time = int(self._clock.now() - began)
            self._record_metrics(result)
            self._record_worker_events(result)
            return result
        except RendezvousGracefulExitError:
            return RunResult(WorkerState.SUCCEEDED)  # this machine is not needed
        except SignalException as error:
            number = error.sigval
            raise
        finally:
            self._shutdown(number, self._shutdown_timeout)
            self._total_execution_time = int(self._clock.now() - began)

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        group = self._worker_group
        spec = group.spec
        self._initialize_workers(group)
        while True:
            self._clock.sleep(spec.monitor_interval)
            result = self._monitor_workers(group)
            group.state = result.state
            put_metric(f"workers.{spec.role}.remaining_restarts", self._remaining_restarts)
            put_metric(f"workers.{spec.role}.{result.state.name.lower()}", 1)
            if result.state == WorkerState.SUCCEEDED:
                self._exit_barrier()
                return result
            if result.state in (WorkerState.UNHEALTHY, WorkerState.FAILED):
                if self._remaining_restarts <= 0:
                    self._stop_workers(group)
                    group.state = WorkerState.FAILED
                    return result
                self._remaining_restarts -= 1
                self._restart_workers(group)
            elif result.state != WorkerState.HEALTHY:
                raise RuntimeError(f"[{spec.role}] Worker group in {result.state.name} state")
            elif spec.rdzv_handler.num_nodes_waiting() > 0:  # which does not count as a restart
                self._restart_workers(group)

    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        """Meets the other machines, and starts the processes."""
        self._rendezvous(worker_group)
        for local_rank, id in self._start_workers(worker_group).items():
            worker = worker_group.workers[local_rank]
            worker.id = id
            self._record("START", events.EventSource.WORKER, worker)
        worker_group.state = WorkerState.HEALTHY

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """Ends the processes, meets the other machines, and starts them again."""
        self._stop_workers(worker_group)
        worker_group.state = WorkerState.STOPPED
        self._initialize_workers(worker_group)

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Meets the other machines, which gives the processes their ranks."""
        spec = worker_group.spec
        with self.record_duration("RENDEZVOUS"):
            found = spec.rdzv_handler.next_rendezvous()
        where = found.bootstrap_store_info
        with self.record_duration("ASSIGN_WORKER_RANKS"):
            workers = self._assign_worker_ranks(found.store, found.rank, found.world_size, spec)
        self._store = worker_group.store = found.store
        worker_group.workers, worker_group.group_rank = workers, found.rank
        worker_group.group_world_size = found.world_size
        worker_group.master_addr = spec.master_addr or (where.master_addr if where else None)
        worker_group.master_port = spec.master_port or (where.master_port if where else None)

    def _assign_worker_ranks(
        self, store: Store, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """The ranks of this machine's processes: they follow those of the machines before it.

        Every machine tells its role and number of processes by the store.
        """
        count = spec.local_world_size
        machines = [(spec.role, count)] * group_world_size
        if os.environ.get("TORCH_ELASTIC_WORKER_IDENTICAL", "0") != "1":
            store.set(f"torchelastic/role_info/{group_rank}", json.dumps([spec.role, count]))
            infos = [store.get(f"torchelastic/role_info/{rank}") for rank in range(group_world_size)]
            machines = [(role, number) for role, number in map(json.loads, infos)]
        all_before, role_before, role_size = 0, Counter[str](), Counter[str]()
        for rank, (role, number) in enumerate(machines):
            if rank < group_rank:
                all_before += number
                role_before[role] += number
            role_size[role] += number
        return [
            Worker(local, all_before + local, role_before[spec.role] + local, role_size.total(), role_size[spec.role])
            for local in range(count)
        ]

    def _exit_barrier(self) -> None:
        """Waits for the other machines, which may still need what this one serves."""
        group, wait = self._worker_group, timedelta(seconds=self._exit_barrier_timeout)
        assert self._store is not None and group.group_world_size is not None
        try:
            self._store.barrier("torchelastic/agent/terminal_state", group.group_world_size, wait)
        except SignalException:
            raise
        except Exception:  # a machine has failed, or its processes take longer: these have done their part
            put_metric(f"workers.{group.spec.role}.exit_barrier_failed", 1)

    # --- events and metrics ---

    def get_event_failed(self) -> events.Event:
        """Returns an event that says that the agent has failed, with the traceback of the present exception."""
        return self._construct_event("FAILED", events.EventSource.AGENT, raw_error=traceback.format_exc())

    def get_event_succeeded(self) -> events.Event:
        """Returns an event that says that the agent has ended well."""
        return self._construct_event("SUCCEEDED", events.EventSource.AGENT)

    @contextmanager
    def record_duration(self, state: str) -> Iterator[None]:
        """Records an event with the milliseconds that the block takes."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._record(state, events.EventSource.AGENT, duration_ms=(time.perf_counter() - began) * 1000)

    def _record(self, state: str, source: events.EventSource, worker: Worker | None = None, **more: Any) -> None:
        event = self._construct_event(state, source, worker, **more)
        events.record(event, self._worker_group.spec.event_log_handler)

    def _construct_event(
        self,
        state: str,
        source: events.EventSource,
        worker: Worker | None = None,
        raw_error: str | None = None,
        duration_ms: float | None = None,
        exit_code: int | None = None,
        worker_pid: int | None = None,
    ) -> events.Event:
        group = self._worker_group
        spec = group.spec
        about: dict[str, Any] = {"group_world_size": group.group_world_size, "entry_point": spec.get_entrypoint_name()}
        if worker is not None:
            more = {name: getattr(worker, name) for name in ("local_rank", "role_rank", "role_world_size")}
            more |= {"exit_code": exit_code, "worker_pid": worker_pid}
            about |= {name: [value] for name, value in more.items()}  # lists, as in PyTorch
        return events.Event(
            f"torchelastic.worker.status.{state}", source, int(time.time() * 1000),
            {
                "run_id": spec.rdzv_handler.get_run_id(), "role": spec.role, "hostname": socket.getfqdn(),
                "global_rank": None if worker is None else worker.global_rank, "group_rank": group.group_rank,
                "worker_id": None if worker is None else str(worker.id), "state": state, "raw_error": raw_error,
                "total_run_time": self._total_execution_time, "rdzv_backend": spec.rdzv_handler.get_backend(),
                "metadata": json.dumps(about), "agent_restarts": spec.max_restarts - self._remaining_restarts,
                "duration_ms": duration_ms,
            },
        )  # fmt: skip

    def _record_worker_events(self, result: RunResult) -> None:
        for worker in self._worker_group.workers:
            failure = result.failures.get(worker.global_rank)
            state = result.state.value if failure or not result.is_failed() else "TERMINATED"
            more: dict[str, Any] = {}
            if failure is not None:
                more = {"raw_error": json.dumps(failure.error_file_data), "exit_code": failure.exitcode}
                more["worker_pid"] = failure.pid
            self._record(state, events.EventSource.WORKER, worker, **more)

    def _record_metrics(self, result: RunResult) -> None:
        spec = self._worker_group.spec
        again, failed = self._remaining_restarts != spec.max_restarts, result.is_failed()
        used = (self._remaining_restarts + 1) / (spec.max_restarts + 1)
        values = {"run_total": 1} | {
            f"run_{'failed' if bad else 'success'}_{'with' if retried else 'no'}_retries": int(
                (bad, retried) == (failed, again)
            )
            for bad in (False, True)
            for retried in (True, False)
        }
        for name, value in (values | {"flakiness": int(100.0 if failed else 100.0 - 100.0 * used)}).items():
            put_metric(f"workers.{spec.role}.{name}", value)
