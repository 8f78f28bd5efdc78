"""`torch.utils.benchmark`: `Timer` times a statement, like Python's `timeit`, and returns a `Measurement`."""

from __future__ import annotations

import statistics
import timeit
from typing import Any


class Measurement:
    """The time a statement took: `times` has the seconds per run for each block of runs.

    >>> from tensorgrad.utils.benchmark import Measurement
    >>> measured = Measurement(10, [0.02, 0.04, 0.03], "x + 1")
    >>> measured.times
    [0.002, 0.004, 0.003]
    """

    def __init__(self, number_per_run: int, raw_times: list[float], label: str):
        self.number_per_run, self.raw_times, self.label = number_per_run, raw_times, label

    @property
    def times(self) -> list[float]:
        """Seconds per run, for each block."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """The median of `times`."""
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        """The mean of `times`."""
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The interquartile range of `times`."""
        if len(self.raw_times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    def __repr__(self) -> str:
        unit, scale = next(
            ((u, s) for u, s in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)) if self.median >= s), ("ns", 1e-9)
        )
        runs = f"{len(self.raw_times)} measurement{'s' * (len(self.raw_times) > 1)}, {self.number_per_run} runs each"
        return (
            f"{self.label}\n  Median: {self.median / scale:.2f} {unit}\n  IQR: {self.iqr / scale:.2f} {unit}\n  {runs}"
        )


class Timer:
    """Times a statement.

    Args:
        stmt: the statement to time, as a string.
        setup: runs once before the statement.
        globals: the namespace in which both run.
        label, sub_label, description: shown with the result.
        num_threads: accepted for compatibility and ignored.

    >>> from tensorgrad.utils.benchmark import Timer
    >>> measured = Timer("x + 1", globals={"x": torch.ones(2)}).timeit(10)
    >>> measured.median > 0
    True
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Any = timeit.default_timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: str = "python",
    ):
        self._timer = timeit.Timer(stmt, setup, timer, {} if globals is None else globals)
        self._label = ": ".join(t for t in (label or stmt, sub_label, description) if t)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Times one block of `number` runs, after a short warm-up."""
        self._timer.timeit(max(number // 100, 2))
        return Measurement(number, [self._timer.timeit(number)], self._label)

    def blocked_autorange(self, callback: Any = None, min_run_time: float = 0.2) -> Measurement:
        """Times blocks of runs for at least `min_run_time` seconds in total.

        Each block is long enough for the overhead of reading the clock not to matter.
        """
        number, seconds = 1, self._timer.timeit(1)
        while seconds < min_run_time / 100:
            number *= 10
            seconds = self._timer.timeit(number)
        times = [seconds]
        while sum(times) < min_run_time:
            times.append(self._timer.timeit(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._label)

    def adaptive_autorange(
        self, threshold=0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Any = None
    ) -> Measurement:
        """The same as `blocked_autorange`, for at least 0.2 seconds."""
        return self.blocked_autorange(callback, max(min_run_time, 0.2))
