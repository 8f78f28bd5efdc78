"""Measures kernels on non-contiguous arrays (expanded, transposed, sliced, channels last) against torch in one process.

    python -m benchmarks.layouts                   prints the tables
    python -m benchmarks.layouts --only softmax    rows whose name contains this
    python -m benchmarks.layouts --write           also writes them to docs/benchmarks/layouts.md

Uses one thread. Every cell is tensorgrad's time divided by torch's for the same program on an input with that layout:
first the function alone, then with `.sum().backward()`, whose gradient is an expanded scalar. Both start from the same
values, and results and gradients are compared first. Below 1.0 is faster than torch.
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

LIMIT = 1.2
ROUNDS, SECONDS = 7, 0.008

MATRIX, IMAGES = (512, 512), (8, 32, 32, 32)


def _last(function):
    return lambda lib, x, other: function(lib.nn.functional, x)


ON_MATRICES = {  # name: function of (library, input, another contiguous matrix)
    "exp": lambda lib, x, other: x.exp(),
    "tanh": lambda lib, x, other: x.tanh(),
    "sigmoid": lambda lib, x, other: x.sigmoid(),
    "relu": lambda lib, x, other: x.relu(),
    "gelu": _last(lambda F, x: F.gelu(x)),
    "add": lambda lib, x, other: x + other,
    "mul": lambda lib, x, other: x * other,
    "div": lambda lib, x, other: x / (other * other + 1),
    "add a number": lambda lib, x, other: x + 2.0,
    "where": lambda lib, x, other: lib.where(other > 0, x, other),
    "clamp": lambda lib, x, other: x.clamp(-1, 1),
    "sum": lambda lib, x, other: x.sum(),
    "sum of rows": lambda lib, x, other: x.sum(1),
    "sum of columns": lambda lib, x, other: x.sum(0),
    "mean of rows": lambda lib, x, other: x.mean(-1),
    "amax of rows": lambda lib, x, other: x.amax(-1),
    "argmax of rows": lambda lib, x, other: x.argmax(-1),
    "var of rows": lambda lib, x, other: x.var(-1),
    "norm": lambda lib, x, other: x.norm(),
    "softmax": lambda lib, x, other: x.softmax(-1),
    "log_softmax": lambda lib, x, other: x.log_softmax(-1),
    "layer_norm": _last(lambda F, x: F.layer_norm(x, x.shape[-1:])),
    "cumsum": lambda lib, x, other: x.cumsum(-1),
    "sort": lambda lib, x, other: x.sort(-1)[0],
    "topk": lambda lib, x, other: x.topk(8)[0],
    "matmul": lambda lib, x, other: x @ other,
    "linear": lambda lib, x, other: lib.nn.functional.linear(x, other),
    "cat": lambda lib, x, other: lib.cat([x, other]),
    "contiguous": lambda lib, x, other: x.contiguous() * 1.0,
    "index of rows": lambda lib, x, other: x[lib.arange(0, 512, 2)],
}
ON_IMAGES = {
    "relu": lambda lib, x, weight: x.relu(),
    "add a bias": lambda lib, x, weight: x + weight[0, :, 1, 1].reshape(1, 32, 1, 1),
    "conv2d 3×3": lambda lib, x, weight: lib.nn.functional.conv2d(x, weight, padding=1),
    "conv2d 1×1": lambda lib, x, weight: lib.nn.functional.conv2d(x, weight[:, :, :1, :1]),
    "batch_norm": _last(lambda F, x: F.batch_norm(x, None, None, training=True)),
    "group_norm": _last(lambda F, x: F.group_norm(x, 4)),
    "max_pool2d": _last(lambda F, x: F.max_pool2d(x, 2)),
    "avg_pool2d": _last(lambda F, x: F.avg_pool2d(x, 2)),
    "adaptive_avg_pool2d": _last(lambda F, x: F.adaptive_avg_pool2d(x, 1)),
    "interpolate": _last(lambda F, x: F.interpolate(x, scale_factor=2)),
    "mean of channels": lambda lib, x, weight: x.mean((2, 3)),
    "flatten": lambda lib, x, weight: x.flatten(1) * 1.0,
}


def _of_matrix(lib, layout):
    """Returns a 512 × 512 matrix with a layout, as a leaf."""
    values = lib.tensor(np.random.default_rng(0).standard_normal((1024, 512)).astype(np.float32))
    return {
        "contiguous": lambda: values[:512].clone(),
        "expanded": lambda: values[:1].expand(MATRIX),
        "transposed": lambda: values[:512].clone().t(),
        "sliced": lambda: values.reshape(512, 1024)[:, 256:768],
        "every other": lambda: values.reshape(512, 1024)[:, ::2],
    }[layout]()


def _of_images(lib, layout):
    """Returns an 8 × 32 × 32 × 32 tensor with a layout."""
    values = lib.tensor(np.random.default_rng(0).standard_normal((8, 32, 32, 64)).astype(np.float32))
    return {
        "contiguous": lambda: values[..., :32].contiguous(),
        "expanded": lambda: values[:1, ..., :32].contiguous().expand(IMAGES),
        "transposed": lambda: values[..., :32].contiguous().transpose(2, 3),
        "sliced": lambda: values[..., 16:48],
        "channels_last": lambda: values[..., :32].contiguous(memory_format=lib.channels_last),
    }[layout]()


GROUPS = (  # title, rows, function that makes an input with a layout, layouts
    ("512×512", ON_MATRICES, _of_matrix, ("contiguous", "expanded", "transposed", "sliced", "every other")),
    ("8×32×32×32", ON_IMAGES, _of_images, ("contiguous", "expanded", "transposed", "sliced", "channels_last")),
)


def program(lib, function, inputs, layout, backward):
    """Returns the function to time; it takes no arguments and returns the result to compare."""
    x = inputs(lib, layout)
    shape = MATRIX if x.ndim == 2 else (32, 32, 3, 3)
    other = lib.tensor(np.random.default_rng(1).standard_normal(shape).astype(np.float32) * 0.1)
    if not backward:
        return lambda: function(lib, x, other)
    x.requires_grad_()

    def step():
        x.grad = None
        function(lib, x, other).sum().backward()
        return x.grad

    return step


def ratio(function, inputs, layout, backward, clock) -> tuple[float, float]:
    """Measures a program. Returns (the median ratio of the rounds, our time in seconds)."""
    steps = [program(lib, function, inputs, layout, backward) for lib in (tensorgrad, torch)]
    settle(steps[0])
    results = [np.asarray(step().detach()) for step in steps]
    largest = max(1.0, float(abs(results[1]).max()))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-3, atol=1e-4 * largest)
    counts, times = [], []
    for step in steps:
        start, count = clock(), 0
        while clock() - start < SECONDS:
            step()
            count += 1
        counts.append(count)
    for _ in range(ROUNDS):
        turn = []
        for step, count in zip(steps, counts, strict=True):
            start = clock()
            for _ in range(count):
                step()
            turn.append((clock() - start) / count)
        times.append(turn)
    return statistics.median(ours / theirs for ours, theirs in times), statistics.median(t[0] for t in times)


def tables(only="", clock=time.perf_counter) -> str:
    """Measures every cell. Returns the tables as Markdown."""
    lines, slow, all_ratios = [], [], []
    for title, rows, inputs, layouts in GROUPS:
        lines += ["", f"| {title} | " + " | ".join(f"{layout} | with backward" for layout in layouts) + " |"]
        lines.append("|---|" + "---:|" * (2 * len(layouts)))
        for name, function in rows.items():
            if only not in name:
                continue
            cells = []
            for layout in layouts:
                for backward in (False, True):
                    if backward and name.startswith("argmax"):
                        cells.append("")
                        continue
                    found, seconds = ratio(function, inputs, layout, backward, clock)
                    all_ratios.append(found)
                    cells.append(f"{found:.2f}" if found <= LIMIT else f"**{found:.2f}**")
                    if found > LIMIT:
                        after = ", backward" if backward else ""
                        slow.append(f"{name}, {layout}{after}: {found:.2f}, {seconds * 1e6:.0f} µs")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    mean = statistics.geometric_mean(all_ratios)
    lines += ["", f"{len(all_ratios)} cells, geometric mean {mean:.2f}; above {LIMIT}: {len(slow)}."]
    print(lines[-1], *slow, sep="\n")
    return "\n".join(lines)


def main() -> None:
    """Measures and prints the tables, and stores them with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--clock", choices=("wall", "thread"), default="wall", help="thread: for use on a busy machine")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/benchmarks/layouts.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tensorgrad.set_num_threads(1)
    about = facts(ROUNDS, SECONDS)
    print(about)
    found = tables(arguments.only, time.thread_time if arguments.clock == "thread" else time.perf_counter)
    if arguments.write:
        store("layouts", f"{about}\n{found}", "## Layouts: `python -m benchmarks.layouts`")


if __name__ == "__main__":
    main()
