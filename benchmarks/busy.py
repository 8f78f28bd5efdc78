"""Measures how long training steps and a server's answers take on processors that other programs use, too.

    python -m benchmarks.busy                           prints the table, in about seven minutes
    python -m benchmarks.busy --write                   also writes it to docs/benchmarks/busy.md
    python -m benchmarks.busy --only quota --quick      situations whose name contains this; shorter turns

The libraries take turns in each situation. The table has the median and the 90th percentile of all steps of a library.
Quotas use a Linux control group if this process may create one; each library then chooses its number of threads itself.
Otherwise the process is stopped and continued as under a quota, with one thread for each processor.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import percentile
from benchmarks.processes import COLUMNS, Failure, Process, end_in_order
from benchmarks.report import duration

STEPS = {
    "MLP": "training: MLP 784-128-10, batch 32, SGD",
    "ConvNet": "training: MNIST ConvNet, batch 64, Adam",
    "small convolution": "modules: Conv2d 4×3×32²→16, forward",
    "GPT": "training: GPT 4×128, context 64, batch 12, AdamW",
    "LSTM": "training: LSTM characters, 32×64, Adam",
    "two clients": "inference: transformer 4×256, two clients at once",
}
LIBRARIES = ("fast", "torch")
SECONDS, QUICK = 0.3, 0.1  # the length of a turn
TURNS = 2
PERIOD = 0.1  # the period of a quota, in seconds
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
# Starts the command given as arguments, on certain processors or in a control group.
START = """
import os, sys
cores, group, *command = sys.argv[1:]
if cores:
    os.sched_setaffinity(0, set(map(int, cores.split(","))))
if group:
    with open(os.path.join(group, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))
