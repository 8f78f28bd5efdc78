"""Pointwise ops without a graph, at sizes from those dominated by call overhead to those limited by memory."""

from __future__ import annotations

from benchmarks.rows import Row, drawn

OPS = {
    "add": lambda torch, x, y: lambda: x + y,
    "mul": lambda torch, x, y: lambda: x * y,
    "exp": lambda torch, x, y: lambda: x.exp(),
    "tanh": lambda torch, x, y: lambda: x.tanh(),
}


def pointwise(op: str):
    """Returns the build function of one op."""

    def build(torch, size: int):
        step = OPS[op](torch, drawn(torch, size), drawn(torch, size, seed=1))
        return step, lambda: [step()]

    return build


ROWS = [
    Row(f"{op} {title}", pointwise(op), {"size": size}, {"size": min(size, 100_000)})
    for op in OPS
    for title, size in (("16", 16), ("10 K", 10_000), ("1 M", 1_000_000), ("10 M", 10_000_000))
]
