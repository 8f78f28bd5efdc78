"""What needs a fresh process for every figure: importing, the first step, the memory that training takes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.measure import spread
from benchmarks.processes import COLUMNS, LONGEST, ROOT, Column, Failure, environment
from benchmarks.rows import all_rows

FIRST = "training: MNIST ConvNet, batch 64, Adam"
RUNS, QUICK_RUNS = 7, 3


def probe(kind: str, column: Column, threads: int, row: str, **more: str) -> dict[str, float]:
    """The answer of `benchmarks.probe` in a process of a column. Raises: Failure."""
    command = [sys.executable, "-m", "benchmarks.probe", kind, column.library, str(threads), row]
    given = environment(column, threads, **more)
    try:
        done = subprocess.run(command, env=given, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise Failure(f"no answer in {LONGEST} s") from None
    if done.returncode:
        raise Failure(done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}")
    return json.loads(done.stdout)


def medians(answers: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: statistics.median(answer[name] for answer in answers) for name in answers[0]}


def imports(columns: Iterable[str], threads: int, quick: bool) -> dict[str, dict[str, float]]:
    """Seconds of a process that imports a library and ends, in turns: median and quartiles."""
    libraries = ["numpy", *dict.fromkeys(COLUMNS[name].library for name in columns)]
    times: dict[str, list[float]] = {library: [] for library in libraries}
    runs = QUICK_RUNS if quick else 2 * RUNS + 1
    for number in range(runs + 1):
        for library in libraries:
            start = time.perf_counter()
            given = environment(COLUMNS["torch"], threads)
            subprocess.run([sys.executable, "-c", f"import {library}"], env=given, cwd=ROOT, check=True)
            if number:  # the first reads the files from the disk
                times[library].append(time.perf_counter() - start)
    found = {}
    for library, seconds in times.items():
        median, low, high = spread(seconds)
        found[library] = {"median": median, "low": low, "high": high}
    return found


def first_steps(columns: Iterable[str], threads: int, quick: bool) -> dict[str, dict[str, float]]:
    """Seconds from the import to the first step of the MNIST ConvNet and on, with an empty and a full cache."""
    runs = 1 if quick else QUICK_RUNS
    found: dict[str, list[dict[str, float]]] = {}
    names = [name for name in columns if name != "raised"]
    for name in names:  # reads the files from the disk
        probe("first-step", COLUMNS[name], threads, FIRST)
    for _ in range(runs):
        for name in names:
            column = COLUMNS[name]
            if name != "fast":
                found.setdefault(column.title, []).append(probe("first-step", column, threads, FIRST))
                continue
            with tempfile.TemporaryDirectory(prefix="benchmarks-") as cache:
                for title in ("empty cache", "full cache"):
                    answer = probe("first-step", column, threads, FIRST, TENSORGRAD_CACHE=cache)
                    found.setdefault(f"{column.title}, {title}", []).append(answer)
    return {title: medians(answers) for title, answers in found.items()}


def memories(columns: Iterable[str], threads: int, quick: bool) -> dict[str, dict[str, dict[str, float]]]:
    """For each training step the MB of each column, as `benchmarks.probe.memory` describes them."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    names = [name for name in columns if name != "raised"]  # those thresholds are there to keep memory
    for row in all_rows():
        if row.theme == "training":
            full = f"{row.theme}: {row.name}"
            if "fast" in names:
                probe("memory", COLUMNS["fast"], threads, full)  # so that nothing is left to compile
            found[row.name] = {name: probe("memory", COLUMNS[name], threads, full) for name in names}
    return found


PARTS: dict[str, Any] = {
    "import time": imports,
    "first step of the MNIST ConvNet": first_steps,
    "peak memory of training": memories,
}
