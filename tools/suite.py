"""One process that runs tests, or something like them, with its output in a log: what it has done, and how it ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from forking import Process, Server

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "tests"
PYTEST = [sys.executable, "-m", "pytest", "-p", "tools.progress"]
CLOSING = re.compile(r"\b(\d+ (passed|failed|skipped|errors?|deselected|warnings?)|no tests ran)\b.* in [\d.]+s")
SLOWEST = 24  # files named at the end of a run
NO_TESTS = 5  # pytest's exit status where no test was chosen


class Suite:
    """One process.

    Attributes:
        name: Names it in the output.
        command: The program and its arguments.
        unit: What `done` and `total` count: tests, seconds, or Python versions. `total` is None until it is known.
        failed: Tests that have failed.
        machine: Those of them which depend on the machine, with the reason; they may be repeated once.
        retried: Those of them which have passed then.
        seconds: How long the tests of each file have taken so far.
        reaching: Names what of which only tests that reach compiled kernels are repeated with NumPy alone.
        modules: What the process has imported that it is forked from; nothing if it begins as a new interpreter.
    """

    def __init__(
        self, name: str, command: Sequence[str], unit: str = "tests", total: int | None = None, reaching: str = "",
        modules: tuple[str, ...] = (), **environment,
    ):  # fmt: skip
        self.name, self.command, self.unit, self.total, self.environment = name, command, unit, total, environment
        self.reaching, self.modules = reaching, modules
        stem = re.sub(r"\W+", "-", name)
        self.log, self.progress = LOGS / f"{stem}.log", LOGS / f"{stem}.progress"
        self.done, self.read = 0, 0
        self.failed: list[str] = []
        self.machine: dict[str, str] = {}
        self.retried: list[str] = []
        self.seconds: Counter = Counter()
        self.process: subprocess.Popen | Process | None = None
        self.took = 0.0

    def start(self, temporary: Path, run: str, server: Server | None = None) -> None:
        """Starts the process.

        Args:
            temporary: Where its temporary files go.
            run: The name of this run of tests, which all processes that it starts carry in their environment.
            server: What forks it; None if it begins as a new interpreter.
        """
        self.progress.write_text("")
        # A short name: the path of a socket has at most 107 bytes, and browsers make theirs some folders further down.
        folder = tempfile.mkdtemp(prefix="", dir=temporary)
        environment = {**around(run), **self.environment, "TESTS_PROGRESS": str(self.progress)}
        environment["TMPDIR"] = folder
        environment["TESTS_SHARED"] = str(temporary)  # among the suites of a run: tests/support/processes.py
        command = list(self.command)
        if self.reaching:
            environment["TESTS_REACHED"] = str(temporary / f"reached-{self.reaching}")
            command += ["-p", "tools.reaching"]
        environment.setdefault("TENSORGRAD_ECOSYSTEM", str(ROOT / "build" / "ecosystem"))  # goes with the checkout
        self.began = time.monotonic()
        with open(self.log, "wb") as log:  # in a new session: keyboard interrupts are passed on by tools/tests.py
            if server is not None:
                (self.process,) = server.start(command[1:], [environment], [(log.fileno(), log.fileno())], ROOT)
            else:
                files: dict = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
                self.process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **files)

    def waits_for(self, group: Sequence[Suite]) -> bool:
        """Returns whether others must end first: they find out which of its tests need not be repeated."""
        repeats = self.reaching and "TENSORGRAD_FAST" in self.environment
        return bool(repeats) and any(
            other.reaching == self.reaching and "TENSORGRAD_FAST" not in other.environment and other.runs()
            for other in group
        )

    def runs(self) -> bool:
        """Returns whether the process is running, or has not been started."""
        return self.process is None or self.process.poll() is None

    def look(self) -> bool:
        """Reads the progress. Returns whether the process is still running."""
        assert self.process is not None
        runs = self.process.poll() is None
        if runs or not self.took:
            self.took = time.monotonic() - self.began
        if self.unit == "seconds":
            self.done = min(int(self.took), self.total or 0)
        elif self.unit == "Pythons":
            self.done = min(len(self.text().splitlines()), self.total or 0)
        else:
            with open(self.progress, encoding="utf-8") as file:
                file.seek(self.read)
                new = file.read()
            whole = new[: new.rfind("\n") + 1]
            self.read += len(whole.encode())
            for line in whole.splitlines():
                what, _, rest = line.partition(" ")
                if what == "total":
                    self.total = int(rest)
                elif what == "failed" and rest not in self.failed:
                    self.failed.append(rest)
                elif what == "machine":
                    test, _, reason = rest.partition("\t")
                    self.machine[test] = reason
                elif what == "done":
                    seconds, _, file = rest.partition(" ")
                    self.seconds[file] += float(seconds)
                    self.done += 1
        return runs

    def text(self) -> str:
        """Returns the output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def closing(self) -> str:
        """Returns pytest's closing line."""
        found = [line for line in self.text().splitlines() if CLOSING.search(line)]
        return found[-1] if found else ""

    def counts(self) -> Counter:
        """Returns the counts in the closing line, where tests that passed when they were repeated have passed."""
        counts = Counter({what: int(number) for number, what in re.findall(r"(\d+) (\w+)", self.closing())})
        again = len(self.retried)
        counts.update(failed=-again, passed=again, retried=again)
        return counts

    def repeat(self, temporary: Path, run: str) -> None:
        """Runs its failed tests once more, alone on the machine, if each of them depends on the machine."""
        tests = [test for test in self.failed if test in self.machine]
        if not tests or len(tests) < len(self.failed) or self.raw_status != 1:
            return
        again = Suite(f"{self.name}, repeated", [*PYTEST, *tests], **self.environment)
        again.start(temporary, run)
        assert again.process is not None
        again.process.wait()
        again.look()
        self.retried = [test for test in tests if test not in again.failed] if again.raw_status in (0, 1) else []

    @property
    def raw_status(self) -> int:
        """The exit status of the process, as in a shell."""
        code = self.process.returncode if self.process is not None else None
        return 130 if code is None else 128 - code if code < 0 else code

    @property
    def status(self) -> int:
        """The exit status after tests that depend on the machine were repeated."""
        return 0 if self.retried and len(self.retried) == len(self.failed) else self.raw_status


def around(run: str) -> dict[str, str]:
    """Returns the environment of all processes of a run, by which they are found when it ends.

    PYTHONDONTWRITEBYTECODE would have every process compile the package's files again.
    """
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**given, f"TESTS_RUN_{run}": "1"}


def slowest(suites: Sequence[Suite]) -> list[str]:
    """Returns a line for each of the files whose tests took longest in a suite: where a faster run has to begin."""
    files = [(seconds, file, suite.name) for suite in suites for file, seconds in suite.seconds.items()]
    return [f"{seconds:6.1f} s  {file} ({name})" for seconds, file, name in sorted(files, reverse=True)[:SLOWEST]]
