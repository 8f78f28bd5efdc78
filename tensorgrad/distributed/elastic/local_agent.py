"""The agent: one per machine, it starts the machine's processes and does what the plan of all machines says."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tensorgrad.distributed.elastic import events
from tensorgrad.distributed.elastic.logs import Logs, prefix
from tensorgrad.distributed.elastic.membership import Plan
from tensorgrad.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from tensorgrad.distributed.elastic.output import LogsSpecs, SignalException
from tensorgrad.distributed.elastic.rendezvous.api import RendezvousError, RendezvousTimeoutError
from tensorgrad.distributed.elastic.rendezvous.connection import Rendezvous
from tensorgrad.distributed.elastic.workers import Workers
from tensorgrad.distributed.stores import wire
from tensorgrad.system.clock import SYSTEM, Clock
from tensorgrad.system.processors import share
from tensorgrad.system.watchdog import Watchdog

__all__ = ["Agent"]

GRACE = 30.0  # seconds that processes have to end by themselves


@contextmanager
def job_secret(alone: bool) -> Iterator[None]:
    """Gives a job on one machine a secret of its own, unless the user has set one."""
    if not alone or wire.SECRET in os.environ:
        yield
        return
    os.environ[wire.SECRET] = secrets.token_hex(16)
    try:
        yield
    finally:
        os.environ.pop(wire.SECRET, None)


@contextmanager
def raising(names: str) -> Iterator[None]:
    """Signals end the agent by an exception, so that it ends its processes first. Ignored ones stay ignored."""
    before: dict[int, Any] = {}

    def handler(number: int, frame: Any) -> None:
        for other in before:  # a second one must not interrupt the clean-up
            signal.signal(other, signal.SIG_IGN)
        raise SignalException(f"received {signal.Signals(number).name}", signal.Signals(number))

    if threading.current_thread() is threading.main_thread():
        for name in filter(None, (name.strip() for name in names.split(","))):
            number = getattr(signal, name, None)
            if number is None:
                if os.name == "posix":
                    raise ValueError(f"--signals-to-handle: there is no signal {name!r}")
            elif signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Agent:
    """Runs a job on this machine: `config` is a `LaunchConfig`, `program` a command or a function.

    It waits by `clock`.
    """

    def __init__(
        self, config: Any, name: str, program: list[str] | Callable, args: tuple, clock: Clock = SYSTEM
    ) -> None:
        self.config, self.name, self.program, self.args, self.clock = config, name, program, args, clock
        self.specs = config.logs_specs or LogsSpecs()
        self.grace = GRACE if config.shutdown_timeout is None else float(config.shutdown_timeout)
        self.round, self.reported = 0, False
        self.workers: Workers | None = None
        self.values: dict[int, Any] = {}

    def run(self) -> dict[int, Any]:
        """Returns what functions returned, by global rank.

        Raises: ChildFailedError, RendezvousError, SignalException.
        """
        config = self.config
        folder = Path(self.specs.log_dir or tempfile.gettempdir())
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{config.run_id or 'job'}_".replace(os.sep, "_"), dir=folder))
        failed = True
        try:
            with raising(config.signals_to_handle), job_secret(config.max_nodes == 1):
                self.dog = Watchdog()
                try:
                    self._run()
                finally:
                    self.dog.close()
            failed = False
        finally:
            if self.specs.log_dir is None and not (failed and any(self.folder.rglob("error.json"))):
                shutil.rmtree(self.folder, ignore_errors=True)
        return self.values

    def _run(self) -> None:
        config = self.config
        place, settings = config.place()
        meeting = self.meeting = Rendezvous(
            place, config.run_id, config.nproc_per_node, settings, config.rdzv_configs, config.local_addr, self.clock
        )
        try:
            while (plan := meeting.exchange()).state != "end":
                self._follow(plan)
                self.clock.sleep(config.monitor_interval)
        except BaseException as error:
            number = error.sigval if isinstance(error, SignalException) else signal.SIGTERM
            self._stop(number)
            meeting.leave(str(error) if isinstance(error, SignalException) else "has failed")
            raise
        self._stop(signal.SIGTERM)
        meeting.wait_for_others()
        self._record("SUCCEEDED" if plan.ok else "FAILED", plan.restarts, error=plan.message)
        if not plan.ok:
            self._raise(plan)

    def _follow(self, plan: Plan) -> None:
        """Starts, watches or stops the processes of this machine."""
        meeting = self.meeting
        if plan.round != self.round or plan.state == "wait":
            if self.workers is not None:
                self._stop(signal.SIGTERM)
            ids = [id for id, *_ in plan.members]
            if plan.state == "run" and meeting.id in ids:
                self.round, self.reported = plan.round, False
                self._start(plan, ids.index(meeting.id))
            return
        if self.workers is None or self.reported:
            return
        ended_well, failures = self.workers.poll()
        if failures:
            if plan.restarts < self.config.max_restarts:
                rank = min(failures, key=lambda rank: failures[rank].order())
                failure = failures[rank]
                print(f"rank {rank} (pid {failure.pid} on {failure.host}) failed: "
                      f"{failure.message.rstrip().splitlines()[-1]}; restart {plan.restarts + 1} of "
                      f"{self.config.max_restarts}", file=sys.stderr, flush=True)  # fmt: skip
            self._stop(signal.SIGTERM)
            reports = {str(rank): failure.to_dict() for rank, failure in failures.items()}
            meeting.report("failed", plan.round, failures=reports)
        elif ended_well:
            self.values = self.workers.values()
            meeting.report("done", plan.round)
        self.reported = bool(failures) or ended_well

    def _start(self, plan: Plan, group_rank: int) -> None:
        config, counts = self.config, [count for _, count, _ in plan.members]
        first, world, local = sum(counts[:group_rank]), sum(counts), counts[group_rank]
        common = {
            "LOCAL_WORLD_SIZE": local, "WORLD_SIZE": world, "GROUP_RANK": group_rank, "GROUP_WORLD_SIZE": len(counts),
            "ROLE_NAME": config.role, "ROLE_WORLD_SIZE": world, "MASTER_ADDR": self.meeting.address,
            "MASTER_PORT": self.meeting.port, "TORCHELASTIC_RESTART_COUNT": plan.restarts,
            "TORCHELASTIC_MAX_RESTARTS": config.max_restarts, "TORCHELASTIC_RUN_ID": config.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_SIGNALS_TO_HANDLE": config.signals_to_handle,
            "TENSORGRAD_ROUND": plan.round,
        }  # fmt: skip
        if not os.environ.get("OMP_NUM_THREADS"):
            common["OMP_NUM_THREADS"] = share(local)
        environments = [
            {name: str(value) for name, value in common.items()}
            | {"RANK": str(first + i), "LOCAL_RANK": str(i), "ROLE_RANK": str(first + i)}
            for i in range(local)
        ]
        logs = Logs(self.folder / f"attempt_{plan.round - 1}", self.specs, local)
        self._record("RUNNING", plan.restarts, world, group_rank)
        calls = [(self.program, self.args)] * local
        self.workers = Workers(calls, environments, logs, self.dog, config.start_method, self.clock)
        template = config.log_line_prefix_template or os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
        logs.start([prefix(template, config.role, i, first + i) for i in range(local)])

    def _record(self, state: str, restarts: int, world: int = 0, group_rank: int = -1, error: str = "") -> None:
        """Tells the log of events in which state the processes of this machine are."""
        config = self.config
        more = {
            "run_id": config.run_id, "hostname": socket.gethostname(), "pid": os.getpid(), "state": state,
            "group_rank": group_rank, "group_world_size": world, "role": config.role, "agent_restarts": restarts,
            "rdzv_backend": config.rdzv_backend, "entry_point": self.name, "raw_error": error,
        }  # fmt: skip
        now = int(time.time() * 1000)
        event = events.Event(f"torchelastic.worker.status.{state}", events.EventSource.AGENT, now, more)
        events.record(event, config.event_log_handler)

    def _stop(self, number: int) -> None:
        workers, self.workers = self.workers, None
        if workers is not None:
            workers.stop(number, self.grace, self._meanwhile)

    def _meanwhile(self) -> None:
        """While processes end, this machine still gives signs of life."""
        with suppress(RendezvousError):
            self.meeting.exchange()

    def _raise(self, plan: Plan) -> None:
        if plan.failures:
            failures = {int(rank): ProcessFailure.from_dict(report) for rank, report in plan.failures.items()}
            for failure in failures.values():
                if os.path.exists(failure.error_file):
                    known = ProcessFailure(failure.local_rank, failure.pid, failure.exitcode, failure.error_file)
                    failure.error_file_data = known.error_file_data
            raise ChildFailedError(self.name, failures)
        raise (RendezvousTimeoutError if " came within " in plan.message else RendezvousError)(plan.message)
