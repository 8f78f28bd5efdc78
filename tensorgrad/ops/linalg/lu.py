"""LU decompositions A = P L U, and the solution of equations with them.

The packed form (see `kernels/array/lu.py`) has U on and above the diagonal and L, which has a unit diagonal, below it;
so a gradient by both is one matrix, too.
"""

from __future__ import annotations

import numpy as np

from tensorgrad import dtypes, return_types
from tensorgrad.dispatch.kernel_errors import unsupported
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_flags
from tensorgrad.kernels.array import linalg as checks
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.ops import create
from tensorgrad.ops.join import cat
from tensorgrad.ops.linalg.linalg import adjoint, check_equation, failure, named, solve_triangles
from tensorgrad.ops.linalg.matmul import matmul, nt, tn
from tensorgrad.ops.pointwise import conj
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

# --- the decomposition ---------------------------------------------------------------------------------------------


def _check_factored(a, pivot, name: str = "torch.lu_factor"):
    """Raises: RuntimeError for fewer than two dimensions, NotImplementedError for integers and 16-bit floats."""
    if a.ndim < 2:
        raise RuntimeError(f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(a.shape)} instead")
    if a.dtype.kind not in "fc" or a.dtype.itemsize == 2:
        unsupported("lu", a)
    if not pivot and isinstance(a, np.ndarray):
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return a, pivot


def _gradient(grads, LU, pivots):
    """The gradient of a function of L and U by A = P L U.

    Source: F. de Hoog, R. Anderssen, M. Lukas, "Differentiation of matrix functionals using triangular factorization",
    2011; for non-square matrices with the product rule on L [U₁ U₂] and [L₁; L₂] U.
    """
    g = grads[0]
    k = min(g._array.shape[-2:])
    square = LU[..., :k, :k]
    by_l, by_u = g[..., :k].tril(-1), g[..., :k, :].triu()
    right, below = by_u[..., k:], by_l[..., k:, :]  # by U₂ and L₂, the parts outside the leading square
    lower = tn(conj(_ones_below(square)), by_l[..., :k, :]) - nt(right, conj(LU[..., :k, k:]))
    upper = nt(by_u[..., :k], conj(square.triu())) - tn(conj(LU[..., k:, :k]), below)
    middle = cat([lower.tril(-1) + upper.triu(), below], -2)
    middle = adjoint(solve_triangles(square, adjoint(middle), True, False))
    result = solve_triangles(adjoint(square), cat([middle[..., :k, :], right], -1), True, True)
    if g._array.shape[-2] > k:
        result = cat([result, middle[..., k:, :]], -2)
    return [_reordered(result, pivots, True)]


def _ones_below(packed: Tensor) -> Tensor:
    """Returns L of the packed form: the strict lower triangle, with ones on the diagonal."""
    return packed.tril(-1) + create.eye(*packed._array.shape[-2:], dtype=packed.dtype, device=packed.device)


_row_order = op(
    "lu_row_order(pivots, m: int, inverse: bool)",
    "lu.row_order",
    batch="leading",
    shape=lambda pivots, m, inverse: ((*pivots.shape[:-1], m), np.dtype(np.int64)),
    where=(),
)


def _reordered(x: Tensor, pivots: Tensor, inverse: bool) -> Tensor:
    """Returns Pᴴ x, or P x if `inverse`, with P of the size given by the rows of `x`."""
    rows = _row_order(pivots, x._array.shape[-2], inverse)
    lead = matmul_kernels.broadcast_lead(x._array.shape[:-2], rows._array.shape[:-1])
    shape = (*lead, *x._array.shape[-2:])
    return x.expand(shape).gather(-2, rows.unsqueeze(-1).expand(shape))


def _shapes(a, pivot):
    lead, k = a.shape[:-2], min(a.shape[-2:])
    return [(a.shape, a.dtype), ((*lead, k), np.int32), (lead, np.int32)]


