"""Models what training steps would gain from more processors than this machine has.

    python -m benchmarks.cores                      prints the table
    python -m benchmarks.cores --write              also writes it to docs/benchmarks/cores.md
    python -m benchmarks.cores --threads 2 16       for these numbers of threads
    python -m benchmarks.cores --only GPT --why     also shows how a step's time would be spent, by kernel

A kernel that n threads would share is divided as it would be for them, and its ranges run one after another, alone: the
first in the program's thread, the others on another processor, so that the program's caches keep what they would keep.
The step would take as long as the longest range of each kernel, plus the time outside kernels. This is an upper bound
of the speed-up: threads compete for caches and memory and wake up late, which this model does not include.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

if __name__ == "__main__":  # before NumPy is imported
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_name] = "1"

import numpy as np

from benchmarks.rows import all_rows
from benchmarks.worker import settle

MODELS = {
    "MLP": "MLP 784-128-10, batch 32, SGD",
    "ConvNet": "MNIST ConvNet, batch 64, Adam",
    "GPT": "GPT 4×128, context 64, batch 12, AdamW",
    "ViT": "MNIST ViT, batch 64, AdamW",
    "LSTM": "LSTM characters, 32×64, Adam",
}
THREADS = (1, 2, 4, 8, 16, 64)
AIMS = {"ConvNet": 6.0, "GPT": 6.0, "ViT": 4.0, "LSTM": 4.0}  # the desired speed-up with AIMED threads
AIMED = 16
HANDED = 3e-6  # seconds that a kernel takes to start and to pass work to threads that are awake (measured)

_TASK = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)
_DIVIDE = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)


class Launches:
    """Replaces the thread pool: runs the ranges of each kernel one after another, and records how long each takes.

    All but the first one are run by the worker `other`, if there is one.
    """

    def __init__(self, pool: Any, threads: int, other: Any = None):
        from tensorgrad.kernels.compiled.runtime import mailbox

        self.pool, self.threads, self.clock, self.names, self.other = pool, threads, time.perf_counter, mailbox, other
        self.ranges: list[tuple[str, list[float]]] = []
        self.inside = 0.0
        memory = np.zeros(mailbox.SIZE + 15, np.int64)
        self.mailbox = memory[-memory.ctypes.data % 128 // 8 :]
        self.times: list[float] = []

        @_DIVIDE
        def divide(task: int, place: int, last: int, workers: int) -> int:
            step = -(-last // (workers + 1))
            for first in range(0, last, step):
                start = self.clock()
                here = not first or self.other is None
                end = min(first + step, last)
                arguments = place + 8 * mailbox.ARGUMENTS
                if _TASK(task)(arguments, first, end) if here else self.elsewhere(task, place, first, end):
                    raise RuntimeError("a range failed")
                self.times.append(self.clock() - start)
            return 0

        self.divide = divide
        self.mailbox[mailbox.DIVIDE] = ctypes.cast(divide, ctypes.c_void_p).value
        self.own = min(self.called() for _ in range(100))

    def called(self) -> float:
        """Returns the overhead of calling a range."""
        nothing = _TASK(ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value)
        start = self.clock()
        nothing(0, 0, 0)
        return self.clock() - start

    def elsewhere(self, task: int, place: int, first: int, last: int) -> bool:
        """Runs a range in another thread, through its mailbox. Returns whether it failed."""
        box, names = self.other.box, self.names
        box[names.LEADER], box[names.FIRST], box[names.LAST], box[names.PUBLISHER] = place, first, last, -1
        box[names.DONE] = names.NOTHING
        box[names.TASK] = task
        self.other.wake()
        return bool(self.other.wait())

    def run(self, kernel: Any, length: int, arguments: tuple, elements: int, alive: Any = None) -> None:
        """Runs a kernel, in place of `thread_pool.run`."""
        began = self.clock()
        address = getattr(kernel, "address", None)
        count = self.pool.shares(address is None, length, elements)
        self.times = []
        if count == 1 or length == 0:
            start = self.clock()
            if address is None:
                kernel(*arguments, 0, length)
            else:
                kernel.launch(address, arguments, length, 0, 0)
            self.times.append(self.clock() - start)
        elif address is None:
            step = -(-length // count)
            for first in range(0, length, step):
                start = self.clock()
                kernel(*arguments, first, min(first + step, length))
                self.times.append(self.clock() - start)
        else:
            kernel.launch(address, arguments, length, self.mailbox.ctypes.data, count - 1)
            self.times = [max(seconds - self.own, 0.0) for seconds in self.times]
        name = getattr(kernel, "__qualname__", None) or kernel.__name__
        self.ranges.append((f"{sys._getframe(1).f_code.co_qualname.partition('.')[0]} {name}", self.times))
        self.inside += self.clock() - began


@contextmanager
def in_place(launches: Launches) -> Iterator[None]:
    """Runs kernels through `launches` instead of the thread pool, as if there were that many threads."""
    from tensorgrad.settings import SETTINGS

    thread_pool, run, threads = launches.pool, launches.pool.run, SETTINGS.threads
    thread_pool.run, SETTINGS.threads = launches.run, launches.threads
    try:
        yield
    finally:
        thread_pool.run, SETTINGS.threads = run, threads


def processors() -> list[int]:
    """Returns the processors of this thread, if the system tells."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@cache
