"""Measures the first seconds of a process: the time of each of its first steps, and of short programs.

    python -m benchmarks.young                      the MLP, the ConvNet and the GPT
    python -m benchmarks.young --write              also writes the tables to docs/benchmarks/young.md
    python -m benchmarks.young --plot docs/young    also draws each step's time, one picture per model

Every run is a separate process, and these take turns: PyTorch, tensorgrad, and tensorgrad on NumPy alone. A short
program is the number of steps that PyTorch runs in a number of seconds, including the import.
"""

from __future__ import annotations

import argparse
import bisect
import datetime
import itertools
import os
import statistics
from pathlib import Path

from benchmarks.fresh import probe
from benchmarks.processes import COLUMNS, end_in_order

MODELS = {
    "MLP": "training: MLP 784-128-10, batch 32, SGD",
    "ConvNet": "training: MNIST ConvNet, batch 64, Adam",
    "GPT": "training: GPT 4×128, context 64, batch 12, AdamW",
}
PROGRAMS = (2, 10)  # seconds
YOUNG = 3.0  # the seconds after the import that are examined step by step
Run = list[float]  # the times when the set-up and each step ended, in seconds


def turns(name: str, row: str, threads: int, runs: int) -> dict[str, list[Run]]:
    """Returns the runs of one model, by column."""
    found: dict[str, list[Run]] = {}
    for column in ("torch", "fast"):  # reads the files from disk
        probe("young", COLUMNS[column], threads, row)
    for _ in range(runs):
        for column in ("torch", "fast", "numpy"):
            found.setdefault(COLUMNS[column].title, []).append(probe("young", COLUMNS[column], threads, row))
    return found


def lengths(run: Run) -> list[float]:
    """Returns the seconds of each step."""
    return [after - before for before, after in itertools.pairwise(run)]


def early(run: Run) -> list[float]:
    """Returns the seconds of the steps that ended within YOUNG seconds after the set-up."""
    return lengths(run)[: max(bisect.bisect(run, run[0] + YOUNG) - 1, 1)]


def program(run: Run, steps: int) -> float:
    """Returns the seconds of a program of `steps` steps; missing steps are extrapolated from the last tenth."""
    if steps < len(run):
        return run[steps]
    tail = lengths(run)[-max(len(run) // 10, 1) :]
    return run[-1] + (steps + 1 - len(run)) * statistics.mean(tail)


def reached(run: Run, seconds: float) -> float:
    """Returns the number of steps that end within so many seconds; missing time is extrapolated as in `program`."""
    if seconds <= run[-1]:
        return bisect.bisect(run, seconds) - 1
    tail = lengths(run)[-max(len(run) // 10, 1) :]
    return len(run) - 1 + (seconds - run[-1]) / statistics.mean(tail)


def table(found: dict[str, list[Run]]) -> str:
    """Formats one model, with a line for each column and medians of the runs."""

    def middle(values) -> float:
        return statistics.median(values)

    steps = [max(int(middle(reached(run, s) for run in found["torch"])), 1) for s in PROGRAMS]
    heads = ["", "`import` to first step", "first 10 steps, each", "slowest later step in 3 s", "steps in 3 s"]
    heads += [f"{count:,} steps (torch: {s} s)" for s, count in zip(PROGRAMS, steps, strict=True)]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for title, runs in found.items():
        cells = [
            f"{middle(run[1] for run in runs):.2f} s",
            f"{1e3 * middle(middle(lengths(run)[:10]) for run in runs):.2f} ms",
            f"{1e3 * middle(max(early(run)[1:], default=0.0) for run in runs):.1f} ms",
            f"{middle(len(early(run)) for run in runs):,.0f}",
            *(f"{middle(program(run, count) for run in runs):.2f} s" for count in steps),
        ]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(name: str, found: dict[str, list[Run]], folder: Path) -> None:
    """Draws the first 500 steps of each column."""
    from tensorgrad import viz

    lines = {title.replace("`", ""): [1e3 * s for s in lengths(runs[-1])[:500]] for title, runs in found.items()}
    path = folder / f"{name.lower()}.svg"
    viz.curves(lines, title=f"{name}: the first steps of a process", x_label="step", y_label="ms", log=True).save(path)
    print(f"drawn: {path}")


def main() -> None:
    """Measures and prints the tables, and stores them with --write."""
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of the library (default: all cores)"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each column (default: 3)")
    parser.add_argument("--only", choices=MODELS, action="append", help="this model (may be repeated)")
    parser.add_argument("--plot", type=Path, help="the directory for pictures")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/benchmarks/young.md")
    given = parser.parse_args()
    before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    texts = []
    for name in given.only or MODELS:
        found = turns(name, MODELS[name], given.threads, given.runs)
        texts.append(f"**{name}** ({MODELS[name].partition(': ')[2]})\n\n{table(found)}")
        print(texts[-1], flush=True)
        if given.plot:
            given.plot.mkdir(parents=True, exist_ok=True)
            draw(name, found, given.plot)
    if given.write:
        from benchmarks import report

        load = f"load of the machine before: {before:.1f}" if before is not None else "load unknown"
        lead = f"{datetime.date.today()}, {report.processor()}, {given.threads} threads; {load}"
        report.store("young", "\n\n".join([lead, *texts]), "## Young processes: `python -m benchmarks.young`")


if __name__ == "__main__":
    main()
