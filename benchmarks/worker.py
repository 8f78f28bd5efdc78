"""Runs one library in a separate process: reads commands as lines of JSON, and answers each with one line.

    python -m benchmarks.worker torch 2

Started by `benchmarks.processes`. The commands are the methods in COMMANDS; a row is kept from one `prepare` to the
next.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from typing import Any

from benchmarks.rows import named

LARGEST_SAMPLE = 200_000  # the maximum number of elements of an array to compare


def library(name: str, threads: int):
    """Imports the module that rows get as `torch`; with 0 threads it chooses their number."""
    import importlib

    module = importlib.import_module(name)
    if threads and hasattr(module, "set_num_threads"):  # the other libraries read it from their environment
        module.set_num_threads(threads)
    return module


def compiled_kernels() -> int:
    """Returns how many compiled kernels this process has asked for."""
    table = sys.modules.get("tensorgrad.kernels.compiled.table")
    return sum(row.ready is not None or row.failed for row in table.ROWS) if table else 0


def without_kernel() -> list[str]:
    """Returns the ops whose compiled kernel could not be loaded, so that they run in NumPy."""
    table = sys.modules.get("tensorgrad.kernels.compiled.table")
    return sorted({row.op for row in table.ROWS if row.failed}) if table else []


def without_kernels() -> str:
    """Returns why this machine has no compiled kernels; "" if it has."""
    from tensorgrad.kernels.compiled.runtime import target

    try:
        target.chosen()
    except LookupError as error:
        return str(error)
    return ""


def settle(step) -> None:
    """Runs the step until all the kernels it uses are loaded."""
    asked = -1
    for _ in range(10):
        step()
        now = compiled_kernels()
        if now == asked:
            return
        asked = now


def fingerprint(tensor):
    """Converts a tensor to arrays to compare: its elements or, if large, every n-th element and two means over all."""
    import numpy as np

    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # which NumPy does not have
            tensor = tensor.float()
    array = np.asarray(tensor)
    flat = array.reshape(-1)
    if flat.size <= LARGEST_SAMPLE:
        return [array]
    chunks = [flat[i : i + LARGEST_SAMPLE].astype(np.float64) for i in range(0, flat.size, LARGEST_SAMPLE)]
    means = np.array([[chunk.sum() for chunk in chunks], [abs(chunk).sum() for chunk in chunks]]).sum(1) / flat.size
    return [np.array(array.shape), flat[:: flat.size // LARGEST_SAMPLE | 1], means]


class Worker:
    """Runs the commands for the current row."""

    def __init__(self, name: str, threads: int, clock: str):
        self.name, self.torch = name, library(name, threads)
        self.clock = {"wall": time.perf_counter, "cpu": time.process_time, "thread": time.thread_time}[clock]
        self.step: Any = None
        self.steps: dict[str, Any] = {}

    def facts(self) -> dict:
        """Returns the versions."""
        import numpy

        from benchmarks import peers

        if self.name in peers.BUILDS:
            return peers.facts(self.name)
        own = getattr(self.torch.version, "tensorgrad", self.torch.__version__)
        found = {self.name: own, "NumPy": numpy.__version__, "threads": self.torch.get_num_threads()}
        if self.name == "tensorgrad":
            from tensorgrad.kernels.compiled import table

            found["fast"] = bool(table.wanted())
        return found

    def prepare(self, row: str, file: str) -> dict:
        """Builds a row, runs it with the kernels that will be timed, and stores the results to compare in `file`."""
        import numpy as np

        self.step = None
        gc.collect()
        step, _ = self.build(row)
        settle(step)
        lacking = without_kernel()  # before the comparison, which may request other kernels
        del step  # the results to compare must start from the same state in each library
        self.step, results = self.build(row)
        arrays = [part for tensor in results() for part in fingerprint(tensor)]
        np.savez(file, *arrays)
        return {"arrays": len(arrays), "without kernel": lacking}

    def build(self, name: str):
        """Builds a row: returns its step and the function for its results."""
        from benchmarks import peers  # here and elsewhere, so that cold starts (`benchmarks.probe`) need none of it

        if self.name in peers.BUILDS:
            return peers.BUILDS[self.name](name)
        row = named(name)
        return row.build(self.torch, **row.sizes)

    def warm(self, seconds: float) -> dict:
        """Runs the step for some time. Returns the time per step."""
        self.step()
        start, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - start) < seconds or not count:
            self.step()
            count += 1
        return {"seconds": passed / count}

    def time(self, count: int) -> dict:
        """Measures the mean time of `count` steps."""
        step, clock, repeat = self.step, self.clock, range(count)
        start = clock()
        for _ in repeat:
            step()
        return {"seconds": (clock() - start) / count}

    def each(self, row: str, seconds: float) -> dict:
        """Measures each step of a row for `seconds`, with at least one step; with 0 seconds it only builds the row."""
        step = self.steps.get(row)
        if step is None:
            step = self.steps[row] = self.build(row)[0]
            settle(step)
        times, clock = [], self.clock
        start = before = clock()
        while before - start < seconds:
            step()
            now = clock()
            times.append(now - before)
            before = now
        return {"times": times, "threads": self.torch.get_num_threads()}

    def spent(self, row: str, seconds: float) -> dict:
        """Measures where the time of a row goes, after `each`: by launch of a kernel, and by Python function."""
        from benchmarks import spent

        step = self.steps[row]
        found = spent.by_launch(step, seconds)
        return {**found, "functions": spent.by_function(step, seconds), "launching": spent.launching()}


COMMANDS = ("facts", "prepare", "warm", "time", "each", "spent")


def main(make: type[Worker] = Worker) -> None:
    """Answers commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # sends what the libraries print to stderr
    worker = make(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "wall")
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        try:
            if name not in COMMANDS:
                raise ValueError(f"unknown command {name}")
            answer = getattr(worker, name)(**command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error!s:.300}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