def _tangent(input_t, LU, pivots):
    """With X = L⁻¹ Pᴴ t U⁻¹ of the leading square: L X below the diagonal, X U above it, and the rest by their rows."""
    t = _reordered(input_t, pivots, False)
    k = min(t._array.shape[-2:])
    square = LU[..., :k, :k]
    lower, upper = _ones_below(square), square.triu()
    half = solve_triangles(square, t[..., :k, :], False, True)  # L⁻¹ Pᴴ t
    inside = adjoint(solve_triangles(adjoint(upper), adjoint(half[..., :k]), False, False))
    l_t, u_t = matmul(lower, inside.tril(-1)), matmul(inside.triu(), upper)
    made = l_t + u_t
    if LU._array.shape[-1] > k:
        right = LU[..., :k, k:]
        made = cat([made, half[..., k:] - matmul(inside.tril(-1), right)], -1)
    if LU._array.shape[-2] > k:
        below = t[..., k:, :] - matmul(LU[..., k:, :k], u_t)
        made = cat([made, adjoint(solve_triangles(adjoint(upper), adjoint(below), False, False))], -2)
    return made


_factor = op(
    "lu_factor(input, pivot: bool)",
    "lu.lu_factor",
    strides="columns rows rows",
    batch="leading",
    prepare=_check_factored,
    backward=_gradient,
    jvp=_tangent,
    wrt=("input",),
    outputs=("LU", "pivots", "info"),
    shape=_shapes,
    backward_name="LinalgLuFactorExBackward0",
    where=(),
)


def _check_info(name: str, info: Tensor) -> None:
    """Raises: RuntimeError naming the first matrix with a zero on the diagonal of U."""
    failed = failure(info)
    if failed:
        batch, i = failed
        raise RuntimeError(
            f"torch.linalg.{name}: {batch}U[{i},{i}] is zero and using it on lu_solve would result in a division by "
            "zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
            "linalg.lu_factor_ex(A, pivot)"
        )


def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False, out=None
) -> return_types.linalg_lu_factor_ex:
    """Like `torch.linalg.lu_factor`, but returns which entry of U's diagonal is zero (0: none) instead of raising.

    Raises:
        RuntimeError: If there are fewer than two dimensions, or if `check_errors` is True and a matrix is singular.

    >>> torch.linalg.lu_factor_ex(torch.zeros(2, 2)).info
    tensor(1, dtype=torch.int32)
    """
    results = _factor(A, pivot)
    if check_errors:
        _check_info("lu_factor_ex", results[2])
    return named(return_type("linalg_lu_factor_ex"), results, out, lu_factor_ex)


def lu_factor(A: Tensor, *, pivot: bool = True, out=None) -> return_types.linalg_lu_factor:
    """Computes the packed LU decomposition of matrices (*, m, n), and the pivots.

    The pivots are the rows (from 1) with which each row was swapped in turn.

    Raises:
        RuntimeError: If a matrix is singular, there are fewer than two dimensions, or `pivot=False` on the CPU.

    >>> torch.linalg.lu_factor(torch.tensor([[1.0, 2.0], [4.0, 4.0]]))
    torch.return_types.linalg_lu_factor(
    LU=tensor([[4.0000, 4.0000],
            [0.2500, 1.0000]]),
    pivots=tensor([2, 2], dtype=torch.int32))
    """
    packed, pivots, info = _factor(A, pivot)
    _check_info("lu_factor", info)
    return named(return_type("linalg_lu_factor"), (packed, pivots), out, lu_factor)


def linalg_lu(A: Tensor, *, pivot: bool = True, out=None) -> return_types.linalg_lu:
    """Decomposes A = P L U into a permutation, a lower unitriangular and an upper triangular matrix.

    For A (*, m, n) and k = min(m, n) they are (*, m, m), (*, m, k) and (*, k, n); P is empty without pivoting.

    Raises:
        RuntimeError: If there are fewer than two dimensions, or `pivot=False` on the CPU.

    >>> P, L, U = torch.linalg.lu(torch.tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> P @ L @ U
    tensor([[1., 2.],
            [4., 4.]])
    """
    _check_factored(A._array, pivot, "linalg.lu")
    packed, pivots, _ = _factor(A, pivot)
    results = _unpacked(packed, pivots, True, pivot)
    return named(return_type("linalg_lu"), results, out, linalg_lu)


