"""Ops that run as other ops on sparse tensors: their kernels raise `Composed`, and then these functions run.

What is a view of a dense tensor is a new tensor here: each of these rows is that of the view, with the same derivative,
but of a kind that shares no memory. A function of one element whose derivative is not constant runs, as a function of a
dense tensor, on the stored values: so its derivatives are those of the values.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.dispatch.kernel_errors import COMPOSED
from tensorgrad.dispatch.kinds import op
from tensorgrad.ops.sparse_parts import coalesce, raw_values_of, values_at, with_values
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.op import Op
from tensorgrad.storage.sparse import COOArray, SparseArray
from tensorgrad.tensor import Tensor

# The view ops of which sparse tensors have copies: each is the row "sparse_<name>" with a kernel in kernels/sparse.
VIEWS = ("select", "slice", "new_axes", "squeeze", "squeeze_dims", "expand", "real", "imag", "view_as_real",
         "view_as_complex")  # fmt: skip


def _copying(name: str) -> Any:
    view = OPS[name]
    return op(
        f"sparse_{view.signature}", None, linear=view.params[0].name, backward_name=view.backward_name, where=(),
        batch="sparse",
        **view.formulas,
    )  # fmt: skip


_COPIES = {name: _copying(name) for name in VIEWS}


def _copied(view: Op, arguments: tuple) -> Tensor:
    return _COPIES[view.name](*arguments)


def _on_values(pointwise: Op, arguments: tuple) -> Tensor:
    """An op on elements, applied to the stored values of its sparse argument."""
    at = next(k for k, x in enumerate(arguments) if isinstance(x, Tensor) and isinstance(x._array, SparseArray))
    given = arguments[at]
    if isinstance(given._array, COOArray):
        given = coalesce(given)
    made = pointwise.compiled.plain(*arguments[:at], raw_values_of(given), *arguments[at + 1 :])
    return with_values(given.detach(), made)


def _tangent(rule: Any, pointwise: Op, arguments: tuple, tangents: list, result: Tensor) -> Tensor:
    """The tangent of `_on_values`: that of the values, by the rule of pointwise ops."""
    at = next(k for k, x in enumerate(arguments) if isinstance(x, Tensor) and isinstance(x._array, SparseArray))
    given, along = [*arguments], [*tangents]
    given[at], along[at] = values_at(arguments[at], result), values_at(tangents[at], result)
    return with_values(result.detach(), rule(pointwise, tuple(given), along, raw_values_of(result)))


COMPOSED |= {"view": _copied, "pointwise": _on_values, "tangent": _tangent}
