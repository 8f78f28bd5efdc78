"""Gathers elements by index along one dimension, and scatters them back: the derivative of max, sort and the like."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import op
from tensorgrad.rows.op import Selection
from tensorgrad.transforms.batch_values import each


def _picked_in_batch(input, index, dim, folded, size, mapped):
    if input.ndim == ("input" in mapped):  # one number for each sample
        return input
    input, index = each(size, mapped, input=input, index=index)
    return pick(input, index, dim + 1, folded)


def _placed_in_batch(input, index, shape, dim, folded, repeats, size, mapped):
    input, index = each(size, mapped, input=input, index=index)
    return place(input, index, (size, *shape), dim + 1, folded, repeats) if shape else input


pick = op(
    "pick(input, index, dim: int, folded: bool)", "reduce.pick", linear="input", where=(), batch=_picked_in_batch,
    backward_name="GatherBackward0",
    shape=lambda x, index, dim, folded: (index.shape, x.dtype),
    input=lambda g, index, input_shape, dim, folded: place(g, index, input_shape, dim, folded, True),
    doc="The elements at `index` along `dim`; `folded`: `index` and the result lack that dimension.",
)  # fmt: skip
place = op(
    "place(input, index, shape: shape, dim: int, folded: bool, repeats: bool)", "reduce.place", linear="input",
    where=(), batch=_placed_in_batch,
    shape=lambda x, index, shape, *rest: (shape, x.dtype), backward_name="ScatterAddBackward0",
    input=lambda g, index, dim, folded: pick(g, index, dim, folded),
    doc="Zeros of `shape`, with `input` at the positions `pick` reads; `repeats`: indices may repeat.",
)  # fmt: skip

# What an op selects that returns indices along `dim`: an element for each index, or the same, with some more than once;
# or one element, whose dimension is gone unless `keepdim`.
ALONG_DIM = Selection(
    lambda input, indices, dim: pick(input, indices, dim, False),
    lambda g, indices, input_shape, dim: place(g, indices, input_shape, dim, False, False),
)
REPEATED = ALONG_DIM._replace(
    scatter=lambda g, indices, input_shape, dim: place(g, indices, input_shape, dim, False, True)
)
ONE_OF_DIM = Selection(
    lambda input, indices, dim, keepdim: pick(input, indices, dim, not keepdim),
    lambda g, indices, input_shape, dim, keepdim: place(g, indices, input_shape, dim, not keepdim, False),
)
