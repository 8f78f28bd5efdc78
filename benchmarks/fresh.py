"""Measurements that need a fresh process for each figure: import time, the first step, the memory used in training."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.measure import spread
from benchmarks.processes import COLUMNS, LONGEST, ROOT, Column, Failure, environment
from benchmarks.rows import all_rows

FIRST = "training: MNIST ConvNet, batch 64, Adam"
RUNS, QUICK_RUNS = 7, 3


def probe(kind: str, column: Column, threads: int, row: str, **more: str) -> dict[str, float]:
    """Runs `benchmarks.probe` in a process of a column, and returns its answer. Raises: Failure if it fails."""
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
    """Returns the median of each figure."""
    return {name: statistics.median(answer[name] for answer in answers) for name in answers[0]}


def imports(columns: Iterable[str], threads: int, quick: bool) -> dict[str, dict[str, float]]:
    """Measures processes that import a library and exit, in turns: median and quartiles in seconds."""
    libraries = ["numpy", *dict.fromkeys(COLUMNS[name].library for name in columns)]
    times: dict[str, list[float]] = {library: [] for library in libraries}
    runs = QUICK_RUNS if quick else 2 * RUNS + 1
    for number in range(runs + 1):
        for library in libraries:
            start = time.perf_counter()
            given = environment(COLUMNS["torch"], threads)
            subprocess.run([sys.executable, "-c", f"import {library}"], env=given, cwd=ROOT, check=True)
            if number:  # the first run reads the files from disk
                times[library].append(time.perf_counter() - start)
    found = {}
    for library, seconds in times.items():
        median, low, high = spread(seconds)
        found[library] = {"median": median, "low": low, "high": high}
    return found


def first_steps(columns: Iterable[str], threads: int, quick: bool) -> dict[str, dict[str, float]]:
    """Measures the seconds from the import through the first steps of the MNIST ConvNet."""
    runs = 1 if quick else QUICK_RUNS
    found: dict[str, list[dict[str, float]]] = {}
    names = [name for name in columns if name != "raised"]
    for name in names:  # the first run reads the files from disk
        probe("first-step", COLUMNS[name], threads, FIRST)
    for _ in range(runs):
        for name in names:
            found.setdefault(COLUMNS[name].title, []).append(probe("first-step", COLUMNS[name], threads, FIRST))
    return {title: medians(answers) for title, answers in found.items()}


def memories(columns: Iterable[str], threads: int, quick: bool) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the MB of each column for each training step, as described in `benchmarks.probe.memory`."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    names = [name for name in columns if name != "raised"]  # the raised thresholds deliberately keep memory
    for row in all_rows():
        if row.theme == "training":
            full = f"{row.theme}: {row.name}"
            found[row.name] = {name: probe("memory", COLUMNS[name], threads, full) for name in names}
    return found


def transforms(columns: Iterable[str], threads: int, quick: bool) -> dict[str, Any]:
    """Measures function transforms in a process of their own, on one thread (`benchmarks.transforms`)."""
    if "torch" not in columns:
        raise Failure("torch is what the transforms are compared with")
    command = [sys.executable, "-m", "benchmarks.transforms", "--json", *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=environment(COLUMNS["torch"], 1), cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise Failure(done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}")
    return json.loads(done.stdout)


PARTS: dict[str, Any] = {
    "import time": imports,
    "first step of the MNIST ConvNet": first_steps,
    "peak memory of training": memories,
    "function transforms": transforms,
}
