"""Runs all tests: the smoke suite on every other Python found, then everything with compiled kernels and, at the same
time, with NumPy alone (TENSORGRAD_FAST=0), then the kernels' fuzzer for a minute. Shows a progress bar for each, or one
line per minute if the output is not a terminal.

    python tools/tests.py [--quick] [arguments of pytest ...]

`--quick` runs a few cases of each test function, as many functions of each file as time allows, and no tests marked
slow. With it, or with other arguments, only the two pytest suites run; with `-s` or `--pdb` they run one after another
in the terminal. The output of each suite is in build/tests/. The last line combines both pytest suites.

Nothing runs if the disk has too little space. Each suite has a folder of its own for temporary files, which is deleted
when the suite ends, however it ends.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from space import lack  # the file beside this one

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "tests"
FUZZER_SECONDS, FUZZER_SEED = 60, 7  # the same cases every time: a change is judged by what it does
# Measured on two cores (AMD EPYC, 2.6 GHz).
FULL, QUICK = "about 25 minutes", "about two minutes"
# Gigabytes: environments (of libraries 0.8, of other Pythons 0.5), compiled kernels, temporary files of two suites.
SPACE = 3
SPACE_FOR_SOME = 1
PYTEST = [sys.executable, "-m", "pytest", "-p", "tools.progress"]
QUICKLY = ["--few", "2", "--within", "90", "-m", "not slow"]
CLOSING = re.compile(r"\b(\d+ (passed|failed|skipped|errors?|deselected|warnings?)|no tests ran)\b.* in [\d.]+s")
ORDER = ("failed", "passed", "skipped", "xfailed", "xpassed", "error", "errors")


class Suite:
    """One process. `done` and `total` count `unit`: tests, seconds, or Python versions. `total` is None until known."""

    def __init__(self, name: str, command: Sequence[str], unit: str = "tests", total: int | None = None, **environment):
        self.name, self.command, self.unit, self.total, self.environment = name, command, unit, total, environment
        self.log, self.progress = LOGS / f"{name}.log".replace(" ", "-"), LOGS / f"{name}.progress".replace(" ", "-")
        self.done, self.failed, self.read = 0, [], 0
        self.process: subprocess.Popen | None = None
        self.temporary: tempfile.TemporaryDirectory | None = None

    def start(self) -> None:
        """Starts the process, with its output in its log, and a folder for its temporary files."""
        self.progress.write_text("")
        self.temporary = tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True)
        environment = {**os.environ, **self.environment, "TESTS_PROGRESS": str(self.progress)}
        environment["TMPDIR"] = self.temporary.name
        files: dict = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        self.began = time.monotonic()
        with open(self.log, "wb") as log:  # in a new session: keyboard interrupts are passed on by `end`
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdout=log, start_new_session=True, **files
            )

    def look(self) -> bool:
        """Reads the progress. Returns whether the process is still running."""
        assert self.process is not None
        runs = self.process.poll() is None
        if not runs:
            self.clean()
        if self.unit == "seconds":
            self.done = min(int(time.monotonic() - self.began), self.total or 0)
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
                self.done += what == "done"
        return runs

    def clean(self) -> None:
        """Deletes the temporary files, once the process has ended."""
        if self.temporary is not None:
            self.temporary.cleanup()
            self.temporary = None

    def text(self) -> str:
        """Returns the output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def progress_text(self) -> str:
        """Describes the progress."""
        of = f" of {self.total}" if self.total is not None else ""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{self.name}: {self.done}{of} {self.unit}{failed}"

    def closing(self) -> str:
        """Returns pytest's closing line."""
        found = [line for line in self.text().splitlines() if CLOSING.search(line)]
        return found[-1] if found else ""

    def counts(self) -> Counter:
        """Returns the counts in the closing line."""
        return Counter({what: int(number) for number, what in re.findall(r"(\d+) (\w+)", self.closing())})

    @property
    def status(self) -> int:
        """The exit status, as in a shell."""
        code = self.process.returncode if self.process is not None else None
        return 130 if code is None else 128 - code if code < 0 else code


def suites(arguments: list[str]) -> list[list[Suite]]:
    """Returns the suites in groups; groups run one after another, the suites of a group at the same time."""
    quick = "--quick" in arguments
    given = [*(QUICKLY if quick else []), *(a for a in arguments if a != "--quick")]
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    both = [Suite("NumPy alone", [*PYTEST, *given], TENSORGRAD_FAST="0", OMP_NUM_THREADS=threads)]
    if importlib.util.find_spec("numba") is not None:
        both.insert(0, Suite("numba", [*PYTEST, *given], TESTS_ONCE="elsewhere"))  # see tests/support/once.py
    if arguments:
        return [both]
    groups = [[Suite("smoke", ["sh", "tools/smoke.sh", sys.executable], "Pythons", 5)], both]
    if (ROOT / "tests" / "fuzz" / "__main__.py").exists() and importlib.util.find_spec("numba") is not None:
        command = [sys.executable, "-m", "tests.fuzz", "kernels"]
        command += ["--seconds", str(FUZZER_SECONDS), "--seed", str(FUZZER_SEED)]
        groups.append([Suite("fuzzer", command, "seconds", FUZZER_SECONDS)])
    return groups


