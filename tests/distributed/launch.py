"""Starts the ranks of a job as ordinary processes, and leaves none behind."""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HAS_MPI = importlib.util.find_spec("mpi4py") is not None
needs_mpi = pytest.mark.skipif(not HAS_MPI or sys.platform == "win32", reason="needs mpi4py and an MPICH")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(arguments, **variables) -> subprocess.Popen:
    """A process in a group of its own, so that what it starts can be ended with it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "RANK", "WORLD"))}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | {k: str(v) for k, v in variables.items()}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def run(size, arguments, timeout=60, check=True, **variables):
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
        for rank, (code, output, errors) in enumerate(results):
            assert code == 0, f"rank {rank} ended with {code}:\n{output}\n{errors}"
    return results
