"""Measures what training steps gain from all of this machine's processors, beside torch.

    python -m benchmarks.threads                          with one thread, and with one per processor
    python -m benchmarks.threads --threads 1 4 16         with these numbers of threads
    python -m benchmarks.threads --seconds 20 --json FILE    in about so long; the figures also as JSON
    python -m benchmarks.threads --why                    also shows where the time goes, by kernel and by function

`benchmarks.cores` models the same for machines that are not at hand. Kernels that are not compiled yet take time first:
`make kernels` compiles them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.cores import AIMED, AIMS
from benchmarks.cores import MODELS as MODELLED
from benchmarks.measure import REST, spread
from benchmarks.processes import COLUMNS, Failure, Process, end_in_order

LIBRARIES = {"tensorgrad": COLUMNS["fast"], "torch": COLUMNS["raised"]}
MODELS = MODELLED | {"ResNet-18": "ResNet-18 32×32, batch 32, SGD"}
ROUNDS = 5  # turns of each process, at least
SHARE = 0.7  # of the time, for the measured steps; the rest is for warming up
WHY = 0.6  # seconds of a step with a number of threads, to find where its time goes
LISTED = 40  # kernels that are listed with --why
LEAST = 0.005  # of the step: kernels below it are not listed

Seconds = dict[str, dict[int, float]]  # the median of a step, by library and number of threads


def ready(processes: dict[tuple[str, int], Process], names: list[str]) -> None:
    """Builds all steps in all processes at once, and lets each wait for its kernels."""
    for name in names:
        for process in processes.values():
            process.send(do="each", row=f"training: {MODELS[name]}", seconds=0.0)
        for process in processes.values():
            process.receive()


def measured(row: str, processes: dict[tuple[str, int], Process], seconds: float) -> Seconds:
    """Measures a step in each process; they take turns. `seconds`: of measured steps, in all."""
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
    """Formats the speed-ups over the fewest threads, and the ratios to torch."""
    few, many = threads[0], threads[-1]
    lines = [
        f"| step | library | {few} | {' | '.join(f'{n}: faster by' for n in threads[1:])} | {many} |",
        f"|---|---|---:|{'---:|' * len(threads)}",
    ]
    for name, seconds in found.items():
        for library, times in seconds.items():
            speedups = [f"{times[few] / times[n]:.2f}" for n in threads[1:]]
            if library == "tensorgrad" and name in AIMS and many == AIMED:
                speedups[-1] += f" (aim: {AIMS[name]:g})"
            lines.append(
                f"| {name} | {library} | {1e3 * times[few]:.2f} ms | {' | '.join(speedups)} "
                f"| {1e3 * times[many]:.2f} ms |"
            )
        if "torch" in seconds:
            ratios = [f"{seconds['tensorgrad'][n] / seconds['torch'][n]:.2f}" for n in threads]
            lines.append(f"| {name} | tensorgrad/torch | {' | '.join(ratios)} | |")
    return "\n".join(lines)


def launches_table(few: dict, many: dict, threads: tuple[int, int]) -> str:
    """Formats the time by kernel with few and with many threads, and what is outside of kernels."""
    both: list[dict[tuple[str, str], list[list[float]]]] = []
    divided: dict[tuple[str, str], str] = {}
    for answer in (few, many):
        both.append({})
        for name, shapes, length, among, *seconds in answer["launches"]:
            both[-1].setdefault((name, shapes), []).append(seconds)
            divided[name, shapes] = f"{length} | {among}"
    step, lines = many["step"], []
    for key, calls in sorted(both[1].items(), key=lambda item: -sum(call[-1] for call in item[1])):
        alone, best, now = map(sum, zip(*calls, strict=True))
        if now >= LEAST * step and len(lines) < LISTED:
            before = sum(call[-1] for call in both[0].get(key, []))
            lines.append(
                f"| {key[0]} | {key[1]} | {divided[key]} | {len(calls)} | {1e6 * before:.0f} | {1e6 * alone:.0f} "
                f"| {1e6 * best:.0f} | {1e6 * now:.0f} | {before / now:.1f} | {now / step:.1%} |"
            )
    inside = [sum(launch[-1] for launch in answer["launches"]) for answer in (few, many)]
    outside = [answer["step"] - within for answer, within in zip((few, many), inside, strict=True)]
    for name, before, now in (("inside kernels", *inside), ("outside", *outside), ("step", few["step"], step)):
        lines.append(
            f"| {name} | | | | | {1e6 * before:.0f} | | | {1e6 * now:.0f} | {before / now:.1f} | {now / step:.1%} |"
        )
    awake, asleep = (1e6 * many["launching"][how] for how in ("awake", "asleep"))
    head = (
        f"| kernel | shapes | length | among | calls | µs, {threads[0]} | longest range alone | at best | "
        f"µs, {threads[1]} | faster by | of the step |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    )
    functions = [f"{1e6 * own:8.0f} µs {calls:7.1f} × {name}" for name, calls, own in many["functions"]]
    return "\n".join(
        [*head, *lines, "", f"an empty kernel: {awake:.1f} µs, after a pause {asleep:.0f} µs", "",
         f"functions by their own time in a profiled step, {threads[1]} threads:", *functions]
    )  # fmt: skip


def main() -> None:
    """Measures and prints the table."""
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--threads", type=int, nargs="+", default=[1, processors], help="numbers of threads")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the whole measurement, roughly (default: 30)")
    parser.add_argument("--only", choices=MODELS, action="append", help="this model (may be repeated)")
    parser.add_argument("--why", action="store_true", help="also print where the time goes, by kernel and by function")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    given, began = parser.parse_args(), time.monotonic()
    threads, names = sorted({*given.threads}), given.only or list(MODELS)
    processes = {(library, count): Process(column, count) for count in threads for library, column in LIBRARIES.items()}
    found: dict[str, Seconds] = {}
    try:
        for process in processes.values():
            process.send(do="facts")
        for key, process in list(processes.items()):
            try:
                process.receive()
            except Failure as failure:
                if key[0] == "tensorgrad":
                    raise
                print(f"without torch: {failure}")
                del processes[key]
        ready(processes, names)
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        for name in names:
            row = f"training: {MODELS[name]}"
            found[name] = measured(row, processes, given.seconds * SHARE / len(names))
            print(*table({name: found[name]}, threads).split("\n")[2:], sep="\n", flush=True)
            if given.why:
                ends = (threads[0], threads[-1])
                few, many = (processes["tensorgrad", n].ask(do="spent", row=row, seconds=WHY) for n in ends)
                print(f"\n{launches_table(few, many, ends)}\n", flush=True)
        print("", f"{report.processor()}, {processors} processors", "", table(found, threads), sep="\n", flush=True)
    finally:
        for process in processes.values():
            process.kill()
    if given.json:
        facts: dict[str, Any] = {"processor": report.processor(), "processors": processors}
        given.json.write_text(json.dumps(facts | {"seconds": found}, indent=1))


if __name__ == "__main__":
    main()
