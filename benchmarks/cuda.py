"""Measures how long typical programs take on an NVIDIA GPU, compared with torch on the same GPU.

python -m benchmarks.cuda                      prints the tables (30 minutes)
python -m benchmarks.cuda --write              also writes them to docs/benchmarks/cuda.md and results_cuda.json
python -m benchmarks.cuda --only softmax       rows whose theme or name contains one of these
python -m benchmarks.cuda --tf32               allows TensorFloat-32 for float32 products, in both libraries
python -m benchmarks.cuda --rehearse           runs every row once on small arrays, without timing
python -m benchmarks.cuda --list               lists the rows

The exit status is 1 if tensorgrad cannot use a GPU, 2 if torch cannot, and 3 if a rehearsed row is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.gpu_worker import allow_tf32
from benchmarks.measure import Pairs, difference, measured
from benchmarks.processes import Column, Failure, Process, end_in_order
from benchmarks.rows import CUDA_THEMES, Place, Row, all_rows, matching
from benchmarks.rows.bandwidth import COPY
from benchmarks.worker import fingerprint

SECONDS, QUICK = 0.6, 0.2  # the total time a library runs a row
RESULTS = Path(__file__).parent / "results_cuda.json"
PAIRS: Pairs = {"ours/torch": ("ours", "torch"), "ours/host": ("ours", "host")}
ON_HOST = ("modules", "bandwidth")  # the themes that torch also runs on the CPU; training would take hours
# The maximum sizes in a rehearsal, if the row has no small sizes: by name, and for all others.
TINY, OTHERS = {"batch": 4, "rows": 4, "length": 16}, 40
# The aims of each theme: the ratio ours/torch, and the fraction of the copy's bandwidth.
AIMS = {"modules": 1.0, "training_large": 1 / 0.95, "graphs": 0.5, "graphs_both": 1.0, "bandwidth": 1.0}
COPY_AIM = 0.85
HOST_AIM = 10.0  # how many times as fast as torch on the CPU, in the largest rows


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="PATTERN", nargs="+", help="rows whose theme or name contains one of these")
    parser.add_argument("--rounds", type=int, help="number of turns of each library (default: by time)")
    parser.add_argument("--quick", action="store_true", help="a third of the time")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of each library on the host")
    parser.add_argument("--no-host", action="store_true", help="skip torch on the CPU")
    parser.add_argument("--tf32", action="store_true", help="allow TensorFloat-32 in both libraries")
    parser.add_argument("--write", action="store_true", help="write the tables to their page and results_cuda.json")
    parser.add_argument("--rehearse", action="store_true", help="run every row once on small arrays, without timing")
    parser.add_argument("--device", help="device of the rehearsal (default: cuda, or cpu without a GPU)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    arguments = parser.parse_args()
    if arguments.write and (arguments.only or arguments.rehearse):
        parser.error("--write stores complete tables and cannot be combined with --only or --rehearse")
    return arguments


# --- rehearsal -------------------------------------------------------------------------------------------------------


def shrunk(sizes) -> dict[str, Any]:
    """Reduces sizes so that any device can run them quickly."""
    return {name: min(size, TINY.get(name, OTHERS)) if isinstance(size, int) else size for name, size in sizes.items()}


def rehearsed(row: Row, libraries: dict[Any, str]) -> str:
    """Runs a row once in each library on its device, on small arrays. Returns how the results differ, or ""."""
    results = []
    try:
        for library, device in libraries.items():
            Place.device = device
            if device != "cpu":
                allow_tf32(library, False)
            step, found = row.build(library, **(row.small or shrunk(row.sizes)))
            step()
            _, found = row.build(library, **(row.small or shrunk(row.sizes)))
            results.append([part for tensor in found() for part in fingerprint(tensor)])
    finally:
        Place.device = "cpu"
    ours, theirs = results[0], results[-1]
    if len(ours) != len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    texts = (difference(a, b, max(row.tolerance, 1e-3)) for a, b in zip(ours, theirs, strict=True))
    return next((f"result {i}: {text}" for i, text in enumerate(texts) if text), "")


def rehearse(rows: list[Row], device: str) -> int:
    """Runs the rows on a device and, if installed, in torch on the CPU. Returns how many were wrong."""
    import tensorgrad

    libraries: dict[Any, str] = {tensorgrad: device}
    if find_spec("torch") is not None:
        import torch

        libraries[torch] = "cpu"
    wrong = 0
    for row in rows:
        try:
            problem = rehearsed(row, libraries)
        except Exception as error:
            problem = f"{type(error).__name__}: {error!s:.300}"
        wrong += bool(problem)
        print(f"{row.theme}: {row.name}: {problem or 'runs'}", flush=True)
    return wrong


# --- measuring -------------------------------------------------------------------------------------------------------


def columns(arguments) -> dict[str, Column]:
    """Returns the columns: both libraries on the GPU, with the same precision, and torch on the CPU."""
    on_gpu = {"BENCHMARK_DEVICE": "cuda", "BENCHMARK_TF32": str(int(arguments.tf32))}
    found = {"ours": Column("tensorgrad", "tensorgrad", on_gpu), "torch": Column("torch", "torch", on_gpu)}
    if not arguments.no_host:
        found["host"] = Column("torch on the CPU", "torch", {"BENCHMARK_DEVICE": "cpu"})
    return found


def facts(running: dict[str, Process], arguments) -> dict[str, Any]:
    """Returns the facts about the machine and the measurement. Exits with a message if a library finds no GPU."""
    answers = {}
    for status, name in ((1, "ours"), (2, "torch"), (2, "host")):
        if name in running:
            try:
                answers[name] = running[name].ask(do="facts")
            except Failure as failure:
                print(f"nothing to measure: {failure}", file=sys.stderr)
                for process in running.values():
                    process.kill()
                sys.exit(status)
    found = report.facts(answers, argparse.Namespace(**{**vars(arguments), "clock": "wall"}))
    found["precision"] = "TensorFloat-32 allowed" if arguments.tf32 else "TensorFloat-32 not allowed"
    return found


def with_bandwidth(found: list[dict], rows: list[Row]) -> list[dict]:
    """Adds the bandwidth, and its fraction of a copy's, to the figures of rows that define how many bytes they move."""
    for figures, row in zip(found, rows, strict=True):
        if row.moved is not None:
            moved = row.moved(**row.sizes)
            figures["bandwidth"] = {name: moved / seconds for name, seconds in figures.get("seconds", {}).items()}
    copies = [figures for figures in found if figures["name"] == COPY]
    best = max((figures["bandwidth"].get(name, 0.0) for figures in copies for name in ("ours", "torch")), default=0.0)
    for figures in found:
        if best and "ours" in figures.get("bandwidth", {}):
            figures["of copy"] = figures["bandwidth"]["ours"] / best
    return found


