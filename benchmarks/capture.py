"""Measures compiled functions (`torch.compile`) against the same programs as they are, and against torch.

    python -m benchmarks.capture                    prints the table
    python -m benchmarks.capture --write            also writes it to docs/benchmarks/capture.md
    python -m benchmarks.capture --torch-compile    also PyTorch's own, where a C++ compiler is found (minutes)

All run in one process, on one thread, and take turns by rounds. A ratio is the median of the rounds' ratios, with the
first and third quartile. Before that, the results of a compiled and an eager program are compared to the bit, and those
of torch as in the other tables. Memory is the most that Python and NumPy hold at a time for a step, beyond what they
held before. "Its plan alone" is the plan without the guards that say whether it may run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

import tensorgrad
from benchmarks.measure import difference, in_turns, spread
from benchmarks.rows import Row, drawn, models, named
from benchmarks.rows.inference import inference
from benchmarks.rows.training import adam, adamw, digits, sgd, text, training
from benchmarks.worker import fingerprint
from tensorgrad.capture.region import MADE, Region

ROUNDS, SECONDS = 21, 0.05  # how long a program runs in each round
SETTLED = 12  # calls until a compiled function has its plan

SMALL = Row(
    "MLP 16-32-4, one example", inference(lambda torch: models.mlp(torch, 16, 32, 4), lambda t: drawn(t, 1, 16))
)


class Compared(NamedTuple):
    """A line of the table: a program, its aims in microseconds and as a ratio to eager (None: no aim), and the same
    program with its model compiled by itself. Without one, the whole step is compiled."""

    row: Row
    title: str
    limit: float | None = None
    aim: float | None = None
    inner: Row | None = None


def outside(name: str, title: str, make_model: Callable, *rest: Any, **options: Any) -> Compared:
    """A training loop whose model is compiled, and whose backward pass is outside of it."""

    def compiled(torch: Any, **sizes: Any) -> Any:
        model = make_model(torch, **sizes)
        model.compile()
        return model

    row = named(name)
    return Compared(
        row, f"{title}, model compiled", None, 1.0, row._replace(build=training(compiled, *rest, **options))
    )


ROWS = tuple(Compared(*row) for row in (
    (named("training: XOR 2-8-2, batch 4, SGD"), "XOR 2-8-2, batch 4, SGD, step", 10.0, None),
    (named("training: MLP 784-128-10, batch 32, SGD"), "MLP 784-128-10, batch 32, SGD, step", None, 0.55),
    (named("training: MNIST ConvNet, batch 64, Adam"), "MNIST ConvNet, batch 64, Adam, step", None, 0.85),
    (named("training: GPT 4×128, context 64, batch 12, AdamW"), "GPT 4×128, batch 12 × 64, AdamW, step", None, 0.87),
    (named("training: LSTM characters, 32×64, Adam"), "LSTM, 32×64, Adam, step", None, 0.88),
    (SMALL, "MLP 16-32-4, one example, inference", 3.0, None),
)) + (
    outside("training: MLP 784-128-10, batch 32, SGD", "MLP 784-128-10, batch 32, SGD", models.mlp, digits, sgd),
    outside("training: MNIST ConvNet, batch 64, Adam", "MNIST ConvNet, batch 64, Adam", models.convnet, digits, adam),
    outside(
        "training: GPT 4×128, context 64, batch 12, AdamW", "GPT 4×128, batch 12 × 64, AdamW", models.gpt, text, adamw,
        clip=1.0,
    ),
    outside(
        "training: LSTM characters, 32×64, Adam", "LSTM, 32×64, Adam", models.lstm, text, adam, clip=1.0,
    ),
)  # fmt: skip


class Measured(NamedTuple):
    """What one row gave: medians in seconds by column, ratios by pair with quartiles, and peaks of memory in bytes."""

    seconds: dict[str, float]
    ratios: dict[str, tuple[float, float, float]]
    memory: dict[str, int]
    why_eager: str


def columns(
    row: Row, sizes: dict[str, Any], with_torch: bool, torch_compile: bool, inner: Row | None = None
) -> dict[str, tuple[Any, Any]]:
    """The programs of a row: name -> (step, its results). They start from the same state."""
    made = {name: (used or row).build(tensorgrad, **sizes) for name, used in (("compiled", inner), ("eager", None))}
    if with_torch or torch_compile:
        import torch

        made["torch"] = row.build(torch, **sizes)
        if torch_compile:
            made["torch.compile"] = (inner or row).build(torch, **sizes)
    return made


def same_results(row: Row, made: dict[str, tuple[Any, Any]], compiled: Callable) -> None:
    """Raises: AssertionError if a program computes something else."""
    for _ in range(SETTLED):
        pairs = [compiled().detach(), made["eager"][0]().detach()]
        assert np.array_equal(*map(np.asarray, pairs)), f"{row.name}: a compiled step gives other bits"
    if "torch" in made:
        expected, found = ([part for t in made[name][1]() for part in fingerprint(t)] for name in ("torch", "fresh"))
        for a, b in zip(found, expected, strict=True):
            assert not difference(a, b, row.tolerance), f"{row.name}: {difference(a, b, row.tolerance)}"


def measured(
    row: Row, sizes: dict[str, Any], rounds: int, seconds: float, with_torch: bool = True, torch_compile: bool = False,
    inner: Row | None = None,
) -> Measured:  # fmt: skip
    """Compares the results of the programs of a row, and measures them in turns."""
    regions: list[Region] = []
    MADE.append(regions.append)
    try:
        made = columns(row, sizes, with_torch, torch_compile, inner)
        compiled = made["compiled"][0] if inner else tensorgrad.compile(made["compiled"][0])
    finally:
        MADE.pop()
    (region,) = regions
    if with_torch:
        made["fresh"] = row.build(tensorgrad, **sizes)
    same_results(row, made, compiled)
    steps = {"compiled": compiled, **{name: step for name, (step, _) in made.items() if name in ("eager", "torch")}}
    if torch_compile:
        import torch

        theirs = made["torch.compile"][0] if inner else torch.compile(made["torch.compile"][0])
        try:
            theirs()
            steps["torch.compile"] = theirs
        except Exception as error:  # whatever its compiler meets on this machine
            print(f"torch.compile: {type(error).__name__}: {error!s:.200}")
    plans = [plan for kind in region.kinds.values() for _, plan in kind.plans]
    if plans and not inner and not plans[-1].launches.inputs:
        steps["its plan alone"] = plans[-1].run
    times = in_turns(steps, rounds, seconds)
    pairs = {name: ("compiled", name) for name in ("eager", "torch", "torch.compile") if name in steps}
    pairs |= {name: (name, "eager") for name in steps if name == "its plan alone"}
    ratios = {
        name: spread([a / b for a, b in zip(times[ours], times[other], strict=True)])
        for name, (ours, other) in pairs.items()
    }
    memory = {name: peak(steps[name]) for name in ("compiled", "eager")}
    return Measured(
        {name: statistics.median(taken) for name, taken in times.items()}, ratios, memory,
        "" if region.plans else region.explain(),
    )  # fmt: skip


def peak(step: Callable) -> int:
    """The most bytes that are held at a time while a step runs, beyond those held before."""
    tracemalloc.start()
    try:
        step()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def line(title: str, found: Measured, limit: float | None, aim: float | None) -> str:
    """A row of the table."""
    ours, eager = found.seconds["compiled"], found.ratios["eager"]
    wanted = f"{limit:.0f} µs" if limit else f"{aim:.2f}" if aim else "–"
    met = ours * 1e6 <= limit if limit else aim is None or eager[0] <= aim
    alone = found.ratios.get("its plan alone")
    cells = [title, _time(ours), _time(found.seconds["eager"]), _ratio(eager), _ratio(alone) if alone else "–", wanted]
    cells.append("yes" if met else "**no**")
    for other in ("torch", "torch.compile"):
        cells += [_time(found.seconds[other]), _ratio(found.ratios[other])] if other in found.seconds else ["–", "–"]
    held, before = found.memory["compiled"], found.memory["eager"]
    return "| " + " | ".join([*cells, f"{held / before:.2f}" if before else "–"]) + " |"


HEAD = (
    "| program | compiled | eager | compiled ÷ eager | its plan alone ÷ eager | aim | met | torch | compiled ÷ torch | "
    "torch.compile | compiled ÷ torch.compile | memory ÷ eager |\n"
    "|---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|"
)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _ratio(ratio: tuple[float, float, float]) -> str:
    return "{:.2f} ({:.2f}–{:.2f})".format(*ratio)


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/capture.md")
    parser.add_argument("--torch-compile", action="store_true", help="also PyTorch's own torch.compile")
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose title contains this")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("--write stores complete tables and cannot be combined with --only")
    import torch

    from benchmarks.overhead import facts
    from benchmarks.report import store

    torch.set_num_threads(1)
    tensorgrad.set_num_threads(1)
    theirs = arguments.torch_compile and bool(shutil.which("c++") or shutil.which("g++"))
    if arguments.torch_compile and not theirs:
        print("torch.compile: skipped, there is no C++ compiler")
    lines = [facts(ROUNDS, SECONDS), "", HEAD]
    print(*lines, sep="\n", flush=True)
    for row, title, limit, aim, inner in ROWS:
        if arguments.only in title:
            found = measured(row, dict(row.sizes), ROUNDS, SECONDS, True, theirs, inner)
            lines.append(line(title, found, limit, aim))
            print(lines[-1], *filter(None, [found.why_eager]), sep="\n", flush=True)
    if arguments.write:
        store("capture", "\n".join(lines), "## Compiled functions: `python -m benchmarks.capture`")


if __name__ == "__main__":
    main()
