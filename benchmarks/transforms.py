"""Measures function transforms against torch.func in one process, and against what people wrote before there were any.

    python -m benchmarks.transforms               all rows (two minutes)
    python -m benchmarks.transforms jvp hessian   rows whose name contains one of these
    python -m benchmarks.transforms --write       also writes the table to docs/benchmarks/transforms.md

All libraries compute the same from the same values on one thread; their results are compared first. They take turns,
and a figure is the least time of all rounds: what disturbs a program makes it slower, never faster. The other columns
are JAX, compiled, if it is installed (benchmarks/transforms_jax.py); and tensorgrad *by hand*: a loop of backward
passes, one for each sample or row, a loop over models, or, for products with tangents, two backward passes. *Compiled*
is the same program in `torch.compile`, whose results are the same to the bit. Rows that begin with "jvp" are also
divided by the time of the function itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TENSORGRAD_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np
import torch

import tensorgrad
from benchmarks.overhead import facts
from benchmarks.report import store, transforms_table

ROUNDS = 11
ROUND_SECONDS = 0.1  # how long a library runs in each round
SETTLED = 8  # calls until a compiled function has its plan
TOLERANCE = 1e-3  # of results, relative to their largest element
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def array(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Random float32 values."""
    made = np.random.default_rng(sum(shape) + seed).standard_normal(shape) * scale
    return made.astype(np.float32)


def values(lib, *shape: int, scale: float = 1.0, seed: int = 0):
    """Random float32 values, the same in all libraries."""
    return lib.tensor(array(*shape, scale=scale, seed=seed))


def classes(lib, count: int, among: int = 10):
    """Random classes."""
    return lib.tensor(np.random.default_rng(count).integers(0, among, count))


# --- functions -------------------------------------------------------------------------------------------------------


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
    w_up = values(lib, 4 * width, width, scale=width**-0.5)
    w_down = values(lib, width, 4 * width, scale=0.5 * width**-0.5)
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


def rosenbrock(x):
    """A function of 32 parameters that are coupled in pairs."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def mlp_shapes(inputs: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The parameters of an MLP with 10 classes."""
    return {"w": (hidden, inputs), "b": (hidden,), "out": (10, hidden)}


def mlp_of_parameters(lib):
    """The logits of an MLP, by its parameters and a batch."""
    linear = lib.nn.functional.linear
    return lambda p, x: linear(linear(x, p["w"], p["b"]).relu(), p["out"])


CONVNET = {"one": (16, 1, 3, 3), "two": (32, 16, 3, 3), "out": (10, 32 * 7 * 7)}


def convnet_of_parameters(lib):
    """The logits of a small convolutional network, by its parameters and a batch of images 28 × 28."""
    F = lib.nn.functional

    def function(p, x):
        x = F.max_pool2d(F.conv2d(x, p["one"], padding=1).relu(), 2)
        x = F.max_pool2d(F.conv2d(x, p["two"], padding=1).relu(), 2)
        return F.linear(x.flatten(1), p["out"])

    return function


def parameters(lib, shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Any]:
    """Values for parameters of these shapes."""
    return {k: values(lib, *s, scale=0.5 / max(1, int(np.prod(s[1:]))) ** 0.5, seed=seed) for k, s in shapes.items()}


# --- rows ------------------------------------------------------------------------------------------------------------

# Each returns (what it is divided by, or None; the transform; the same by hand) for one library.
Steps = tuple[Callable | None, Callable, Callable]


def by_rows(lib, output, point, create_graph: bool = False):
    """The Jacobian of an output, by a backward pass for each element."""
    rows = [lib.autograd.grad(o, point, retain_graph=True, create_graph=create_graph)[0] for o in output.flatten()]
    return lib.stack(rows)


