"""Forks the ranks of a job from a process that has imported the package: to import it takes longer than most jobs.

    python -m tests.distributed.ranks SOCKET MODULE...

A `Server` is such a process: it imports the modules, and starts a job for each message. Its ranks are processes like
any other, in sessions of their own, with a `__main__` that is the program's, and end as Python ends. What starts with
interpreters of its own is proven by the tests of `torchrun` (test_run.py and those beside it).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from typing import Any, NamedTuple

PACKAGES = {
    "tensorgrad": ("tensorgrad.distributed", "tests.distributed.launch"),
    "torch": ("numpy", "torch.distributed.algorithms.ddp_comm_hooks", "torch.distributed.optim"),
}


# --- in the process of the tests -------------------------------------------------------------------------------------


class Rank:
    """A process of a job, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, job: Job, number: int, output: int, errors: int) -> None:
        self.pid, self.returncode = 0, None
        self._job, self._number, self._read = job, number, {output: bytearray(), errors: bytearray()}

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Returns its output and errors when it has ended, and whoever may write to them. Raises: TimeoutExpired."""
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for number in self._read:
                selector.register(number, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(end - time.monotonic(), 0))
                for key, _ in ready:
                    text = os.read(key.fd, 1 << 16)
                    self._read[key.fd] += text
                    if not text:
                        selector.unregister(key.fd)
                if not ready and time.monotonic() > end:
                    raise subprocess.TimeoutExpired(f"rank {self._number}", timeout, *map(bytes, self._read.values()))
        self.wait(max(end - time.monotonic(), 0))
        output, errors = (text.decode() for text in self._read.values())
        return output, errors

    def wait(self, timeout: float | None = None) -> int:
        """Returns its exit status when it has ended. Raises: TimeoutExpired."""
        self.returncode = self._job.status(self._number, timeout)
        return self.returncode

    def kill(self) -> None:
        """Ends it, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            if self._job.codes[self._number] is None:
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Closes the files from which its output is read."""
        for number in self._read:
            os.close(number)


class Job:
    """The ranks of a job, and what has become of them."""

    def __init__(self, connection: socket.socket, pipes: list[tuple[int, int]]) -> None:
        self._lines = connection.makefile("r")
        connection.close()
        self.ranks = [Rank(self, number, *ends) for number, ends in enumerate(pipes)]
        self.codes: list[int | None] = [None] * len(pipes)
        self._changed = threading.Condition()
        for rank, pid in zip(self.ranks, json.loads(self._lines.readline()), strict=True):
            rank.pid = pid
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._lines:
            number, code = json.loads(line)
            with self._changed:
                self.codes[number] = code
                self._changed.notify_all()
        self._lines.close()

    def status(self, number: int, timeout: float | None) -> int:
        """Returns the exit status of a rank when it has ended. Raises: TimeoutExpired."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.codes[number] is not None, timeout):
                raise subprocess.TimeoutExpired(f"rank {number}", timeout or 0)
        code = self.codes[number]
        assert code is not None
        return code


class Server:
    """A process that has imported a package, and forks the ranks of jobs.

    Args:
        package: "tensorgrad" or "torch".
        environment: The variables of its process. Ranks are given more: what modules do with a variable when they are
            imported, is done.
    """

    def __init__(self, package: str, environment: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "tests.distributed.ranks", str(theirs.fileno()), *PACKAGES[package]]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            start_new_session=True,
        )  # fmt: skip
        theirs.close()

    def start(self, arguments: list[str], environments: list[dict[str, str]]) -> list[Rank]:
        """Starts a job.

        Args:
            arguments: Those of Python: a file, or `-m` and a module, or `-c` and a text; and what the program is given.
            environments: The variables of each rank, beside those of this server.
        """
        pipes = [(os.pipe(), os.pipe()) for _ in environments]
        inner = [end for (_, output), (_, errors) in pipes for end in (output, errors)]
        ours, theirs = socket.socketpair()
        text = json.dumps({"arguments": arguments, "folder": os.getcwd(), "environments": environments})
        try:
            with self._lock:
                socket.send_fds(self._socket, [b"%d\n" % len(text)], [theirs.fileno(), *inner])
                self._socket.sendall(text.encode())
        finally:
            theirs.close()
            for end in inner:
                os.close(end)
        return Job(ours, [(output, errors) for (output, _), (errors, _) in pipes]).ranks

    def stop(self) -> None:
        """Ends the process, which starts no more jobs."""
        self._socket.close()
        self.process.wait()


# --- in the process that forks ---------------------------------------------------------------------------------------


class Program(NamedTuple):
    """What a rank runs."""

    arguments: list[str]
    folder: str
    variables: dict[str, str]


def serve(connection: socket.socket) -> Program | None:
    """Starts jobs until nobody can ask for more. Returns in each rank, with its program; else None."""
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
    """Forks the ranks of a job, and tells how they end. Returns in each of them."""
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
        sys.modules["numpy"].random.seed()  # each rank has random numbers of its own, as any process has
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
        with open(first, "rb") as file:
            exec(compile(file.read(), first, "exec"), main.__dict__)


def main(number: str, *modules: str) -> None:
    """Imports the modules, starts jobs, and in each rank runs its program."""
    for module in modules:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a process with several threads cannot be forked"
    connection = socket.socket(fileno=int(number))
    os.set_inheritable(connection.fileno(), False)
    program = serve(connection)
    if program is not None:
        run_program(program)


if __name__ == "__main__":
    main(*sys.argv[1:])
