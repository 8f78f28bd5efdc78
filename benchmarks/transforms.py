"""Measures function transforms against torch.func in the same process, and forward mode against the function itself.

    python -m benchmarks.transforms               all rows (two minutes)
    python -m benchmarks.transforms jvp hessian   rows whose name contains one of these

Both libraries compute the same from the same values on one thread; their results are compared first. The libraries
alternate by rounds. A row has the median time of each library, and the median of the rounds' ratios: below 1.0 is
faster than torch. Rows that begin with "jvp" are also divided by the time of the function without transforms.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TENSORGRAD_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import torch

import tensorgrad

ROUNDS = 11
ROUND_SECONDS = 0.1  # how long a library runs in each round
TOLERANCE = 1e-3  # of results, relative to their largest element


def values(lib, *shape: int, scale: float = 1.0):
    """Random float32 values, the same in both libraries."""
    made = np.random.default_rng(sum(shape)).standard_normal(shape) * scale
    return lib.tensor(made.astype(np.float32))


def mlp(lib, *sizes: int):
    """A function of one input: linear layers with tanh between them."""
    weights = [values(lib, m, n, scale=n**-0.5) for n, m in itertools.pairwise(sizes)]
    linear = lib.nn.functional.linear

    def function(x):
        for weight in weights[:-1]:
            x = lib.tanh(linear(x, weight))
        return linear(x, weights[-1])

    return function


def gpt_block(lib):
    """A transformer block of GPT's kind, with attention in simple ops: torch's fused kernel has no forward rule."""
    width, heads, F = 256, 8, lib.nn.functional
    w_qkv, w_out = values(lib, 3 * width, width, scale=width**-0.5), values(lib, width, width, scale=width**-0.5)
    w_up, w_down = (
        values(lib, 4 * width, width, scale=width**-0.5),
        values(lib, width, 4 * width, scale=0.5 * width**-0.5),
    )
    gain, shift = 1 + values(lib, width, scale=0.1), values(lib, width, scale=0.1)

    def function(x):
        batch, length, _ = x.shape
        y = F.layer_norm(x, (width,), gain, shift)
        parts = F.linear(y, w_qkv).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        hidden = lib.ones(length, length, dtype=lib.bool).triu(1)
        weights = (query @ key.transpose(-2, -1) * (width // heads) ** -0.5).masked_fill(hidden, -1e9).softmax(-1)
        x = x + F.linear((weights @ value).transpose(1, 2).reshape(batch, length, width), w_out)
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (width,), gain, shift), w_up)), w_down)

    return function


def pushed(lib, function, *shape: int):
    """The function without transforms, and its product with a tangent."""
    x, t = values(lib, *shape), values(lib, *shape, scale=0.5)
    return lambda: function(x), lambda: lib.func.jvp(function, (x,), (t,))


def jvp_mlp(lib):
    """jvp: MLP 784-512-512-10, batch 64"""
    return pushed(lib, mlp(lib, 784, 512, 512, 10), 64, 784)


def jvp_block(lib):
    """jvp: GPT block, 4 × 64 × 256"""
    return pushed(lib, gpt_block(lib), 4, 64, 256)


def jvp_small(lib):
    """jvp: MLP 16-32-4, one sample"""
    return pushed(lib, mlp(lib, 16, 32, 4), 1, 16)


def jacobian(name: str):
    """A Jacobian 256 × 256 of an MLP."""

    def row(lib):
        compute, x = getattr(lib.func, name)(mlp(lib, 256, 256, 256)), values(lib, 256)
        return None, lambda: compute(x)

    row.__doc__ = f"{name}: 256 × 256, MLP 256-256-256"
    return row


def rosenbrock(lib):
    """A function of 32 parameters that are coupled in pairs."""
    return lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def hessian(lib):
    """hessian: 32 parameters"""
    compute, x = lib.func.hessian(rosenbrock(lib)), values(lib, 32)
    return None, lambda: compute(x)


def hvp(lib):
    """hvp: forward over reverse, MLP 256-256-256"""
    network, x, t = mlp(lib, 256, 256, 256), values(lib, 64, 256), values(lib, 64, 256, scale=0.5)
    gradient = lib.func.grad(lambda x: (network(x) ** 2).sum())
    return None, lambda: lib.func.jvp(gradient, (x,), (t,))


ROWS = (jvp_mlp, jvp_block, jvp_small, jacobian("jacfwd"), jacobian("jacrev"), hessian, hvp)


def flat(value: Any) -> list[np.ndarray]:
    """The tensors of a result as arrays."""
    return [a for v in value for a in flat(v)] if isinstance(value, tuple | list) else [value.detach().numpy()]


def check(name: str, ours: Callable, theirs: Callable) -> None:
    """Raises: AssertionError if the two libraries compute different results."""
    for mine, other in zip(flat(ours()), flat(theirs()), strict=True):
        error, largest = np.abs(mine - other).max(), np.abs(other).max()
        assert error <= TOLERANCE * largest, f"{name}: differs by {error:.3g} where the largest is {largest:.3g}"


def calls(step: Callable) -> int:
    """How many calls fill a round."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < ROUND_SECONDS:
        step()
        count += 1
    return count


def timed(step: Callable, count: int) -> float:
    """Seconds per call."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def measured(steps: dict[str, Callable]) -> dict[str, list[float]]:
    """The seconds per call of each step, by rounds in turns."""
    counts = {name: calls(step) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            times[name].append(timed(step, counts[name]))
    return times


def ratio(times: dict[str, list[float]], a: str, b: str) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))


def main(patterns: list[str]) -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    print(f"{'':42}{'tensorgrad':>12}{'torch.func':>12}{'ratio':>8}{'÷ forward':>11}{'torch ÷ forward':>17}")
    for row in ROWS:
        name = row.__doc__ or ""
        if patterns and not any(p in name for p in patterns):
            continue
        (forward, ours), (their_forward, theirs) = row(tensorgrad), row(torch)
        check(name, ours, theirs)
        steps = {"ours": ours, "torch": theirs}
        if forward is not None:
            steps |= {"forward": forward, "torch forward": their_forward}
        times = measured(steps)
        text = f"{name:42}"
        for key in ("ours", "torch"):
            text += f"{statistics.median(times[key]) * 1e3:>9.3f} ms"
        text += f"{ratio(times, 'ours', 'torch'):>8.2f}"
        if forward is not None:
            text += f"{ratio(times, 'ours', 'forward'):>11.2f}{ratio(times, 'torch', 'torch forward'):>17.2f}"
        print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
