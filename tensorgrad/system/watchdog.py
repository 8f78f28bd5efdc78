"""Ends the processes that a program has started, however that program ends.

A program that starts others may be killed with no chance to end them. A `Watchdog` is a small process beside it, which
runs this file: it waits until the program's end of a pipe closes, and then kills what the program has reported. Their
own children are found, too: by their parents, by their process group and session, and, on Linux, by a mark in their
environment that every descendant inherits. The watchdog is in a session of its own, so that what ends the program's
process group or terminal does not end it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time

__all__ = ["MARK", "Watchdog", "belonging", "end_with_parent", "kill"]

MARK = "TENSORGRAD_STARTED_BY"  # the variable that marks the processes of one watchdog
POLL = 0.5  # seconds between two looks at whether the parent still lives


# --- the process table -----------------------------------------------------------------------------------------------


def table() -> dict[int, tuple[int, int, int]]:
    """All processes: number -> (parent, process group, session). Zombies are left out. Empty on Windows."""
    found: dict[int, tuple[int, int, int]] = {}
    if os.path.isdir("/proc/self"):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                    status, *numbers = file.read().rpartition(b")")[2].split()[:4]  # the name may contain spaces
                    if status not in (b"Z", b"X"):
                        found[int(name)] = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    elif os.name == "posix":
        columns = ["ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat="]
        for line in subprocess.run(columns, capture_output=True, text=True, check=False).stdout.splitlines():
            pid, parent, group, state = line.split()[:4]
            if not state.startswith("Z"):
                found[int(pid)] = (int(parent), int(group), -1)
    return found


def _marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:  # another user's, gone, or not Linux
        return False


def belonging(leaders: set[int], token: str) -> set[int]:
    """The living processes among `leaders`, and everything that descends from them or carries the mark.

    >>> import os
    >>> from tensorgrad.system.watchdog import belonging
    >>> belonging(set(), "no such token")
    set()
    """
    processes, mark = table(), f"{MARK}={token}".encode()
    own = {os.getpid(), os.getppid()}
    found = {pid for pid, (_, group, session) in processes.items() if {pid, group, session} & leaders}
    found |= {pid for pid in processes if _marked(pid, mark)}
    new = found
    while new:
        new = {pid for pid, (parent, _, _) in processes.items() if parent in new} - found
        found |= new
    return found - own


def kill(leaders: set[int], token: str, patience: float = 5.0) -> set[int]:
    """Kills what belongs to `leaders` and `token`, again until nothing is left. Returns what was killed.

    >>> from tensorgrad.system.watchdog import kill
    >>> kill(set(), "no such token")
    set()
    """
    killed: set[int] = set()
    if os.name != "posix":
        for pid in leaders:
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(pid)], capture_output=True, check=False)
        return set(leaders)
    end = time.monotonic() + patience
    while (left := belonging(leaders, token)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= left
        time.sleep(0.01)
    return killed


def end_with_parent() -> None:
    """Linux ends this process with the thread that started it. Elsewhere it does nothing: the watchdog must do."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


# --- the program's side ----------------------------------------------------------------------------------------------


class Watchdog:
    """A process that ends the reported processes when this one ends without `close`.

    Processes must be started with the variable `MARK` set to `token`. If the watchdog itself is killed, the next
    report starts another.

    >>> import subprocess, sys
    >>> from tensorgrad.system.watchdog import Watchdog
    >>> dog = Watchdog()
    >>> process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=dog.environment())
    >>> dog.watch(process.pid)
    >>> _ = dog.end_all()
    >>> process.wait()
    -9
    >>> dog.close()
    """

    def __init__(self) -> None:
        self.token = os.urandom(16).hex()
        self.leaders: set[int] = set()
        self.process: subprocess.Popen | None = None
        self.owner = os.getpid()
        self.start()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def environment(self, base: dict[str, str] | None = None) -> dict[str, str]:
        """The environment for a process that is to be watched: `base`, or this process's, with the mark."""
        return {**(os.environ if base is None else base), MARK: self.token}

    def start(self) -> None:
        """Starts the process, unless it runs."""
        from tensorgrad.system import processes  # not at the top: the watchdog itself runs this file alone

        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            command = processes.python("-I", "-S", __file__, self.token, str(os.getpid()))
        except RuntimeError:
            return  # a program that embeds Python: there is no interpreter to run it
        # The marks and the secret of a job are for its own processes.
        environment = processes.environment()
        for name in (MARK, "TENSORGRAD_JOB_SECRET"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=os.name == "posix",
        )  # fmt: skip
        for pid in self.leaders:
            self._say("watch", pid)

    def watch(self, pid: int) -> None:
        """Reports a process."""
        self.start()
        self.leaders.add(pid)
        self._say("watch", pid)

    def forget(self, pid: int) -> None:
        """Reports that a process has ended, with all of its own."""
        self.leaders.discard(pid)
        self._say("forget", pid)

    def end_all(self) -> set[int]:
        """Kills all reported processes and what descends from them, now."""
        return kill(set(self.leaders), self.token)

    def close(self) -> None:
        """Ends the watchdog; the reported processes go on."""
        if self.process is None or self.owner != os.getpid():
            return
        self._say("done", 0)
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process = None

    def _say(self, word: str, pid: int) -> None:
        if self.process is not None and self.process.stdin is not None and self.owner == os.getpid():
            with contextlib.suppress(OSError, ValueError):  # it has been killed; `start` makes another
                self.process.stdin.write(f"{word} {pid}\n".encode())
                self.process.stdin.flush()

    def _forget(self) -> None:
        """In a forked child: a copy of the pipe would hide that this process has ended."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process = None


# --- the watchdog's side ---------------------------------------------------------------------------------------------


def _main(token: str, parent: int) -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    leaders: set[int] = set()
    text = b""
    selector = selectors.DefaultSelector() if os.name == "posix" else None
    if selector is not None:
        selector.register(0, selectors.EVENT_READ)
    while True:
        if selector is not None and not selector.select(POLL):
            if os.getppid() != parent:  # gone, though a child that it forked still holds the pipe
                break
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            word, _, pid = line.partition(b" ")
            if word == b"watch":
                leaders.add(int(pid))
            elif word == b"forget":
                leaders.discard(int(pid))
            elif word == b"done":
                return
    kill(leaders, token)
    time.sleep(0.2)  # a process that was about to be started when the program ended
    kill(leaders, token)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
