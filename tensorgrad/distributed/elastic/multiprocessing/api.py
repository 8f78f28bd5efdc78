"""`start_processes`: several copies of a function or command, watched together."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorgrad.distributed.elastic.multiprocessing.errors import ProcessFailure

__all__ = ["PContext", "RunProcsResult", "start_processes"]


@dataclass
class RunProcsResult:
    """How processes ended, by local rank.

    Args:
        return_values: what functions returned.
        failures: those that failed.
        stdouts, stderrs: the files with their output; "" if it went to the console.
    """

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether a process failed."""
        return len(self.failures) > 0


class PContext:
    """Processes that `start_processes` has started. When this process ends without `close`, they are killed."""

    def __init__(
        self,
        name: str,
        entrypoint: Callable[..., Any] | str,
        args: dict[int, tuple],
        envs: dict[int, dict[str, str]],
        logs_specs: Any,
        log_line_prefixes: dict[int, str] | None = None,
        start_method: str = "spawn",
    ) -> None:
        self.name, self.entrypoint, self.args, self.envs = name, entrypoint, args, envs
        self.specs, self.prefixes, self.start_method = logs_specs, log_line_prefixes or {}, start_method
        self.nprocs = len(args)
        self._result: RunProcsResult | None = None
        self._workers: Any = None
        self._dog: Any = None

    def start(self) -> None:
        """Starts the processes. Raises: ValueError if it has been called before."""
        from tensorgrad.distributed.elastic.logs import Logs, prefix  # which need `errors.py`
        from tensorgrad.distributed.elastic.workers import Workers
        from tensorgrad.system.watchdog import Watchdog

        if self._workers is not None:
            raise ValueError("The process context already initialized. Most likely the start method got called twice.")
        folder = self.specs.log_dir or tempfile.mkdtemp(prefix="processes_")
        logs = Logs(Path(folder), self.specs, self.nprocs)
        self._destinations = logs.destinations
        self._dog = Watchdog()
        ranks = range(self.nprocs)
        if callable(self.entrypoint):
            calls: list[tuple[Any, tuple]] = [(self.entrypoint, tuple(self.args[rank])) for rank in ranks]
        else:
            calls = [([self.entrypoint, *map(str, self.args[rank])], ()) for rank in ranks]
        environments = [
            {name: str(value) for name, value in ({"RANK": rank} | self.envs[rank]).items()} for rank in ranks
        ]
        self._workers = Workers(calls, environments, logs, self._dog, self.start_method)
        logs.start([self.prefixes.get(rank) or prefix(None, self.name, rank, rank) for rank in ranks])

    def _poll(self) -> RunProcsResult | None:
        if self._result is None:
            ended_well, failures = self._workers.poll()
            if not ended_well and not failures:
                return None
            values = dict(enumerate(self._workers.values().values()))  # None for commands, as in PyTorch
            paths = [[path or "" for path in to.paths] for to in self._destinations]
            self._result = RunProcsResult(
                {} if failures else values,
                {failure.local_rank: failure for failure in failures.values()},
                {rank: out for rank, (out, _) in enumerate(paths)},
                {rank: err for rank, (_, err) in enumerate(paths)},
            )
            self.close()
        return self._result

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """Waits until all have ended well, or one has failed; the others are ended then.

        Args:
            timeout: seconds; 0 only looks, -1 is forever.
            period: seconds between two looks.

        Returns:
            The result; None if processes still run.
        """
        end = time.monotonic() + (timeout if timeout >= 0 else sys.maxsize)
        while (result := self._poll()) is None and time.monotonic() < end:
            time.sleep(min(period, max(0.0, end - time.monotonic())))
        return result

    def pids(self) -> dict[int, int]:
        """Returns the processes' numbers in the process table, by local rank."""
        return {rank: process.pid for rank, process in enumerate(self._workers.processes)}

    def close(self, death_sig: Any = None, timeout: int = 30) -> None:
        """Ends the processes.

        Args:
            death_sig: by this signal; SIGTERM if None.
            timeout: seconds that they have to end by themselves.
        """
        if self._workers is not None and self._dog is not None:
            self._workers.stop(death_sig or signal.SIGTERM, timeout)
            self._dog.close()
            self._dog = None


def start_processes(
    name: str,
    entrypoint: Callable[..., Any] | str,
    args: dict[int, tuple],
    envs: dict[int, dict[str, str]],
    logs_specs: Any,
    log_line_prefixes: dict[int, str] | None = None,
    start_method: str = "spawn",
    numa_options: Any = None,
    duplicate_stdout_filters: list[str] | None = None,
    duplicate_stderr_filters: list[str] | None = None,
) -> PContext:
    """Starts one process for each local rank.

    Args:
        name: what stands before lines that are copied to the console.
        entrypoint: a function that can be pickled (or any, with `start_method="fork"`), or a command.
        args: the arguments of each.
        envs: variables of each, in addition to those of this process.
        logs_specs: where their output goes.
        log_line_prefixes: what stands before the lines of each, instead.
        start_method: of `multiprocessing`, for functions.
        numa_options, duplicate_stdout_filters, duplicate_stderr_filters: not included.

    Raises:
        RuntimeError: `args` and `envs` are not for the ranks 0, 1, 2, ...
        ValueError: an option is not included.

    >>> from tensorgrad.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes
    >>> processes = start_processes("job", abs, {0: (-1,), 1: (-2,)}, {0: {}, 1: {}}, DefaultLogsSpecs())
    >>> processes.wait(period=0.01).return_values
    {0: 1, 1: 2}
    """
    for what, given in (("args", args), ("envs", envs)):
        if set(given) != set(range(len(args))):
            raise RuntimeError(
                f"{what}, local rank mapping mismatch, expected: {set(range(len(args)))}, actual: {set(given)}"
            )
    for option, value in (
        ("numa_options", numa_options), ("duplicate_stdout_filters", duplicate_stdout_filters),
        ("duplicate_stderr_filters", duplicate_stderr_filters),
    ):  # fmt: skip
        if value:
            raise ValueError(f"start_processes: {option} is not included")
    context = PContext(name, entrypoint, args, envs, logs_specs, log_line_prefixes, start_method)
    context.start()
    return context