os.execv(command[0], command)
"""
COMPETITOR = "import os, sys; os.nice(int(sys.argv[1]))\nwhile True: pass"


class Situation(NamedTuple):
    """What else runs on the machine."""

    name: str
    threads: int = len(CORES)
    cores: str = ""  # the processors that the process may run on; "" for all
    competitors: int = 0
    nice: int = 0  # the niceness of the competitors; 19 is the lowest priority
    processes: int = 1  # how many train at the same time
    quota: float = 0.0  # how many processors the process may use; 0 for no quota


ONE = str(CORES[0])
SITUATIONS = [
    Situation("alone"),
    Situation("a competitor on one core", competitors=1),
    Situation("a competitor on each core", competitors=len(CORES)),
    Situation("the same with lower priority", competitors=len(CORES), nice=19),
    Situation("on one core, 2 threads", threads=2, cores=ONE),
    Situation("on one core, 8 threads", threads=8, cores=ONE),
    Situation("on one core, 64 threads", threads=64, cores=ONE),
    Situation("four processes train at once", processes=4),
    Situation("a quota of 0.5 processors", quota=0.5),
    Situation("a quota of 2 processors", quota=2.0),
]


# --- the environment of a process ------------------------------------------------------------------------------------


@contextlib.contextmanager
def competing(count: int, nice: int) -> Iterator[None]:
    """Runs `count` other processes that use all the time they get."""
    running = [subprocess.Popen([sys.executable, "-c", COMPETITOR, str(nice)]) for _ in range(count)]
    try:
        time.sleep(0.2 if running else 0)
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def control_group(quota: float) -> Iterator[str]:
    """Creates a control group with the quota. Yields its directory, or "" if none can be created."""
    made = None
    period = round(PERIOD * 1e6)
    for version, parent in ((1, "/sys/fs/cgroup/cpu"), (2, "/sys/fs/cgroup")):
        folder = Path(parent, f"tensorgrad-benchmarks-{os.getpid()}")
        with contextlib.suppress(OSError):
            folder.mkdir()
            try:
                if version == 1:
                    (folder / "cpu.cfs_period_us").write_text(str(period))
                    (folder / "cpu.cfs_quota_us").write_text(str(round(quota * period)))
                else:
                    (folder / "cpu.max").write_text(f"{round(quota * period)} {period}")
                made = folder
                break
            except OSError:
                folder.rmdir()
    try:
        yield str(made) if made else ""
    finally:
        if made is not None:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    made.rmdir()
                    break
                time.sleep(0.1)


@contextlib.contextmanager
def stopped_and_continued(pid: int, quota: float) -> Iterator[None]:
    """Stops a process whenever it has used up its share of a period, until the next period begins."""
    clock, end = (~pid << 3) | 2, threading.Event()  # the Linux clock id for the CPU time of all its threads

    def watch() -> None:
        while not end.is_set():
            began, used = time.monotonic(), time.clock_gettime(clock)
            while time.monotonic() - began < PERIOD and not end.wait(0.001):
                if time.clock_gettime(clock) - used >= quota * PERIOD:
                    os.kill(pid, signal.SIGSTOP)
                    end.wait(max(0.0, began + PERIOD - time.monotonic()))
                    os.kill(pid, signal.SIGCONT)
                    break

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        end.set()
        watcher.join()


# --- the table -------------------------------------------------------------------------------------------------------


class Processes:
    """The processes of the situations, started on first use; some situations share processes."""

    def __init__(self) -> None:
        self.kept: dict[tuple, list[Process]] = {}

    def of(self, library: str, situation: Situation, group: str) -> list[Process]:
        threads = 0 if group else situation.threads
        key = (library, threads, situation.cores, group)
        running = self.kept.setdefault(key, [])
        before = (sys.executable, "-c", START, situation.cores, group) if situation.cores or group else ()
        while len(running) < situation.processes:
            running.append(Process(COLUMNS[library], threads, before=before))
        return running[: situation.processes]

    def end(self, keep: Callable[[tuple], bool] = lambda key: False) -> None:
        """Ends all processes except those whose key `keep` accepts."""
        for key in [key for key in self.kept if not keep(key)]:
            for process in self.kept.pop(key):
                process.kill()


def turn(processes: list[Process], row: str, seconds: float, quota: float) -> tuple[list[float], int]:
    """Runs all processes at the same time. Returns the times of their steps, and the number of threads of each.

    A `quota` other than 0 is imitated by stopping and continuing the process.
    """
    for process in processes:
        process.send(do="each", row=row, seconds=seconds)
    with stopped_and_continued(processes[0].process.pid, quota) if quota else contextlib.nullcontext():
        answers = [process.receive() for process in processes]
    return [one for answer in answers for one in answer["times"]], answers[0]["threads"]


def measure(situation: Situation, rows: dict[str, str], processes_of_all: Processes, seconds: float) -> list[str]:
    """Returns the lines of the table for a situation."""
    lines = []
    with contextlib.ExitStack() as around:
        group = around.enter_context(control_group(situation.quota)) if situation.quota else ""
        imitated = situation.quota if situation.quota and not group else 0.0
        name = situation.name + (" (imitated: stopped and continued)" if imitated else "")
        for library in LIBRARIES:  # starts and warms up the processes before the competitors start
            processes = processes_of_all.of(library, situation, group)
            for row in rows.values():
                turn(processes, row, 0.0, 0.0)
        around.enter_context(competing(situation.competitors, situation.nice))
        for title, row in rows.items():
            times: dict[str, list[float]] = {library: [] for library in LIBRARIES}
            threads = {}
            for number in range(TURNS * len(LIBRARIES)):
                library = LIBRARIES[number % len(LIBRARIES)]
                new, threads[library] = turn(processes_of_all.of(library, situation, group), row, seconds, imitated)
                times[library] += new
            lines.append(line(name, title, times, threads))
            print(lines[-1], flush=True)
        if group:
            processes_of_all.end(lambda key: key[3] != group)
    return lines


HEAD = (
    "| situation | step | tensorgrad: median | 90 % | threads "
    "| torch: median | 90 % | threads | ratio: median | 90 % |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def line(situation: str, step: str, times: dict[str, list[float]], threads: dict[str, int]) -> str:
    """Formats a row of the table."""
    middle = {library: statistics.median(values) for library, values in times.items()}
    high = {library: percentile(values, 0.9) for library, values in times.items()}
    cells = [
        cell
        for library in LIBRARIES
        for cell in (duration(middle[library]), duration(high[library]), str(threads[library]))
    ]
    cells += [f"{part['fast'] / part['torch']:.2f}" for part in (middle, high)]
    return f"| {situation} | {step} | {' | '.join(cells)} |"


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", help="situations whose name contains this")
    parser.add_argument("--steps", choices=STEPS, nargs="+", default=list(STEPS), help="these steps (default: all)")
    parser.add_argument("--quick", action="store_true", help="a third of the time")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/busy.md")
    given = parser.parse_args()
    if not hasattr(os, "sched_setaffinity"):
        sys.exit("this benchmark needs Linux, to pin processes to processors")
    before, processes_of_all = os.getloadavg()[0], Processes()
    rows = {title: STEPS[title] for title in given.steps}
    lines = [HEAD]
    print(HEAD, flush=True)
    try:
        for situation in SITUATIONS:
            if given.only is None or given.only in situation.name:
                lines += measure(situation, rows, processes_of_all, QUICK if given.quick else SECONDS)
                if situation.cores:  # no other situation uses these processes, and 64 threads need memory
                    processes_of_all.end(lambda key: not key[2])
    except Failure as failure:
        sys.exit(f"a worker failed: {failure}")
    finally:
        processes_of_all.end()
    if given.write:
        from benchmarks import report

        lead = f"{datetime.date.today()}, {report.processor()}, {len(CORES)} cores; load before: {before:.1f}"
        text = f"{lead}\n\n" + "\n".join(lines)
        report.store("busy", text, "## Processors that others use, too: `python -m benchmarks.busy`")


if __name__ == "__main__":
    main()
