"""Bags of rows: reductions over segments of the first dimension that differ in length.

`rows` (K, width) are sorted by bag; `bags` (K) is the bag index of each row. `embedding_bag` and `segment_reduce` are
built on these.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorgrad.dispatch.kinds import op
from tensorgrad.dtypes import I64
from tensorgrad.ops.create import arange
from tensorgrad.rows.op import Selection
from tensorgrad.tensor import Tensor


def _per_bag(rows, bags, count, *rest):
    return (count, rows.shape[1]), rows.dtype


def _spread(g: Tensor, bags: Tensor, weights: Tensor | None = None) -> Tensor:
    """Gives each row the gradient of its bag, times its weight."""
    g = g.index_select(0, bags)
    return g if weights is None else g * weights.unsqueeze(1)


def _added(g: Tensor, shape: tuple, rows: Tensor) -> Tensor:
    """Zeros of `shape` with each element of `g` added in its column, to the row that `rows` tells."""
    flat = rows * shape[1] + arange(shape[1], device=g.device)
    return g.new_zeros(shape[0] * shape[1]).index_add(0, flat.reshape(-1), g.reshape(-1)).reshape(shape)


bag_numbers = op(
    "bag_numbers(starts, length: int, whole: bool)", "bag.bag_numbers", where=(),
    shape=lambda starts, length, whole: ((length,), starts.dtype),
)  # fmt: skip
bag_sum = op(
    "bag_sum(rows, bags, count: int, weights=None, ties_up: bool = False)", "bag.bag_sum", linear="rows * weights",
    where=(), shape=_per_bag,
    rows=lambda g, bags, weights: _spread(g, bags, weights),
    weights=lambda g, rows, bags: (_spread(g, bags) * rows).sum(1),
)  # fmt: skip
lookup: Callable = op(
    "bag_lookup(weight, indices, starts=None, mean: bool = False)", "bag.lookup", linear="weight", where=(),
    backward_name="EmbeddingBagBackward0",
    shape=lambda table, indices, starts, mean: (
        ((indices if starts is None else starts).shape[0], table.shape[1]), table.dtype
    ),
    weight=lambda g, weight_shape, indices, starts, mean: lookup_grad(g, indices, starts, weight_shape[0], mean),
)  # fmt: skip
lookup_grad: Callable = op(
    "bag_lookup_grad(g, indices, starts=None, count: int = 0, mean: bool = False)", "bag.lookup_grad", linear="g",
    where=(),
    shape=lambda g, indices, starts, count, mean: ((count, g.shape[1]), g.dtype),
    g=lambda g, indices, starts, mean: lookup(g, indices, starts, mean),  # linear, so its derivative is the op itself
)  # fmt: skip
lookup_max = op(
    "bag_lookup_max(weight, indices)", "bag.lookup_max", where=(), outputs=("out", "chosen"),
    backward_name="EmbeddingBagBackward0",
    shape=lambda table, indices: [
        ((indices.shape[0], table.shape[1]), table.dtype), ((indices.shape[0], table.shape[1]), indices.dtype)
    ],
    selects=Selection(
        lambda weight, chosen: weight.gather(0, chosen.long()),
        lambda g, weight_shape, chosen: _added(g, weight_shape, chosen.long()),
    ),
)  # fmt: skip
bag_argmax = op(
    "bag_argmax(rows, bags, count: int)", "bag.bag_argmax", where=(),
    shape=lambda rows, bags, count: ((count, rows.shape[1]), I64),
)  # fmt: skip


def _extreme_slope(g, out, rows, bags, count):
    """Rows that attain the extremum of their bag share its gradient."""
    hit = ((rows == _spread(out, bags)) | (rows != rows)).to(g.dtype)
    return hit * _spread(g / bag_sum(hit, bags, count).clamp(min=1), bags)


bag_extreme = op(
    "bag_extreme(rows, bags, count: int, largest: bool)", "bag.bag_extreme", where=(), shape=_per_bag,
    rows=_extreme_slope,
)  # fmt: skip
