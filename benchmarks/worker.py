"""One library in a process of its own: reads commands as lines of JSON, answers each with one.

    python -m benchmarks.worker torch 2

Started by `benchmarks.processes`. The commands are the functions that COMMANDS names; a row is kept from `prepare`
to the next `prepare`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import traceback
from typing import Any

from benchmarks import peers
from benchmarks.rows import all_rows

COMPILING = 300  # seconds to wait for kernels that are compiled in the background
LARGEST_SAMPLE = 200_000  # elements of an array that are compared


def library(name: str, threads: int):
    """The module that rows get as `torch`; with 0 threads it chooses their number."""
    import importlib

    module = importlib.import_module(name)
    if threads and hasattr(module, "set_num_threads"):  # the peers take it from their environment
        module.set_num_threads(threads)
    return module


def compiled_kernels(wait: float = COMPILING) -> int:
    """Waits for the compiled kernels that were asked for; how many that are. 0 where there are none."""
    runtime = sys.modules.get("tensorgrad.kernels.numba.runtime.background")
    if runtime is None:  # nothing large came by, or numba is not installed, or the library is another
        return 0
    waiting = threading.Thread(target=runtime.wait, daemon=True)
    waiting.start()
    waiting.join(wait)
    if waiting.is_alive():
        raise RuntimeError(f"kernels were not compiled after {wait:.0f} s")
    return sum(row.asked for row in sys.modules["tensorgrad.kernels.numba.table"].ALL)


def without_kernel() -> list[str]:
    """The ops whose compiled kernel was asked for, but could not be made: NumPy serves them."""
    table = sys.modules.get("tensorgrad.kernels.numba.table")
    return sorted({row.op for row in table.ALL if row.asked and row.ready is None}) if table else []


def settle(step) -> None:
    """Runs the step until it meets no kernel that is not compiled yet."""
    asked = -1
    for _ in range(10):
        step()
        now = compiled_kernels()
        if now == asked:
            return
        asked = now


def fingerprint(tensor):
    """A tensor as arrays to compare: its elements, or of a large one every n-th and two means over all."""
    import numpy as np

    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # which NumPy has not
            tensor = tensor.float()
    array = np.asarray(tensor)
    flat = array.reshape(-1)
    if flat.size <= LARGEST_SAMPLE:
        return [array]
    chunks = [flat[i : i + LARGEST_SAMPLE].astype(np.float64) for i in range(0, flat.size, LARGEST_SAMPLE)]
    means = np.array([[chunk.sum() for chunk in chunks], [abs(chunk).sum() for chunk in chunks]]).sum(1) / flat.size
    return [np.array(array.shape), flat[:: flat.size // LARGEST_SAMPLE | 1], means]


class Worker:
    """The row at hand, and what is done with it."""

    def __init__(self, name: str, threads: int, clock: str):
        self.name, self.torch = name, library(name, threads)
        self.clock = {"wall": time.perf_counter, "cpu": time.process_time, "thread": time.thread_time}[clock]
        self.step: Any = None
        self.steps: dict[str, Any] = {}

    def facts(self) -> dict:
        """Versions."""
        import numpy

        if self.name in peers.BUILDS:
            return peers.facts(self.name)
        own = getattr(self.torch.version, "tensorgrad", self.torch.__version__)
        found = {self.name: own, "NumPy": numpy.__version__, "threads": self.torch.get_num_threads()}
        if self.name == "tensorgrad":
            from tensorgrad.kernels.numba import table

            found["fast"] = bool(table.wanted())
            if found["fast"]:
                import numba

                found["Numba"] = numba.__version__
        return found

    def prepare(self, row: str, file: str) -> dict:
        """Builds a row, runs what is compared with the kernels that will be timed, and stores it in `file`."""
        import numpy as np

        self.step = None
        gc.collect()
        step, _ = self.build(row)
        settle(step)
        lacking = without_kernel()  # before the comparison, which may ask for kernels of its own
        del step  # what is compared starts from the same state in each library, however often a step has run
        self.step, results = self.build(row)
        arrays = [part for tensor in results() for part in fingerprint(tensor)]
        np.savez(file, *arrays)
        return {"arrays": len(arrays), "without kernel": lacking}

    def build(self, name: str):
        """The step and the results of a row."""
        if self.name in peers.BUILDS:
            return peers.BUILDS[self.name](name)
        row = next(row for row in all_rows() if f"{row.theme}: {row.name}" == name)
        return row.build(self.torch, **row.sizes)

    def warm(self, seconds: float) -> dict:
        """Runs the step for some time; how long one takes."""
        self.step()
        start, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - start) < seconds or not count:
            self.step()
            count += 1
        return {"seconds": passed / count}

    def time(self, count: int) -> dict:
        """The mean time of `count` steps."""
        step, clock, repeat = self.step, self.clock, range(count)
        start = clock()
        for _ in repeat:
            step()
        return {"seconds": (clock() - start) / count}

    def each(self, row: str, seconds: float) -> dict:
        """The time of each step of a row for so many seconds, of one at least; with 0 seconds the row is only built."""
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


COMMANDS = ("facts", "prepare", "warm", "time", "each")


def main(make: type[Worker] = Worker) -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print goes elsewhere
    worker = make(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "wall")
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        try:
            if name not in COMMANDS:
                raise ValueError(f"no command {name}")
            answer = getattr(worker, name)(**command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error!s:.300}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
