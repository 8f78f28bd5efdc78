"""Failures of processes: how a process writes down its exception, and how the agent reports all of them."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from datetime import datetime
from typing import Any

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_CONSEQUENCES = ("DistBackendError", "DistNetworkError", "DistStoreError")  # of another rank's failure, usually


class ErrorHandler:
    """Writes the exception that ends this process to the file that TORCHELASTIC_ERROR_FILE names, as JSON.

    >>> from tensorgrad.distributed.elastic.multiprocessing.errors import ErrorHandler
    >>> ErrorHandler().record_exception(ValueError("nothing is written without the variable"))
    """

    def initialize(self) -> None:
        """PyTorch's handler prepares itself here; this one has nothing to prepare."""

    def record_exception(self, e: BaseException) -> None:
        """Writes the file, if its name is set and another handler has not written it."""
        path = os.environ.get(ERROR_FILE)
        if not path or os.path.exists(path):
            return
        text = "".join(_without_our_frames(e))
        extra = {
            "py_callstack": text,
            "timestamp": str(int(time.time())),
            "time": time.time(),
            "type": type(e).__name__,
        }
        temporary = f"{path}.{os.getpid()}"
        try:
            with open(temporary, "w") as file:
                json.dump({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}}, file)
            os.replace(temporary, path)
        except OSError:  # the disk is full, or the agent has removed the folder: the traceback is on the console
            pass


def _without_our_frames(error: BaseException) -> list[str]:
    """The lines of a traceback, from the program's first line on."""
    step, start = error.__traceback__, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename.startswith("<frozen runpy") or step.tb_frame.f_code.co_filename.endswith(
            ("runpy.py", os.path.join("elastic", "worker.py"))
        ):
            start = step.tb_next or start
        step = step.tb_next
    return traceback.format_exception(type(error), error, start)


formatted = _without_our_frames


def get_error_handler() -> ErrorHandler:
    """Returns an `ErrorHandler`."""
    return ErrorHandler()


class ProcessFailure:
    """One process that failed.

    Args:
        local_rank: its rank on its machine.
        pid: its number in the process table.
        exitcode: its exit code; the negative number of a signal that ended it.
        error_file: where it may have written its exception.

    >>> from tensorgrad.distributed.elastic.multiprocessing.errors import ProcessFailure
    >>> ProcessFailure(0, 100, -9, "none").message
    'Signal 9 (SIGKILL) received by PID 100'
    """

    def __init__(self, local_rank: int, pid: int, exitcode: int, error_file: str) -> None:
        self.local_rank, self.pid, self.exitcode = local_rank, pid, exitcode
        self.error_file, self.error_file_data = "<N/A>", {}
        self.time, self.type, self.host = time.time(), "", socket.gethostname()
        try:
            with open(error_file) as file:
                self.error_file_data = json.load(file)
            message = self.error_file_data["message"]
            extra = message["extraInfo"] if isinstance(message, dict) else {}
            self.message = extra.get("py_callstack") or str(message)
            self.time = float(extra.get("time") or extra.get("timestamp") or self.time)
            self.type = extra.get("type", "")
            self.error_file = error_file
        except (OSError, ValueError, KeyError, TypeError):
            if exitcode < 0:
                self.message = f"Signal {-exitcode} ({self.signal_name()}) received by PID {pid}"
            else:
                self.message = f"exit code {exitcode}, without an exception"

    @property
    def timestamp(self) -> int:
        """When it failed, in seconds since 1970."""
        return int(self.time)

    def signal_name(self) -> str:
        """The name of the signal that ended it; an empty string if none did."""
        if self.exitcode >= 0:
            return ""
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return "<Unknown>"

    def timestamp_isoformat(self) -> str:
        """When it failed, for people."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    def to_dict(self) -> dict[str, Any]:
        """What another machine needs to know."""
        return dict(vars(self), error_file_data={})

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> ProcessFailure:
        """The opposite of `to_dict`."""
        failure = cls(int(given["local_rank"]), int(given["pid"]), int(given["exitcode"]), os.devnull)
        for name in ("error_file", "message", "type", "host"):
            setattr(failure, name, str(given[name]))
        failure.time = float(given["time"])
        return failure

    def order(self) -> tuple[bool, float]:
        """Sorts by time; what only says that another rank is gone comes last."""
        return self.type in _CONSEQUENCES, self.time


class ChildFailedError(Exception):
    """Processes of a job failed. The text lists them, and ends with the one that failed first.

    Args:
        name: what was run.
        failures: by global rank.
    """

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise AssertionError("ChildFailedError needs at least one failure")
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The global rank that failed first, and its failure."""
        rank = min(self.failures, key=lambda rank: self.failures[rank].order())
        return rank, self.failures[rank]

    def format_msg(self) -> str:
        """The summary."""
        first, _ = self.get_first_failure()
        others = [rank for rank in sorted(self.failures) if rank != first]
        wide, thin = "=" * 60, "-" * 60
        lines = [wide, f"{self.name} FAILED", thin]
        lines += ["Failures:", *(line for rank in others for line in self._lines(rank)), thin] if others else []
        return "\n".join(["", *lines, "Root Cause (first observed failure):", *self._lines(first), wide])

    def _lines(self, rank: int) -> list[str]:
        failure = self.failures[rank]
        signal_name = f" ({failure.signal_name()})" if failure.exitcode < 0 else ""
        first, *rest = failure.message.rstrip().splitlines() or [""]
        return [
            f"  time      : {failure.timestamp_isoformat()}", f"  host      : {failure.host}",
            f"  rank      : {rank} (local_rank: {failure.local_rank})",
            f"  exitcode  : {failure.exitcode} (pid: {failure.pid}){signal_name}",
            f"  error_file: {failure.error_file}", f"  traceback : {first}", *(f"    {line}" for line in rest),
        ]  # fmt: skip


def record(fn: Callable[..., Any], error_handler: ErrorHandler | None = None) -> Callable[..., Any]:
    """Makes a function write the exception that leaves it to the error file, where the agent finds it.

    Programs that `tensorgrad.distributed.run` starts as Python do this by themselves.

    >>> from tensorgrad.distributed.elastic.multiprocessing.errors import record
    >>> @record
    ... def main():
    ...     return 3
    >>> main()
    3
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except SystemExit:
            raise
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            path = os.environ.get(ERROR_FILE)
            if path and failure.error_file_data:
                with open(path, "w") as file:
                    json.dump(failure.error_file_data, file)
            raise
        except Exception as error:
            (error_handler or ErrorHandler()).record_exception(error)
            raise

    return wrapper
