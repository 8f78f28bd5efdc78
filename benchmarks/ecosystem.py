"""Measures models of libraries that are built on PyTorch, run by their own code: `python -m benchmarks --ecosystem`.

It runs where torch, transformers, timm, torchvision and peft are installed beside tensorgrad and numba; rows whose
library is missing are skipped. In tensorgrad's processes the import hook answers `import torch`, as under `python -m
tensorgrad.run`, so that both sides run the same files. Three things are measured: the time of a step, in turns; the
highest memory of a process that runs some steps; and the cold start, from the start of a process through the imports
and the reading of the weights to the first result (of a text that is generated, the first token).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.measure import Pairs, measured, spread
from benchmarks.processes import ROOT, Column, Failure, Process, busy, environment
from benchmarks.reasons import REASONS
from benchmarks.rows import ECOSYSTEM_THEMES, Row, all_rows, matching
from benchmarks.rows.libraries import NEEDED
from benchmarks.worker import without_kernels

RESULTS = Path(__file__).parent / "results_ecosystem.json"
HOOK = {
    "TENSORGRAD_COMPAT": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "tensorgrad" / "compat" / "startup"), str(ROOT)]),
}
COLUMNS = {"fast": Column("tensorgrad", "tensorgrad", HOOK), "torch": Column("torch", "torch", {})}
PAIRS: Pairs = {"fast/torch": ("fast", "torch")}
AIM, COLD_AIM = 1.0, 0.4  # of torch's time
SECONDS, QUICK = 4.0, 1.0  # the total time a library runs a row
STARTS, QUICK_STARTS = 7, 3
HEAD = (
    "| row | tensorgrad | torch | ratio | memory | torch's | ratio | cold start | torch's | ratio | |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
)


def available(rows: list[Row]) -> list[Row]:
    """Returns the rows whose libraries are installed, and prints what to install for the others."""
    if find_spec("torch") is None:
        print("nothing to compare with: pip install torch")
        return []
    if without_kernels():
        print(f"without compiled kernels: {without_kernels()}")
    found, lacking = [], {}
    for row in rows:
        missing = [name for name in NEEDED[row.name] if find_spec(name) is None]
        lacking.update({row.name: missing} if missing else {})
        found += [] if missing else [row]
    if lacking:
        packages = dict.fromkeys(name for missing in lacking.values() for name in missing)
        print(f"skipped: {'; '.join(lacking)}: pip install {' '.join(packages)}")
    return found


def probe(kind: str, column: Column, threads: int, row: Row, clock: str = "wall") -> tuple[float, dict[str, Any]]:
    """Runs `benchmarks.probe` in a new process. Returns the seconds until its answer, and that. Raises: Failure.

    By another clock than the wall's, they are the processor time that the process had used by then.
    """
    command = [sys.executable, "-m", "benchmarks.probe", kind, column.library, str(threads), f"{row.theme}: {row.name}"]
    with tempfile.TemporaryFile("w+") as log:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment(column, threads), cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
        )
        line = process.stdout.readline()  # type: ignore[union-attr]
        passed = time.perf_counter() - start
        process.stdout.close()  # type: ignore[union-attr]
        if process.wait():
            log.seek(0)
            raise Failure(log.read().strip().rpartition("\n")[2] or f"exit status {process.returncode}")
    answer = json.loads(line)
    return passed if clock == "wall" else answer["processor seconds"], answer


def starts(row: Row, threads: int, runs: int, clock: str) -> dict[str, Any]:
    """Measures the cold start in turns; the first one of each column reads the files from disk."""
    times: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for number in range(runs + 1):
        for name, column in COLUMNS.items():
            seconds, _ = probe("first-result", column, threads, row, clock)
            times[name] += [seconds] if number else []
    middle, low, high = spread([ours / theirs for ours, theirs in zip(times["fast"], times["torch"], strict=True)])
    return {
        "seconds": {name: statistics.median(values) for name, values in times.items()},
        "ratio": {"median": middle, "low": low, "high": high},
    }


def measure_row(row: Row, arguments, weights_from: str = "torch") -> dict[str, Any]:
    """Measures a row's times, memory and cold starts."""
    probe("first-result", COLUMNS[weights_from], arguments.threads, row)  # makes the files with the weights
    running = {name: Process(column, arguments.threads, arguments.clock) for name, column in COLUMNS.items()}
    try:
        found = measured(row, running, arguments.rounds, QUICK if arguments.quick else SECONDS, PAIRS)
    finally:
        for process in running.values():
            process.kill()
    try:
        found["memory"] = {
            name: probe("memory", column, arguments.threads, row)[1]["whole"] for name, column in COLUMNS.items()
        }
        found["cold start"] = starts(
            row, arguments.threads, QUICK_STARTS if arguments.quick else STARTS, arguments.clock
        )
    except Failure as failure:
        found["wrong"]["fresh processes"] = str(failure)
    return found


