"""Compiles kernels in a separate process.

The compiler is written in Python: inside the program it would hold the GIL most of the time and leave a hundred
megabytes behind. It may also crash or be killed, which must not end the program. The process fills the cache on disk,
and the program then reads the kernel from there (background.py). The program compiles kernels itself only if there is
no interpreter to start, as when it was frozen into a single file.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tensorgrad.system.processes import has_python, python

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = "import sys; sys.path[:] = {path!r}; from tensorgrad.kernels.numba.compiling import serve; serve({aside})"
READY = "ready"  # the first line that the process prints, once it is able to compile
_SIGNALLED = 128  # from this status on a signal has ended a process, in shells; on Windows, an exception
_CRASHES = 3  # crashes of the process after which it is not started again
serving = False  # whether this is the compiler process (compiling.py)


def compiles_here() -> bool:
    """Returns whether kernels are compiled in this process."""
    return serving or not has_python()


class Failed(Exception):
    """A kernel could not be compiled. `crash`: the process crashed; `tried`: the failure is to be remembered."""

    def __init__(self, reason: str, crash: bool = False, tried: bool = True):
        super().__init__(reason)
        self.crash, self.tried = crash, tried


class Compiler:
    """The program's handle to the compiler process. It is started on first use, and ended by `close` or at exit.

    `aside`: it compiles beside other work, and gives way to it; False if nothing is done until it is ready.
    """

    def __init__(self, aside: bool = True) -> None:
        self.aside = aside
        self.process: Any = None
        self.errors: Any = None  # a file with what the process prints of errors
        self.ready = False  # whether the process has begun to work
        self.owner = 0
        self.crashes = 0
        self.hopeless = ""  # why no process can be started
        self.ended = False  # the program is exiting

    def compile(self, kernel: str, where: Path) -> None:
        """Waits until a kernel ("softmax.softmax") is in the cache folder `where`. Raises: Failed if it never is."""
        if self.hopeless or self.ended:
            raise Failed(self.hopeless or "the program is exiting", tried=False)
        process = None
        try:
            if self.process is None:
                self._start()
            process = self.process
            process.stdin.write(json.dumps({"kernel": kernel, "where": str(where)}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if answer.strip() == READY:
                self.ready = True
                answer = process.stdout.readline()
        except (OSError, ValueError, RuntimeError) as error:  # it could not be started, or was ended
            if process is None:
                self.hopeless = f"the compiler process could not be started: {error}"
                raise Failed(self.hopeless, tried=False) from None
            answer = ""
        if answer:
            given = json.loads(answer)
            if given["error"] is not None:
                raise Failed(given["error"], tried=given["tried"])
            return
        if self.process is None:  # closed in the meantime: the kernel is no longer needed
            raise Failed("the compiler process was closed", tried=False)
        code, why, ready = process.wait(), self._last_error(), self.ready
        self.close()
        reason = f"the compiler process ended with status {code}{why}"
        if not ready and 0 <= code < _SIGNALLED:  # an error in Python, as in a checkout that is being edited
            self.hopeless = f"{reason} before it could compile"
            raise Failed(self.hopeless, tried=False)
        self.crashes += 1
        if self.crashes >= _CRASHES:
            self.hopeless = f"the compiler process has crashed {self.crashes} times"
        raise Failed(reason, crash=True)

    def _last_error(self) -> str:
        """Returns the last line that the process has printed of errors, in brackets."""
        with contextlib.suppress(OSError, ValueError):
            self.errors.seek(max(self.errors.seek(0, os.SEEK_END) - 4096, 0))
            lines = self.errors.read().decode(errors="replace").split("\n")
            return next((f" ({line.strip():.200})" for line in reversed(lines) if line.strip()), "")
        return ""

    def _start(self) -> None:
        import subprocess  # these and what they import take longer than loading a kernel, which most programs only do
        import tempfile

        from tensorgrad.kernels.numba.runtime import native

        environment = {
            k: v
            for k, v in os.environ.items()
            if k not in ("DEBUG", "PYTHONINSPECT", "PYTHONSTARTUP")
            and (not k.startswith("NUMBA_") or k in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"))
        }
        if native.level():  # the process need not look for it
            environment["TENSORGRAD_CPU"] = native.level()
        self.ready, self.errors = False, tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            python("-c", _PROGRAM.format(path=sys.path, aside=self.aside)),
            env=environment | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True, encoding="utf-8",
            creationflags=getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0) if self.aside else 0,
        )  # fmt: skip
        self.owner = os.getpid()
        atexit.register(self.end)

    def end(self) -> None:
        """Ends the process when the program exits."""
        self.ended = True
        self.close()

    def close(self) -> None:
        """Ends the process; the kernels it has finished stay in the cache."""
        process, self.process = self.process, None
        if process is not None and self.owner == os.getpid():  # not a fork of the process that started it
            atexit.unregister(self.end)
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, self.errors):
                with contextlib.suppress(OSError):
                    pipe.close()
