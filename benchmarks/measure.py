"""Measures a row in several processes: compares their results, then times them in turns."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.processes import Failure, Process
from benchmarks.rows import Row

Pairs = Mapping[str, tuple[str, str]]  # name -> a column, and the one it is compared with
PAIRS: Pairs = {"fast/torch": ("fast", "torch"), "fast/raised": ("fast", "raised"), "numpy/torch": ("numpy", "torch")}


def in_turns(
    steps: Mapping[str, Callable], rounds: int, seconds: float, warm: float = 1, collect: bool = True
) -> dict[str, list[float]]:
    """Measures programs by turns, after `warm` × `seconds` of each. Returns the seconds of a step of each, by round.

    Each round begins with another program, as the first finds the caches cold.

    Args:
        seconds: how long each runs in a round.
        collect: whether the garbage collector runs between rounds.
    """
    counts = {}
    for name, step in steps.items():
        start, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - start) < warm * seconds or not count:
            step()
            count += 1
        counts[name] = max(1, round(count * seconds / passed))
    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for n in range(rounds):
        first = n % len(names)
        for name in names[first:] + names[:first]:
            step, repeat = steps[name], range(counts[name])
            start = time.perf_counter()
            for _ in repeat:
                step()
            times[name].append((time.perf_counter() - start) / counts[name])
        if collect:
            gc.collect()
    return times


def differences(files: dict[str, Path], tolerance: float) -> dict[str, str]:
    """Compares each column's results with torch's (or the last column's). Returns name -> difference, as text."""
    import numpy as np

    names = list(files)
    reference = "torch" if "torch" in files else names[-1]
    stored = {name: np.load(file) for name, file in files.items()}
    expected, found = stored[reference], {}
    for name in names:
        actual = stored[name]
        if len(actual.files) != len(expected.files):
            found[name] = f"{len(actual.files)} results, not {len(expected.files)}"
            continue
        for i, key in enumerate(expected.files):
            text = difference(actual[key], expected[key], tolerance)
            if text:
                found[name] = f"result {i}: {text}"
                break
    return found


def difference(actual, expected, tolerance: float) -> str:
    """Describes how two arrays differ by more than `tolerance` times the largest element; "" if they do not."""
    import numpy as np

    if actual.shape != expected.shape:
        return f"shape {actual.shape}, not {expected.shape}"
    if expected.dtype.kind in "biu" or actual.dtype.kind in "biu":
        return "" if np.array_equal(actual, expected) else f"{np.mean(actual != expected):.0%} of the elements differ"
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = expected[np.isfinite(expected)]
    largest = float(abs(finite).max()) if finite.size else 0.0
    if np.allclose(actual, expected, tolerance, tolerance * largest, equal_nan=True):
        return ""
    return f"differs by {np.nanmax(abs(actual - expected)):.3g} where the largest is {largest:.3g}"


def percentile(times: list[float], share: float) -> float:
    """Returns the time that `share` of all are not above."""
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def spread(values: list[float]) -> tuple[float, float, float]:
    """Returns the median, the first quartile and the third quartile."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]


def summary(times: dict[str, list[float]], pairs: Pairs = PAIRS) -> dict[str, Any]:
    """Summarizes the times: the median and best of each column, and statistics of each pair's ratios by round."""
    found: dict[str, Any] = {
        "seconds": {name: statistics.median(values) for name, values in times.items()},
        "best": {name: min(values) for name, values in times.items()},
        "ratios": {},
    }
    for pair, (ours, theirs) in pairs.items():
        if ours in times and theirs in times:
            middle, low, high = spread([a / b for a, b in zip(times[ours], times[theirs], strict=True)])
            best = found["best"][ours] / found["best"][theirs]
            found["ratios"][pair] = {"median": middle, "low": low, "high": high, "best": best}
    return found


# Seconds between two turns. After a matrix product, BLAS threads spin for tens of milliseconds waiting for the next
# one, and would take processor time from the process whose turn is next.
REST = 0.05


def plan(each: dict[str, float], rounds: int | None, seconds: float) -> tuple[int, dict[str, int]]:
    """Returns the number of rounds, and the steps per round for each column, so that a column runs about `seconds`."""
    if rounds is None:
        rounds = int(min(15, max(3, seconds / max(each.values()))))
    return rounds, {name: max(1, round(seconds / rounds / one)) for name, one in each.items()}


def together(
    row: Row, processes: dict[str, Process], rounds: int | None, seconds: float, pairs: Pairs = PAIRS
) -> dict[str, Any]:
    """Measures one row in processes that take turns."""
    name = f"{row.theme}: {row.name}"
    found: dict[str, Any] = {
        "theme": row.theme,
        "name": row.name,
        "is_small_model": row.is_small_model,
        "wrong": {},
        "without kernel": {},
    }
    working = dict(processes)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        files = {}
        for column, process in processes.items():
            files[column] = Path(folder) / f"{column}.npz"
            try:
                missing = process.ask(do="prepare", row=name, file=str(files[column])).get("without kernel")
                if missing:
                    found["without kernel"][column] = ", ".join(missing)
            except Failure as failure:
                found["wrong"][column] = str(failure)
                del working[column], files[column]
        if files:
            found["wrong"].update(differences(files, row.tolerance))
    working = {column: process for column, process in working.items() if column not in found["wrong"]}
    try:
        each = {column: process.ask(do="warm", seconds=seconds / 4)["seconds"] for column, process in working.items()}
        times: dict[str, list[float]] = {column: [] for column in working}
        rounds, counts = plan(each, rounds, seconds) if each else (0, {})
        for _ in range(rounds):
            for column, process in working.items():
                time.sleep(REST)
                times[column].append(process.ask(do="time", count=counts[column])["seconds"])
        found.update(summary(times, pairs), rounds=rounds)
    except Failure as failure:
        found["wrong"]["timing"] = str(failure)
        found.update(summary({}))
    return found


def measured(
    row: Row, processes: dict[str, Process], rounds: int | None, seconds: float, pairs: Pairs = PAIRS
) -> dict[str, Any]:
    """Returns the figures of one row (from `summary`), with any problems under "wrong".

    A heavy row is measured in fresh processes, one pair at a time, so that not all of them are in memory together.
    """
    possible = [pair for pair in pairs.values() if set(pair) <= set(processes)]
    if not row.heavy or not possible:
        return together(row, processes, rounds, seconds, pairs)
    found: dict[str, Any] = {}
    for pair in possible:
        for process in processes.values():
            process.close()
        part = together(row, {name: processes[name] for name in pair}, rounds, seconds, pairs)
        for name, value in part.items():
            if isinstance(value, dict):
                found.setdefault(name, {}).update({key: value[key] for key in value if key not in found.get(name, {})})
            else:
                found.setdefault(name, value)
    for process in processes.values():
        process.close()
    return found
