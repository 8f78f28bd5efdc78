"""Measures DistributedDataParallel with more processes than a small machine has cores, beside torch and the simulator.

    python -m benchmarks.many_cores                      with 2, 4 and 8 processes, in about a minute
    python -m benchmarks.many_cores --ranks 2 --quick    fewer processes, fewer rounds

Each process has one thread. One process trains with the whole batch, several share it: "faster by" is the time of the
one divided by that of several. tensorgrad's kernels are compiled first; only then something is measured, and the two
libraries take turns. The simulator is told what two processes measure: the work of one rank's share, and how fast two
ranks add up gradients.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from benchmarks import scaling
from benchmarks.distributed import Group
from benchmarks.report import duration, processor

BATCH = {"ConvNet": 64, "GPT": 16}  # of all ranks together: can be divided among 8
LIBRARIES = ("tensorgrad", "torch")


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="numbers of processes (default: 2 4 8)")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each library")
    parser.add_argument("--seconds", type=float, default=50, help="no round begins after so long (default: 50)")
    parser.add_argument("--quick", action="store_true", help="one round")
    return parser.parse_args()


def step(group: Group, model: str, how: str, count: int = 8) -> float:
    """The seconds of a training step: the median over some steps of the slowest rank."""
    answers = group.ask(do="step", model=model, how=how, count=count, batch=BATCH[model])
    return statistics.median([max(each) for each in zip(*(answer["times"] for answer in answers))])


def answers(groups: Iterable[Group]) -> bool:
    """Whether all processes of these groups run; else says why not."""
    try:
        for group in groups:
            group.ask(do="parameters", model="GPT")
    except SystemExit as failure:
        print(f"without torch: {failure}", flush=True)
        return False
    return True


def predictions(pair: Group, ranks: list[int]) -> dict[tuple[str, int], float]:
    """The simulator's seconds of a step, for each model and number of processes.

    Args:
        pair: two processes, which measure what the simulator is told.
        ranks: the numbers of processes.
    """
    times = []
    for elements in (1, 1 << 20):
        answers = pair.ask(do="sums", elements=elements, count=20)
        times.append((4 * elements, min(statistics.median(answer["times"]) for answer in answers)))
    here = scaling.fitted(times, "this machine", os.cpu_count() or 1)
    print(f"two ranks: latency {duration(here.latency)}, {here.bandwidth / 1e9:.1f} GB/s", flush=True)
    found = {}
    for model in BATCH:
        for size in ranks:
            work = scaling.Compute(**pair.ask(do="backward", model=model, ranks=size, batch=BATCH[model])[0])
            found[model, size], _ = scaling.step(work, size, here)
    return found


def main() -> None:
    """Measures, and prints the table."""
    given = options()
    ranks, rounds = sorted({2, *given.ranks}), 1 if given.quick else given.rounds
    began = time.monotonic()
    print(f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    groups = {(library, size): Group(library, size) for library in LIBRARIES for size in (1, *ranks)}
    compiling = [Group("tensorgrad", 1) for _ in BATCH]  # each compiles another model's kernels
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda group, model: step(group, model, "alone", 1), compiling, BATCH))
    for group in compiling:
        group.end()
    print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    if not answers(groups["torch", size] for size in (1, *ranks)):
        groups = {key: group for key, group in groups.items() if key[0] != "torch"}
    predicted = predictions(groups["tensorgrad", 2], ranks)
    times: dict[tuple, list[float]] = {}
    for number in range(rounds):
        if number and time.monotonic() - began > given.seconds:
            print(f"{number} rounds in {given.seconds:.0f} s", flush=True)
            break
        for (library, size), group in groups.items():
            for model in BATCH:
                for how in ("alone",) if size == 1 else ("ddp", "local") if library == "tensorgrad" else ("ddp",):
                    times.setdefault((library, size, model, how), []).append(step(group, model, how))
    for group in groups.values():
        group.end()
    middle = {key: statistics.median(values) for key, values in times.items()}
    print("\n| step | processes | tensorgrad | rounds | faster by | without communication | predicted | predicted / "
          "measured | torch | faster by |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for model in BATCH:
        alone, theirs = middle["tensorgrad", 1, model, "alone"], middle.get(("torch", 1, model, "alone"), math.nan)
        print(f"| {model} | 1 | {duration(alone)} | | | | | | {duration(theirs)} | |")
        for size in ranks:
            mine, peer = middle["tensorgrad", size, model, "ddp"], middle.get(("torch", size, model, "ddp"), math.nan)
            all_times, expected = times["tensorgrad", size, model, "ddp"], predicted[model, size]
            print(
                f"| {model} | {size} | {duration(mine)} | {duration(min(all_times))}–{duration(max(all_times))} | "
                f"{alone / mine:.2f} | {alone / middle['tensorgrad', size, model, 'local']:.2f} | "
                f"{duration(expected)} | {expected / mine:.2f} | {duration(peer)} | {theirs / peer:.2f} |"
            )
    print(f"\n{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
