"""Linear algebra: determinants, inverses, systems of equations, powers. (Decompositions are in `decompose.py`.)

Gradients follow M. Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation", 2008, with conjugates where matrices are complex.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad import dtypes
from tensorgrad.kernels.array import linalg as kernels
from tensorgrad.kernels.array.matmul import broadcast_lead, spoken
from tensorgrad.ops import create
from tensorgrad.ops.kinds import FUNCTIONS, composite, export, op
from tensorgrad.ops.matmul import matmul, nt, tn, written
from tensorgrad.ops.pointwise import conj
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose."""
    return conj(x.transpose(-2, -1))


def real_part(x: Tensor) -> Tensor:
    return x.real if x._array.dtype.kind == "c" else x


def _matrices(x: Tensor) -> Tensor:
    """A number per matrix, shaped to multiply matrices."""
    return x.unsqueeze(-1).unsqueeze(-1)


def identity(x: Tensor, n: int | None = None) -> Tensor:
    return create.eye(x._array.shape[-1] if n is None else n, dtype=x.dtype, device=x.device)


def square(name: str):
    def prepare(a, *rest):
        kernels.check_square(a, name)
        return (a, *rest)

    return prepare


def real_dtype(dtype):
    return dtypes.from_numpy_dtype(dtype).to_real().numpy


# --- determinants --------------------------------------------------------------------------------------------------


def _det_gradient(g, input, out):
    factor = _matrices(g)
    if not input.is_meta and not bool((out != 0).all()):  # no inverse: the cofactors still exist
        return factor * adjoint(_adjugate(input))
    return factor * adjoint(_matrices(out) * inv(input))


det = op(
    "det(input)",
    "linalg.det",
    prepare=square("det"),
    input=_det_gradient,
    shape=lambda a: a.shape[:-2],
    backward_name="LinalgDetBackward0",
    doc="""The determinants of a stack of square matrices (*, n, n).

    Raises: RuntimeError for other shapes, and integers.

    >>> import tensorgrad as torch
    >>> torch.linalg.det(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """,
)
_adjugate = op("adjugate(input)", "linalg.adjugate", shape=lambda a: a.shape, where="")


def _slogdet_gradient(grads, input, sign, needs):
    g_sign, g_log = grads[0], grads[1]
    if input._array.dtype.kind != "c":
        if g_log is None:
            return [None]
        return [_matrices(g_log) * inv(input).transpose(-2, -1)]
    factor = 0 if g_log is None else g_log
    if g_sign is not None:
        factor = factor - (conj(g_sign) * sign).imag * 1j
    return [_matrices(factor + sign * 0) * adjoint(inv(input))]


_slogdet = op(
    "slogdet_(input)",
    "linalg.slogdet",
    prepare=square("slogdet"),
    backward=_slogdet_gradient,
    wrt=("input",),
    outputs=("sign", "logabsdet"),
    differentiable_outputs=2,
    shape=lambda a: [(a.shape[:-2], a.dtype), (a.shape[:-2], real_dtype(a.dtype))],
    backward_name="LinalgSlogdetBackward0",
    where="",
)


def named(cls, results, out, function):
    return cls(*(results if out is None else written(function, out, tuple(results))))


def linalg_slogdet(A: Tensor, *, out=None):
    """Signs and log |det| of a stack of square matrices: the determinant without overflow.

    >>> import tensorgrad as torch
    >>> torch.linalg.slogdet(torch.eye(2)).logabsdet
    tensor(0.)
    """
    return named(return_type("linalg_slogdet", "sign", "logabsdet"), _slogdet(A), out, linalg_slogdet)


@composite()
def slogdet(input: Tensor):
    """`torch.linalg.slogdet`.

    >>> import tensorgrad as torch
    >>> torch.slogdet(torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    torch.return_types.slogdet(
    sign=tensor(-1.),
    logabsdet=tensor(1.7918))
    """
    return return_type("slogdet", "sign", "logabsdet")(*_slogdet(input))