@composite("function", "method")
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out=None):
    """The older form of `torch.linalg.lu_factor`, and with `get_infos` of `lu_factor_ex`: allows singular matrices.

    Raises:
        TypeError: If `out` is not a tuple of as many tensors as are returned.

    >>> torch.lu(torch.tensor([[2.0]]))
    (tensor([[2.]]), tensor([1], dtype=torch.int32))
    """
    check_flags(pivot=pivot)
    results = _factor(A, pivot)[: 3 if get_infos else 2]
    if out is not None:
        count = len(out) if isinstance(out, tuple | list) else 0
        if count != len(results):
            raise TypeError(f"expected tuple of {len(results)} elements but got {count}")
        results = store_out("lu", out, results)
    return return_type("_lu_with_info")(results) if get_infos else results


# --- from the packed form ------------------------------------------------------------------------------------------

_permutation = op(
    "lu_permutation(pivots, packed)",
    "lu.permutation",
    batch="leading",
    shape=lambda pivots, packed: ((*packed.shape[:-1], packed.shape[-2]), packed.dtype),
    where=(),
)


def _unpacked(packed: Tensor, pivots: Tensor, data: bool, permutation: bool):
    """Returns P, L and U; empty tensors where they are not requested."""
    k = min(packed._array.shape[-2:])
    nothing = packed.new_empty(0)
    p = _permutation(pivots, packed) if permutation else nothing
    return (p, _ones_below(packed[..., :k]), packed[..., :k, :].triu()) if data else (p, nothing, nothing)


def _check_range(pivots: Tensor, n: int, low: str, high: str) -> None:
    """Raises: RuntimeError for a pivot that is out of range."""
    if pivots.is_meta or not pivots._array.size:
        return
    pivots = whole(pivots)
    host = pivots._storage.to_host(pivots._array)
    if host.min() < 1:
        raise RuntimeError(f"{low} Did you properly pass the result of lu_factor?")
    if host.max() > n:
        raise RuntimeError(f"{high} Did you properly pass the result of lu_factor?")


@composite("function")
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out=None
) -> return_types.lu_unpack:
    """Returns P, L and U of the packed decomposition of `torch.linalg.lu_factor`; empty tensors where not unpacked.

    Raises:
        RuntimeError: If the pivots are not int32 or are out of range.

    >>> torch.lu_unpack(*torch.linalg.lu_factor(torch.tensor([[1.0, 2.0], [4.0, 4.0]]))).L
    tensor([[1.0000, 0.0000],
            [0.2500, 1.0000]])
    """
    shape = LU_data._array.shape
    if len(shape) < 2:
        raise RuntimeError(f"torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: {[*shape]} instead")
    if unpack_pivots:
        if LU_pivots.dtype is not dtypes.int32:
            raise RuntimeError(
                "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype, as the one "
                f"that torch.linalg.lu_factor returns. Got {scalar_type(LU_pivots)}"
            )
        words = "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
        _check_range(LU_pivots, shape[-2], words, words)
        LU_pivots = LU_pivots.expand((*shape[:-2], min(shape[-2:])))
    results = _unpacked(LU_data, LU_pivots, unpack_data, unpack_pivots)
    return named(return_type("lu_unpack"), results, out, lu_unpack)


# --- equations -----------------------------------------------------------------------------------------------------


def _solve_in_steps(packed: Tensor, pivots: Tensor, B: Tensor, adjoined: bool) -> Tensor:
    """Solves with both triangles in turn, whose ops provide the derivatives."""
    if adjoined:
        other = adjoint(packed)
        lower = solve_triangles(other, B, False, False)
        return _reordered(solve_triangles(other, lower, True, True), pivots, True)
    lower = solve_triangles(packed, _reordered(B, pivots, False), False, True)
    return solve_triangles(packed, lower, True, False)