def pushed(lib, function, *shape: int) -> Steps:
    """A product with a tangent."""
    x, t = values(lib, *shape), values(lib, *shape, scale=0.5)

    def by_hand():
        point = x.detach().requires_grad_()
        value = function(point)
        u = lib.zeros_like(value).requires_grad_()
        (pulled,) = lib.autograd.grad(value, point, u, create_graph=True)
        return value.detach(), lib.autograd.grad(pulled, u, t)[0]

    return lambda: function(x), lambda: lib.func.jvp(function, (x,), (t,)), by_hand


def jvp_mlp(lib) -> Steps:
    """jvp: MLP 784-512-512-10, batch 64"""
    return pushed(lib, mlp(lib, 784, 512, 512, 10), 64, 784)


def jvp_block(lib) -> Steps:
    """jvp: GPT block, 4 × 64 × 256"""
    return pushed(lib, gpt_block(lib), 4, 64, 256)


def jvp_small(lib) -> Steps:
    """jvp: MLP 16-32-4, one sample"""
    return pushed(lib, mlp(lib, 16, 32, 4), 1, 16)


def jacobian(name: str):
    """A Jacobian 256 × 256 of an MLP."""

    def row(lib) -> Steps:
        function, x = mlp(lib, 256, 256, 256), values(lib, 256)
        compute = getattr(lib.func, name)(function)

        def by_hand():
            point = x.detach().requires_grad_()
            return by_rows(lib, function(point), point)

        return None, lambda: compute(x), by_hand

    row.__doc__ = f"{name}: 256 × 256, MLP 256-256-256"
    return row


def hessian(lib) -> Steps:
    """hessian: 32 parameters"""
    compute, x = lib.func.hessian(rosenbrock), values(lib, 32)

    def by_hand():
        point = x.detach().requires_grad_()
        (slope,) = lib.autograd.grad(rosenbrock(point), point, create_graph=True)
        return by_rows(lib, slope, point)

    return None, lambda: compute(x), by_hand


def hvp(lib) -> Steps:
    """hvp: forward over reverse, MLP 256-256-256"""
    network, x, t = mlp(lib, 256, 256, 256), values(lib, 64, 256), values(lib, 64, 256, scale=0.5)
    gradient = lib.func.grad(lambda x: (network(x) ** 2).sum())

    def by_hand():
        point = x.detach().requires_grad_()
        (slope,) = lib.autograd.grad((network(point) ** 2).sum(), point, create_graph=True)
        return slope.detach(), lib.autograd.grad(slope, point, t)[0]

    return None, lambda: lib.func.jvp(gradient, (x,), (t,)), by_hand


def per_sample(lib, network, params, x, y) -> Steps:
    """The gradients of each sample's loss by all parameters."""

    def loss(params, x, y):
        return lib.nn.functional.cross_entropy(network(params, x[None]), y[None])

    gradients = lib.func.vmap(lib.func.grad(loss), in_dims=(None, 0, 0))

    def by_hand():
        leaves = {k: p.detach().requires_grad_() for k, p in params.items()}
        rows = [lib.autograd.grad(loss(leaves, *one), list(leaves.values())) for one in zip(x, y, strict=True)]
        return dict(zip(leaves, map(lib.stack, zip(*rows, strict=True)), strict=True))

    return None, lambda: gradients(params, x, y), by_hand


def per_sample_mlp(lib) -> Steps:
    """per-sample gradients: MLP 784-128-10, batch 64"""
    params = parameters(lib, mlp_shapes(784, 128))
    return per_sample(lib, mlp_of_parameters(lib), params, values(lib, 64, 784), classes(lib, 64))


def per_sample_convnet(lib) -> Steps:
    """per-sample gradients: ConvNet 28 × 28, batch 32"""
    params = parameters(lib, CONVNET)
    return per_sample(lib, convnet_of_parameters(lib), params, values(lib, 32, 1, 28, 28), classes(lib, 32))