def measure_rows(arguments, rows: list[Row], running: dict[str, Process]) -> list[dict]:
    """Measures the rows, and prints each result as it arrives."""
    found = []
    for row in rows:
        taking_part = {name: each for name, each in running.items() if name != "host" or row.theme in ON_HOST}
        found.append(measured(row, taking_part, arguments.rounds, QUICK if arguments.quick else SECONDS, PAIRS))
        print(line(found[-1]), flush=True)
    return with_bandwidth(found, rows)


# --- tables ----------------------------------------------------------------------------------------------------------

HEAD = "| row | tensorgrad | torch | ours/torch | torch on the CPU | times as fast |"
BANDWIDTH_HEAD = HEAD + " GB/s | torch GB/s | of copy |"


def line(figures: dict[str, Any]) -> str:
    """Formats a row of a table."""
    seconds, ratios = figures.get("seconds", {}), figures.get("ratios", {})
    ratio, host = ratios.get("ours/torch"), ratios.get("ours/host")
    text = "–" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
    if ratio is not None and not report.met(ratio, AIMS[figures["theme"]]):
        text = f"**{text}**"
    cells = [report.duration(seconds.get("ours")), report.duration(seconds.get("torch")), text]
    cells += [report.duration(seconds.get("host")), "–" if host is None else f"{1 / host['median']:.0f}"]
    if figures["theme"] == "bandwidth":
        moved, part = figures.get("bandwidth", {}), figures.get("of copy")
        cells += [f"{moved[name] / 1e9:.0f}" if name in moved else "–" for name in ("ours", "torch")]
        cells.append("–" if part is None else f"{part:.0%}" if part >= COPY_AIM else f"**{part:.0%}**")
    wrong = "; ".join(f"**{name}: {text}**" for name, text in figures["wrong"].items())
    return f"| {figures['name']}{' ' if wrong else ''}{wrong} | {' | '.join(cells)} |"


