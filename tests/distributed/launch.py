"""Starts the ranks of a job as ordinary processes, and leaves none behind."""

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

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

_PORTS = iter(random.sample(range(15000, 32000), 17000))


def free_port() -> int:
    """A port on which nobody listens, below those that systems give to connections; another one each time."""
    for port in _PORTS:
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError("there is no free port")


def start(arguments, cwd=None, **variables) -> subprocess.Popen:
    """A process in a group of its own, so that what it starts can be ended with it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "RANK", "WORLD"))}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | {k: str(v) for k, v in variables.items()}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=environment,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(size, arguments, timeout=180, check=True, **variables):
    """Runs a script in `size` processes, and returns (return code, output, errors) of each."""
    port = free_port()
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": size} | variables
    processes = [start(arguments, RANK=rank, **where) for rank in range(size)]
    end, results = time.monotonic() + timeout, []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=max(0.1, end - time.monotonic()))
            results.append((process.returncode, output, errors))
    finally:
        for process in processes:
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
    if check:
        failed = {rank: result for rank, result in enumerate(results) if result[0] != 0}
        assert not failed, "\n".join(f"rank {rank} ended with {c}:\n{o}\n{e}" for rank, (c, o, e) in failed.items())
    return results


def has_ended(rank, size=4):
    """The pattern of a message that a rank has ended; others may have ended, for that reason, before it was written."""
    return rf"rank ([0-{size - 1}], )*{rank}(, [0-{size - 1}])* has ended"
