"""Compiles kernels in a process of its own.

The compiler is written in Python: beside the program it would hold Python's lock most of the time, and leave a hundred
megabytes behind. The process fills the cache on disk; the program then reads the kernel from there.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import subprocess
import sys
from typing import Any

_PROGRAM = "import sys; sys.path[:] = {path!r}; from tensorgrad.kernels.numba.compiler import serve; serve()"


def serve() -> None:
    """What the process does: compiles each kernel whose name comes in, and answers when it lies in the cache.

    At the program's own priority: the sooner a kernel is there, the sooner NumPy need not serve.
    """
    from tensorgrad.kernels.numba.runtime import compiled

    gc.set_threshold(200_000)  # the compiler makes very many objects that are not garbage
    for line in sys.stdin:
        try:
            compiled(line.strip())
            print("compiled", flush=True)
        except Exception:  # the program will try itself, and tell its user
            print("failed", flush=True)


class Compiler:
    """The process, seen from the program. It is started when first needed; `close` ends it, and so does the exit."""

    def __init__(self) -> None:
        self.process: Any = None
        self.owner = 0
        self.hopeless = not sys.executable or getattr(sys, "frozen", False)

    def compile(self, kernel: str) -> bool:
        """Waits until a kernel ("rows.softmax") lies in the cache. Whether it does: there may be no such process."""
        if self.hopeless:
            return False
        try:
            if self.process is None:
                self._start()
            self.process.stdin.write(f"{kernel}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except (OSError, ValueError):  # it could not be started, or has been ended
            answer = ""
        self.hopeless = not answer
        return answer == "compiled"

    def _start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("DEBUG", "PYTHONINSPECT", "PYTHONSTARTUP")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(path=sys.path)],
            env=environment | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
        )  # fmt: skip
        self.owner = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the process; the kernels that it has finished stay in the cache."""
        process, self.process = self.process, None
        if process is not None and self.owner == os.getpid():  # and not a fork of who started it
            atexit.unregister(self.close)
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
