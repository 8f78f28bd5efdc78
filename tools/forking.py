"""Forks programs from a process that has imported what they need: to import it takes longer than most of them.

    python -m tools.forking [--leave] SOCKET MODULE...

A `Server` is such a process: it imports modules, and starts a job for each message. A job's processes are like any
other, in sessions of their own, with a `__main__` that is the program's, and end as Python ends; with `--leave` they do
not take apart what was imported, which takes longer than many a suite. tools/tests.py starts suites so, and
tests/distributed/ranks.py the ranks of jobs.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent


# --- in the process that asks ----------------------------------------------------------------------------------------


class Process:
    """A process of a job, with methods of `subprocess.Popen`."""

    def __init__(self, job: Job, number: int, pid: int) -> None:
        self.pid = pid
        self._job, self._number = job, number

    @property
    def returncode(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._job.codes[self._number]

    def poll(self) -> int | None:
        """Returns its exit status; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns its exit status when it has ended. Raises: TimeoutExpired."""
        return self._job.status(self._number, timeout)

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it, if it still runs."""
        self.send_signal(signal.SIGKILL)


class Job:
    """The processes of a job, and what has become of them."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self._lines = connection.makefile("r")
        connection.close()
        self.codes: list[int | None] = [None] * size
        self._changed = threading.Condition()
        pids = self._lines.readline()
        if not pids:
            raise RuntimeError("the process that forks programs has ended")
        self.processes = [Process(self, number, pid) for number, pid in enumerate(json.loads(pids))]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._lines:
            number, code = json.loads(line)
            self._end(number, code)
        self._lines.close()
        for number, code in enumerate(self.codes):  # who waited for it was killed: nobody else knows
            if code is None:
                self._end(number, -signal.SIGKILL)

    def _end(self, number: int, code: int) -> None:
        with self._changed:
            self.codes[number] = code
            self._changed.notify_all()

    def status(self, number: int, timeout: float | None) -> int:
        """Returns the exit status of a process when it has ended. Raises: TimeoutExpired."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.codes[number] is not None, timeout):
                raise subprocess.TimeoutExpired(f"process {number} of a job", timeout or 0)
        code = self.codes[number]
        assert code is not None
        return code


class Server:
    """A process that has imported modules, and forks programs.

    Args:
        modules: Their names.
        environment: The variables of its process. Programs are given more, too late for what modules do with a variable
            when they are imported.
        leave: Whether programs that have ended leave at once: their threads are joined, their functions for the exit
            run, and their output is written, but no object is taken apart.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str], leave: bool = False) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        options = ["--leave"] if leave else []
        command = [sys.executable, "-m", "tools.forking", *options, str(theirs.fileno()), *modules]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        theirs.close()

    def start(
        self,
        arguments: list[str],
        environments: list[dict[str, str]],
        files: Sequence[tuple[int, int]],
        folder: str | Path = "",
    ) -> list[Process]:
        """Starts a job, as soon as the modules are imported.

        Args:
            arguments: Those of Python: a file, or `-m` and a module, or `-c` and a text; and what the program is given.
            environments: The variables of each process, beside those of this server.
            files: The file descriptors of the output and the errors of each. They stay open here.
            folder: The working directory, by default that of this process.
        """
        ours, theirs = socket.socketpair()
        job = {
            "arguments": [*arguments],
            "folder": str(folder) or os.getcwd(),
            "environments": [*map(dict, environments)],
        }
        text = json.dumps(job).encode()
        with theirs, self._lock:
            numbers = [theirs.fileno(), *(number for pair in files for number in pair)]
            socket.send_fds(self._socket, [b"%d\n" % len(text)], numbers)
            self._socket.sendall(text)
        return Job(ours, len(files)).processes

    def stop(self) -> None:
        """Ends the process, which starts no more jobs."""
        self._socket.close()
        self.process.kill()
        self.process.wait()


# --- in the process that forks ---------------------------------------------------------------------------------------


class Program(NamedTuple):
    """What a process of a job runs."""

    arguments: list[str]
    folder: str
    variables: dict[str, str]


def serve(connection: socket.socket) -> Program | None:
    """Starts jobs until nobody can ask for more. Returns in each of their processes, with its program; else None."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes of jobs
    while True:
        head, files, _, _ = socket.recv_fds(connection, 16, 1024)
        if not head:
            return None
        while not head.endswith(b"\n"):
            head += connection.recv(1)
        text = b""
        while len(text) < int(head):
            text += connection.recv(int(head) - len(text))
        if os.fork() == 0:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return run_job(json.loads(text), *files)
        for number in files:
            os.close(number)


def run_job(job: dict[str, Any], told: int, *files: int) -> Program:
    """Forks the processes of a job, and tells how they end. Returns in each of them."""
    pids: dict[int, int] = {}
    for number, variables in enumerate(job["environments"]):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(files[2 * number], 1)
            os.dup2(files[2 * number + 1], 2)
            for file in (told, *files):
                os.close(file)
            return Program(job["arguments"], job["folder"], variables)
        pids[pid] = number
    for file in files:
        os.close(file)
    with open(told, "w", buffering=1) as answers, contextlib.suppress(BrokenPipeError):
        print(json.dumps([*pids]), file=answers)
        for _ in pids:
            pid, status = os.wait()
            print(json.dumps([pids[pid], os.waitstatus_to_exitcode(status)]), file=answers)
    os._exit(0)


def run_program(program: Program) -> None:
    """Runs a program as Python does."""
    first, *rest = program.arguments
    os.environ.update(program.variables)
    os.chdir(program.folder)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # each has random numbers of its own, as any process has
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # the server's, if a module has asked
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        sys.path[0], sys.argv = "", ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.path[0], sys.argv = program.folder, rest
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    else:
        sys.path[0], sys.argv = os.path.dirname(os.path.abspath(first)), [first, *rest]
        main.__dict__.update(__file__=first, __cached__=None)
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


class Leaving:
    """Ends the process in place of Python, as the last of the functions for the exit: it is registered as the first."""

    def __init__(self) -> None:
        self.status: int | None = None  # None: Python goes on
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.status is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.status)


def main(*arguments: str) -> None:
    """Imports those of the modules that are there, starts jobs, and in each of their processes runs its program."""
    number, *modules = arguments[arguments[0] == "--leave" :]
    leaving = Leaving() if arguments[0] == "--leave" else None
    for module in modules:
        with contextlib.suppress(ImportError):  # a program that needs it says so
            importlib.import_module(module)
    assert threading.active_count() == 1, "a process with several threads cannot be forked"
    gc.collect()
    gc.freeze()  # what has been imported stays: no collection looks at it again
    connection = socket.socket(fileno=int(number))
    os.set_inheritable(connection.fileno(), False)
    program = serve(connection)
    if program is None:
        return
    try:
        run_program(program)
    except SystemExit as end:
        if leaving is not None and isinstance(end.code, int):
            leaving.status = int(end.code) & 0xFF
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