def measured_before() -> dict[str, dict[str, Any]]:
    """Returns the stored rows by their names."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
    return {each["name"]: each for each in rows}


def measure_starts(row: Row, arguments) -> dict[str, Any]:
    """Measures a row's cold starts. Times and memory are those that were measured before."""
    found = measured_before().get(row.name) or {"name": row.name, "theme": row.theme, "wrong": {}, "without kernel": {}}
    probe("first-result", COLUMNS["torch"], arguments.threads, row)  # makes the files with the weights
    runs = QUICK_STARTS if arguments.quick else STARTS
    return found | {"cold start": starts(row, arguments.threads, runs, arguments.clock)}


def ratio_text(ratio: dict[str, float], limit: float) -> str:
    """Formats a ratio with its quartiles, in bold if it is above the limit."""
    text = f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
    return text if report.met(ratio, limit) else f"**{text}**"


def line(found: dict[str, Any]) -> str:
    """Formats a row of the table."""
    cells = [found["name"]]
    seconds, ratios = found.get("seconds", {}), found.get("ratios", {})
    cells += [report.duration(seconds.get("fast")), report.duration(seconds.get("torch"))]
    cells.append(ratio_text(ratios["fast/torch"], AIM) if "fast/torch" in ratios else "–")
    memory = found.get("memory")
    if memory:
        cells += [f"{memory['fast']:,.0f} MB", f"{memory['torch']:,.0f} MB", f"{memory['fast'] / memory['torch']:.2f}"]
    else:
        cells += ["–"] * 3
    cold = found.get("cold start")
    if cold:
        cells += [report.duration(cold["seconds"][name]) for name in ("fast", "torch")]
        cells.append(ratio_text(cold["ratio"], COLD_AIM))
    else:
        cells += ["–"] * 3
    remarks = [f"**{column}: {text}**" for column, text in found["wrong"].items()]
    remarks += [f"no kernel: {text}" for text in found["without kernel"].values()]
    reason = REASONS.get(f"{found['theme']}: {found['name']}")
    cells.append("; ".join([*remarks, *([reason] if reason else [])]))
    return f"| {' | '.join(cells)} |"


def table(found: list[dict[str, Any]]) -> str:
    """Formats the rows and their means."""
    lines = [HEAD, *map(line, found), ""]
    ratios = [each["ratios"]["fast/torch"]["median"] for each in found if "fast/torch" in each.get("ratios", {})]
    colds = [each["cold start"]["ratio"]["median"] for each in found if "cold start" in each]
    if ratios and colds:
        lines.append(
            f"Geometric means: time {statistics.geometric_mean(ratios):.2f} (aim: every row at most {AIM}), "
            f"cold start {statistics.geometric_mean(colds):.2f} (aim: {COLD_AIM})."
        )
        generation = next((each for each in found if each["name"].endswith("64 tokens") and each.get("seconds")), None)
        if generation:
            rates = {name: 64 / seconds for name, seconds in generation["seconds"].items()}
            lines.append(f"Tokens per second: tensorgrad {rates['fast']:.0f}, torch {rates['torch']:.0f}.")
    return "\n".join(lines)


def store(facts: dict[str, Any], new: list[dict[str, Any]], order: list[str]) -> None:
    """Writes rows to the results and to docs/benchmarks/ecosystem.md; those that were measured before stay."""
    rows = measured_before() | {each["name"]: each for each in new}
    found = [rows[name] for name in order if name in rows]
    RESULTS.write_text(json.dumps({"facts": facts, "rows": found}, indent=1, ensure_ascii=False) + "\n")
    title = "## Libraries built on PyTorch: `python -m benchmarks --ecosystem`"
    report.store("ecosystem", f"{report.facts_text(facts)}\n\n{table(found)}", title)


def main(arguments) -> None:
    """Measures and prints the table. With --write, each row is stored when it is measured."""
    every = all_rows(ECOSYSTEM_THEMES)
    rows = matching(every, arguments.only or ["*"])
    if arguments.list or not rows:
        print("\n".join(f"{row.theme}: {row.name}" for row in rows) or "no row has that name")
        sys.exit(0 if rows else 1)
    rows = available(rows)
    if not rows:
        return
    running = {name: Process(column, arguments.threads) for name, column in COLUMNS.items()}
    facts = report.facts({name: process.ask(do="facts") for name, process in running.items()}, arguments)
    for process in running.values():
        process.close()
    libraries = dict.fromkeys(name for needed in NEEDED.values() for name in needed if find_spec(name))
    facts["versions"].update({name: version(name) for name in libraries})
    print(report.facts_text(facts), "", HEAD, sep="\n", flush=True)
    found: list[dict[str, Any]] = []
    before, start = busy(), time.time()
    with tempfile.TemporaryDirectory(prefix="benchmarks-weights-") as folder:
        os.environ.setdefault("BENCHMARK_WEIGHTS", folder)
        for row in rows:
            found.append((measure_starts if arguments.starts else measure_row)(row, arguments))
            print(line(found[-1]), flush=True)
            if arguments.write:
                store(facts, found[-1:], [each.name for each in every])
    machine, own = (now - then for now, then in zip(busy(), before, strict=True))
    facts["others"] = max(0.0, machine - own) / (time.time() - start) / (os.cpu_count() or 1)
    print("", table(found).rpartition("\n\n")[2], report.remark(facts), sep="\n")
