"""Values at coordinates: the sparse tensors that are gradients of dense ones."""

from __future__ import annotations

import numpy as np

from tensorgrad.dispatch.kinds import op
from tensorgrad.ops.sparse_parts import values_at
from tensorgrad.storage.sparse import COOArray


def _at(xp, values, indices, shape):
    return COOArray(np.array(indices, np.int64), values, shape)  # a copy: the program may change its indices


at_coordinates = op(
    "at_coordinates(values, indices, shape: any)",
    _at,
    batch="sparse",
    linear="values",
    values=lambda g, out: values_at(g, out),
    where=(),
    doc="A COO tensor of this shape with `values[k]` at the coordinates `indices[:, k]`, which are not checked.",
)
