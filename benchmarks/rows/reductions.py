"""Reductions, scans and sorting of a million elements: in one row, and along each row of a 1000×1000 matrix."""

from __future__ import annotations

from benchmarks.rows import Row, drawn


def by_index(x, found):
    """Returns the values, and the elements at the indices: indices of equal elements may be in either order."""
    return [found.values, x.gather(-1, found.indices)]


OPS = {  # the step on a tensor, and its results if they differ from what the step returns
    "sum": (lambda x: x.sum(-1), None),
    "mean": (lambda x: x.mean(-1), None),
    "var": (lambda x: x.var(-1), None),
    "argmax": (lambda x: x.argmax(-1), None),
    "cumsum": (lambda x: x.cumsum(-1), None),
    "sort": (lambda x: x.sort(-1), by_index),
    "topk": (lambda x: x.topk(10, -1), by_index),
}
SHAPES = {"1 M": (1_000_000,), "1000×1000": (1000, 1000)}
DOWN = {"sum": lambda x: x.sum(0), "mean": lambda x: x.mean(0), "var": lambda x: x.var(0)}


def reduction(function, results=None):
    """Returns the build function of one op."""

    def build(torch, shape: tuple):
        x = drawn(torch, *shape)
        return lambda: function(x), lambda: results(x, function(x)) if results else [function(x)]

    return build


ROWS = [
    *(
        Row(f"{name} {title}", reduction(*OPS[name]), {"shape": shape})
        for name in OPS
        for title, shape in SHAPES.items()
    ),
    *(Row(f"{name} 1000×1000, of columns", reduction(DOWN[name]), {"shape": (1000, 1000)}) for name in DOWN),
]
