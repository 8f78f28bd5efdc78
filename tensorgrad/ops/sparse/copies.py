"""Indexing of sparse tensors and their parts: what is a view of a dense tensor is a new tensor here.

Each row is that of the view, with the same derivative, but of a kind that shares no memory. The view's kernel for sparse
arrays raises `NotAView`; then these run.
"""

from __future__ import annotations

from tensorgrad.dispatch.kernel_errors import COPIES
from tensorgrad.dispatch.kernel_tables import OPS
from tensorgrad.dispatch.kinds import op

# The view ops of which sparse tensors have copies: each is the row "sparse_<name>" with a kernel in kernels/sparse.
NAMES = ("select", "slice", "new_axes", "squeeze", "squeeze_dims", "expand", "real", "imag", "view_as_real",
         "view_as_complex")  # fmt: skip


def _copying(name: str) -> None:
    view = OPS[name]
    COPIES[name] = op(
        f"sparse_{view.signature}", None, batch="sparse", linear=view.params[0].name, backward_name=view.backward_name, where=(),
        **view.formulas,
    )  # fmt: skip


for _name in NAMES:
    _copying(_name)
