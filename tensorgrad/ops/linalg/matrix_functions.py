"""Matrix functions: powers, the exponential, inverses of tensor maps, Vandermonde matrices.

The exponential follows N. Higham, "The scaling and squaring method for the matrix exponential revisited", 2005.
"""

from __future__ import annotations

import math

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.kernels.array import linalg as kernels
from tensorgrad.ops.join import cat
from tensorgrad.ops.linalg.linalg import identity, inv, solve_matrices
from tensorgrad.ops.linalg.matmul import matmul
from tensorgrad.ops.pointwise import conj
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole


@composite()
def matrix_power(input: Tensor, n: int, *, out=None) -> Tensor:
    """Computes the n-th power of square matrices (*, m, m) by repeated squaring; for negative n, of their inverses.

    Raises:
        TypeError: If `n` is not an integer.
        RuntimeError: If the matrices are not square.

    >>> torch.matrix_power(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    if not hasattr(n, "__index__") or isinstance(n, bool):
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
        result = input.clone(memory_format="contiguous").copy_(identity(input))
    elif result is input:
        result = input.clone()
    return store_out("matrix_power", out, result)


# --- smaller functions ---------------------------------------------------------------------------------------------


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out=None) -> Tensor:
    """Computes Σ conj(x) y along `dim`, with broadcasting.

    Args:
        x, y: tensors (..., n) of one dtype; x is conjugated.
        dim: the dimension of size n, which the result lacks.

    Raises:
        RuntimeError: If the dtype is integral, or the dtypes differ.

    >>> torch.linalg.vecdot(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor(11.)
    """
    if x.dtype.category < dtypes.FLOATING:
        kernels.check_floating(x._array, "vecdot")
    if x.dtype is not y.dtype:
        raise RuntimeError(
            "linalg.vecdot: Expected x and y to have the same dtype, but found x of type "
            f"{scalar_type(x)} and y of type {scalar_type(y)} instead"
        )
    result = (conj(x) * y).sum(dim)
    return store_out("vecdot", out, result)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Returns a view of the diagonals of the last two dimensions (or of `dim1` and `dim2`).

    >>> torch.linalg.diagonal(torch.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Returns the powers 0 .. N - 1 of every element (*, n), along a new last dimension; N defaults to n.

    Raises:
        RuntimeError: If N < 2, or the dtype is boolean or a 16-bit float.

    >>> torch.linalg.vander(torch.tensor([2, 3]), N=3)
    tensor([[1, 2, 4],
            [1, 3, 9]])
    """
    if x.dtype is dtypes.bool or (x.dtype.category >= dtypes.FLOATING and x.dtype.itemsize == 2):
        raise RuntimeError(
            f"linalg.vander supports floating point, complex, and integer tensors, but got {scalar_type(x)}"
        )
    x = x if x.ndim else x.unsqueeze(0)
    n = x._array.shape[-1] if N is None else N
    if n < 2:
        raise RuntimeError("N must be greater than 1.")
    kind = x.dtype if x.dtype.category >= dtypes.FLOATING else dtypes.int64
    powers = x.to(kind).unsqueeze(-1).expand((*x._array.shape, n - 1)).cumprod(-1)
    return cat([x.new_ones((*x._array.shape, 1), dtype=kind), powers], -1)


def tensorinv(input: Tensor, ind: int = 2, *, out=None) -> Tensor:
    """Computes the inverse of a map from the last dimensions to the first `ind`; their tensordot is the identity.

    Raises:
        torch.linalg.LinAlgError: If the map is singular.
        RuntimeError: If the numbers of elements on both sides differ.

    >>> torch.linalg.tensorinv(torch.eye(4).reshape(4, 2, 2), ind=1).shape
    torch.Size([2, 2, 4])
    """
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    if ind > input._array.ndim:
        raise RuntimeError(f"tensorinv: expected at least {ind} dimensions for ind={ind}, but got {input._array.ndim}")
    first, last = input._array.shape[:ind], input._array.shape[ind:]
    n = math.prod(last)
    if math.prod(first) != n:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} "
            f"!= {math.prod(first)}"
        )
    result = inv(input.reshape((n, n))).reshape((*last, *first))
    return store_out("tensorinv", out, result)


def tensorsolve(input: Tensor, other: Tensor, dims=None, *, out=None) -> Tensor:
    """Solves tensordot(A, X, X.ndim) = B for X, with A `input` and B `other`; `dims` of A are moved to its end first.

    Raises:
        torch.linalg.LinAlgError: If A is singular.
        RuntimeError: If the sizes do not fit.

    >>> torch.linalg.tensorsolve(2 * torch.eye(4).reshape(4, 2, 2), torch.ones(4))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    if dims is not None:
        input = input.movedim(tuple(dims), tuple(range(input.ndim - len(dims), input.ndim)))
    shape = input._array.shape[other.ndim :]
    n = math.prod(shape)
    if n != other.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {n} != {other.numel()}"
        )
    result = solve_matrices(input.reshape((n, n)), other.reshape((n, 1))).reshape(shape)
    return store_out("tensorsolve", out, result)


# The largest norm for which the Padé approximant of degree 13 is exact to double precision, and its coefficients.
THETA = 5.371920351148152
PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip


@composite()
def matrix_exp(input: Tensor) -> Tensor:
    """Computes the exponential Σ Aᵏ / k! of square matrices (*, n, n), by scaling, Padé approximation and squaring.

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
    size = 1.0 if input.is_meta else float(whole(input.detach()).abs().sum(-2).amax()) if n else 0.0
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
