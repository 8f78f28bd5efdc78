"""Measures DistributedDataParallel with more processes than a small machine has cores, beside torch and the simulator.

    python -m benchmarks.many_cores                      with 2, 4, 8 and 16 processes, in about a minute
    python -m benchmarks.many_cores --ranks 2 --libraries tensorgrad    fewer processes, without torch

Each process has one thread. One process trains with the whole batch, several share it: "faster by" is the time of the
one divided by that of several, and "at best" the same if nobody communicated. tensorgrad's kernels are compiled first;
only then something is measured, and the two libraries take turns.

The simulator is told what two processes measure: how fast they add up gradients, and what DistributedDataParallel does
besides; and the work of one rank's share. That is measured twice: "from two" while one other process computes, and
"predicted" while as many compute as take part, since they share the machine's memory and its clock.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from benchmarks import scaling
from benchmarks.distributed import Group, asleep, slowest
from benchmarks.processes import end_in_order
from benchmarks.report import duration, processor

BATCH = {"ConvNet": 64, "GPT": 16, "GPT, 5 M": 16}  # of all ranks together: can be divided among 16
COUNT = {"ConvNet": 12, "GPT": 8, "GPT, 5 M": 3}  # steps in a turn
LIBRARIES = ("tensorgrad", "torch")
SIZES = {4: 40, 4096: 40, 65536: 40, 1 << 20: 20, 1 << 24: 5}  # bytes of an all-reduce, and how many in a turn


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16], help="numbers of processes")
    parser.add_argument("--rounds", type=int, default=6, help="turns of each library")
    parser.add_argument("--seconds", type=float, default=50, help="nothing is begun after so long (default: 50)")
    parser.add_argument("--models", choices=BATCH, nargs="+", default=list(BATCH), help="to train")
    parser.add_argument("--libraries", choices=LIBRARIES, nargs="+", default=LIBRARIES, help="to measure")
    return parser.parse_args()


def shown(seconds: float) -> str:
    """A time as text, if it was measured."""
    return duration(None if math.isnan(seconds) else seconds)


def ratio(above: float, below: float) -> str:
    """A quotient as text, if both were measured."""
    return "–" if math.isnan(above / below) else f"{above / below:.2f}"


def step(group: Group, model: str, how: str, count: int = 0) -> float:
    """The seconds of a training step: the median over some steps of the slowest rank."""
    answers = group.ask(do="step", model=model, how=how, count=count or COUNT[model], batch=BATCH[model])
    return statistics.median([max(each) for each in zip(*(answer["times"] for answer in answers))])


def ways(library: str, size: int) -> tuple[str, ...]:
    """How a group trains: see `benchmarks.rank.Rank.step`."""
    return ("alone",) if size == 1 else ("ddp", "local") if library == "tensorgrad" else ("ddp",)


def running(groups: dict[tuple[str, int], Group]) -> dict[tuple[str, int], Group]:
    """These groups; without torch's, if one of them does not run, and then says why."""
    try:
        for group in groups.values():
            group.ask(do="parameters", model="ConvNet")
    except SystemExit as failure:
        print(f"without torch: {failure}", flush=True)
        return {key: group for key, group in groups.items() if key[0] != "torch"}
    return groups


