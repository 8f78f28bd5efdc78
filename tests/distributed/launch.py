"""Starts the ranks of a job as ordinary processes, and leaves none behind."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from pathlib import Path
from threading import Lock

import pytest

from tensorgrad.system.ports import ReservedPort
from tensorgrad.system.watchdog import Watchdog
from tests.distributed.ranks import PACKAGES, Rank, fork_ranks
from tools.forking import Server

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HAS_MPI = importlib.util.find_spec("mpi4py") is not None
needs_mpi = pytest.mark.skipif(not HAS_MPI or sys.platform == "win32", reason="needs mpi4py and an MPICH")


def _mpiexec():
    """The launcher of the MPI wheel; None if there is none."""
    folders = [Path(sys.executable).parent]
    with contextlib.suppress(metadata.PackageNotFoundError):
        folders += [Path(file.locate()).resolve().parent for file in metadata.files("mpich") if file.name == "mpiexec"]
    return shutil.which("mpiexec", path=os.pathsep.join(map(str, folders)))


MPIEXEC = _mpiexec()
needs_mpiexec = pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec is installed with this Python")

_SERVERS: list[Server] = []
_STARTING = Lock()  # tests run at the same time

HANG = 200  # seconds that whatever is waited for may take: only what hangs takes as long, on any machine


@contextlib.contextmanager
def no_signal_ignored():
    """Processes inherit which signals are ignored, as SIGHUP under `nohup` and SIGINT in the background of a shell."""
    names = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


@cache
def watchdog() -> Watchdog:
    """Ends what the tests of this process have started, however this process ends; also if it is killed."""
    return Watchdog()


def environment(**variables) -> dict[str, str]:
    """For a process: that of this one, without what a job around it would tell its ranks.

    Python may keep bytecode: without, each process compiles the package again, which is half of its start.
    """
    others = "PMI", "RANK", "WORLD", "PYTHONDONTWRITEBYTECODE"
    base = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in variables.items()}
    return watchdog().environment(base | own)


def start_command(command, **options) -> subprocess.Popen:
    """A process in a session of its own, so that what it starts can be ended with it."""
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    watchdog().watch(process.pid)
    return process


def start(arguments, cwd=None, **variables) -> subprocess.Popen:
    """A Python process."""
    return start_command([sys.executable, *arguments], cwd=cwd, env=environment(**variables))


def end(process) -> None:
    """Kills a process and those of its session, if they still run."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if isinstance(process, Rank):
        process.close()
    watchdog().forget(process.pid)


def finished(process, timeout=HANG):
    """The exit code, output and errors of a process, when it has ended. What it left is killed."""
    try:
        output, errors = process.communicate(timeout=timeout)
        return process.returncode, output, errors
    finally:
        end(process)


@cache
def server(package: str, variables: frozenset) -> Server:
    """What forks the ranks of jobs in this environment: modules read some variables when they are imported."""
    started = Server(PACKAGES[package], dict(variables))
    watchdog().watch(started.process.pid)
    _SERVERS.append(started)
    return started


def stop_servers() -> None:
    """Ends what forks ranks."""
    while _SERVERS:
        started = _SERVERS.pop()
        started.stop()
        watchdog().forget(started.process.pid)
    server.cache_clear()


def start_ranks(size: int, arguments: list, where: dict, variables: dict) -> list:
    """The ranks of a job: forked, if nothing is said about their interpreter."""
    words = [str(word) for word in arguments]
    ranks = [where | variables | {"RANK": rank} for rank in range(size)]
    if not hasattr(os, "fork") or (words[0] not in ("-c", "-m") and words[0].startswith("-")):
        return [start(words, **rank) for rank in ranks]
    around = environment(**variables)
    around.pop("PYTEST_CURRENT_TEST", None)
    with _STARTING:
        forks = server("torch" if "torch" in words else "tensorgrad", frozenset(around.items()))
    started = fork_ranks(forks, words, [{name: str(value) for name, value in rank.items()} for rank in ranks])
    for rank in started:
        watchdog().watch(rank.pid)
    return started


def run(size, arguments, timeout=HANG, check=True, **variables):
    """Runs a script in `size` processes, and returns (return code, output, errors) of each."""
    with ReservedPort() as port, ThreadPoolExecutor(size) as readers:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port.number, "WORLD_SIZE": size}
        processes = start_ranks(size, arguments, where, variables)
        try:
            outputs = list(readers.map(lambda process: process.communicate(timeout=timeout), processes))
        finally:
            for process in processes:  # not before all have ended: rank 0 has started a server for the others
                end(process)
        results = [(process.returncode, *output) for process, output in zip(processes, outputs)]
    if check:
        failed = {rank: result for rank, result in enumerate(results) if result[0] != 0}
        assert not failed, "\n".join(f"rank {rank} ended with {c}:\n{o}\n{e}" for rank, (c, o, e) in failed.items())
    return results


def has_ended(rank, size=4):
    """The pattern of a message that a rank has ended; others may have ended, for that reason, before it was written."""
    return rf"rank ([0-{size - 1}], )*{rank}(, [0-{size - 1}])* has ended"
