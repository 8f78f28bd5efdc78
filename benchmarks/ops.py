"""Measures the cost of ops from every family, compared with torch in the same process.

    python -m benchmarks.ops                  prints the table (minutes)
    python -m benchmarks.ops sort reduce sum  only some families or ops
    python -m benchmarks.ops --write          also writes it to docs/benchmarks/ops.md
    python -m benchmarks.ops --quick          one short round each, to check that everything runs

Each op runs on about 16, 10 thousand and 1 million elements: forward, and if it has a derivative also forward and
backward, with one thread and float32. Both libraries get the same values, and their results are compared first. A ratio
below 1.0 is faster than torch.
"""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

from benchmarks import overhead, report  # first: overhead sets the number of threads

# isort: split
import numpy as np
import torch

SIZES = (16, 10_000, 1_000_000)
ROUNDS = 9
ROUND_SECONDS = 0.01
SLOW = 2.0


class Row(NamedTuple):
    """An op as an expression of the library `l`, its nn.functional `F`, and the operands from `operands`."""

    family: str
    name: str
    expression: str
    kind: str = "flat"  # the kind of its operands: a key of SHAPES
    backward: bool = True
    largest: int = SIZES[-1]


SHAPES = {  # the shapes of x and y, by number of elements
    "flat": {16: (16,), 10_000: (10_000,), 1_000_000: (1_000_000,)},
    "square": {16: (4, 4), 10_000: (100, 100), 1_000_000: (1000, 1000)},
    "batch": {16: (1, 4, 4), 10_000: (25, 20, 20), 1_000_000: (100, 100, 100)},
    "image": {16: (1, 1, 4, 4), 10_000: (1, 4, 50, 50), 1_000_000: (4, 16, 125, 125)},
    "heads": {16: (1, 1, 4, 4), 10_000: (1, 4, 50, 50), 1_000_000: (5, 8, 500, 50)},
}

