"""Linear equations with a sparse matrix."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import op
from tensorgrad.ops.pointwise import conj
from tensorgrad.ops.sparse_parts import with_values
from tensorgrad.storage.sparse import CSRArray
from tensorgrad.tensor import Tensor, wrap

solve = op(
    "sparse_solve(input, other, adjoint: bool)",
    None,
    input=lambda g, input, other, out, adjoint: _matrix_grad(g, input, out, adjoint),
    other=lambda g, input, adjoint: solve(input, g, not adjoint),
    batch="sparse",
    where=(),
    backward_name="SpsolveBackward0",
    doc="x with input @ x = other (adjoint: inputᴴ @ x = other), for a square CSR matrix.",
)


def _matrix_grad(g: Tensor, input: Tensor, out: Tensor, adjoint: bool) -> Tensor:
    """The gradient of the matrix: -(A⁻ᴴ g) xᴴ, only where A stores elements."""
    from tensorgrad.kernels.sparse.convert import lines_of

    array = input._array
    assert isinstance(array, CSRArray)
    rows, columns = wrap(lines_of(array.compressed)), wrap(array.plain)
    left, right = (out, solve(input, g, not adjoint)) if adjoint else (solve(input, g, not adjoint), out)
    values = -left.index_select(0, rows) * conj(right.index_select(0, columns))
    return with_values(input.detach(), values.sum(-1) if values.ndim == 2 else values)