def other_thread() -> Any:
    """Returns a thread that stays on another processor than the first; None if nothing else runs there."""
    from tensorgrad.kernels.compiled.runtime import thread_pool
    from tensorgrad.kernels.compiled.runtime.row import WAITING

    there = processors()
    if len(there) < 2 or WAITING.ready is None:  # no kernel was shared
        return None
    os.sched_setaffinity(0, there[1:2])  # the new thread's, too
    other = thread_pool._Worker()
    os.sched_setaffinity(0, there)
    return other


@contextmanager
def on_the_first() -> Iterator[None]:
    """Keeps this thread on the first processor."""
    there = processors()
    if len(there) < 2:
        yield
        return
    os.sched_setaffinity(0, there[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, there)


Figures = tuple[float, float, Counter]  # seconds per step, seconds outside kernels, the longest ranges by kernel


class Model:
    """Models the time of a step with a number of threads.

    For each range, and for the time outside kernels, the minimum of all repeats counts, since the machine may be busy.
    """

    def __init__(self, threads: int):
        self.threads, self.outside = threads, float("inf")
        self.names: list[str] = []
        self.best: list[list[float]] = []

    def run(self, step: Any) -> None:
        """Runs the step and updates the minima."""
        from tensorgrad.kernels.compiled.runtime import thread_pool

        launches = Launches(thread_pool, self.threads, other_thread())
        with in_place(launches), on_the_first():
            start = time.perf_counter()
            step()
            whole = time.perf_counter() - start
        self.outside = min(self.outside, whole - launches.inside)
        now = [times for _, times in launches.ranges]
        self.names = [name for name, _ in launches.ranges]
        if [*map(len, now)] != [*map(len, self.best)]:  # the first run, or different kernels than before
            self.best = now
        self.best = [[*map(min, old, new)] for old, new in zip(self.best, now, strict=True)]

    def figures(self) -> Figures:
        """Returns the figures from all runs."""
        spent: Counter = Counter()
        for name, times in zip(self.names, self.best, strict=True):
            spent[name] += max(times, default=0.0) + HANDED
        return self.outside + sum(spent.values()), self.outside, spent


def modelled(step: Any, threads: list[int], repeats: int) -> dict[int, Figures]:
    """Returns the figures for each number of threads; the models take turns."""
    models = [Model(count) for count in threads]
    for model in models * (repeats + 1):
        model.run(step)
    return {model.threads: model.figures() for model in models}


def figures(name: str, threads: list[int], repeats: int) -> dict[int, Figures]:
    """Returns the figures of `modelled` for a training step."""
    import tensorgrad as torch

    row = next(row for row in all_rows() if row.theme == "training" and row.name == MODELS[name])
    torch.set_num_threads(2)  # some kernels are only used with several threads
    step, _ = row.build(torch, **row.sizes)
    settle(step)
    return modelled(step, threads, repeats)


def line(name: str, found: dict[int, Figures]) -> str:
    """Formats a row of the table: the speed-ups, and what limits the speed-up with AIMED threads."""
    one = found[min(found)][0]
    cells = [f"{one / seconds:.1f}" for seconds, _, _ in found.values()]
    at = AIMED if AIMED in found else max(found)
    seconds, outside, spent = found[at]
    if name in AIMS and at == AIMED and one / seconds < AIMS[name]:
        cells[list(found).index(at)] = f"**{one / seconds:.1f}** (aim: {AIMS[name]:g})"
    most = ", ".join(f"{kernel.partition(' ')[0]} {part / seconds:.0%}" for kernel, part in spent.most_common(2))
    return f"| {name} | {1e3 * one:.2f} ms | {' | '.join(cells)} | outside of kernels {outside / seconds:.0%}; {most} |"


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=THREADS, help=f"numbers of threads (default: {THREADS})"
    )
    parser.add_argument("--repeats", type=int, default=15, help="repeats of each step (default: 15)")
    parser.add_argument("--only", choices=MODELS, action="append", help="this model (may be repeated)")
    parser.add_argument("--why", action="store_true", help="also print the time by kernel")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/cores.md")
    given = parser.parse_args()
    threads = sorted({1, *given.threads})
    lines = [
        f"| step | one thread | {' | '.join(map(str, threads))} | of the step by {AIMED} threads |",
        f"|---|---:|{'---:|' * len(threads)}---|",
    ]
    print("\n".join(lines), flush=True)
    for name in given.only or MODELS:
        found = figures(name, threads, given.repeats)
        lines.append(line(name, found))
        print(lines[-1], flush=True)
        if given.why:
            for count, (seconds, outside, spent) in found.items():
                parts = [f"{kernel} {1e6 * part:.0f}" for kernel, part in spent.most_common(12)]
                print(f"    {count} threads: {1e6 * seconds:.0f} µs; outside {1e6 * outside:.0f}, {', '.join(parts)}")
    if given.write:
        from benchmarks import report

        lead = f"{datetime.date.today()}, {report.processor()}; speed-up over one thread, modelled"
        report.store("cores", "\n\n".join([lead, "\n".join(lines)]), "## More processors: `python -m benchmarks.cores`")


if __name__ == "__main__":
    main()