def ensemble(lib) -> Steps:
    """ensemble: 10 MLPs 784-128-10, batch 64"""
    members = [parameters(lib, mlp_shapes(784, 128), seed) for seed in range(10)]
    stacked = {name: lib.stack([member[name] for member in members]) for name in members[0]}
    network, x = mlp_of_parameters(lib), values(lib, 64, 784)
    together = lib.func.vmap(network, in_dims=(0, None))
    return None, lambda: together(stacked, x), lambda: lib.stack([network(member, x) for member in members])


ROWS = (
    jvp_block, jvp_mlp, jvp_small, hvp, jacobian("jacfwd"), jacobian("jacrev"), hessian, per_sample_mlp,
    per_sample_convnet, ensemble,
)  # fmt: skip


# --- measuring -------------------------------------------------------------------------------------------------------


def flat(value: Any) -> list[np.ndarray]:
    """The tensors of a result as arrays."""
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, tuple | list):
        return [a for v in value for a in flat(v)]
    return [np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)]


def check(name: str, ours: Callable, theirs: Callable) -> None:
    """Raises: AssertionError if the two compute different results."""
    for mine, other in zip(flat(ours()), flat(theirs()), strict=True):
        error, largest = np.abs(mine - other).max(), np.abs(other).max()
        assert error <= TOLERANCE * largest, f"{name}: differs by {error:.3g} where the largest is {largest:.3g}"


def calls(step: Callable, seconds: float) -> int:
    """How many calls fill a round."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        step()
        count += 1
    return count


def measured(steps: dict[str, Callable], rounds: int, seconds: float, clock: Callable) -> dict[str, float]:
    """The least seconds per call of each step, of rounds in turns."""
    counts = {name: calls(step, seconds) for name, step in steps.items()}
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for name, step in steps.items():
            start = clock()
            for _ in range(counts[name]):
                step()
            best[name] = min(best[name], (clock() - start) / counts[name])
    return best


def steps_of(row: Callable) -> dict[str, Callable]:
    """A row's programs by column, after their results have been compared."""
    name = row.__doc__ or ""
    (forward, ours, by_hand), (their_forward, theirs, _) = row(tensorgrad), row(torch)
    check(name, ours, theirs)
    check(f"{name}, by hand", by_hand, theirs)
    compiled = tensorgrad.compile(ours)
    for _ in range(SETTLED):
        compiled()
    assert all(map(np.array_equal, flat(compiled()), flat(ours()))), f"{name}: compiled, it has other bits"
    steps = {"tensorgrad": ours, "compiled": compiled, "torch": theirs, "by hand": by_hand}
    if find_spec("jax") is not None:
        from benchmarks import transforms_jax

        steps["jax"] = transforms_jax.step(name)
        check(f"{name}, JAX", steps["jax"], theirs)
    if forward is not None and their_forward is not None:
        steps |= {"forward": forward, "torch forward": their_forward}
    return steps


def measure(patterns: list[str], rounds: int = ROUNDS, seconds: float = ROUND_SECONDS, clock: str = "wall") -> dict:
    """Measures the rows whose names contain one of the patterns: name -> seconds by column."""
    found = {}
    for row in ROWS:
        name = row.__doc__ or ""
        if not patterns or any(p in name for p in patterns):
            found[name] = measured(steps_of(row), rounds, seconds, CLOCKS[clock])
    return found


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="rows whose name contains one of these")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for use on a busy machine")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/transforms.md")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tensorgrad.set_num_threads(1)
    rounds = 3 if arguments.quick else ROUNDS
    found = measure(arguments.patterns, rounds, ROUND_SECONDS, arguments.clock)
    about = facts(rounds, ROUND_SECONDS) + ", the least of all"
    if arguments.clock != "wall":
        about += f"; {arguments.clock} time, not wall-clock time"
    figures = {"about": about, "rows": found}
    print(json.dumps(figures) if arguments.json else transforms_table(figures))
    if arguments.write:
        store("transforms", transforms_table(figures), "## Function transforms: `python -m benchmarks.transforms`")


if __name__ == "__main__":
    main()
