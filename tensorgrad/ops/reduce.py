"""Ops that fold dimensions away."""

from __future__ import annotations

from tensorgrad.ops.kinds import reduction
from tensorgrad.ops.shape import _expand


def spread(g, input_shape, dim, keepdim):
    """A reduction's gradient (or result) back in the input's shape, as an expanded view."""
    if not keepdim and dim is not None and input_shape:
        for d in sorted((dim,) if isinstance(dim, int) else dim):
            g = g.unsqueeze(d)
    return _expand(g, input_shape)


sum = reduction(
    "sum(input, dim: dims = None, keepdim: bool = False, *, dtype: dtype = None)",
    "reduce.sum_",
    input=lambda g, input_shape, dim, keepdim: spread(g, input_shape, dim, keepdim),
)
