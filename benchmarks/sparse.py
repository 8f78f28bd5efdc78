"""Measures sparse tensors against torch, and against SciPy where installed, in one process.

    python -m benchmarks.sparse                    prints the table
    python -m benchmarks.sparse --only coalesce    rows whose name contains this
    python -m benchmarks.sparse --threads 2        with two threads each; one is the default
    python -m benchmarks.sparse --clock thread     the processor time of this thread: for use on a busy machine
    python -m benchmarks.sparse --write            also writes it to docs/benchmarks/sparse.md
    TENSORGRAD_FAST=0 python -m benchmarks.sparse  NumPy alone (a table of its own)

The libraries take turns on the same program with the same numbers, and their results are compared first. Reported are
the median times, and the median and quartiles of the rounds' ratios. Below 1.0 is faster than torch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

_threads = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv[:-1] else "1"
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, _threads)

import numpy as np
import torch

import tensorgrad
from benchmarks.overhead import facts
from benchmarks.report import duration, store
from benchmarks.worker import settle

ROUNDS, SECONDS = 11, 0.1

try:
    import scipy.sparse as scipy_sparse
except ImportError:
    scipy_sparse = None


def coordinates(size: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random coordinates in a square matrix, each once and in order, and values."""
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(0, size * size, count))
    return np.stack([keys // size, keys % size]), rng.standard_normal(len(keys)).astype(np.float32)


def citations(size: int = 2708, edges: int = 5278) -> tuple[np.ndarray, np.ndarray]:
    """A symmetric adjacency matrix of the size of a known citation graph (Cora), with self-loops, normalized.

    Few papers are cited often: the ends of edges are drawn with probabilities that fall like 1 / rank.
    """
    rng = np.random.default_rng(1)
    weights = 1 / np.arange(1, size + 1) ** 0.7
    a, b = rng.integers(0, size, edges), rng.choice(size, edges, p=weights / weights.sum())
    keys = np.unique(np.concatenate([a * size + b, b * size + a, np.arange(size) * (size + 1)]))
    indices = np.stack([keys // size, keys % size])
    degree = np.bincount(indices[0]).astype(np.float32)
    return indices, (1 / np.sqrt(degree[indices[0]] * degree[indices[1]])).astype(np.float32)


def dense(rows: int, columns: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def product(size: int, density: float, columns: int, layout: str) -> Callable:
    """A sparse matrix times a dense one."""

    def program(lib: Any) -> Callable | None:
        indices, values = coordinates(size, int(size * size * density))
        b = dense(size, columns)
        if lib is scipy_sparse:
            made = scipy_sparse.coo_matrix((values, indices), (size, size)).tocsr()
            return lambda: made @ b
        s = lib.sparse_coo_tensor(lib.tensor(indices), lib.tensor(values), (size, size)).coalesce()
        s = s.to_sparse_csr() if layout == "CSR" else s
        b = lib.tensor(b)
        return lambda: s @ b

    return program


def adjacency(columns: int, backward: bool) -> Callable:
    """A citation graph's adjacency matrix (COO) times features."""

    def program(lib: Any) -> Callable | None:
        indices, values = citations()
        size = int(indices.max()) + 1
        b = dense(size, columns)
        if lib is scipy_sparse:
            made = scipy_sparse.coo_matrix((values, indices), (size, size)).tocsr()
            return None if backward else lambda: made @ b
        s = lib.sparse_coo_tensor(lib.tensor(indices), lib.tensor(values), (size, size)).coalesce()
        b = lib.tensor(b, requires_grad=backward)
        if not backward:
            return lambda: lib.sparse.mm(s, b)

        def step() -> Any:
            b.grad = None
            lib.sparse.mm(s, b).sum().backward()
            return b.grad

        return step

    return program


def coalesce(count: int, size: int) -> Callable:
    """Sorts coordinates and adds the values of equal ones."""

    def program(lib: Any) -> Callable | None:
        rng = np.random.default_rng(3)
        indices, values = rng.integers(0, size, (2, count)), rng.standard_normal(count).astype(np.float32)
        if lib is scipy_sparse:
            return lambda: scipy_sparse.coo_matrix((values, indices), (size, size)).tocsr().data
        i, v = lib.tensor(indices), lib.tensor(values)
        return lambda: lib.sparse_coo_tensor(i, v, (size, size)).coalesce().values()

    return program


def convert(size: int, count: int) -> Callable:
    """From COO to CSR."""

    def program(lib: Any) -> Callable | None:
        indices, values = coordinates(size, count)
        if lib is scipy_sparse:
            made = scipy_sparse.coo_matrix((values, indices), (size, size))
            return lambda: made.tocsr().data
        s = lib.sparse_coo_tensor(lib.tensor(indices), lib.tensor(values), (size, size)).coalesce()
        return lambda: s.to_sparse_csr().values()

    return program


def embedding(rows: int, width: int, touched: int, optimizer: str) -> Callable:
    """The gradient of a table of which few rows are used, and a step of an optimizer that takes it."""

    def program(lib: Any) -> Callable | None:
        if lib is scipy_sparse:
            return None
        table = lib.nn.Embedding(rows, width, sparse=True)
        with lib.no_grad():
            table.weight.copy_(lib.tensor(dense(1024, width)).repeat(rows // 1024 + 1, 1)[:rows])
        index = lib.tensor(np.random.default_rng(4).integers(0, rows, touched))
        steps = {"SGD": lib.optim.SGD, "SparseAdam": lib.optim.SparseAdam, "Adagrad": lib.optim.Adagrad}
        update = steps[optimizer](table.parameters(), lr=1e-3) if optimizer else None

        def step() -> Any:
            table.weight.grad = None
            loss = table(index).sum()
            loss.backward()
            if update is not None:
                update.step()
            return loss

        return step

    return program


def gcn(hidden: int = 16, classes: int = 7, features: int = 1433) -> Callable:
    """A training step of a graph convolutional network of two layers on a citation graph (Kipf and Welling, 2017)."""

    def program(lib: Any) -> Callable | None:
        if lib is scipy_sparse:
            return None
        indices, values = citations()
        size = int(indices.max()) + 1
        s = lib.sparse_coo_tensor(lib.tensor(indices), lib.tensor(values), (size, size)).coalesce()
        x = lib.tensor((dense(size, features) > 2).astype(np.float32))
        y = lib.tensor(np.random.default_rng(5).integers(0, classes, size))
        first = lib.tensor(dense(features, hidden) * 0.05, requires_grad=True)
        second = lib.tensor(dense(hidden, classes) * 0.2, requires_grad=True)
        update = lib.optim.Adam([first, second], lr=0.01)

        def step() -> Any:
            update.zero_grad()
            h = lib.relu(lib.spmm(s, x @ first))
            loss = lib.nn.functional.cross_entropy(lib.spmm(s, h @ second), y)
            loss.backward()
            update.step()
            return loss

        return step

    return program


ROWS: dict[str, Callable] = {
    "CSR 10,000², 1 %, × 64": product(10_000, 0.01, 64, "CSR"),
    "CSR 10,000², 0.1 %, × 64": product(10_000, 0.001, 64, "CSR"),
    "COO 10,000², 1 %, × 64": product(10_000, 0.01, 64, "COO"),
    "COO 10,000², 0.1 %, × 64": product(10_000, 0.001, 64, "COO"),
    "CSR 10,000², 1 %, × vector": product(10_000, 0.01, 1, "CSR"),
    "citation graph × 16": adjacency(16, False),
    "citation graph × 256": adjacency(256, False),
    "citation graph × 256, with backward": adjacency(256, True),
    "coalesce, a million elements": coalesce(1_000_000, 1000),
    "coalesce, a million, few equal": coalesce(1_000_000, 100_000),
    "COO to CSR, a million": convert(10_000, 1_000_000),
    "embedding 1 M × 64, 4,096 rows: gradient": embedding(1_000_000, 64, 4096, ""),
    "embedding 1 M × 64, 4,096 rows: SGD": embedding(1_000_000, 64, 4096, "SGD"),
    "embedding 1 M × 64, 4,096 rows: SparseAdam": embedding(1_000_000, 64, 4096, "SparseAdam"),
    "embedding 1 M × 64, 4,096 rows: Adagrad": embedding(1_000_000, 64, 4096, "Adagrad"),
    "GCN training step, citation graph": gcn(),
}


def measured(program: Callable, clock: Callable[[], float]) -> tuple[list[float], list[list[float]]]:
    """The median seconds of each library, and each round's times."""
    steps = [program(lib) for lib in (tensorgrad, torch)]
    if scipy_sparse is not None and (step := program(scipy_sparse)) is not None:
        steps.append(step)
    results = [np.asarray(r.detach() if hasattr(r, "detach") else r) for r in (step() for step in steps)]
    settle(steps[0])
    for other in results[1:]:
        largest = max(1.0, float(abs(other).max()))
        np.testing.assert_allclose(results[0].reshape(-1), other.reshape(-1), rtol=1e-3, atol=1e-4 * largest)
    counts, rounds = [], []
    for step in steps:
        start, count = clock(), 0
        while clock() - start < SECONDS:
            step()
            count += 1
        counts.append(count)
    for _ in range(ROUNDS):
        turn = []
        for step, count in zip(steps, counts):
            start = clock()
            for _ in range(count):
                step()
            turn.append((clock() - start) / count)
        rounds.append(turn)
    return [statistics.median(times) for times in zip(*rounds)], rounds


def table(only: str, clock: Callable[[], float]) -> str:
    """Measures the rows. Returns the table as Markdown."""
    lines = ["| program | tensorgrad | torch | ratio | quartiles | SciPy |", "|---|---:|---:|---:|---:|---:|"]
    ratios = []
    for name, program in ROWS.items():
        if only in name:
            times, rounds = measured(program, clock)
            low, middle, high = statistics.quantiles([turn[0] / turn[1] for turn in rounds], n=4)
            ratios.append(middle)
            shown = f"{middle:.2f}" if middle <= 1 else f"**{middle:.2f}**"
            beside = duration(times[2]) if len(times) > 2 else "–"
            lines.append(
                f"| {name} | {duration(times[0])} | {duration(times[1])} | {shown} | {low:.2f}–{high:.2f} | {beside} |"
            )
            print(lines[-1], flush=True)
    lines += ["", f"Geometric mean {statistics.geometric_mean(ratios):.2f}; above 1: {sum(r > 1 for r in ratios)}."]
    print(lines[-1])
    return "\n".join(lines)


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--threads", type=int, default=1, help="threads of each library")
    parser.add_argument("--clock", choices=("wall", "thread"), default="wall", help="thread: for use on a busy machine")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/sparse.md")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's sparse layouts are in beta
    torch.set_num_threads(arguments.threads)
    tensorgrad.set_num_threads(arguments.threads)
    about = facts(ROUNDS, SECONDS).replace("one thread", f"{arguments.threads} thread" + "s" * (arguments.threads > 1))
    if arguments.clock == "thread":
        about += ". The machine was busy: the times are those of the thread on its processor"
    print(about)
    found = table(arguments.only, time.thread_time if arguments.clock == "thread" else time.perf_counter)
    if arguments.write and os.environ.get("TENSORGRAD_FAST") == "0":
        title = "## Sparse tensors with NumPy alone: `TENSORGRAD_FAST=0 python -m benchmarks.sparse`"
        store("sparse without fast", f"{about}\n\n{found}", title)
    elif arguments.write:
        store("sparse", f"{about}\n\n{found}", "## Sparse tensors: `python -m benchmarks.sparse`")


if __name__ == "__main__":
    main()