ROWS = (
    Row("pointwise", "add", "x + y"),
    Row("pointwise", "mul by a number", "x * 2.5"),
    Row("pointwise", "div", "x / y"),
    Row("pointwise", "pow", "x ** 3"),
    Row("pointwise", "exp", "x.exp()"),
    Row("pointwise", "sin", "x.sin()"),
    Row("pointwise", "atan2", "l.atan2(x, y)"),
    Row("pointwise", "broadcast add", "x + y[0]", "square"),
    Row("compare", "greater", "x > y", backward=False),
    Row("compare", "where", "l.where(m, x, y)"),
    Row("compare", "clamp", "x.clamp(-1, 1)"),
    Row("complex", "mul", "l.complex(x, y) * l.complex(y, x)", backward=False),
    Row("special", "erf", "x.erf()"),
    Row("special", "lgamma", "l.lgamma(a)", backward=False),
    Row("activation", "relu", "F.relu(x)"),
    Row("activation", "sigmoid", "x.sigmoid()"),
    Row("activation", "gelu", "F.gelu(x)"),
    Row("activation", "silu", "F.silu(x)"),
    Row("reduce", "sum", "x.sum()"),
    Row("reduce", "sum of columns", "x.sum(0)", "square"),
    Row("reduce", "mean of rows", "x.mean(-1)", "square"),
    Row("reduce", "max of rows", "x.max(-1).values", "square"),
    Row("reduce", "var of rows", "x.var(-1)", "square"),
    Row("reduce", "argmax", "x.argmax()", backward=False),
    Row("reduce", "norm", "x.norm()"),
    Row("reduce", "logsumexp", "x.logsumexp(-1)", "square"),
    Row("scan", "cumsum", "x.cumsum(0)"),
    Row("scan", "cummax", "x.cummax(-1).values", "square"),
    Row("sort", "sort", "x.sort().values"),
    Row("sort", "topk", "x.topk(3).values", "square"),
    Row("sort", "unique", "i.unique()", backward=False),
    Row("sort", "searchsorted", "l.searchsorted(s, x)", backward=False),
    Row("index", "rows by number", "x[i]", "square"),
    Row("index", "elements by mask", "x[m]"),
    Row("index", "gather", "x.gather(0, i)"),
    Row("scatter", "scatter_add", "x.scatter_add(0, i, y)"),
    Row("scatter", "index_add", "x.index_add(0, i, y)", "square"),
    Row("embedding", "embedding", "F.embedding(i, x)", "square"),
    Row("shape", "transposed copy", "x.t().contiguous()", "square"),
    Row("shape", "cat", "l.cat([x, y], -1)", "square"),
    Row("shape", "stack", "l.stack([x, y])"),
    Row("shape", "flip", "x.flip(0)"),
    Row("shape", "pad", "F.pad(x, (1, 1))", "square"),
    Row("matmul", "matrix product", "x @ y", "square"),
    Row("matmul", "batched", "x @ y", "batch"),
    Row("matmul", "linear", "F.linear(x, y, y[0])", "square"),
    Row("matmul", "einsum", 'l.einsum("bij,bkj->bik", x, y)', "batch"),
    Row("linalg", "solve", "l.linalg.solve(p, x)", "square"),
    Row("linalg", "cholesky", "l.linalg.cholesky(p)", "square"),
    Row("linalg", "det, batched", "l.linalg.det(x)", "batch", largest=10_000),
    Row("linalg", "singular values", "l.linalg.svdvals(x)", "square", largest=10_000),
    Row("conv", "conv2d 3×3", "F.conv2d(x, w, padding=1)", "image"),
    Row("conv", "conv_transpose2d 3×3", "F.conv_transpose2d(x, w)", "image"),
    Row("pool", "max_pool2d", "F.max_pool2d(x, 2)", "image"),
    Row("pool", "avg_pool2d", "F.avg_pool2d(x, 2)", "image"),
    Row("interpolate", "bilinear ×2", 'F.interpolate(x, scale_factor=2, mode="bilinear")', "image"),
    Row("norm", "layer_norm", "F.layer_norm(x, x.shape[-1:])", "square"),
    Row("norm", "batch_norm", "F.batch_norm(x, None, None, training=True)", "image"),
    Row("norm", "group_norm", "F.group_norm(x, 1)", "image"),
    Row("softmax", "softmax", "x.softmax(-1)", "square"),
    Row("softmax", "log_softmax", "x.log_softmax(-1)", "square"),
    Row("loss", "cross_entropy", "F.cross_entropy(x, i)", "square"),
    Row("loss", "mse_loss", "F.mse_loss(x, y)"),
    Row("loss", "binary cross-entropy", "F.binary_cross_entropy_with_logits(x, y)"),
    Row("attention", "attention", "F.scaled_dot_product_attention(x, y, x)", "heads"),
    Row("fft", "rfft", "l.fft.rfft(x).abs()"),
    Row("fft", "fft2", "l.fft.fft2(x).abs()", "square"),
    Row("random", "rand", "l.rand(x.shape)", backward=False),
    Row("random", "randn", "l.randn(x.shape)", backward=False),
    Row("random", "dropout", "F.dropout(x, 0.5)"),
    Row("create", "zeros", "l.zeros(x.shape)", backward=False),
    Row("create", "arange", "l.arange(len(x))", backward=False),
    Row("copy", "clone", "x.clone()"),
    Row("copy", "to float64", "x.double()"),
)


def operands(row: Row, size: int) -> dict[str, np.ndarray]:
    """Makes the arrays named in a row's expression, from a fixed seed."""
    generator = np.random.default_rng(0)
    shape = SHAPES[row.kind][size]

    def drawn(*shape):
        return generator.standard_normal(shape).astype(np.float32)

    make = {
        "x": lambda: drawn(*shape),
        "y": lambda: drawn(*shape),
        "a": lambda: abs(drawn(*shape)) + 0.5,
        "s": lambda: np.sort(drawn(1000)),
        "i": lambda: generator.integers(0, shape[0], shape[0]),
        "m": lambda: drawn(*shape) > 0,
        "p": lambda: drawn(*shape) + 3 * shape[0] ** 0.5 * np.eye(shape[0], dtype=np.float32),
        "w": lambda: drawn(shape[1], shape[1], 3, 3),
    }
    if "cholesky" in row.expression:
        make["p"] = lambda: (lambda q: q @ q.T / shape[0] + np.eye(shape[0], dtype=np.float32))(drawn(*shape))
    return {name: make[name]() for name in make if re.search(rf"\b{name}\b", row.expression)}


