"""Elements by their places along one dimension, and back: the derivative of all that selects (max, sort, ...)."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import op

pick = op(
    "pick(input, index, dim: int, folded: bool)", "reduce.pick", where="", backward_name="GatherBackward0",
    shape=lambda x, index, dim, folded: (index.shape, x.dtype),
    input=lambda g, index, input_shape, dim, folded: place(g, index, input_shape, dim, folded, True),
    doc="The elements that `index` names along `dim`; `folded`: the dimension is gone from `index` and result.",
)  # fmt: skip
place = op(
    "place(input, index, shape: shape, dim: int, folded: bool, repeats: bool)", "reduce.place", where="",
    shape=lambda x, index, shape, *rest: (shape, x.dtype), backward_name="ScatterAddBackward0",
    input=lambda g, index, dim, folded: pick(g, index, dim, folded),
    doc="Zeros of `shape` with `input` where `pick` would take it from; `repeats`: places may occur twice.",
)  # fmt: skip
