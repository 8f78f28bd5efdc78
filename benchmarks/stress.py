"""Trains in several Python threads while NumPy runs threaded matrix products, and compares with each of them alone.

    python -m benchmarks.stress                     tensorgrad
    python -m benchmarks.stress --library torch     the same in PyTorch
    python -m benchmarks.stress --write             also writes the figures to docs/benchmarks/stress.md

Each piece of work first runs alone, with the whole machine to itself. Running all of them at the same time should take
no longer than one after another: at 1.0 each piece gets its fair share, below it idle processors were used, and above
it the threads slowed each other down. The ratio of processor times shows busy waiting. The losses must equal those of
the training alone. A run that makes no progress ends with a traceback of every thread.
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
    """Returns a function that trains a ConvNet, from the same start each time, and returns the losses."""
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
    """Returns a function that multiplies matrices with NumPy, on as many threads as its BLAS chooses."""
    import numpy as np

    x, y = np.random.default_rng(0).standard_normal((2, size, size)).astype(np.float32)

    def multiply() -> list[float]:
        for _ in range(count):
            z = x @ y
        return [float(z[0, 0])]

    return multiply


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Runs a piece of work. Returns its result, its seconds, and the processor seconds."""
    wall, processors = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - processors


def at_once(pieces: list[Callable[[], Any]]) -> list[Any]:
    """Runs each piece in its own thread. Returns the results. Raises: the first error in a piece."""
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
    """Measures the seconds alone (the sum) and at the same time, their ratio for both kinds of time, the difference of
    the losses, and the ratio for two NumPy products at the same time (their slowdown without any training).
    """
    pieces = [*(trainer(torch, steps, batch) for _ in range(trainers)), products(count, size)]
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    settle(pieces[0])
    at_once(pieces)  # warms up: every thread gets its buffers
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
    """Measures and prints the figures, and stores them with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=("tensorgrad", "torch"), default="tensorgrad")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of the library (default: all cores)"
    )
    parser.add_argument("--trainers", type=int, default=4, help="Python threads that train (default: 4)")
    parser.add_argument("--steps", type=int, default=10, help="steps of each training (default: 10)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--products", type=int, default=100, help="matrix products (default: 100)")
    parser.add_argument("--size", type=int, default=768, help="size of their matrices (default: 768)")
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help=f"repeats of the whole measurement (default: {REPEATS})"
    )
    parser.add_argument("--write", action="store_true", help="write the figures to docs/benchmarks/stress.md")
    given = parser.parse_args()
    before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    torch = library(given.library, given.threads)
    found = stress(torch, given.trainers, given.steps, given.batch, given.products, given.size, given.repeats)
    text = (
        f"{given.library} on {given.threads} threads, {given.trainers} Python threads of {given.steps} ConvNet steps "
        f"(batch {given.batch}) and {given.products} NumPy products of {given.size}×{given.size}: one after another "
        f"{found['alone']:.2f} s, together {found['at once']:.2f} s, **{found['slowdown']:.2f}** of the fair share "
        f"(processor time {found['processor time']:.2f}); losses differ by {found['losses differ by']:.1g}; two such "
        f"NumPy products at the same time, without any training: {found['products alone']:.2f}"
    )
    print(text)
    if given.write:
        from benchmarks import report

        if given.library != "torch" and find_spec("torch"):  # the same with torch, in a separate process
            again = [sys.executable, "-m", "benchmarks.stress", *sys.argv[1:], "--library", "torch"]
            other = subprocess.run([n for n in again if n != "--write"], capture_output=True, text=True, check=True)
            text += f"\n\n{other.stdout.strip()}"
        load = f"load of the machine before: {before:.1f}" if before is not None else "load unknown"
        text = f"{datetime.date.today()}, {report.processor()}; {load}\n\n{text}"
        report.store("stress", text, "## Threads: `python -m benchmarks.stress`")


if __name__ == "__main__":
    main()
