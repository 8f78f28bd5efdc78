"""Measures how long a server's model takes to answer: one input, one and four clients, beside torch and onnxruntime.

    python -m benchmarks.server                      prints the table, in about a minute
    python -m benchmarks.server --write              also writes it to docs/benchmarks/server.md
    python -m benchmarks.server --threads 2          threads of each library (default: 1, as docs/serving.md says)

The models are those of `examples/serve.py`; tensorgrad runs them op by op, and by a plan (`torch.compile(model)`). The
clients are threads of one process, as those that FastAPI answers from, without HTTP: what that takes is the same for
every library. The libraries take turns. Of all answers the table has the median (p50) and the 99th percentile (p99);
ratios are medians over the turns, with their quartiles. A second table has what the libraries take on a disk.
onnxruntime runs the models as torch exports them; for it, onnx and onnxruntime must be installed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import statistics
import time
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import REST, percentile, spread
from benchmarks.processes import COLUMNS, ROOT, Column, Failure, Process, end_in_order
from benchmarks.report import duration
from benchmarks.rows.inference import SERVED


class Way(NamedTuple):
    """How a library answers."""

    column: Column
    needed: tuple[str, ...]  # packages
    own: bool = False  # it is tensorgrad
    plan: bool = False


WAYS = {
    "tensorgrad": Way(COLUMNS["fast"], ("numpy",), own=True),
    "tensorgrad, plan": Way(COLUMNS["fast"], ("numpy",), own=True, plan=True),
    "torch": Way(COLUMNS["torch"], ("torch",)),
    "onnxruntime": Way(Column("onnxruntime", "onnxruntime", {}), ("torch", "onnx", "onnxruntime")),
}
OWN = [name for name, way in WAYS.items() if way.own]
CLIENTS = (1, 4)
TURNS, SECONDS = 9, 0.3
HEAD = (
    "| model | clients | library | p50 | p99 | tensorgrad's p50 to it | p99 | the plan's p50 to it | p99 |\n"
    "|---|--:|---|--:|--:|--:|--:|--:|--:|"
)


def available() -> list[str]:
    """Returns the libraries that are installed, and prints a line for each that is not."""
    found = []
    for name, way in WAYS.items():
        missing = [package for package in way.needed if find_spec(package) is None]
        if missing:
            print(f"{name}: skipped, {' and '.join(missing)} is not installed")
        else:
            found.append(name)
    return found


def lines(model: str, clients: int, turns: dict[str, list[list[float]]]) -> list[str]:
    """Formats a model's lines: one a library."""
    found = []
    for library, parts in turns.items():
        times = [one for part in parts for one in part]
        cells = [duration(statistics.median(times)), duration(percentile(times, 0.99))]
        for own in OWN:
            for share in (0.5, 0.99):
                pairs = zip(turns[own], parts, strict=True)
                middle, low, high = spread([percentile(a, share) / percentile(b, share) for a, b in pairs])
                cells.append("" if library == own else f"{middle:.2f} ({low:.2f}–{high:.2f})")
        found.append(f"| {model} | {clients} | {library} | {' | '.join(cells)} |")
    return found


def measure(running: dict[str, Process], turns: int, seconds: float) -> list[str]:
    """Returns the table, printing its lines as they are measured."""
    table = [HEAD]
    print(HEAD, flush=True)
    for model in SERVED:
        for clients in CLIENTS:
            rows = {name: f"{model} {clients}{' plan' if WAYS[name].plan else ''}" for name in running}
            for name, process in running.items():
                process.ask(do="each", row=rows[name], seconds=seconds / 4)
            times: dict[str, list[list[float]]] = {name: [] for name in running}
            for _ in range(turns):
                for name, process in running.items():
                    time.sleep(REST)
                    times[name].append(process.ask(do="each", row=rows[name], seconds=seconds)["times"])
            table += lines(model, clients, times)
            print("\n".join(table[-len(running) :]), flush=True)
    return table


def closure(
    distribution: str, found: dict[str, metadata.Distribution] | None = None
) -> dict[str, metadata.Distribution]:
    """Returns a distribution and all that it needs here, by name; extras are left out."""
    found = {} if found is None else found
    name = re.sub(r"[-_.]+", "-", distribution).lower()
    if name not in found:
        try:
            found[name] = metadata.distribution(distribution)
        except metadata.PackageNotFoundError:  # for another system or version of Python
            return found
        for requirement in found[name].requires or ():
            if "extra ==" not in requirement:
                closure(re.split(r"[^\w.-]", requirement)[0], found)
    return found


def megabytes(files: Iterable[Path]) -> float:
    """Returns the size of files without bytecode."""
    return sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.is_file()) / 1e6


def sizes(libraries: Iterable[str]) -> str:
    """Formats what the libraries take on a disk, with all that they need."""
    lines = ["| installed | MB |", "|---|--:|"]
    for library in dict.fromkeys(WAYS[name].column.library for name in libraries):
        needed = closure("numpy" if library == "tensorgrad" else library)
        total = sum(megabytes(Path(str(one.locate_file(file))) for file in one.files or ()) for one in needed.values())
        names = ", ".join(sorted({*needed, library} - {library}))
        total += megabytes((ROOT / "tensorgrad").rglob("*")) if library == "tensorgrad" else 0
        lines.append(f"| {library} (with {names}) | {total:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of each library (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of a turn (%(default)s)")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/server.md")
    given = parser.parse_args()
    before = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    running = {name: Process(WAYS[name].column, given.threads, module="benchmarks.clients") for name in available()}
    try:
        versions: dict[str, str] = {}
        for process in running.values():
            versions |= process.ask(do="facts")
        table = measure(running, given.turns, given.seconds)
    except Failure as failure:
        raise SystemExit(f"a worker failed: {failure}") from None
    finally:
        for process in running.values():
            process.kill()
    table += ["", sizes(running)]
    print("\n" + table[-1])
    if given.write:
        from benchmarks import report

        told = ", ".join(f"{name} {version}" for name, version in versions.items())
        lead = (
            f"{datetime.date.today()}, {report.processor()}, {os.cpu_count()} cores, threads: {given.threads}; {told}"
        )
        text = f"{lead}; load before: {before:.1f}\n\n" + "\n".join(table)
        report.store("server", text, "## Answers of a server: `python -m benchmarks.server`")


if __name__ == "__main__":
    main()
