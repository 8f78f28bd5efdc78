"""Measures convolutions of 3×3 windows by Winograd's method, by sums of products, and in torch, and their errors.

python -m benchmarks.winograd             prints the table
python -m benchmarks.winograd --write     also writes it to docs/benchmarks/winograd.md

One thread, processor time. The errors are the largest of the result and both gradients, against float64 and relative to
the largest number.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import torch

import tensorgrad
from benchmarks.overhead import facts
from benchmarks.report import store
from benchmarks.worker import settle
from tensorgrad.kernels.compiled import conv, winograd

ROUNDS, SECONDS = 5, 0.02
SHAPES = (  # images, channels, outputs, height and width
    (8, 32, 64, 64), (8, 64, 128, 128), (32, 64, 64, 32), (32, 128, 128, 16), (32, 256, 256, 8), (1, 64, 64, 56),
)  # fmt: skip
METHODS = {"Winograd": lambda *shape: -1.0, "sums": lambda *shape: float("inf"), "torch": None}


def program(lib, images, channels, outs, size):
    """Returns a forward and backward pass, which returns the result and both gradients."""
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return lib.tensor(rng.standard_normal(shape).astype(np.float32))

    x, w, g = drawn(images, channels, size, size), drawn(outs, channels, 3, 3), drawn(images, outs, size, size)
    x.requires_grad_()
    w.requires_grad_()

    def step(x=x, w=w, g=g):
        x.grad = w.grad = None
        made = lib.nn.functional.conv2d(x, w, padding=1)
        made.backward(g)
        return made.detach(), x.grad, w.grad

    return step, (x, w, g)


def use(method) -> None:
    """Lets convolutions take this method."""
    if METHODS[method] is not None:
        winograd.cost = winograd.correlate_cost = METHODS[method]
    for plans in (conv._plan, conv._forwards, conv._backwards, conv._correlation):
        plans.cache_clear()


def measured(shape) -> tuple[dict, dict]:
    """Returns the median milliseconds of each method, and its error."""
    steps = {name: program(torch if name == "torch" else tensorgrad, *shape)[0] for name in METHODS}
    wide = [a.detach().double().requires_grad_(a.requires_grad) for a in program(torch, *shape)[1]]
    exact, times, errors = steps["torch"](*wide), {name: [] for name in METHODS}, {}
    for name, step in steps.items():
        use(name)
        settle(step)
        errors[name] = max(
            float(np.abs(np.asarray(found) - right.numpy()).max() / right.abs().max())
            for found, right in zip(step(), exact, strict=True)
        )
    for _ in range(ROUNDS):
        for name, step in steps.items():
            use(name)
            step()
            start, count = time.thread_time(), 0
            while time.thread_time() - start < SECONDS:
                step()
                count += 1
            times[name].append((time.thread_time() - start) / count * 1e3)
    return {name: statistics.median(taken) for name, taken in times.items()}, errors


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/winograd.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tensorgrad.set_num_threads(1)
    lines = [facts(ROUNDS, SECONDS) + "; processor time", ""]
    lines += ["| forward and backward | Winograd | sums | torch | ÷ sums | ÷ torch | error | of sums | torch's |"]
    lines += ["|---|" + "---:|" * 8]
    for shape in SHAPES:
        (ours, sums, theirs), errors = (list(found.values()) for found in measured(shape))
        images, channels, outs, size = shape
        cells = [f"{images}×{channels}×{size}²→{outs}", f"{ours:.2f} ms", f"{sums:.2f} ms", f"{theirs:.2f} ms"]
        cells += [f"{ours / sums:.2f}", f"{ours / theirs:.2f}", *[f"{error:.1e}" for error in errors]]
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if arguments.write:
        store("winograd", "\n".join(lines), "## Convolutions by Winograd's method: `python -m benchmarks.winograd`")


if __name__ == "__main__":
    main()