@composite()
def logdet(input: Tensor) -> Tensor:
    """The logarithms of determinants: nan where they are negative.

    >>> import tensorgrad as torch
    >>> torch.logdet(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(1.7918)
    """
    sign, log = _slogdet(input)
    if input.is_complex():
        return log + sign.log()
    return log.masked_fill(sign < 0, math.nan) if not input.is_meta else log


# --- inverses and equations ----------------------------------------------------------------------------------------

inv = op(
    "inverse(input)",
    "linalg.inv",
    prepare=square("inv"),
    input=lambda g, out: -matmul(adjoint(out), nt(g, conj(out))),
    shape=lambda a: a.shape,
    backward_name="LinalgInvExBackward0",
    doc="""The inverses of a stack of square matrices (*, n, n).

    Raises: torch.linalg.LinAlgError for a singular matrix, RuntimeError for other shapes.

    >>> import tensorgrad as torch
    >>> torch.linalg.inv(torch.tensor([[2.0]]))
    tensor([[0.5000]])
    """,
)

solve_matrices = op(
    "solve_matrices(A, B)",
    "linalg.solve",
    A=lambda g, A, out: -nt(solve_matrices(adjoint(A), g), conj(out)),
    B=lambda g, A: solve_matrices(adjoint(A), g),
    shape=lambda a, b: ((*broadcast_lead(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), a.dtype),
    backward_name="LinalgSolveExBackward0",
    where="",
)


def is_vector(A: Tensor, B: Tensor) -> bool:
    """Whether `B` is a stack of vectors rather than of matrices."""
    a, b = A._array.shape, B._array.shape
    return len(b) == 1 or (len(a) - 1 == len(b) and b == a[:-1])


def check_same_dtype(name: str, A: Tensor, B: Tensor) -> None:
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"linalg.{name}: Expected A and B to have the same dtype, but found A of type {spoken(A._array)} and B "
            "of type "
            f"{spoken(B._array)} instead"
        )


def check_equation(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    a, b = A._array.shape, B._array.shape
    if a[-1] != (b[-2] if left else b[-1]):
        side = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"linalg.{name}: Incompatible shapes of A and B for the equation {side} ({a[-2]}x{a[-1]} and "
            f"{b[-2]}x{b[-1]})"
        )


def solve(A: Tensor, B: Tensor, *, left: bool = True, out=None) -> Tensor:
    """X of A X = B (of X A = B if not `left`) for stacks of square matrices; B may also be a stack of vectors.

    Raises: torch.linalg.LinAlgError for a singular A, RuntimeError for shapes or dtypes that do not fit.

    >>> import tensorgrad as torch
    >>> torch.linalg.solve(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000])
    """
    kernels.check_square(A._array, "solve")
    if not B.ndim:
        kernels.check_matrices(B._array, "solve", "B")
    check_same_dtype("solve", A, B)
    vector = left and is_vector(A, B)
    b = B.unsqueeze(-1) if vector else B
    kernels.check_matrices(b._array, "solve", "B")
    check_equation("solve", A, b, left)
    broadcast_lead(A._array.shape[:-2], b._array.shape[:-2])
    result = (
        solve_matrices(A, b) if left else solve_matrices(A.transpose(-2, -1), b.transpose(-2, -1)).transpose(-2, -1)
    )
    result = result.squeeze(-1) if vector else result
    return result if out is None else written(solve, out, result)


