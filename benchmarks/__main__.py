"""Measures how long typical programs take, compared with torch.

python -m benchmarks                      everything (15 minutes); prints the tables
python -m benchmarks --write              also writes them to docs/benchmarks/tables.md and benchmarks/results.json
python -m benchmarks --only conv2d gelu   rows whose theme or name contains one of these (x for ×, > for →)
python -m benchmarks --quick              fewer and shorter rounds
python -m benchmarks --list               lists the rows
python -m benchmarks --ecosystem          models of transformers, timm, torchvision and peft instead
python -m benchmarks --ecosystem --starts    of these only the cold starts; the rest stays as it was measured before
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.util import find_spec

from benchmarks import ecosystem, fresh, peers, report
from benchmarks.measure import measured
from benchmarks.processes import COLUMNS, Failure, Process, busy, end_in_order
from benchmarks.rows import Row, all_rows, matching, plain
from benchmarks.worker import without_kernels

SECONDS, QUICK = 0.6, 0.2  # the total time a library runs a row


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="PATTERN", nargs="+", help="rows whose theme or name contains one of these")
    parser.add_argument("--columns", metavar="NAMES", help=f"some of {','.join(COLUMNS)} (default: all)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of each library (default: all cores)"
    )
    parser.add_argument("--rounds", type=int, help="number of turns of each library (default: by time)")
    parser.add_argument("--quick", action="store_true", help="a third of the time")
    parser.add_argument(
        "--clock", choices=("wall", "cpu", "thread"), default="wall",
        help="cpu, thread: the processor time of the process or its main thread, for use on a busy machine",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help="write the tables to their pages and results.json")
    parser.add_argument(
        "--peers", action="store_true", help="also run a few rows in JAX, tinygrad, autograd and MyGrad"
    )
    parser.add_argument("--ecosystem", action="store_true", help="measure models of libraries built on PyTorch instead")
    parser.add_argument("--starts", action="store_true", help="with --ecosystem: only the cold starts")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    arguments = parser.parse_args()
    if arguments.write and not arguments.ecosystem and (arguments.only or arguments.columns):
        parser.error("--write stores complete tables and cannot be combined with --only or --columns")
    return arguments


def processes(arguments) -> dict[str, Process]:
    """Starts a process for each column that can run here, and prints a line for each one that cannot."""
    names = arguments.columns.split(",") if arguments.columns else list(COLUMNS)
    for name in names:
        if name not in COLUMNS:
            sys.exit(f"unknown column {name}: expected one of {', '.join(COLUMNS)}")
    missing = {"torch": "torch", "raised": "torch"}
    found = {}
    for name in names:
        if find_spec(missing.get(name, "numpy")) is None:
            print(f"{COLUMNS[name].title}: skipped, {missing[name]} is not installed")
        elif name == "fast" and without_kernels():
            print(f"{COLUMNS[name].title}: skipped, {without_kernels()}")
        else:
            found[name] = Process(COLUMNS[name], arguments.threads, arguments.clock)
    return found


def measure_rows(arguments, rows: list[Row], running: dict[str, Process]) -> list[dict]:
    """Measures the rows, and prints each result as it arrives."""
    found = []
    if rows:
        print(report.HEAD)
    for row in rows:
        found.append(measured(row, running, arguments.rounds, QUICK if arguments.quick else SECONDS))
        best = found[-1]["ratios"].get("fast/torch", {}).get("best")
        print(report.line(found[-1]) + (f" best {best:.2f}" if best else ""), flush=True)
    for process in running.values():
        process.close()
    return found


def measure_parts(arguments, parts: list[str], columns: list[str]) -> dict:
    """Measures the parts that need fresh processes, and prints each table."""
    found = {}
    for part in parts:
        try:
            found[part] = fresh.PARTS[part](columns, arguments.threads, arguments.quick)
            print(f"\n{part}\n\n{report.PARTS[part][1](found[part])}", flush=True)
        except Failure as failure:
            print(f"\n{part}: {failure}")
    return found


def measure_peers(arguments) -> list[dict]:
    """Measures the rows that other libraries can express."""
    columns = {name: COLUMNS[name] for name in processes(arguments) if name in ("fast", "torch")}
    installed = peers.columns(arguments.threads)
    for name in peers.BUILDS:
        if name not in installed:
            print(f"{name}: skipped, it is not installed")
    columns.update(installed)
    running = {name: Process(column, arguments.threads, arguments.clock) for name, column in columns.items()}
    found = []
    try:
        for row in all_rows():
            if f"{row.theme}: {row.name}" in peers.ROWS:
                seconds = QUICK if arguments.quick else SECONDS
                found.append(measured(row, running, arguments.rounds, seconds))
                found[-1]["titles"] = {name: column.title for name, column in columns.items()}
    finally:
        for process in running.values():
            process.kill()
    print(f"\nother libraries\n\n{report.peers_table(found)}", flush=True)
    return found


def main() -> None:
    """Measures and prints the tables, and stores them with --write."""
    end_in_order()
    arguments = options()
    if arguments.ecosystem:
        ecosystem.main(arguments)
        return
    wanted = arguments.only or ["*"]
    rows = matching(all_rows(), wanted)
    parts = [
        part for part in fresh.PARTS if any(plain(pattern) in part.lower() or pattern == "*" for pattern in wanted)
    ]
    if arguments.list or not (rows or parts):
        print("\n".join([*(f"{row.theme}: {row.name}" for row in rows), *parts]) or "no row has that name")
        sys.exit(0 if rows or parts else 1)
    running = processes(arguments)
    start, before = time.time(), busy()
    try:
        facts = report.facts({name: process.ask(do="facts") for name, process in running.items()}, arguments)
        print(report.facts_text(facts), "", sep="\n", flush=True)
        found = measure_rows(arguments, rows, running)
    except Failure as failure:
        sys.exit(f"a worker failed: {failure}")
    finally:
        for process in running.values():
            process.kill()
    figures = measure_parts(arguments, parts, list(running))
    if arguments.peers:
        figures["other libraries"] = measure_peers(arguments)
    machine, own = (now - then for now, then in zip(busy(), before, strict=True))
    facts["others"] = max(0.0, machine - own) / (time.time() - start) / (os.cpu_count() or 1)
    print("", report.means(found), report.remark(facts), sep="\n")
    if arguments.write:
        report.write(facts, found, figures)


if __name__ == "__main__":
    main()
