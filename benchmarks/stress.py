"""Trains in several Python threads beside NumPy's own threaded products, and compares with each alone.

    python -m benchmarks.stress                     tensorgrad
    python -m benchmarks.stress --library torch     the same in PyTorch
    python -m benchmarks.stress --write             and puts the figures into BENCHMARK.md

Each piece of work is first done alone, with the whole machine to itself. All at once should take no longer than one
after another: 1.0 is every piece's fair share, below it idle processors were put to use, above it the threads were in
each other's way. Processor time beside it shows waiting that spins. The losses must be those of the training alone. A
run that makes no progress ends with a traceback of every thread.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from benchmarks.rows import drawn, models, whole
from benchmarks.worker import library, settle

REPEATS = 3
LONGEST = 300  # seconds that one repeat may take


def trainer(torch, steps: int, batch: int) -> Callable[[], list[float]]:
    """A function that trains a ConvNet from the same start each time, and gives the losses."""
    torch.manual_seed(0)
    model = models.convnet(torch)
    start = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    x, y = drawn(torch, batch, 1, 28, 28), whole(torch, 10, batch)

    def train() -> list[float]:
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        losses = []
        for _ in range(steps):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return train


def products(count: int, size: int) -> Callable[[], list[float]]:
    """A function that multiplies matrices by NumPy, on as many threads as its BLAS likes."""
    import numpy as np

    x, y = np.random.default_rng(0).standard_normal((2, size, size)).astype(np.float32)

    def multiply() -> list[float]:
        for _ in range(count):
            z = x @ y
        return [float(z[0, 0])]

    return multiply


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a piece of work returns, its seconds, and those of all processors."""
    wall, processors = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - processors


def at_once(pieces: list[Callable[[], Any]]) -> list[Any]:
    """What the pieces return, each run in a thread of its own. Raises: what the first to fail raised."""
    results: list[Any] = [None] * len(pieces)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = pieces[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(pieces))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def stress(torch, trainers: int, steps: int, batch: int, count: int, size: int, repeats: int) -> dict:
    """Seconds alone (the sum) and at once, the ratio of both in each kind of time, how far losses differ, and the ratio
    for two NumPy products beside each other: what such products lose without any training."""
    pieces = [*(trainer(torch, steps, batch) for _ in range(trainers)), products(count, size)]
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    settle(pieces[0])
    at_once(pieces)  # warm: every thread has its buffers
    found, differs, others = [], 0.0, []
    for _ in range(repeats):
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        alone = [timed(piece) for piece in pieces]
        together, wall, processors = timed(lambda: at_once(pieces))
        found.append((sum(each[1] for each in alone), wall, sum(each[2] for each in alone), processors))
        others.append(timed(lambda: at_once(pieces[-1:] * 2))[1] / (2 * alone[-1][1]))
        for (expected, _, _), actual in zip(alone, together, strict=True):
            differs = max([differs, *(abs(a - b) for a, b in zip(expected, actual, strict=True))])
    faulthandler.cancel_dump_traceback_later()
    return {
        "alone": statistics.median(alone for alone, _, _, _ in found),
        "at once": statistics.median(wall for _, wall, _, _ in found),
        "slowdown": statistics.median(wall / alone for alone, wall, _, _ in found),
        "processor time": statistics.median(after / before for _, _, before, after in found),
        "losses differ by": differs,
        "products alone": statistics.median(others),
    }


def main() -> None:
    """Measures, prints, and with --write stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=("tensorgrad", "torch"), default="tensorgrad")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the library (default: all cores)")
    parser.add_argument("--trainers", type=int, default=4, help="Python threads that train (default: 4)")
    parser.add_argument("--steps", type=int, default=10, help="of each training (default: 10)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--products", type=int, default=100, help="matrix products (default: 100)")
    parser.add_argument("--size", type=int, default=768, help="of their matrices (default: 768)")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"of it all (default: {REPEATS})")
    parser.add_argument("--write", action="store_true", help="put the figures into BENCHMARK.md")
    given = parser.parse_args()
    before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    torch = library(given.library, given.threads)
    found = stress(torch, given.trainers, given.steps, given.batch, given.products, given.size, given.repeats)
    text = (
        f"{given.library} on {given.threads} threads, {given.trainers} Python threads of {given.steps} ConvNet steps "
        f"(batch {given.batch}) and {given.products} NumPy products of {given.size}×{given.size}: one after another "
        f"{found['alone']:.2f} s, at once {found['at once']:.2f} s, **{found['slowdown']:.2f}** of the fair share "
        f"(processor time {found['processor time']:.2f}); losses differ by {found['losses differ by']:.1g}; two such "
        f"NumPy products beside each other, without any training: {found['products alone']:.2f}"
    )
    print(text)
    if given.write:
        from benchmarks import report

        if given.library != "torch" and find_spec("torch"):  # the same by torch, in a process of its own
            again = [sys.executable, "-m", "benchmarks.stress", *sys.argv[1:], "--library", "torch"]
            beside = subprocess.run([n for n in again if n != "--write"], capture_output=True, text=True, check=True)
            text += f"\n\n{beside.stdout.strip()}"
        load = f"load of the machine before: {before:.1f}" if before is not None else "load unknown"
        text = f"{datetime.date.today()}, {report.processor()}; {load}\n\n{text}"
        report.store("stress", text, "## Threads: `python -m benchmarks.stress`")


if __name__ == "__main__":
    main()
