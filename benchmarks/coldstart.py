"""Measures what a cold start consists of, for the models of libraries: `python -m benchmarks.coldstart`.

For each row of `python -m benchmarks --ecosystem`, in processes of both columns, in turns: the processor time of
importing, each module without those that it imports and without Python's collector of cycles, by whom the module
belongs to; and the rest, which is the start of Python, the collector, the model, its weights and the first result.

    python -m benchmarks.coldstart
    python -m benchmarks.coldstart --only Llama ViT
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import tempfile

from benchmarks import report
from benchmarks.ecosystem import COLD_AIM, COLUMNS, available, probe
from benchmarks.processes import end_in_order
from benchmarks.rows import ECOSYSTEM_THEMES, all_rows, matching

STARTS = 3
TITLE = "## What cold starts consist of: `python -m benchmarks.coldstart`"
HEAD = (
    "| row | imports of the libraries | of tensorgrad | rest | all | torch: libraries | of torch | rest | all "
    "| ratio | left of 0.4 |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def middle(found: list[dict[str, float]]) -> dict[str, float]:
    """Returns the medians of several starts."""
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def line(name: str, ours: dict[str, float], theirs: dict[str, float]) -> str:
    """Formats a row. The last cell is what 0.4 of torch's time leaves for all but the imports of the libraries."""
    cells = [name]
    for each in (ours, theirs):
        rest = each["all"] - each["libraries"] - each["torch"]
        cells += [report.duration(seconds) for seconds in (each["libraries"], each["torch"], rest, each["all"])]
    cells.append(f"{ours['all'] / theirs['all']:.2f}")
    cells.append(report.duration(max(0.0, COLD_AIM * theirs["all"] - ours["libraries"])))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measures and prints the table. With --write, it is stored in docs/benchmarks/coldstart.md."""
    end_in_order()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coldstart", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="rows whose names contain one of these")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="store the table in docs/benchmarks/coldstart.md")
    arguments = parser.parse_args()
    rows = available(matching(all_rows(ECOSYSTEM_THEMES), arguments.only))
    lines = [HEAD]
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="benchmarks-weights-") as folder:
        os.environ.setdefault("BENCHMARK_WEIGHTS", folder)
        for row in rows:
            found: dict[str, list[dict[str, float]]] = {name: [] for name in COLUMNS}
            for number in range(STARTS + 1):  # the first ones make the weights, compile kernels and read files
                for name in ("torch", "fast"):
                    _, answer = probe("parts", COLUMNS[name], arguments.threads, row)
                    found[name] += [answer] if number else []
            lines.append(line(row.name, middle(found["fast"]), middle(found["torch"])))
            print(lines[-1], flush=True)
    if arguments.write:
        lead = f"{datetime.date.today()}, {report.processor()}, {arguments.threads} threads"
        text = f"{lead}; processor time, medians of {STARTS} starts in turns"
        report.store("coldstart", f"{text}\n\n" + "\n".join(lines), TITLE)


if __name__ == "__main__":
    main()
