"""Which op has a kernel on which sparse layout: "file.function" of this folder.

Ops on elements that keep zeros need no entry, unless two tensors meet: their dense kernel runs on the stored values.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorgrad.rows.kernel_tables import REGISTRY, RULES
from tensorgrad.rows.op import Op
from tensorgrad.storage.sparse import SparseArray, SparseStorage

# On all sparse layouts.
ALL = {
    "to_copy": "convert.cast", "clone_copy": "convert.clone", "sparse_to_dense": "convert.to_dense",
    "sparse_written": "convert.dense",
    "sparse_values": "parts.values", "sparse_with_values": "parts.with_values", "sparse_mask": "parts.mask",
    "sparse_masked_reduction": "masked.reduction", "values_at": "parts.values_at_pattern",
    "sparse_shared": "parts.shared", "to_layout": "convert.to_layout",
    "add": "pointwise.add", "sub": "pointwise.sub", "rsub": "pointwise.subtract_from", "mul": "pointwise.mul",
    "copy": "pointwise.copied", "div": "pointwise.div", "floor_divide": "pointwise.floor_divide",
    "pow": "pointwise.power",
    "matmul": "matmul.matmul", "mm": "matmul.mm", "mv": "matmul.mv", "bmm": "matmul.bmm", "addmm": "matmul.addmm",
    "linear": "matmul.linear", "matmul_nt": "matmul.nt", "matmul_tn": "matmul.tn",
    "sampled_addmm": "matmul.sampled", "sparse_mm": "matmul.mm",
    "alias": "shape.alias", "transpose": "shape.transpose", "t": "shape.transposed", "permute": "shape.permute",
    "cat": "shape.cat", "stack": "shape.stack", "index_select": "shape.index_select",
    "unsqueeze": "shape.unsqueeze", "embed_view": "index.placed", "sum": "reduce.sum_",
    "any": "reduce.any_", "threshold_grad": "pointwise.threshold_grad", "addmv": "matmul.addmv",
}  # fmt: skip
# View ops that make new tensors (ops/sparse/composed.py), and what makes them.
COPIES = {
    "select": "index.at", "slice": "index.at", "new_axes": "index.at", "squeeze": "shape.squeeze",
    "squeeze_dims": "shape.squeeze", "expand": "shape.expand", "real": "shape.real", "imag": "shape.imag",
    "view_as_real": "shape.as_real", "view_as_complex": "shape.as_complex",
}  # fmt: skip
ALL |= {name: "index.composed" for name in COPIES} | {f"sparse_{name}": path for name, path in COPIES.items()}
COO = {
    "coalesce": "coordinates.coalesced", "sparse_softmax": "reduce.softmax", "sparse_sum": "reduce.sum_over",
    "sparse_sum_grad": "reduce.sum_grad", "sparse_broadcast": "pointwise.broadcast",
    "sparse_elements": "convert.elements",
}  # fmt: skip
CSR = {"sparse_mm_reduce": "matmul.reduced", "sparse_solve": "solve.solve"}


def of_any_layout(op: Op, storage: Any) -> Any:
    """The kernel, on any sparse layout, of an op on elements, or on values; else None (the source "stored values")."""
    if not issubclass(storage.array_type, SparseArray):
        return None
    from tensorgrad.kernels.sparse import parts, pointwise

    of_values = {"sparse_values": parts.values, "sparse_with_values": parts.with_values,
                 "values_at": parts.values_at_pattern}  # fmt: skip
    return partial(pointwise.on_values, op) if op.kind == "pointwise" else of_values.get(op.name)


def _sum(a: Any, b: Any) -> Any:
    from tensorgrad.kernels.sparse import pointwise

    return pointwise.add(a, b)


for _layout in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"):
    _rows = ALL | {"sparse_coo": COO, "sparse_csr": CSR}.get(_layout, {})
    REGISTRY[_layout, "device"] = {name: f"sparse.{path}" for name, path in _rows.items()}
RULES["stored values"] = of_any_layout
SparseStorage.sum = staticmethod(_sum)
