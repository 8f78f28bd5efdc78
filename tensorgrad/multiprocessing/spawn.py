"""Starts a function in several processes, and reports the first that fails."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import weakref
from contextlib import suppress
from typing import Any

from tensorgrad.system.processes import require_processes, started_with
from tensorgrad.system.processors import share
from tensorgrad.system.watchdog import MARK, Watchdog

__all__ = ["ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
           "spawn", "start_processes"]  # fmt: skip

GRACE = 30.0  # seconds that the others have to end by themselves after a failure, unless `grace_period` is given
ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"


class ProcessException(Exception):
    """A process failed.

    Args:
        msg: what happened.
        error_index: which of the processes.
        error_pid: its number in the process table.
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self) -> tuple:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process failed by an exception; the message has its traceback.

    >>> from tensorgrad.multiprocessing import ProcessRaisedException
    >>> ProcessRaisedException("it failed", error_index=1, error_pid=100).error_index
    1
    """


class ProcessExitedException(ProcessException):
    """A process ended early, by `sys.exit` or a signal.

    >>> from tensorgrad.multiprocessing import ProcessExitedException
    >>> ProcessExitedException("killed", 0, 100, -9, "SIGKILL").signal_name
    'SIGKILL'
    """

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _run(function: Any, index: int, args: tuple, error_file: str, threads: int, forked: bool) -> None:
    """Runs in the new process; writes the traceback of an exception to a file of its parent."""
    if threads and forked:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        if "tensorgrad" in sys.modules:  # it read the variable before
            sys.modules["tensorgrad"].set_num_threads(threads)
    try:
        function(index, *args)
    except KeyboardInterrupt:
        pass  # Ctrl-C reaches all processes of a terminal; the parent reports it
    except Exception:
        with open(error_file, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that run; `join` waits for them.

    Args:
        processes: as `multiprocessing` has them.
        error_files: where each writes its traceback.

    >>> context = torch.multiprocessing.spawn(divmod, args=(2,), nprocs=1, join=False)
    >>> isinstance(context, torch.multiprocessing.ProcessContext)
    True
    >>> context.join()
    True
    """

    def __init__(self, processes: list, error_files: list[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}
        self._dog: Watchdog | None = None

    def pids(self) -> list[int]:
        """Their numbers in the process table.

        >>> context = torch.multiprocessing.spawn(divmod, args=(2,), nprocs=2, join=False)
        >>> len(context.pids())
        2
        >>> while not context.join(): pass
        """
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until all processes have ended, one has failed, or the time is over.

        Args:
            timeout: in seconds; None waits without limit.
            grace_period: how long the others have to end by themselves after a failure.

        Returns:
            Whether all have ended. Call it again until it is true.

        Raises:
            ProcessRaisedException: a process raised an exception.
            ProcessExitedException: a process ended early.
        """
        if self.sentinels:
            from multiprocessing.connection import wait

            ended = wait(list(self.sentinels), timeout=timeout)
            failed = None
            for sentinel in ended:
                index = self.sentinels.pop(sentinel)
                process = self.processes[index]
                process.join()
                if process.exitcode:
                    failed = index
                    break  # the next call reports the next one
            if failed is not None:
                self._end(GRACE if grace_period is None else grace_period)
                raise self._error(failed)
        if not self.sentinels:
            self._close()
        return not self.sentinels

    def _end(self, grace: float) -> None:
        """Ends those that still run: by SIGTERM, then by force, with what they have started."""
        end = time.monotonic() + grace
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        if self._dog is not None:
            self._dog.end_all()
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        self._close()

    def _error(self, index: int) -> ProcessException:
        """The exception for a process that failed."""
        process = self.processes[index]
        pid, code = int(process.pid), int(process.exitcode)
        with suppress(OSError), open(self.error_files[index], encoding="utf-8") as file:
            text = file.read()
            os.unlink(self.error_files[index])
            return ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{text}", index, pid
            )
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            return ProcessExitedException(
                f"process {index} terminated with signal {name}", index, pid, code, signal_name=name
            )
        return ProcessExitedException(f"process {index} terminated with exit code {code}", index, pid, code)

    def _close(self) -> None:
        dog, self._dog = self._dog, None
        if dog is not None:
            dog.close()


class SpawnContext(ProcessContext):
    """PyTorch's older name for a `ProcessContext`.

    >>> issubclass(torch.multiprocessing.SpawnContext, torch.multiprocessing.ProcessContext)
    True
    """

    def __init__(self, processes: list, error_files: list[str]) -> None:
        super().__init__(processes, error_files)


def start_processes(
    fn: Any, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """Runs `fn(i, *args)` in `nprocs` processes, i = 0, 1, ...

    If one fails, the others are ended. They share the processors: each has OMP_NUM_THREADS set to its part, unless the
    variable is set. If this process is killed, they are ended too.

    Args:
        fn: a function that can be pickled (or any, with `start_method="fork"`).
        args: its arguments after i.
        nprocs: how many processes.
        join: whether to wait for them.
        daemon: as in `multiprocessing.Process`.
        start_method: "spawn", "fork" or "forkserver".

    Returns:
        None after all have ended; with `join=False`, a `ProcessContext`.

    Raises:
        ProcessRaisedException: a process raised an exception.
        ProcessExitedException: a process ended early.

    >>> context = torch.multiprocessing.start_processes(divmod, args=(2,), nprocs=1, join=False)
    >>> context.join()
    True
    """
    require_processes("multiprocessing.start_processes")
    from multiprocessing import resource_tracker

    context: Any = multiprocessing.get_context(start_method)
    folder = tempfile.mkdtemp(prefix="tensorgrad-spawn-")
    files = [os.path.join(folder, f"{index}.txt") for index in range(nprocs)]
    dog, threads = Watchdog(), 0 if os.environ.get("OMP_NUM_THREADS") else share(nprocs)
    processes: list[Any] = []
    resource_tracker.ensure_running()  # before the mark is set: it serves this process, not its children
    early = {MARK: dog.token} if start_method == "spawn" else {}
    if threads and start_method != "fork":
        early["OMP_NUM_THREADS"] = str(threads)
    try:
        for index in range(nprocs):
            process = context.Process(
                target=_run, args=(fn, index, args, files[index], threads, start_method == "fork"), daemon=daemon
            )
            with started_with(early):
                process.start()
            processes.append(process)
            dog.watch(process.pid)
    except BaseException:
        for process in processes:
            process.kill()
        dog.close()
        _remove(folder, os.getpid())
        raise
    given = ProcessContext(processes, files)
    given._dog = dog
    weakref.finalize(given, _remove, folder, os.getpid())
    if not join:
        return given
    try:
        while not given.join():
            pass
    except ProcessException:
        raise
    except BaseException:  # Ctrl-C
        given._end(GRACE)
        raise
    return None


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not a fork of it
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def spawn(
    fn: Any, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """Runs `fn(i, *args)` in `nprocs` new processes, i = 0, 1, ...; see `start_processes`.

    >>> torch.multiprocessing.spawn(divmod, args=(2,), nprocs=1)
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)
