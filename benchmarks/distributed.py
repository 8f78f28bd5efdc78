"""Measures several processes: all-reduce, training with DistributedDataParallel, memory; and predicts more processes.

    python -m benchmarks.distributed                    prints the tables, in about ten minutes
    python -m benchmarks.distributed --write            also writes them to docs/benchmarks/distributed.md
    python -m benchmarks.distributed --only all-reduce  one part: all-reduce, training, memory, scaling
    python -m benchmarks.distributed --only training --models GPT

Each process has one thread. tensorgrad (MPI) and torch (Gloo) take turns; the processes of the other library wait for
input meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import scaling
from benchmarks.processes import COLUMNS, ROOT, end_in_order, environment
from benchmarks.rank import BATCH
from benchmarks.report import duration

SIZES = [4**k * 4 for k in range(13)]  # bytes: 4 B to 64 MB
MODELS = ("MLP", "wide MLP", "ConvNet", "GPT")  # small: what communication costs is seen best
LARGE = ("ResNet-18", "GPT, 5 M")  # of a size for which programs use several processes
LIBRARIES = ("tensorgrad", "torch")
PARTS = ("all-reduce", "training", "memory", "scaling")
NETWORKS = [
    scaling.Network("100 Gbit/s, 5 µs", 5e-6, 12.5e9),
    scaling.Network("10 Gbit/s, 30 µs", 30e-6, 1.25e9),
    scaling.Network("1 Gbit/s, 50 µs", 50e-6, 0.125e9),
]


class Group:
    """Several processes of one library that form a process group."""

    def __init__(self, library: str, size: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.rank", library],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=ROOT,
                env=environment(
                    COLUMNS["fast" if library == "tensorgrad" else "torch"], 1, RANK=str(rank), WORLD_SIZE=str(size),
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                ),
            )
            for rank in range(size)
        ]  # fmt: skip

    def ask(self, **command: Any) -> list[dict]:
        """Sends a command to all ranks and returns their answers."""
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # reported below
                process.stdin.write(json.dumps(command) + "\n")
                process.stdin.flush()
        answers = []
        for rank, process in enumerate(self.processes):
            assert process.stdout is not None
            line = process.stdout.readline()
            answer = json.loads(line) if line else {"error": "the process ended"}
            if "error" in answer:
                self.log.seek(0)
                sys.exit(f"rank {rank}: {answer['error']}\n{self.log.read()[-2000:]}")
            answers.append(answer)
        return answers

    def end(self) -> None:
        """Closes the processes' input, at which they end."""
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def spread(times: list[float]) -> str:
    """The quartiles, as text."""
    low, _, high = statistics.quantiles(times, n=4)
    return f"{duration(low)}–{duration(high)}"


