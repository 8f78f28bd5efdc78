"""Views and rearrangements: the same elements under another shape."""

from __future__ import annotations

from tensorgrad.ops.errors import wrap_dim
from tensorgrad.ops.kinds import view
from tensorgrad.tensor import Tensor

_expand = view("expand(input, size: shape)", "shape.expand", where="",
               input=lambda g: g)  # fmt: skip
_unsqueeze = view("unsqueeze(input, dim: int)", lambda xp, x, dim: x[(slice(None),) * dim + (None,)],
                  prepare=lambda x, dim: (x, wrap_dim(dim, x.ndim + 1)), input=lambda g, dim: g.squeeze(dim))  # fmt: skip
Tensor.expand = lambda self, *size: _expand(self, tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size)
