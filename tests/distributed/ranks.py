"""Starts the ranks of a job: forked from a process that has imported the package (tools/forking.py), or torch.

What starts with interpreters of its own is proven by the tests of `torchrun` (test_run.py and those beside it).
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time

from tools.forking import Process, Server

PACKAGES = {
    "tensorgrad": ("tensorgrad.distributed", "tests.distributed.launch"),
    "torch": (
        "numpy",
        "torch._dynamo",  # which its optimizers import
        "torch.distributed.algorithms.ddp_comm_hooks",
        "torch.distributed.optim",
    ),
}


class Rank:
    """A process of a job, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, process: Process, output: int, errors: int) -> None:
        self._process, self._read = process, {output: bytearray(), errors: bytearray()}
        self.pid, self.wait, self.kill = process.pid, process.wait, process.kill

    @property
    def returncode(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode

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
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout, *map(bytes, self._read.values()))
        self.wait(max(end - time.monotonic(), 0))
        output, errors = (text.decode() for text in self._read.values())
        return output, errors

    def close(self) -> None:
        """Closes the files from which its output is read."""
        for number in self._read:
            os.close(number)


def fork_ranks(server: Server, arguments: list[str], environments: list[dict[str, str]]) -> list[Rank]:
    """Starts a job's ranks with arguments of Python, each with variables beside those of the server."""
    pipes = [(os.pipe(), os.pipe()) for _ in environments]
    inner = [(output, errors) for (_, output), (_, errors) in pipes]
    try:
        processes = server.start(arguments, environments, inner)
    finally:
        for ends in inner:
            for end in ends:
                os.close(end)
    return [Rank(process, output, errors) for process, ((output, _), (errors, _)) in zip(processes, pipes, strict=True)]