def one_rank(given: dict[str, tuple[Tensor, int]], size: int, mapped: set[str]) -> list[Tensor]:
    """Values with the batch first, so that the dimensions before those of the matrices (or vectors) broadcast.

    `given` has each value by its name, with the number of dimensions that its matrices have.
    """
    leads = {name: x.ndim - own - (name in mapped) for name, (x, own) in given.items()}
    values = []
    for name, (x, _) in given.items():
        x = x if name in mapped else x.expand(size, *x.shape)
        for _ in range(max(leads.values()) - leads[name]):
            x = x.unsqueeze(1)
        values.append(x)
    return values


_solve = op(
    "lu_solve(packed, pivots, B, adjoined: bool)",
    "lu.lu_solve",
    strides="columns",
    batch=lambda packed, pivots, B, adjoined, size, mapped: _solve(
        *one_rank({"packed": (packed, 2), "pivots": (pivots, 1), "B": (B, 2)}, size, mapped), adjoined
    ),
    twin=_solve_in_steps,
    shape=lambda a, pivots, b, adjoined: (*matmul_kernels.broadcast_lead(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]),
    where=(),
)


def linalg_lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out=None
) -> Tensor:
    """Solves A X = B (X A = B if not `left`) for X, where A (Aᴴ with `adjoint`) is given by `torch.linalg.lu_factor`.

    A is (*, n, n) and B (*, n, k) (or (*, k, n)); their leading dimensions broadcast.

    Raises:
        RuntimeError: If shapes or dtypes do not fit, or pivots are not int32 or are out of range.

    >>> LU, pivots = torch.linalg.lu_factor(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> torch.linalg.lu_solve(LU, pivots, torch.tensor([[2.0], [2.0]]))
    tensor([[1.0000],
            [0.5000]])
    """
    _check_solvable(LU, pivots, B, left)
    if left:
        result = _solve(LU, pivots, B, adjoint)
    else:  # solve the adjoint of the equation
        result = _mirrored(_solve(LU, pivots, _mirrored(B), not adjoint))
    return store_out("linalg_lu_solve", out, result)


_mirrored = adjoint  # for functions in which a parameter shadows the name


def _check_solvable(LU: Tensor, pivots: Tensor, B: Tensor, left: bool) -> None:
    """Raises: RuntimeError for arguments that `lu_solve` does not support."""
    a, b = LU._array, B._array
    checks.check_square(a, "lu_solve")
    checks.check_matrices(b, "lu_solve", "B")
    if LU.dtype is not B.dtype:
        raise RuntimeError(
            f"linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type {scalar_type(a)} and B "
            f"of type {scalar_type(b)} instead"
        )
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError(
            f"linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32. Got {scalar_type(pivots)}"
        )
    check_equation("lu_solve", LU, B, left)
    if a.shape[-1] != pivots._array.shape[-1]:
        raise RuntimeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix. Got "
            f"{pivots._array.shape[-1]} for {a.shape[-1]}"
        )
    if a.shape[:-1] != pivots._array.shape:
        raise RuntimeError(
            "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{[*pivots._array.shape]} instead"
        )
    matmul_kernels.broadcast_lead(b.shape[:-2], a.shape[:-2])
    words = "Pivots given to lu_solve must all be"
    _check_range(pivots, a.shape[-1], f"{words} greater or equal to 1.", f"{words} smaller or equal to LU.size(-2).")


@composite()
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out=None) -> Tensor:
    """`torch.linalg.lu_solve` with the right-hand side as the first argument.

    >>> torch.lu_solve(torch.tensor([[2.0]]), torch.tensor([[4.0]]), torch.tensor([1], dtype=torch.int32))
    tensor([[0.5000]])
    """
    result = linalg_lu_solve(LU_data, LU_pivots, input)
    return store_out("lu_solve", out, result)
