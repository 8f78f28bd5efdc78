"""Measures what training steps gain from all of this machine's processors, beside torch.

    python -m benchmarks.threads                          with one thread, and with one per processor
    python -m benchmarks.threads --threads 1 4 16         with these numbers of threads
    python -m benchmarks.threads --seconds 20 --json FILE    in about so long; the figures also as JSON

`benchmarks.cores` models the same for machines that are not at hand. Kernels that are not compiled yet take time first:
`python -m tensorgrad.warmup` compiles them with all processors.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.cores import AIMS, MODELS
from benchmarks.measure import REST, spread
from benchmarks.processes import COLUMNS, Failure, Process

LIBRARIES = {"tensorgrad": COLUMNS["fast"], "torch": COLUMNS["raised"]}
ROUNDS = 5  # turns of each process, at least
SHARE = 0.7  # of the time, for the measured steps; the rest is for building and warming up

Seconds = dict[str, dict[int, float]]  # the median of a step, by library and number of threads


def measured(row: str, processes: dict[tuple[str, int], Process], seconds: float) -> Seconds:
    """Measures a step in each process; they take turns. `seconds`: of measured steps, in all."""
    for process in processes.values():
        process.ask(do="each", row=row, seconds=0.0)
    for process in processes.values():
        process.ask(do="each", row=row, seconds=seconds / len(processes) / 4)
    times: dict[tuple[str, int], list[float]] = {key: [] for key in processes}
    for _ in range(ROUNDS):
        for key, process in processes.items():
            time.sleep(REST)
            turn = process.ask(do="each", row=row, seconds=seconds / len(processes) / ROUNDS)["times"]
            times[key] += turn[1:] or turn  # the first step of a turn finds other data in the caches
    found: Seconds = {}
    for (library, threads), steps in times.items():
        found.setdefault(library, {})[threads] = spread(steps)[0]
    return found


def table(found: dict[str, Seconds], threads: list[int]) -> str:
    """Formats the step times, the speed-ups over the fewest threads, and the ratios to torch."""
    few, many = threads[0], threads[-1]
    lines = [
        f"| step | tensorgrad, {few} | tensorgrad, {many} | torch, {few} | torch, {many} | speed-up | torch's "
        f"| tensorgrad/torch, {few} | {many} |",
        f"|---|{'---:|' * 8}",
    ]
    for name, seconds in found.items():
        ours, theirs = seconds["tensorgrad"], seconds.get("torch", {})
        cells = [f"{1e3 * one:.2f} ms" for one in (ours[few], ours[many])]
        cells += [f"{1e3 * theirs[n]:.2f} ms" if theirs else "–" for n in (few, many)]
        aim = f" (aim: {AIMS[name]:g})" if name in AIMS else ""
        cells += [f"{ours[few] / ours[many]:.1f}{aim}", f"{theirs[few] / theirs[many]:.1f}" if theirs else "–"]
        cells += [f"{ours[n] / theirs[n]:.2f}" if theirs else "–" for n in (few, many)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--threads", type=int, nargs="+", default=[1, processors], help="numbers of threads")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the whole measurement, roughly (default: 30)")
    parser.add_argument("--only", choices=MODELS, action="append", help="this model (may be repeated)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    given = parser.parse_args()
    threads, names = sorted({*given.threads}), given.only or list(MODELS)
    processes = {(library, count): Process(column, count) for count in threads for library, column in LIBRARIES.items()}
    found: dict[str, Seconds] = {}
    try:
        for key, process in list(processes.items()):
            try:
                process.ask(do="facts")
            except Failure as failure:
                if key[0] == "tensorgrad":
                    raise
                print(f"without torch: {failure}")
                del processes[key]
        for name in names:
            found[name] = measured(f"training: {MODELS[name]}", processes, given.seconds * SHARE / len(names))
            print(table({name: found[name]}, threads).rpartition("\n")[2], flush=True)
    finally:
        for process in processes.values():
            process.kill()
    print("", f"{report.processor()}, {processors} processors", "", table(found, threads), sep="\n")
    if given.json:
        facts: dict[str, Any] = {"processor": report.processor(), "processors": processors}
        given.json.write_text(json.dumps(facts | {"seconds": found}, indent=1))


if __name__ == "__main__":
    main()