def watch(group: list[Suite]) -> None:
    """Runs the suites of a group to completion, and shows their progress."""
    for suite in group:
        suite.start()
    show = Bars(group) if sys.stdout.isatty() and importlib.util.find_spec("tqdm") else Lines(group)
    try:
        while any([suite.look() for suite in group]):
            show.update()
            time.sleep(0.2)
        show.update()
    finally:
        show.close()


class Bars:
    """Shows a progress bar for each suite, and the name of each failing test as it fails."""

    def __init__(self, group: list[Suite]):
        from tqdm import tqdm

        form = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
        wide = max(len(suite.name) for suite in group)
        self.bars = [
            (suite, tqdm(desc=suite.name.ljust(wide), total=suite.total or 0, position=i, bar_format=form, leave=True))
            for i, suite in enumerate(group)
        ]
        self.printed: Counter = Counter()

    def update(self) -> None:
        """Updates the bars."""
        for suite, bar in self.bars:
            for name in suite.failed[self.printed[suite.name] :]:
                bar.write(f"failed ({suite.name}): {name}")
            self.printed[suite.name] = len(suite.failed)
            bar.total, bar.n = suite.total or 0, suite.done
            bar.refresh()

    def close(self) -> None:
        """Closes the bars, which stay visible."""
        for _, bar in self.bars:
            bar.close()


class Lines:
    """Prints one line per minute, for a log."""

    def __init__(self, group: list[Suite]):
        self.group, self.next = group, time.monotonic() + 60

    def update(self) -> None:
        """Prints a line if a minute has passed."""
        if time.monotonic() >= self.next:
            self.next += 60
            print("; ".join(suite.progress_text() for suite in self.group), flush=True)

    def close(self) -> None:
        """Does nothing."""


def end(group: list[Suite]) -> None:
    """Stops the suites that are still running, after an interrupt or a signal, and waits for them."""
    running = [(suite, suite.process) for suite in group if suite.process is not None]
    for _, process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # like a keyboard interrupt, so that pytest prints its results so far
    for suite, process in running:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        suite.clean()


def report(group: list[Suite]) -> None:
    """Prints the output of the suites: the last lines if a suite passed, otherwise everything about the failures."""
    for suite in group:
        lines = suite.text().splitlines()
        if suite.unit == "tests":
            heads = [i for i, line in enumerate(lines) if re.match(r"=+ (FAILURES|ERRORS) =+$", line)]
            shown = [suite.closing()] if not suite.status else lines[heads[0] if heads else 0 :]
        else:
            shown = lines if suite.unit == "Pythons" or suite.status else lines[-3:]
        print(f"--- {suite.name}{f' (exit status {suite.status})' if suite.status else ''}, full output: {suite.log}")
        print("\n".join(shown), flush=True)


def main(arguments: list[str]) -> int:
    """Runs everything. Returns the first nonzero exit status; 130 after an interrupt."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    lacking = lack(SPACE_FOR_SOME if arguments else SPACE, (ROOT, Path(tempfile.gettempdir()), caches))
    if lacking:
        print(lacking)
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)
    groups, began = suites(arguments), time.monotonic()
    if {"-s", "--pdb", "--trace", "--capture=no"} & {*arguments}:
        for suite in groups[0]:
            status = subprocess.run(suite.command, cwd=ROOT, env={**os.environ, **suite.environment}).returncode
            if status:
                return status
        return 0
    quick, chosen = "--quick" in arguments, [a for a in arguments if a != "--quick"]
    estimate = QUICK if quick else f"{FULL}; for a quick run of {QUICK.removeprefix('about ')}: make test ARGS=--quick"
    names = ", ".join(suite.name for group in groups for suite in group)
    print(f"{names}{'' if chosen else f': {estimate} (on two cores)'}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Signals that a shell's background job or `nohup` ignores would be ignored by every test and what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    ended: list[Suite] = []
    try:
        for group in groups:
            ended += group
            watch(group)
            report(group)
    except KeyboardInterrupt:
        end(ended)
        report([suite for suite in ended if suite.process is not None and suite.status])
    tests = [suite for suite in ended if suite.unit == "tests"]
    total = sum((suite.counts() for suite in tests), Counter())
    seconds = time.monotonic() - began
    counted = ", ".join(f"{total[what]} {what}" for what in ORDER if total[what]) or "no tests ran"
    print(f"{' and '.join(suite.name for suite in tests)} together:")
    print(f" {counted} in {seconds:.2f}s ({time.strftime('%H:%M:%S', time.gmtime(seconds))}) ".center(100, "="))
    return next((suite.status for suite in ended if suite.status), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
