"""Runs all tests, in two phases, and shows their progress: a bar, or one line per minute if this is not a terminal.

    python tools/tests.py [--quick | --changed] [arguments of pytest ...]

First the tests that need only their own process, as many processes at a time as there are cores: with compiled kernels,
as a user's program runs; then with NumPy alone (TENSORGRAD_FAST=0) those that have come to such a kernel; on emulated
GPUs; and 30,000 cases of the kernels' fuzzer. Then, with nothing else running, the tests that start processes,
open ports, send signals or watch clocks, and the smoke suite on every other Python found. tools/phases.py says which
test runs where. On Linux suites are forked from processes that have imported torch and pytest, but not tensorgrad
(tools/forking.py), except for those that look at their own process.

`--quick` runs a few cases of each test of the first phase, as many as two minutes allow, and none marked slow.
`--changed` runs the tests that files changed since main can affect, and says what it leaves out. Arguments that name
files or folders choose among the tests. With `-s` or `--pdb` one process after another runs in the terminal.

A test marked `machine` depends on the machine (the mark gives the reason). If nothing else has failed in its process,
it is repeated once, alone; the last lines name such tests. All other failures count at once.

The output of each process is in build/tests/. Nothing runs if disk or memory are too small. When the run ends, however
it ends, its processes and its temporary files are gone (tools/janitor.py).
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# The files beside this one.
from changed import affected, graph
from forking import Server
from phases import COMPILED, NUMPY, PROCESSES, Part, has_compiled_kernels, phases, test_files
from space import lack, lack_of_memory
from suite import LOGS, NO_TESTS, PYTEST, ROOT, Suite, around, slowest

TESTS = ROOT / "tests"
# The same cases every time, however fast the machine is: a change is judged by what it does. On two cores they take
# so many seconds.
FUZZER_CASES, FUZZER_SEED, FUZZER_SECONDS = 30_000, 7, 50
# Measured on two cores.
FULL, QUICK = "about 16 minutes", "about two minutes"
# Gigabytes: environments (of libraries 0.8, of other Pythons 0.5), compiled kernels, temporary files.
SPACE, SPACE_FOR_SOME = 3, 1
MEMORY = 2
QUICKLY = ["--few", "2", "-m", "not slow"]
QUICK_SECONDS = 90
# What suites of tests import, and those that use PyTorch's test databases: done once, where they are forked from.
# (Whoever makes one of torch's optimizers imports `torch._dynamo`.)
IMPORTED = ("pytest", "numpy", "torch", "torch._dynamo")
DATABASES = "torch.testing._internal."
# Folders whose tests look at the process that they run in: examples of pages, and in the second phase what is about
# processes, memory or machine code as such. All others of that phase only start some processes.
LOOK_AT_PROCESS = {"docs"}
ABOUT_PROCESS = LOOK_AT_PROCESS | {"distributed", "ecosystem", "editors", "kernels", "serialization", "system"}
OF_DATABASES = (*IMPORTED, f"{DATABASES}common_methods_invocations", f"{DATABASES}common_modules")
# As tests/conftest.py would set them, which is too late there: NumPy reads them when it is imported.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ORDER = ("passed", "failed", "skipped", "xfailed", "xpassed", "error", "errors", "retried")
ALWAYS_SAID = ("passed", "failed", "retried")
IN_TERMINAL = {"-s", "--pdb", "--trace", "--capture=no"}
# What a shell's background job or `nohup` ignores, every test and all that it starts would ignore.
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD")


class Interrupted(Exception):
    """A keyboard interrupt, or a request to end."""


def cores() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reset_signals() -> None:
    """Gives every signal its default disposition, and blocks none."""
    for name in SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def interrupt(number, frame):
        raise Interrupted

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), interrupt)


# --- what runs --------------------------------------------------------------------------------------------------------


def in_files(argument: str) -> Path | None:
    """Returns the file or folder that an argument names, perhaps with a test (`tests/x.py::test`); None for others."""
    path = Path(argument.partition("::")[0])
    return path.resolve() if not argument.startswith("-") and path.exists() else None


def suite_of(part: Part, names: list[str], options: list[str], quickly: float = 0) -> Suite | None:
    """Returns the suite of a part.

    Args:
        part: Its files.
        names: Arguments that choose among all files; empty for all of them.
        options: Other arguments of pytest.
        quickly: The seconds that it may take; 0 for no limit.

    Returns:
        None if nothing of the part was chosen.
    """
    targets: list[str] = []
    for name in names:
        place = in_files(name)
        assert place is not None
        inside = [str(file) for file in part.files if place == file or place in file.parents]
        targets += [name] if inside and place.is_file() else inside
    if not names:
        targets = [str(file) for file in part.files]
    if not targets:
        return None
    limit = ["--within", str(quickly)] if quickly else []
    command = [*PYTEST, *limit, *options, *targets]
    name, modules = f"{part.name}, {part.kernels}", imported(part)
    return Suite(name, command, reaching=part.reaching, modules=modules, **part.environment)


def imported(part: Part) -> tuple[str, ...]:
    """Returns the modules that the process of a part is forked with; none if it is to begin as users' processes do."""
    folders = {file.parent.name for file in part.files}
    if sys.platform != "linux" or folders & (ABOUT_PROCESS if PROCESSES in part.name else LOOK_AT_PROCESS):
        return ()
    files = {file.relative_to(ROOT).as_posix() for file in part.files if TESTS in file.parents}
    found: set[str] = set()
    while new := files - found:
        found |= new
        files = {file for name in new for file in graph(ROOT).imports(name) if file.startswith("tests/")}
    if not found:
        return IMPORTED[:1]
    return OF_DATABASES if any(DATABASES in (ROOT / name).read_text(encoding="utf-8") for name in found) else IMPORTED


