"""Measures what can be measured only once per process: its first step, its memory. Prints one line of JSON.

    python -m benchmarks.probe first-step tensorgrad 2 "training: MNIST ConvNet, batch 64, Adam"
    python -m benchmarks.probe memory torch 2 "training: MNIST ConvNet, batch 64, Adam"

Started by `benchmarks.fresh`, `benchmarks.young` and `benchmarks.ecosystem`.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.rows import named
from benchmarks.worker import library, settle

STEPS = 5
YOUNG_SECONDS = 4  # a young process runs for so long; longer programs are extrapolated


def first_step(name: str, threads: int, row) -> dict[str, float]:
    """Measures the seconds from before the import to several points, and the seconds of single steps."""
    start = time.perf_counter()
    torch = library(name, threads)
    imported = time.perf_counter() - start
    step, _ = row.build(torch, **row.sizes)
    ready = time.perf_counter() - start
    step()
    found = {"import": imported, "set-up": ready - imported, "first step": time.perf_counter() - start - ready}
    found["import to first step"] = found["first step"] + ready
    import statistics  # here, so that cold starts do not need it

    found["later step"] = statistics.median(timed(step) for _ in range(2 * STEPS))
    return found


def timed(step) -> float:
    """Returns the seconds that one step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def resident(field: str) -> float:
    """Returns the MB in memory now (VmRSS), or the maximum since the last reset (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def highest(step) -> float:
    """Returns the maximum MB that some steps use, beyond what was in memory before."""
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before = resident("VmRSS")
    for _ in range(STEPS):
        step()
    return resident("VmHWM") - before


def trim() -> None:
    """Returns free memory to the system, so that memory used by the next step counts again."""
    import ctypes

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def memory(name: str, threads: int, row) -> dict[str, float]:
    """Measures MB: the import and the set-up, the first steps beyond that, later steps, and the whole process."""
    torch = library(name, threads)
    imported = resident("VmRSS")
    step, _ = row.build(torch, **row.sizes)
    ready = resident("VmRSS")
    first = highest(step)
    whole = resident("VmHWM")
    settle(step)
    trim()
    later = highest(step)
    return {"import": imported, "set-up": ready - imported, "first steps": first, "later steps": later, "whole": whole}


def first_result(name: str, threads: int, row) -> dict[str, float]:
    """Runs a row's first step; a row that generates tokens generates one. Who started this process takes the time.

    Returns the processor time of this process until the result, without that of its end.
    """
    torch = library(name, threads)
    step, _ = row.build(torch, **{**row.sizes, **({"tokens": 1} if "tokens" in row.sizes else {})})
    step()
    return {"processor seconds": time.process_time()}


# What comes with either library; all other modules are the libraries' or Python's own.
TORCHS = (
    "tensorgrad", "torch", "functorch", "torchgen", "numpy", "ml_dtypes", "llvmlite", "sympy", "mpmath", "networkx",
)  # fmt: skip


class Imports:
    """Measures the processor time of each import, without those within it and without Python's collector of cycles."""

    def __init__(self) -> None:
        self.seconds = {"libraries": 0.0, "torch": 0.0}
        self.inner = [0.0]  # for each import that is in progress: the time of what is not its own
        self.collecting = 0.0
        self.find_and_load = importlib._bootstrap._find_and_load  # type: ignore[attr-defined]
        importlib._bootstrap._find_and_load = self.measured  # type: ignore[attr-defined]
        gc.callbacks.append(self.collected)

    def measured(self, name: str, import_) -> Any:
        """Imports a module as Python does."""
        if name in sys.modules or threading.current_thread() is not threading.main_thread():
            return self.find_and_load(name, import_)
        start = time.thread_time()
        self.inner.append(0.0)
        try:
            return self.find_and_load(name, import_)
        finally:
            passed = time.thread_time() - start
            self.seconds["torch" if name.partition(".")[0] in TORCHS else "libraries"] += passed - self.inner.pop()
            self.inner[-1] += passed

    def collected(self, phase: str, info: dict) -> None:
        """Keeps the collector's time apart."""
        if threading.current_thread() is threading.main_thread():
            self.collecting = time.thread_time() - (self.collecting if phase == "stop" else 0.0)
            self.inner[-1] += self.collecting if phase == "stop" else 0.0


def parts(name: str, threads: int, row) -> dict[str, float]:
    """Measures the processor seconds of a row's first result, and of its imports by whom they belong to."""
    imports = Imports()
    return {"all": first_result(name, threads, row)["processor seconds"], **imports.seconds}


def young(name: str, threads: int, row) -> list[float]:
    """Measures the seconds from before the import to the end of the set-up, and to the end of each step after it."""
    start = time.perf_counter()
    torch = library(name, threads)
    step, _ = row.build(torch, **row.sizes)
    ends = [time.perf_counter() - start]
    while ends[-1] < YOUNG_SECONDS:
        step()
        ends.append(time.perf_counter() - start)
    return ends


KINDS = {"first-step": first_step, "memory": memory, "first-result": first_result, "parts": parts, "young": young}


def main() -> None:
    """Runs one measurement and prints its result."""
    kind, name, threads, wanted = sys.argv[1:]
    print(json.dumps(KINDS[kind](name, int(threads), named(wanted))), flush=True)


if __name__ == "__main__":
    main()