def table_of_all_reduce(ours: Group, torchs: Group, rounds: int) -> list[str]:
    """The lines of the table of all-reduces."""
    lines = [
        "| bytes | tensorgrad (MPI) | quartiles | torch (Gloo) | quartiles | ratio |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for size in SIZES:
        count = max(5, min(200, (16 << 20) // size))
        times: dict[str, list[float]] = {"ours": [], "torchs": []}
        for _ in range(rounds):
            for name, group in (("ours", ours), ("torchs", torchs)):
                times[name] += group.ask(do="all_reduce", elements=size // 4, count=count)[0]["times"]
        middle = {name: statistics.median(values) for name, values in times.items()}
        cells = [cell for name in times for cell in (duration(middle[name]), spread(times[name]))]
        lines.append(f"| {size:,} | {' | '.join(cells)} | {middle['ours'] / middle['torchs']:.2f} |")
        print(lines[-1], flush=True)
    return lines


def table_of_training(
    groups: dict[str, Group], alone: dict[str, Group], models: Sequence[str], rounds: int
) -> list[str]:
    """The lines of the table of training steps: one process with the whole batch, two with half of it each.

    "Not connected" is what "faster by" would be if the two processes had nothing to do with each other: what a smaller
    batch, and a machine whose memory two share, allow. "At best" is what it would be if averaging the gradients took
    the time that adding up as many numbers takes by itself, and nothing else. On one machine with as many ranks as
    cores it cannot be hidden: the cores themselves move the data. "Exposed" is the part of a step with communication
    that one without does not have. "With as much each" compares samples in a second when each of the two has the batch
    that one process had.
    """
    lines = [
        "| step | library | one process | two, DDP | quartiles | faster by | not connected | at best | "
        "two, not connected | exposed | adding up | with as much each |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for model in models:
        count = 3 if model in LARGE else 20
        commands: dict[str, dict[str, Any]] = {
            "alone": {"how": "alone"},
            "ddp": {"how": "ddp"},
            "local": {"how": "local"},
            "twice": {"how": "ddp", "batch": 2 * BATCH[model]},
        }
        for library, group in groups.items():
            [elements, *_] = (answer["elements"] for answer in group.ask(do="parameters", model=model))
            times: dict[str, list[float]] = {how: [] for how in (*commands, "reduce")}
            for _ in range(rounds):
                for how, values in times.items():
                    command = {"do": "sums", "elements": elements}
                    if how != "reduce":
                        command = {"do": "step", "model": model, **commands[how]}
                    answers = (alone[library] if how == "alone" else group).ask(**command, count=count)
                    values += [max(each) for each in zip(*(answer["times"] for answer in answers))]
            middle = {how: statistics.median(values) for how, values in times.items()}
            least = middle["local"] + middle["reduce"]
            lines.append(
                f"| {model} | {library} | {duration(middle['alone'])} | {duration(middle['ddp'])} | "
                f"{spread(times['ddp'])} | {middle['alone'] / middle['ddp']:.2f} | "
                f"{middle['alone'] / middle['local']:.2f} | {middle['alone'] / least:.2f} | "
                f"{duration(middle['local'])} | {1 - middle['local'] / middle['ddp']:.0%} | "
                f"{duration(middle['reduce'])} | {2 * middle['alone'] / middle['twice']:.2f} |"
            )
            print(lines[-1], flush=True)
    return lines


def table_of_memory(sizes: tuple[int, ...] = (2, 4), width: int = 512) -> list[str]:
    """The lines of the table of memory per rank."""
    lines = ["| ranks | how | held | in units of the parameters | highest |", "|---:|---|---:|---:|---:|"]
    for size in sizes:
        for how in ("ddp", "zero", "fsdp"):
            group = Group("tensorgrad", size)
            answers = group.ask(do="memory", how=how, width=width)
            group.end()
            held, peak = (max(answer[name] for answer in answers) for name in ("held", "peak"))
            unit = answers[0]["parameters"]
            lines.append(f"| {size} | {how} | {held / 1e6:.1f} MB | {held / unit:.2f} | {peak / unit:.2f} |")
            print(lines[-1], flush=True)
    return lines


def slowest(group: Group, **command: Any) -> float:
    """The seconds of a step of the slowest rank: the median of 20 steps."""
    answers = group.ask(**command, count=20)
    return statistics.median([max(each) for each in zip(*(answer["times"] for answer in answers))])


def asleep(work: scaling.Compute) -> dict[str, Any]:
    """What the command `slept` is told."""
    return {name: value for name, value in work._asdict().items() if name != "own"}


def checked(model: str, size: int, way: str, predicted: float, measured: float) -> str:
    """A line of the table that checks the simulator."""
    line = f"| {model} | {size} | {way} | {duration(predicted)} | {duration(measured)} | {predicted / measured:.2f} |"
    print(line, flush=True)
    return line


def sums(group: Group, elements: int, count: int) -> float:
    """The median seconds in which a group adds up numbers as DistributedDataParallel does."""
    answers = group.ask(do="sums", elements=elements, count=count)
    return statistics.median([max(each) for each in zip(*(answer["times"] for answer in answers))])


def fitted(pair: Group) -> scaling.Machine:
    """This machine, measured by a group of two."""
    here = scaling.fitted([(4, sums(pair, 1, 40)), (4 << 20, sums(pair, 1 << 20, 20))], "here", os.cpu_count() or 1)
    print(f"latency {duration(here.latency)}, {here.bandwidth / 1e9:.1f} GB/s", flush=True)
    return here


class Alone(NamedTuple):
    """What one process takes for a step in which it sleeps instead of computing: seconds, and of its processor's."""

    seconds: float
    busy: float


def on_one_core(
    ranks: int, here: scaling.Machine, work: dict[str, scaling.Compute], alone: dict[str, Alone]
) -> tuple[scaling.Machine, dict[str, scaling.Compute]]:
    """The machine and the work as they are where so many ranks share a core, and so its caches: measured by them."""
    if not hasattr(os, "sched_setaffinity"):
        return here, work
    group = Group("tensorgrad", ranks)
    for process in group.processes:
        os.sched_setaffinity(process.pid, [min(os.sched_getaffinity(0))])
    here = here._replace(turn=scaling.turn_of(ranks, min(sums(group, 1, 40) for _ in range(3))))
    print(f"{ranks} ranks that share a core: a turn {duration(here.turn)}", flush=True)
    told = {}
    for model, compute in work.items():
        step = min(slowest(group, do="slept", **asleep(compute)) for _ in range(2))
        rest = step - scaling.slept(compute._replace(own=0.0), *alone[model], ranks, here._replace(cores=1))
        told[model] = compute._replace(own=max(compute.own, rest / ranks))
    group.end()
    return here, told


def tables_of_scaling(sizes: tuple[int, ...], models: Sequence[str]) -> list[str]:
    """The lines of the tables of the simulator: checked against processes here, and its predictions.

    What it is told is measured with one process and with two: their work, how fast they add up, and, by steps in which
    they sleep, what DistributedDataParallel does besides. If there are more ranks than cores, that and the length of a
    turn are measured by as many as share a core, on one core: they share its caches, too. It is checked with two that
    compute, and with more that sleep for as long as one of two computes. Of several medians the lowest counts: whatever
    else runs on the machine can only add to them.
    """
    check = [
        "| step | processes | computing | predicted | measured | predicted / measured |",
        "|---|---:|---|---:|---:|---:|",
    ]
    group = Group("tensorgrad", 2)
    work: dict[str, scaling.Compute] = {}
    between: dict[str, scaling.Compute] = {}  # with copies to buckets, which are sent to other machines
    measured: dict[str, tuple[float, float]] = {}  # of two: steps that compute, and steps that sleep
    for model in models:
        slowest(group, do="step", model=model, how="ddp")  # until its kernels are compiled
        found = [scaling.Compute(**group.ask(do="backward", model=model, ranks=2)[0]) for _ in range(3)]
        work[model] = min(found, key=lambda compute: compute.forward + compute.backward)
        between[model] = scaling.Compute(**group.ask(do="backward", model=model, ranks=2, buckets=True)[0])
        measured[model] = (
            min(slowest(group, do="step", model=model, how="ddp") for _ in range(3)),
            min(slowest(group, do="slept", **asleep(work[model])) for _ in range(3)),
        )
    here = fitted(group)
    group.end()
    group = Group("tensorgrad", 1)
    alone = {}
    for model in models:
        slept = [group.ask(do="slept", count=20, **asleep(work[model]))[0] for _ in range(3)]
        seconds = min(statistics.median(each["times"]) for each in slept)
        alone[model] = Alone(seconds, min(each["busy"] for each in slept))
    group.end()
    for model, (real, together) in measured.items():
        own = together - scaling.slept(work[model], *alone[model], 2, here)
        work[model] = work[model]._replace(own=max(0.0, own))
        if here.cores >= 2:
            check.append(checked(model, 2, "real", scaling.step(work[model], 2, here)[0], real))
    told = {1: (here, work)}
    for size in sizes:
        sharing = scaling.turns(size, here)
        if sharing not in told:
            told[sharing] = on_one_core(sharing, here, work, alone)
        machine, works = told[sharing]
        group = Group("tensorgrad", size)
        for model in models:
            predicted = scaling.slept(works[model], *alone[model], size, machine)
            step = min(slowest(group, do="slept", **asleep(work[model])) for _ in range(3))
            check.append(checked(model, size, "slept", predicted, step))
        group.end()
    ranks = (2, 8, 64, 256, 1024)
    table = [
        "| step (work of one rank of two) | network | " + " | ".join(f"{count} ranks" for count in ranks) + " |",
        "|---|---|" + "---:|" * len(ranks),
    ]
    for model, compute in between.items():
        one, _ = scaling.step(compute, 1, NETWORKS[0])
        for network in NETWORKS:
            cells = [f"{one / scaling.step(compute, count, network)[0]:.0%}" for count in ranks]
            table.append(f"| {model} | {network.name} | {' | '.join(cells)} |")
    print("\n".join(table), flush=True)
    return [
        *check,
        "",
        "Predicted efficiency (the step without communication / the step) on other networks:",
        "",
        *table,
    ]


def main() -> None:
    """Measures and prints the tables, and stores them with --write."""
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="these parts (default: all)")
    parser.add_argument("--models", choices=MODELS + LARGE, nargs="+", default=MODELS + LARGE, help="to train")
    parser.add_argument("--libraries", choices=LIBRARIES, nargs="+", default=LIBRARIES, help="to measure")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each library")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/benchmarks/distributed.md")
    given = parser.parse_args()
    load, text = os.getloadavg()[0], []
    groups, alone = {}, {}
    if {"all-reduce", "training"} & set(given.only):
        libraries = LIBRARIES if "all-reduce" in given.only else given.libraries
        groups = {library: Group(library, 2) for library in libraries}
    if "all-reduce" in given.only:
        text += ["## All-reduce of float32, 2 processes", ""]
        text += [*table_of_all_reduce(groups["tensorgrad"], groups["torch"], given.rounds), ""]
    if "training" in given.only:
        alone = {library: Group(library, 1) for library in groups}
        text += ["## Training steps with DistributedDataParallel, 2 processes", ""]
        text += [*table_of_training(groups, alone, given.models, given.rounds), ""]
    for group in (*groups.values(), *alone.values()):
        group.end()
    if "memory" in given.only:
        text += ["## Memory per rank, an MLP with Adam (parameters, gradients and two moments: 4 units)", ""]
        text += [*table_of_memory(), ""]
    if "scaling" in given.only:
        text += ["## The simulator (`benchmarks/scaling.py`) against processes here, and its predictions", ""]
        text += [*tables_of_scaling((3, 4, 8), [model for model in MODELS if model in given.models]), ""]
    if given.write:
        from benchmarks import report

        lead = f"{datetime.date.today()}, {report.processor()}, {os.cpu_count()} cores; load before: {load:.1f}"
        report.store(
            "distributed",
            f"{lead}\n\n" + "\n".join(text).rstrip(),
            "## Several processes: `python -m benchmarks.distributed`",
        )


if __name__ == "__main__":
    main()