def _triangle(x: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    k = 1 if unitriangular else 0
    return x.triu(k) if upper else x.tril(-k)


solve_triangles = op(
    "solve_triangular_(A, B, upper: bool, unitriangular: bool)",
    "linalg.solve_triangular",
    A=lambda g, A, out, upper, unitriangular: (
        -_triangle(nt(solve_triangles(adjoint(A), g, not upper, unitriangular), conj(out)), upper, unitriangular)
    ),
    B=lambda g, A, upper, unitriangular: solve_triangles(adjoint(A), g, not upper, unitriangular),
    shape=lambda a, b, upper, unitriangular: ((*broadcast_lead(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), a.dtype),
    backward_name="LinalgSolveTriangularBackward0",
    where="",
)


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out=None
) -> Tensor:
    """X of A X = B (X A = B if not `left`), reading only the upper or the lower triangle of A.

    With `unitriangular` the diagonal of A counts as ones. Raises: RuntimeError for shapes that do not fit.
    """
    kernels.check_square(A._array, "solve_triangular")
    kernels.check_matrices(B._array, "solve_triangular", "B")
    check_same_dtype("solve_triangular", A, B)
    check_equation("solve_triangular", A, B, left)
    if left:
        result = solve_triangles(A, B, upper, unitriangular)
    else:
        result = solve_triangles(A.transpose(-2, -1), B.transpose(-2, -1), not upper, unitriangular).transpose(-2, -1)
    return result if out is None else written(solve_triangular, out, result)


@composite("function method", name="triangular_solve")
def _triangular_solve(b: Tensor, A: Tensor, upper=True, transpose=False, unitriangular=False, *, out=None):
    """The older form of `torch.linalg.solve_triangular`: returns the solution and a copy of A."""
    matrices, upper = (A.transpose(-2, -1), not upper) if transpose else (A, upper)
    lead = broadcast_lead(A._array.shape[:-2], b._array.shape[:-2])
    copy = A.expand((*lead, *A._array.shape[-2:])).clone()
    results = solve_triangles(matrices, b, upper, unitriangular), copy
    cls = return_type("triangular_solve", "solution", "cloned_coefficient")
    return named(cls, results, out, _triangular_solve)


def _cholesky_gradient(g, out, upper):
    factor, g = (adjoint(out), adjoint(g)) if upper else (out, g)
    phi = tn(conj(factor), g).tril()
    middle = (phi + adjoint(phi.tril(-1))) * 0.5  # L⁻ᴴ Φ(Lᴴ g) L⁻¹, made Hermitian
    half = solve_triangles(adjoint(factor), middle, True, False)
    return adjoint(solve_triangles(adjoint(factor), adjoint(half), True, False))


cholesky_factor = op(
    "cholesky_factor(input, upper: bool)",
    "linalg.cholesky",
    prepare=square("cholesky"),
    input=_cholesky_gradient,
    shape=lambda a, upper: a.shape,
    backward_name="LinalgCholeskyExBackward0",
    where="",
)


def linalg_cholesky(A: Tensor, *, upper: bool = False, out=None) -> Tensor:
    """The lower triangular L with A = L Lᴴ (its conjugate transpose if `upper`) of positive-definite matrices.

    Raises: torch.linalg.LinAlgError unless A is positive-definite.

    >>> import tensorgrad as torch
    >>> torch.linalg.cholesky(torch.tensor([[4.0]]))
    tensor([[2.]])
    """
    result = cholesky_factor(A, upper)
    return result if out is None else written(linalg_cholesky, out, result)


@composite()
def cholesky(input: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """`torch.linalg.cholesky`."""
    return linalg_cholesky(input, upper=upper, out=out)


def _from_factor(xp, b, factor, upper):
    """X of A X = B from the Cholesky factor of A."""
    lead = np.broadcast_shapes(b.shape[:-2], factor.shape[:-2])
    b = xp.broadcast_to(b, lead + b.shape[-2:])
    other = factor.conj().swapaxes(-1, -2)
    lower, higher = (other, factor) if upper else (factor, other)
    return kernels.solve_triangular(xp, higher, kernels.solve_triangular(xp, lower, b, False, False), True, False)


def _factor_gradient(g_matrix, L, upper):
    """The gradient of a function of A = L Lᴴ (Lᴴ L if `upper`) by L, from that by A."""
    both = g_matrix + adjoint(g_matrix)
    return matmul(L, both) if upper else matmul(both, L)


_cholesky_solve = op(
    "cholesky_solve_(B, L, upper: bool)",
    _from_factor,
    B=lambda g, L, upper: _cholesky_solve(g, L, upper),
    L=lambda g, L, out, upper: _factor_gradient(-nt(_cholesky_solve(g, L, upper), conj(out)), L, upper),
    shape=lambda b, factor, upper: (*broadcast_lead(b.shape[:-2], factor.shape[:-2]), *b.shape[-2:]),
    backward_name="CholeskySolveBackward0",
    where="",
)
_cholesky_inverse = op(
    "cholesky_inverse_(L, upper: bool)",
    lambda xp, factor, upper: _from_factor(xp, xp.eye(factor.shape[-1], dtype=factor.dtype), factor, upper),
    L=lambda g, L, out, upper: _factor_gradient(-matmul(matmul(out, g), out), L, upper),
    shape=lambda factor, upper: factor.shape,
    backward_name="CholeskyInverseBackward0",
    where="",
)


@composite()
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """X of A X = B, where A = L Lᴴ (Lᴴ L if `upper`) is given by its Cholesky factor.

    Raises: RuntimeError for shapes that do not fit.
    """
    kernels.check_matrices(B._array, "cholesky_solve", "B")
    kernels.check_square(L._array, "cholesky_solve")
    check_equation("cholesky_solve", L, B, True)
    result = _cholesky_solve(B, L, upper)
    return result if out is None else written(cholesky_solve, out, result)


@composite()
def cholesky_inverse(L: Tensor, upper: bool = False, *, out=None) -> Tensor:
    """The inverse of A = L Lᴴ (Lᴴ L if `upper`) from its Cholesky factor."""
    kernels.check_square(L._array, "cholesky_inverse")
    result = _cholesky_inverse(L, upper)
    return result if out is None else written(cholesky_inverse, out, result)


def _flagged(name: str, function, *fields):
    """The `_ex` form of a function, which returns a flag instead of raising."""

    def checked(*arguments, check_errors: bool = False, out=None, **keywords):
        shape = arguments[0]._array.shape[:-2]
        try:
            result, failed = function(*arguments, **keywords), 0
        except kernels.LinAlgError as error:
            if check_errors:
                raise
            words = str(error)
            failed = next((int(w) for w in words.replace(".", " ").split() if w.isdigit()), 1)
            like = arguments[1] if name == "solve_ex" else arguments[0]
            result = create.full(tuple(like._array.shape), math.nan, dtype=like.dtype, device=like.device)
        info = create.full(tuple(shape), failed, dtype=dtypes.int32, device=arguments[0].device)
        results = (result, info)
        return return_type(f"linalg_{name}", *fields)(*(results if out is None else written(checked, out, results)))

    checked.__name__ = checked.__qualname__ = name
    checked.__doc__ = (
        f"`torch.linalg.{name[:-3]}` with a flag, 0 for success, instead of an error unless `check_errors`."
    )
    return checked


inv_ex = _flagged("inv_ex", inv, "inverse", "info")
cholesky_ex = _flagged("cholesky_ex", linalg_cholesky, "L", "info")
solve_ex = _flagged("solve_ex", solve, "result", "info")


@composite()
def matrix_power(input: Tensor, n: int, *, out=None) -> Tensor:
    """The n-th power of square matrices, by repeated squaring; of their inverses for negative n.

    Raises: TypeError for a power that is no integer, RuntimeError for matrices that are not square.

    >>> import tensorgrad as torch
    >>> torch.matrix_power(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    if not hasattr(n, "__index__"):
        raise TypeError(f"linalg_matrix_power(): argument 'n' (position 2) must be int, not {type(n).__name__}")
    a = input._array
    kernels.check_matrices(a, "matrix_power")
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_power: A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} "
            "matrices"
        )
    result = None
    square = inv(input) if n < 0 else input
    rest = abs(n)
    while rest:
        if rest & 1:
            result = square if result is None else matmul(result, square)
        rest >>= 1
        square = matmul(square, square) if rest else square
    if result is None:
        result = input.clone().copy_(identity(input))
    elif result is input:
        result = input.clone()
    return result if out is None else written(matrix_power, out, result)


# --- smaller functions ---------------------------------------------------------------------------------------------


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out=None) -> Tensor:
    """Σ conj(x) y along `dim`, with broadcasting."""
    result = (conj(x) * y).sum(dim)
    return result if out is None else written(vecdot, out, result)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the last two dimensions, as a view."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 .. N - 1 of every element, along a new last dimension."""
    x = x if x.ndim else x.unsqueeze(0)
    n = x._array.shape[-1] if N is None else N
    if n < 2 and N is not None:
        raise RuntimeError("N must be greater than 1.")
    kind = x.dtype if x.dtype.category >= dtypes.FLOATING else dtypes.int64
    ones = x.new_ones((*x._array.shape, 1), dtype=kind)
    if n == 1:
        return ones
    powers = x.to(kind).unsqueeze(-1).expand((*x._array.shape, n - 1)).cumprod(-1)
    return FUNCTIONS["cat"]([ones, powers], -1)


def tensorinv(A: Tensor, ind: int = 2, *, out=None) -> Tensor:
    """The inverse of A as a map from its last dimensions to its first `ind`; tensordot of both is the identity."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    first, last = A._array.shape[:ind], A._array.shape[ind:]
    n = math.prod(last)
    if math.prod(first) != n:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} "
            "!= "
            f"{math.prod(first)}"
        )
    result = inv(A.reshape((n, n))).reshape((*last, *first))
    return result if out is None else written(tensorinv, out, result)


def tensorsolve(A: Tensor, B: Tensor, dims=None, *, out=None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A._array.shape[B.ndim :]
    n = math.prod(shape)
    if n != B.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            "prod(self.shape[:other.ndim]), but "
            f"got {n} != {B.numel()}"
        )
    result = solve_matrices(A.reshape((n, n)), B.reshape((n, 1))).reshape(shape)
    return result if out is None else written(tensorsolve, out, result)


# Source: N. Higham, "The scaling and squaring method for the matrix exponential revisited", 2005: the largest norm for
# which a Padé approximant of degree 13 is exact to double precision, and its coefficients.
THETA = 5.371920351148152
PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip


@composite()
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential Σ Aᵏ / k! of square matrices, by scaling, a Padé approximant and squaring.

    >>> import tensorgrad as torch
    >>> torch.matrix_exp(torch.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if (
        input.dtype.is_floating_point and input.dtype.itemsize < 8
    ) or input.dtype is dtypes.complex64:  # squaring amplifies rounding
        wide = dtypes.complex128 if input.is_complex() else dtypes.float64
        return matrix_exp(input.to(wide)).to(input.dtype)
    kernels.check_square(input._array, "matrix_exp")
    n = input._array.shape[-1]
    if not input.numel():
        return input.clone()
    size = 1.0 if input.is_meta else float(input.detach().abs().sum(-2).amax()) if n else 0.0
    squarings = max(0, math.ceil(math.log2(size / THETA))) if size > THETA and math.isfinite(size) else 0
    a = input * 2.0**-squarings
    eye = identity(a)
    a2 = matmul(a, a)
    a4 = matmul(a2, a2)
    a6 = matmul(a2, a4)
    b = [float(c) for c in PADE]
    odd = matmul(a6, a6 * b[13] + a4 * b[11] + a2 * b[9]) + a6 * b[7] + a4 * b[5] + a2 * b[3] + eye * b[1]
    even = matmul(a6, a6 * b[12] + a4 * b[10] + a2 * b[8]) + a6 * b[6] + a4 * b[4] + a2 * b[2] + eye * b[0]
    odd = matmul(a, odd)
    result = solve_matrices(even - odd, even + odd)
    for _ in range(squarings):
        result = matmul(result, result)
    return result


for _name, _function in (("det", det), ("inverse", inv)):
    export(_name, _function, "function method")
