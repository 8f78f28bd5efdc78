"""Measures the cost of one op, one backward pass and one small training step against torch in the same process.

    python -m benchmarks.overhead            prints the table
    python -m benchmarks.overhead --write    also writes it to docs/benchmarks/overhead.md

Both libraries run the same program from the same seed on one thread, and their results are compared first. Each row
alternates between them by rounds. It reports the median time of each library, and the median and spread (first to third
quartile) of the rounds' ratios. Below 1.0 is faster than torch.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import torch

import tensorgrad
from benchmarks.measure import in_turns
from benchmarks.report import processor, store

ROUNDS = 41
ROUND_SECONDS = 0.02  # how long a library runs in each round


def matrices(lib, requires_grad):
    """Returns two 4x4 matrices, with the same values in both libraries."""
    values = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    return [lib.tensor(v, requires_grad=requires_grad) for v in values]


def add_tracked(lib):
    """One recorded addition."""
    a, b = matrices(lib, True)
    return lambda: a + b


def add_untracked(lib):
    """One addition without recording."""
    a, b = matrices(lib, False)
    return lambda: a + b


def add_with_subclass(lib):
    """One recorded addition, in a program with a subclass that overrides ops."""

    class Own(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    lib.ones(2).as_subclass(Own) + 1
    return add_tracked(lib)


def times_number(lib):
    """A tensor times a Python number, recorded."""
    a, _ = matrices(lib, True)
    return lambda: a * 2.0


def chain_backward(lib):
    """Three ops and their gradients."""
    a, b = matrices(lib, True)

    def step():
        (a * b + a).sum().backward()
        return a.grad

    return step


def index_row(lib):
    """One row of a matrix, a recorded view."""
    a, _ = matrices(lib, True)
    return lambda: a[1]


def xor_step(lib):
    """A training step of the 2-8-2 network on the four rows of XOR."""
    lib.manual_seed(0)
    x = lib.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = lib.tensor([0, 1, 1, 0])
    model = lib.nn.Sequential(lib.nn.Linear(2, 8), lib.nn.ReLU(), lib.nn.Linear(8, 2))
    loss_function = lib.nn.CrossEntropyLoss()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.5)

    def step():
        loss = loss_function(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def mlp_step(lib):
    """A training step of the 784-128-10 network, batch 32: forward, backward, SGD."""
    lib.manual_seed(0)
    x = lib.randn(32, 784)
    y = lib.randint(0, 10, (32,))
    model = lib.nn.Sequential(lib.nn.Linear(784, 128), lib.nn.ReLU(), lib.nn.Linear(128, 10))
    loss_function = lib.nn.CrossEntropyLoss()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01)

    def step():
        loss = loss_function(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def adam_step(lib):
    """The XOR step with Adam."""
    lib.manual_seed(0)
    x = lib.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = lib.tensor([0, 1, 1, 0])
    model = lib.nn.Sequential(lib.nn.Linear(2, 8), lib.nn.Tanh(), lib.nn.Linear(8, 2))
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)

    def step():
        loss = lib.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


ROWS = (  # name, program, the target ratio (None: for information)
    ("`a + b`, 4×4, recorded", add_tracked, 0.8),
    ("`(a*b + a).sum().backward()`, 4×4", chain_backward, 0.65),
    ("XOR step: 2-8-2, modules, cross-entropy, SGD", xor_step, 0.4),
    ("MLP 784-128-10, batch 32: forward, backward, SGD", mlp_step, 0.8),
    ("`a + b`, 4×4, under no graph", add_untracked, None),
    ("`a + b`, 4×4, recorded, beside a class that overrides ops", add_with_subclass, 0.8),
    ("`a * 2.0`, 4×4, recorded", times_number, None),
    ("`a[1]`, 4×4, recorded", index_row, None),
    ("XOR step with tanh and Adam", adam_step, None),
)


def measure(program, rounds=ROUNDS, seconds=ROUND_SECONDS, atol=1e-5, collect=True):
    """Measures one program. Returns (our median seconds, torch's, and the ratio's median, first and third quartile).

    The first results are compared, with a relative tolerance of 1e-4 and a tolerance of `atol` times the largest. In
    each of the `rounds`, each library runs for `seconds`, followed by the garbage collector if `collect` is set.
    """
    steps = {"ours": program(tensorgrad), "torch": program(torch)}
    results = [np.asarray(step().detach()) for step in steps.values()]
    largest = max(1.0, float(abs(results[1]).max())) if results[1].size else 1.0
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=atol * largest)
    times = in_turns(steps, rounds, seconds, warm=5, collect=collect)
    ratios = sorted(a / b for a, b in zip(times["ours"], times["torch"], strict=True))
    low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    return statistics.median(times["ours"]), statistics.median(times["torch"]), statistics.median(ratios), low, high


def table() -> str:
    """Measures every row. Returns the table as Markdown."""
    lines = [
        "| program | tensorgrad µs | torch µs | ratio | quartiles | target | met |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, program, target in ROWS:
        ours, theirs, ratio, low, high = measure(program)
        met = "" if target is None else "yes" if ratio <= target else "**no**"
        lines.append(
            f"| {name} | {ours * 1e6:.2f} | {theirs * 1e6:.2f} | {ratio:.2f} | {low:.2f}–{high:.2f} | "
            f"{'–' if target is None else f'{target:.2f}'} | {met} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def facts(rounds=ROUNDS, seconds=ROUND_SECONDS) -> str:
    """Describes when, on what machine and how the measurement was made."""
    text = (
        f"{datetime.date.today()}, {processor()}, one thread, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, torch {torch.__version__}; "
        f"{rounds} rounds of about {seconds * 1e3:.0f} ms a library, alternating"
    )
    core = os.environ.get("OPENBLAS_CORETYPE")
    if core:  # NumPy's BLAS then runs another processor's kernels, at down to half the speed
        text += f"; OPENBLAS_CORETYPE={core} was set"
    return text


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/overhead.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(facts())
    text = f"{facts()}\n\n{table()}"
    if arguments.write:
        store("overhead", text)


if __name__ == "__main__":
    main()
