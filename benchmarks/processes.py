"""The measured processes: the columns, their environments, and the communication with them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LONGEST = 600  # the maximum number of seconds that an answer may take

# glibc returns large blocks to the system when they are freed, and fresh pages from the system cost more than the
# arithmetic on them. With these settings it keeps its memory.
RAISED = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    "MALLOC_TOP_PAD_": str(1 << 26),
}


class Column(NamedTuple):
    """A way to run the rows."""

    title: str
    library: str
    environment: dict[str, str]


COLUMNS = {
    "fast": Column("tensorgrad `fast`", "tensorgrad", {}),
    "numpy": Column("tensorgrad, NumPy alone", "tensorgrad", {"TENSORGRAD_FAST": "0"}),
    "torch": Column("torch", "torch", {}),
    "raised": Column("torch, raised thresholds", "torch", RAISED),
}

# Variables that may be set for other purposes; each library is measured with its defaults.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "TENSORGRAD_FAST", "TENSORGRAD_DEBUG", "DEBUG", "LD_PRELOAD", *RAISED)
BYTECODE = tempfile.TemporaryDirectory(prefix="benchmarks-")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(column: Column, threads: int, **more: str) -> dict[str, str]:
    """Returns the environment for a process of a column. With 0 threads the library chooses their number."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET + THREADS}
    if "PYTHONDONTWRITEBYTECODE" in kept:  # bytecode is cached as in any installation, but elsewhere
        del kept["PYTHONDONTWRITEBYTECODE"]
        kept["PYTHONPYCACHEPREFIX"] = BYTECODE.name
    numbers = dict.fromkeys(THREADS, str(threads)) if threads else {}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**kept, **numbers, "PYTHONPATH": path, **column.environment, **more}


def end_in_order() -> None:
    """Makes SIGTERM (of `timeout`, for example) end this program like `sys.exit`, which deletes temporary folders."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def busy() -> tuple[float, float]:
    """Returns the busy seconds of all processors since boot, and those of this process and its children."""
    own = sum(os.times()[:4])
    try:
        parts = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:  # not Linux
        return own, own
    return (sum(parts) - parts[3] - parts[4]) / os.sysconf("SC_CLK_TCK"), own


class Failure(Exception):
    """Raised when a worker answers with an error, takes too long or dies."""


class Process:
    """A worker of one column, started on first use."""

    def __init__(
        self, column: Column, threads: int, clock: str = "wall", module: str = "benchmarks.worker",
        before: tuple[str, ...] = (),
    ):  # fmt: skip
        self.column, self.threads, self.clock, self.module = column, threads, clock, module
        self.before = before  # a command that runs the command given as its arguments
        self.process: subprocess.Popen | None = None
        # Its output: warnings, and the traceback if it dies. The file lives as long as this object.
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115

    def last_line(self) -> str:
        """Returns the last line that the process printed."""
        self.log.seek(0)
        return self.log.read().strip().rpartition("\n")[2][:300] or "(no output)"

    def start(self) -> None:
        """Starts the process; it answers once its library is imported."""
        self.process = subprocess.Popen(
            [*self.before, sys.executable, "-m", self.module, self.column.library, str(self.threads), self.clock],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=ROOT,
            env=environment(self.column, self.threads),
        )  # fmt: skip

    def send(self, **command) -> None:
        """Sends a command without waiting for the answer."""
        if self.process is None:
            self.start()
        with contextlib.suppress(BrokenPipeError):  # `receive` reports it
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()

    def receive(self) -> dict:
        """Returns the answer to the last command. Raises: Failure if there is none."""
        late = threading.Timer(LONGEST, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        if not line:
            self.kill()
            raise Failure(f"the process died, or took more than {LONGEST} s: {self.last_line()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(answer["error"])
        return answer

    def ask(self, **command) -> dict:
        """Sends a command and returns the answer. Raises: Failure if there is none."""
        self.send(**command)
        return self.receive()

    def kill(self) -> None:
        """Kills the process."""
        if self.process is not None:
            self.process.kill()
            self.close()

    def close(self) -> None:
        """Lets the process exit; the next command starts a new one."""
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
