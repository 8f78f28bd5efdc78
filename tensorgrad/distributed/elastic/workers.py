"""The processes of one machine in one round: started together, watched, and ended with everything they started."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tensorgrad.distributed.elastic import worker
from tensorgrad.distributed.elastic.logs import Logs
from tensorgrad.distributed.elastic.multiprocessing.errors import ProcessFailure
from tensorgrad.system.clock import SYSTEM, Clock
from tensorgrad.system.processes import environment, started_with
from tensorgrad.system.watchdog import MARK, Watchdog, kill

__all__ = ["Workers"]

_LAUNCHERS = ("PMI", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "HYDI_")  # what mpiexec says to its own processes


class _Call:
    """A function in a process, with the methods of `subprocess.Popen` that are needed here."""

    def __init__(self, function: Callable, args: tuple, variables: dict, paths: list, method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        self.results, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=worker.call, args=(function, args, variables, paths, theirs))
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # before the mark is set: it serves this process, not the job
        early = () if method == "fork" else (MARK, "OMP_NUM_THREADS")  # `worker.call` sets them all, but later
        with started_with({name: variables[name] for name in early if name in variables}):
            self.process.start()
        theirs.close()
        self.pid, self.value = self.process.pid, None

    def poll(self) -> int | None:
        with suppress(EOFError, OSError):
            if self.results.poll():
                self.value = self.results.recv()
        self.process.join(0)
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Workers:
    """Starts one process per entry of `environments`; `poll` says how they are.

    Args:
        calls: for each local rank a command (a list of strings) and (), or a function and its arguments.
        environments: the variables of each local rank, in addition to those of the agent.
        logs: where their output goes.
        dog: the agent's watchdog.
        start_method: of `multiprocessing`, for a function.
        clock: by which it waits for their end.
    """

    def __init__(
        self,
        calls: list[tuple[list[str] | Callable, tuple]],
        environments: list[dict[str, str]],
        logs: Logs,
        dog: Watchdog,
        start_method: str,
        clock: Clock = SYSTEM,
    ) -> None:
        self.logs, self.dog, self.environments, self.clock = logs, dog, environments, clock
        self.processes: list[Any] = []
        try:
            for (program, args), given, to in zip(calls, environments, logs.destinations):
                process = self._start(program, args, given, to, start_method)
                self.processes.append(process)
                dog.watch(process.pid)
        except BaseException:
            self.stop(signal.SIGKILL, 0)
            raise

    def _start(self, program: Any, args: tuple, variables: dict[str, str], to: Any, method: str) -> Any:
        variables = variables | {"TORCHELASTIC_ERROR_FILE": to.error_file, MARK: self.dog.token}
        if callable(program):
            return _Call(program, args, variables, to.paths, method)
        base = {name: value for name, value in environment().items() if not name.startswith(_LAUNCHERS)}
        files = [None if path is None else open(path, "ab") for path in to.paths]  # noqa: SIM115
        try:
            return subprocess.Popen(
                program, env=base | variables, stdout=files[0], stderr=files[1], start_new_session=os.name == "posix"
            )
        finally:
            for file in files:
                if file is not None:
                    file.close()

    def poll(self) -> tuple[bool, dict[int, ProcessFailure]]:
        """Whether all have ended well, and those that have failed, by global rank."""
        codes = [process.poll() for process in self.processes]
        failures = {
            int(variables["RANK"]): ProcessFailure(local, process.pid, code, to.error_file)
            for local, (process, code, variables, to) in enumerate(
                zip(self.processes, codes, self.environments, self.logs.destinations)
            )
            if code
        }
        return all(code == 0 for code in codes), failures

    def values(self) -> dict[int, Any]:
        """What functions returned, by global rank; None for programs."""
        pairs = zip(self.environments, self.processes)
        return {int(variables["RANK"]): getattr(process, "value", None) for variables, process in pairs}

    def stop(self, number: int, grace: float, meanwhile: Callable[[], Any] = lambda: None) -> None:
        """Ends all: by a signal, then, after `grace` seconds, by force; with everything that they started."""
        living = [process for process in self.processes if process.poll() is None]
        for process in living:
            with suppress(OSError):
                if isinstance(process, subprocess.Popen) and hasattr(os, "killpg"):
                    os.killpg(process.pid, number)
                else:
                    process.send_signal(number)
        end = self.clock.now() + grace
        while any(process.poll() is None for process in living) and self.clock.now() < end:
            meanwhile()
            self.clock.sleep(0.01)
        kill({process.pid for process in self.processes}, self.dog.token)
        for process in self.processes:
            while process.poll() is None:
                self.clock.sleep(0.01)
            self.dog.forget(process.pid)
        self.logs.close()