def groups_of(arguments: list[str]) -> list[list[Suite]]:
    """Returns the suites of each phase."""
    quick = "--quick" in arguments
    given = [a for a in arguments if a not in ("--quick", "--changed")]
    names, options = [a for a in given if in_files(a)], [a for a in given if not in_files(a)]
    options = [*(QUICKLY if quick else []), *options]
    if "--changed" in arguments:
        chosen = affected(ROOT, test_files(TESTS))
        print(chosen.text, flush=True)
        names += [str(file) for file in chosen.files]
        if not names:
            return []
    compiled = has_compiled_kernels(ROOT)
    emulator = importlib.util.find_spec("torch") is not None and shutil.which("g++") is not None
    if not emulator and not arguments:
        print("tests/cuda: skipped, the emulated GPU needs g++, and torch as the oracle")
    both = phases(TESTS, compiled, emulator) if TESTS.is_dir() else [[], []]
    outside = [file for file in map(in_files, names) if file and TESTS not in (file, *file.parents)]
    for file in outside:
        found = test_files(file) if file.is_dir() else [file]
        both[0] += [Part(file.name, kernels, found) for kernels in ((COMPILED, NUMPY) if compiled else (NUMPY,))]
    if quick:
        both = [both[0], []]
    seconds = QUICK_SECONDS * cores() / max(len(both[0]), 1) if quick else 0
    groups = [[suite_of(part, names, options, seconds) for part in parts] for parts in both]
    found = [[suite for suite in group if suite is not None] for group in groups]
    if not arguments:
        if (TESTS / "fuzz" / "__main__.py").exists() and compiled:
            command = [sys.executable, "-m", "tests.fuzz", "kernels"]
            command += ["--cases", str(FUZZER_CASES), "--seed", str(FUZZER_SEED)]
            found[0].insert(0, Suite("fuzzer", command, "seconds", FUZZER_SECONDS))  # the longest first
        smoke = Suite("smoke", ["sh", "tools/smoke.sh", sys.executable], "Pythons", 5)
        found[1].insert(len(found[1]) // 3, smoke)  # at the end, it would keep one processor waiting for half a minute
    return [group for group in found if group]


# --- running ----------------------------------------------------------------------------------------------------------


class Run:
    """The processes of a run of tests, its temporary files, and who cleans up after it."""

    def __init__(self, groups: list[list[Suite]]):
        self.groups, self.name = groups, secrets.token_hex(4)
        self.temporary = Path(tempfile.mkdtemp(prefix="tests-"))
        janitor = [sys.executable, str(Path(__file__).with_name("janitor.py")), self.name, str(self.temporary)]
        self.janitor = subprocess.Popen(janitor, stdin=subprocess.PIPE, start_new_session=True, text=True)
        environment = {**ONE_THREAD, **around(self.name)}
        forked = dict.fromkeys(suite.modules for suite in self.suites if suite.modules)
        self.servers = {modules: Server(modules, environment, leave=True) for modules in forked}

    @property
    def suites(self) -> list[Suite]:
        """All suites."""
        return [suite for group in self.groups for suite in group]

    def start(self, suite: Suite) -> None:
        """Starts a suite, forked if it may be; the janitor learns the number of its process group."""
        suite.start(self.temporary, self.name, self.servers.get(suite.modules))
        assert suite.process is not None and self.janitor.stdin is not None
        self.janitor.stdin.write(f"{suite.process.pid}\n")
        self.janitor.stdin.flush()

    def phase(self, group: list[Suite]) -> None:
        """Runs the suites of a phase, as many at a time as there are cores; then repeats tests marked `machine`."""
        waiting, running = list(group), []
        show = Bars(group) if sys.stdout.isatty() and importlib.util.find_spec("tqdm") else Lines(group)
        try:
            while waiting or running:
                while len(running) < cores() and (able := [suite for suite in waiting if not suite.waits_for(group)]):
                    self.start(able[0])
                    waiting.remove(able[0])
                    running.append(able[0])
                running = [suite for suite in running if suite.look()]
                show.update()
                time.sleep(0.1)
        finally:
            show.close()
        for suite in group:
            suite.repeat(self.temporary, self.name)

    def interrupt(self) -> None:
        """Ends the suites that are still running like a keyboard interrupt, so that they say what they have done."""
        running = [suite for suite in self.suites if suite.process is not None and suite.process.poll() is None]
        for suite in running:
            assert suite.process is not None
            suite.process.send_signal(signal.SIGINT)
        for suite in running:
            assert suite.process is not None
            try:
                suite.process.wait(20)
            except subprocess.TimeoutExpired:
                suite.process.kill()
                suite.process.wait()
            suite.look()

    def close(self) -> None:
        """Waits until the janitor has cleaned up."""
        for server in self.servers.values():
            server.stop()
        assert self.janitor.stdin is not None
        self.janitor.stdin.close()
        self.janitor.wait()


class Bars:
    """Shows a progress bar for a phase, and the name of each failing test as it fails."""

    def __init__(self, group: list[Suite]):
        from tqdm import tqdm

        self.group = group
        self.bar = tqdm(total=0, unit=" tests")
        self.printed: Counter = Counter()

    def update(self) -> None:
        """Updates the bar."""
        for suite in self.group:
            for name in suite.failed[self.printed[suite.name] :]:
                self.bar.write(f"failed ({suite.name}): {name}")
            self.printed[suite.name] = len(suite.failed)
        tests = [suite for suite in self.group if suite.unit == "tests"]
        self.bar.total, self.bar.n = sum(suite.total or 0 for suite in tests), sum(suite.done for suite in tests)
        self.bar.set_description(state(self.group), refresh=False)
        self.bar.refresh()

    def close(self) -> None:
        """Closes the bar, which stays visible."""
        self.bar.close()


class Lines:
    """Prints one line per minute, for a log, and the name of each failing test as it fails."""

    def __init__(self, group: list[Suite]):
        self.group, self.next = group, time.monotonic() + 60
        self.printed: Counter = Counter()

    def update(self) -> None:
        """Prints what is new."""
        for suite in self.group:
            for name in suite.failed[self.printed[suite.name] :]:
                print(f"failed ({suite.name}): {name}", flush=True)
            self.printed[suite.name] = len(suite.failed)
        if time.monotonic() >= self.next:
            self.next += 60
            running = [s for s in self.group if s.process is not None and s.process.poll() is None]
            now = ", ".join(f"{s.name} {s.done}{f' of {s.total}' if s.total is not None else ''}" for s in running)
            print(f"{state(self.group)}; {now}", flush=True)

    def close(self) -> None:
        """Does nothing."""


def state(group: list[Suite]) -> str:
    """Describes how far a phase is."""
    ended = sum(suite.process is not None and suite.process.poll() is not None for suite in group)
    done = sum(suite.done for suite in group if suite.unit == "tests")
    failed = sum(len(suite.failed) for suite in group)
    return f"{ended} of {len(group)} suites, {done} tests{f', {failed} failed' if failed else ''}"


# --- what is said at the end ------------------------------------------------------------------------------------------


def report(group: list[Suite]) -> None:
    """Prints the output of the suites: the last lines if a suite passed, otherwise everything about the failures."""
    for suite in group:
        if suite.process is None:
            continue
        lines = suite.text().splitlines()
        if suite.unit == "tests":
            heads = [i for i, line in enumerate(lines) if re.match(r"=+ (FAILURES|ERRORS) =+$", line)]
            good = suite.status in (0, NO_TESTS)
            shown = [suite.closing().strip("= ")] if good else lines[heads[0] if heads else 0 :]
        else:
            shown = lines if suite.unit == "Pythons" or suite.status else lines[-3:]
        status = f" (exit status {suite.status})" if suite.status else ""
        if len(shown) == 1:
            print(f"{suite.name}{status}: {shown[0]}", flush=True)
        else:
            print(f"--- {suite.name}{status}, full output: {suite.log}", *shown, sep="\n", flush=True)
        for test in suite.retried:
            print(f"retried, and passed: {test} ({suite.name}): it depends on {suite.machine[test]}", flush=True)


def closing(suites: list[Suite], seconds: float) -> str:
    """Returns the last line: what all suites of tests have counted together."""
    tests = [suite for suite in suites if suite.unit == "tests"]
    total = sum((suite.counts() for suite in tests if suite.process is not None), Counter())
    counted = ", ".join(f"{total[what]} {what}" for what in ORDER if total[what] or what in ALWAYS_SAID)
    if not any(total[what] for what in ORDER):
        counted = "no tests ran"
    left = sum((suite.total or suite.done) - suite.done for suite in tests if suite.process is not None)
    waiting = sum(suite.process is None for suite in suites)
    if left or waiting:
        counted += f"; {left} tests and {waiting} suites did not run"
    return f" {counted} in {seconds:.2f}s ({time.strftime('%H:%M:%S', time.gmtime(seconds))}) ".center(100, "=")


def status_of(suites: list[Suite]) -> int:
    """Returns the first exit status that is an error; `NO_TESTS` if no suite had a test; 130 if one was not started."""
    statuses = [suite.status for suite in suites]
    wrong = [status for status in statuses if status not in (0, NO_TESTS)]
    if wrong:
        return wrong[0]
    return NO_TESTS if statuses and all(status == NO_TESTS for status in statuses) else 0


def main(arguments: list[str]) -> int:
    """Runs everything. Returns the exit status."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    lacking = lack(SPACE_FOR_SOME if arguments else SPACE, (ROOT, Path(tempfile.gettempdir()), caches))
    lacking = lacking or lack_of_memory(MEMORY)
    if lacking:
        print(lacking)
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)
    groups = groups_of(arguments)
    began = time.monotonic()
    if IN_TERMINAL & {*arguments}:
        for suite in (suite for group in groups for suite in group):
            status = subprocess.run(suite.command, cwd=ROOT, env={**os.environ, **suite.environment}).returncode
            if status not in (0, NO_TESTS):
                return status
        return 0
    chosen = [a for a in arguments if a != "--quick"]
    estimate = QUICK if "--quick" in arguments else f"{FULL}; for a quick run of {QUICK[6:]}: make test ARGS=--quick"
    count = sum(map(len, groups))
    print(f"{count} suites{'' if chosen else f': {estimate} (on two cores)'}", flush=True)
    reset_signals()
    run = Run(groups)
    try:
        for number, group in enumerate(groups, start=1):
            start = time.monotonic()
            run.phase(group)
            report(group)
            print(f"phase {number}: {time.monotonic() - start:.0f} s", flush=True)
    except Interrupted:
        run.interrupt()
        report([suite for suite in run.suites if suite.status])
    finally:
        run.close()
    if not chosen:
        print("The files that took longest:", *slowest(run.suites), sep="\n")
    print(closing(run.suites, time.monotonic() - began))
    return status_of(run.suites)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