def table_of_all_reduce(groups: dict[tuple[str, int], Group], ranks: Iterable[int]) -> None:
    """Prints how long all-reduces take."""
    print("\n| bytes | processes | tensorgrad (MPI) | torch (Gloo) | ratio |\n|---:|---:|---:|---:|---:|")
    for size in ranks:
        for nbytes, count in SIZES.items():
            times: dict[str, list[float]] = {library: [] for library in LIBRARIES}
            for library in LIBRARIES * 2:
                if group := groups.get((library, size)):
                    times[library] += group.ask(do="all_reduce", elements=nbytes // 4, count=count)[0]["times"]
            mine, peer = (statistics.median(times[library] or [math.nan]) for library in LIBRARIES)
            print(f"| {nbytes:,} | {size} | {shown(mine)} | {shown(peer)} | {ratio(mine, peer)} |", flush=True)


def machine(pair: Group) -> scaling.Machine:
    """This machine, as the simulator sees it: how fast two ranks add up gradients."""
    times = []
    for elements in (1, 1 << 20):
        answers = pair.ask(do="sums", elements=elements, count=20)
        times.append((4 * elements, min(statistics.median(answer["times"]) for answer in answers)))
    here = scaling.fitted(times, "this machine", os.cpu_count() or 1)
    print(f"\ntwo ranks: latency {duration(here.latency)}, {here.bandwidth / 1e9:.1f} GB/s", flush=True)
    return here


def own_work(model: str, work: scaling.Compute, alone: Group, pair: Group, here: scaling.Machine) -> float:
    """Seconds of DistributedDataParallel's own work in a step, from steps of two ranks that sleep."""
    if model == "GPT, 5 M":
        return 0.0  # too little beside its step to be worth the time
    slept = alone.ask(do="slept", count=20, **asleep(work))[0]
    together = slowest(pair, do="slept", **asleep(work))
    return max(0.0, together - scaling.slept(work, statistics.median(slept["times"]), slept["busy"], 2, here))


def predictions(
    groups: dict[tuple[str, int], Group], size: int, model: str, own: float, here: scaling.Machine
) -> tuple[scaling.Compute, float, float]:
    """What one of two ranks does, and the simulator's seconds of a step: from that, and from as many as take part."""
    found = []
    for group in (groups["tensorgrad", 2], groups["tensorgrad", size]):
        answers = group.ask(do="backward", model=model, ranks=size, batch=BATCH[model], count=COUNT[model])
        found.append(max(answers, key=lambda answer: answer["forward"] + answer["backward"] + answer["update"]))
    two, many = (scaling.Compute(**answer, own=own) for answer in found)
    return two, scaling.step(two, size, here)[0], scaling.step(many, size, here)[0]


def main() -> None:
    """Measures, and prints the tables."""
    end_in_order()
    given = options()
    ranks, models = sorted({2, *given.ranks}), given.models
    began = time.monotonic()

    def passed(what: str) -> None:
        print(f"{what} after {time.monotonic() - began:.0f} s", flush=True)

    print(f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    groups = {(library, size): Group(library, size) for library in given.libraries for size in (1, *ranks)}
    with ThreadPoolExecutor(64) as threads:
        groups = running(groups)
        table_of_all_reduce(groups, ranks)

        def prepare(key: tuple[str, int]) -> None:
            for model in models:
                for how in ways(*key):
                    step(groups[key], model, how, 1)

        list(threads.map(prepare, groups))
    passed("prepared")
    times: dict[tuple, list[float]] = {}
    predicted: dict[tuple[str, int], tuple[float, float]] = {}
    here = machine(groups["tensorgrad", 2])

    def left() -> bool:
        return time.monotonic() - began < given.seconds

    def take_turns(model: str) -> None:
        for key, group in groups.items():
            for how in ways(*key):
                if left():
                    times.setdefault((*key, model, how), []).append(step(group, model, how))

    for model in models:
        take_turns(model)
        own = 0.0
        for size in ranks:
            if left():
                work, *seconds = predictions(groups, size, model, own, here)
                if size == 2:
                    own = own_work(model, work, groups["tensorgrad", 1], groups["tensorgrad", 2], here)
                    seconds = [second + own for second in seconds]
                predicted[model, size] = seconds[0], seconds[1]
        passed(f"{model}: measured and predicted")
    rounds = 1
    while rounds < given.rounds and left():
        for model in models:
            take_turns(model)
        rounds += 1
    passed(f"{rounds} rounds")
    middle: dict[tuple, float] = defaultdict(lambda: math.nan)
    middle.update((key, statistics.median(values)) for key, values in times.items())
    print("\n| step | processes | tensorgrad | rounds | faster by | at best | predicted | predicted / measured | "
          "from two | torch | faster by |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for model in models:
        alone, theirs = (middle[library, 1, model, "alone"] for library in LIBRARIES)
        print(f"| {model} | 1 | {shown(alone)} | | | | | | | {shown(theirs)} | |")
        for size in ranks:
            mine, peer = (middle[library, size, model, "ddp"] for library in LIBRARIES)
            each, best = (
                times.get(("tensorgrad", size, model, "ddp"), [math.nan]),
                middle["tensorgrad", size, model, "local"],
            )
            pair, many = predicted.get((model, size), (math.nan, math.nan))
            print(
                f"| {model} | {size} | {shown(mine)} | {shown(min(each))}–{shown(max(each))} | {ratio(alone, mine)} | "
                f"{ratio(alone, best)} | {shown(many)} | {ratio(many, mine)} | {ratio(pair, mine)} | {shown(peer)} | "
                f"{ratio(theirs, peer)} |"
            )
    for group in groups.values():
        group.end()
    passed("\nended")


if __name__ == "__main__":
    main()