def tables(found: list[dict[str, Any]]) -> str:
    """Formats a table for each theme."""
    parts = []
    for theme, title in CUDA_THEMES.items():
        lines = [line(figures) for figures in found if figures["theme"] == theme]
        if lines:
            head = BANDWIDTH_HEAD if theme == "bandwidth" else HEAD
            rule = "|---|" + "---:|" * (head.count("|") - 2)
            parts.append("\n".join([f"## {title}, on a GPU\n", head, rule, *lines]))
    return "\n\n".join(parts)


def means(found: list[dict[str, Any]]) -> str:
    """Formats the geometric mean of each theme, and the number of rows that miss their aim."""
    lines = []
    for theme, limit in AIMS.items():
        ratios = [each["ratios"]["ours/torch"] for each in found if each["theme"] == theme and "ours/torch" in
                  each.get("ratios", {})]  # fmt: skip
        if ratios:
            mean = report.geometric_mean([ratio["median"] for ratio in ratios])
            over = sum(not report.met(ratio, limit) for ratio in ratios)
            lines.append(
                f"- {CUDA_THEMES[theme]}: ours/torch {mean:.2f} (geometric mean of {len(ratios)} rows; aim: at most "
                f"{limit:.2f}); {over} rows miss it"
            )
    parts = [each["of copy"] for each in found if "of copy" in each and each["name"] != COPY]
    if parts:
        below = sum(part < COPY_AIM for part in parts)
        lines.append(f"- of the copy's bandwidth (aim: {COPY_AIM:.0%}): {below} of {len(parts)} rows miss it")
    hosts = [1 / each["ratios"]["ours/host"]["median"] for each in found if each["theme"] == "bandwidth" and
             "ours/host" in each.get("ratios", {})]  # fmt: skip
    if hosts:
        slow = sum(times < HOST_AIM for times in hosts)
        lines.append(f"- times as fast as torch on the CPU (aim: {HOST_AIM:.0f}): {slow} of {len(hosts)} rows miss it")
    wrong = [f"{each['theme']}: {each['name']}" for each in found if each["wrong"]]
    if wrong:
        lines.append(f"- computed something else, or not at all: {', '.join(wrong)}")
    return "\n".join(lines)


def write(about: dict[str, Any], found: list[dict[str, Any]]) -> None:
    """Stores the tables in docs/benchmarks/cuda.md and the figures in results_cuda.json."""
    lead = f"{report.facts_text(about)}; {about['precision']}"
    report.store("cuda", "\n\n".join([lead, means(found), tables(found)]), "## CUDA: `python -m benchmarks.cuda`")
    RESULTS.write_text(json.dumps({"facts": about, "rows": found}, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Measures and prints the tables, and stores them with --write."""
    end_in_order()
    arguments = options()
    rows = matching(all_rows(CUDA_THEMES), arguments.only or ["*"])
    if arguments.list or not rows:
        print("\n".join(f"{row.theme}: {row.name}" for row in rows) or "no row has that name")
        sys.exit(0 if rows else 1)
    if arguments.rehearse:
        import tensorgrad

        device = arguments.device or ("cuda" if tensorgrad.cuda.is_available() else "cpu")
        sys.exit(3 if rehearse(rows, device) else 0)
    made = columns(arguments)
    running = {
        name: Process(column, arguments.threads, module="benchmarks.gpu_worker") for name, column in made.items()
    }
    try:
        about = facts(running, arguments)
        print(f"{report.facts_text(about)}; {about['precision']}\n\n{HEAD}", flush=True)
        found = measure_rows(arguments, rows, running)
    finally:
        for process in running.values():
            process.kill()
    print("", tables(found), "", means(found), sep="\n")
    if arguments.write:
        write(about, found)


if __name__ == "__main__":
    main()