def program(row: Row, size: int, backward: bool):
    """Returns the row as a program for `overhead.measure`: library -> step -> result."""
    arrays = operands(row, size)
    run = eval(f"lambda l, F, {', '.join(arrays)}: {row.expression}")

    def setup(lib):
        lib.manual_seed(0)
        tensors = [lib.tensor(a, requires_grad=backward and a.dtype == np.float32) for a in arrays.values()]
        if not backward:
            return lambda: run(lib, lib.nn.functional, *tensors)
        tracked = [t for t in tensors if t.requires_grad]
        weight = lib.ones_like(run(lib, lib.nn.functional, *tensors).detach())
        lib.manual_seed(0)

        def step():
            return lib.autograd.grad(run(lib, lib.nn.functional, *tensors), tracked, weight)[0]

        return step

    return setup


def measured(rows, sizes, rounds: int, seconds: float):
    """Prints a line for each row and mode, and yields (row, mode, {size: measurement})."""
    for row in rows:
        for backward in (False, True) if row.backward else (False,):
            found = {}
            for size in (s for s in sizes if s <= row.largest):
                atol = 1e-5 if size < 100_000 else 1e-3  # sums of a thousand products and more
                found[size] = overhead.measure(program(row, size, backward), rounds, seconds, atol, collect=False)
            mode = "forward, backward" if backward else "forward"
            print(line(row, mode, found), flush=True)
            yield row, mode, found


def line(row: Row, mode: str, found: dict) -> str:
    """Formats a row of the table: the ratio, its quartiles and our time for each size."""
    cells = []
    for size in SIZES:
        if size not in found:
            cells.append("–")
            continue
        ours, _, ratio, low, high = found[size]
        cells.append(f"{'**' if ratio > SLOW else ''}{ratio:.2f}{'**' if ratio > SLOW else ''} "
                     f"({low:.2f}–{high:.2f}) {ours * 1e6:.3g}")  # fmt: skip
    return f"| {row.family} | {row.name} | {mode} | {' | '.join(cells)} |"


def summary(found: list) -> str:
    """Summarizes how many measurements are below 1, and lists those above SLOW, worst first."""
    ratios = [measurement[2] for _, _, by_size in found for measurement in by_size.values()]
    slow = []
    for row, mode, by_size in found:
        over = {size: m[2] for size, m in by_size.items() if m[2] > SLOW}
        if over:
            cells = ", ".join(f"{ratio:.1f} at {size:,}" for size, ratio in over.items())
            slow.append((max(over.values()), f"\n- {row.family}, {row.name}, {mode}: {cells}"))
    text = f"{sum(r <= 1 for r in ratios)} of {len(ratios)} measurements are as fast as torch or faster, "
    text += f"{sum(r > SLOW for r in ratios)} take more than {SLOW:g} times as long" + (":\n" if slow else ".")
    return text + "".join(line for _, line in sorted(slow, reverse=True))


def main() -> None:
    """Measures and prints the table, and stores it with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="families or ops (default: all)")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/ops.md")
    parser.add_argument("--quick", action="store_true", help="one short round each, to check that everything runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rounds, seconds = (1, 1e-4) if arguments.quick else (ROUNDS, ROUND_SECONDS)
    rows = [r for r in ROWS if not arguments.names or {r.family, r.name} & set(arguments.names)]
    head = (
        "| family | op | | 16: ratio (quartiles) µs | 10 K | 1 M |\n"
        "|---|---|---|---|---|---|"
    )  # fmt: skip
    print(overhead.facts(rounds, seconds), head, sep="\n\n")
    found = list(measured(rows, SIZES, rounds, seconds))
    print(f"\n{summary(found)}")
    if arguments.write:
        table = "\n".join([head, *(line(*each) for each in found)])
        text = f"{overhead.facts(rounds, seconds)}\n\n{table}\n\n{summary(found)}"
        report.store("ops", text, "## Ops: `python -m benchmarks.ops`")


if __name__ == "__main__":
    main()
