"""Finds where a training step's time goes: by launch of a kernel, and by Python function.

Functions of the process that runs the step; `benchmarks.threads --why` prints what they return.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

MOST = 25  # Python functions that are listed
MODELLED = 4  # steps of the model


def _shapes(arguments: tuple) -> str:
    """The shapes of the first arrays."""
    arrays = [a for a in arguments if isinstance(a, np.ndarray)][:3]
    return " ".join("×".join(map(str, a.shape)) for a in arrays)


class Recorder:
    """Stands in for `thread_pool.run`, and records its calls: [(name, shapes, length, threads, seconds)]."""

    def __init__(self, pool: Any):
        self.pool, self.real = pool, pool.run
        self.calls: list[tuple[str, str, int, int, float]] = []
        self.thread, self.inside = threading.get_ident(), False

    def run(self, kernel: Any, length: int, arguments: tuple, elements: int, alive: Any = None) -> None:
        """Runs a kernel, in place of `thread_pool.run`."""
        if self.inside or threading.get_ident() != self.thread:
            self.real(kernel, length, arguments, elements, alive)
            return
        self.inside, start = True, time.perf_counter()
        try:
            self.real(kernel, length, arguments, elements, alive)
        finally:
            seconds, self.inside = time.perf_counter() - start, False
        name = getattr(kernel, "__qualname__", None) or kernel.__name__
        code = sys._getframe(1).f_code
        caller = getattr(code, "co_qualname", code.co_name).partition(".")[0]  # Python 3.10 has the name alone
        among = self.pool.shares(not hasattr(kernel, "address"), length, elements)
        self.calls.append((f"{caller} {name.rpartition('.')[2]}", _shapes(arguments), length, among, seconds))


def by_launch(step: Callable, seconds: float) -> dict[str, Any]:
    """Returns the median time of a step, and its launches of kernels, in their order.

    Of each: kernel, shapes, length, threads, the seconds of the longest range if each runs alone, the minimum and the
    median of the launch.
    """
    from benchmarks import cores
    from tensorgrad.kernels.compiled.runtime import thread_pool

    recorder, steps, wholes = Recorder(thread_pool), [], []
    began = time.perf_counter()
    thread_pool.run = recorder.run  # type: ignore[assignment]
    try:
        while len(steps) < 3 or time.perf_counter() - began < seconds:
            recorder.calls, start = [], time.perf_counter()
            step()
            wholes.append(time.perf_counter() - start)
            steps.append(recorder.calls)
    finally:
        thread_pool.run = recorder.real  # type: ignore[assignment]
    steps = [calls for calls in steps if len(calls) == len(steps[-1])]
    model = cores.Model(thread_pool.get_num_threads())
    for _ in range(MODELLED):
        model.run(step)
    alone = [max(times, default=0.0) for times in model.best]
    if len(alone) != len(steps[-1]):
        alone = [0.0] * len(steps[-1])
    launches = [
        (*calls[0][:4], longest, min(call[4] for call in calls), statistics.median(call[4] for call in calls))
        for calls, longest in zip(zip(*steps, strict=True), alone, strict=True)
    ]
    return {"step": statistics.median(wholes), "launches": launches}


def by_function(step: Callable, seconds: float) -> list[tuple[str, float, float]]:
    """Returns the functions that take most of a step, each with its calls and its own seconds in a step."""
    profile, count, began = cProfile.Profile(), 0, time.perf_counter()
    while count < 2 or time.perf_counter() - began < seconds:
        profile.runcall(step)
        count += 1
    found = []
    for (file, line, name), (_, calls, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        place = f"{'/'.join(file.split('/')[-2:])}:{line} " if line else ""
        found.append((place + name, calls / count, own / count))
    return sorted(found, key=lambda each: -each[2])[:MOST]


def launching(repeats: int = 500) -> dict[str, float]:
    """Returns the seconds of a launch of a kernel that does nothing: with awake threads, and after a pause."""
    from tensorgrad.kernels.compiled.runtime import thread_pool
    from tensorgrad.kernels.compiled.runtime.row import WAITING

    if WAITING.ready is None:
        return {"awake": 0.0, "asleep": 0.0}
    gate, x = np.ones(16, np.int64), np.zeros(1 << 14, np.float32)
    arguments, times, late = (x, np.zeros_like(x), gate.ctypes.data), [], []
    for _ in range(repeats):
        start = time.perf_counter()
        thread_pool.run(WAITING.ready.probe, 1024, arguments, 1 << 24)
        times.append(time.perf_counter() - start)
    for _ in range(50):
        time.sleep(1e-3)
        start = time.perf_counter()
        thread_pool.run(WAITING.ready.probe, 1024, arguments, 1 << 24)
        late.append(time.perf_counter() - start)
    return {"awake": statistics.median(times), "asleep": statistics.median(late)}
