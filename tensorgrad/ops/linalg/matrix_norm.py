"""Matrix norms and condition numbers."""

from __future__ import annotations

import math

from tensorgrad import dtypes
from tensorgrad.dispatch.out import store_out
from tensorgrad.errors import as_integers, as_number, wrap_dim
from tensorgrad.kernels.array import linalg as kernels
from tensorgrad.ops.linalg.decompose import svdvals
from tensorgrad.ops.linalg.linalg import inv_ex
from tensorgrad.ops.reduce import vector_norm
from tensorgrad.tensor import Tensor


def _matrix_dims(name: str, x: Tensor, dim) -> tuple[int, int]:
    if isinstance(dim, int):
        raise TypeError(f"linalg_{name}(): argument 'dim' (position 3) must be tuple of ints, not int")
    dim = as_integers(dim, "dim")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.{name}: dim must be a 2-tuple. Got {dim}")
    first, second = (wrap_dim(d, x.ndim) for d in dim)
    if first == second:
        raise RuntimeError(f"linalg.{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    return first, second


def _order(ord):
    """Returns the order of a norm, as it is or as a number. Raises: TypeError, OverflowError or RuntimeError if it is
    none."""
    if isinstance(ord, complex):
        raise RuntimeError("linalg.matrix_norm: Expected a non-complex scalar as the order of norm.")
    return ord if isinstance(ord, str) else as_number(ord, "ord")


def _largest(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Returns the largest of nonnegative values; 0 if there are none."""
    return x.amax(dim, keepdim) if x._array.shape[dim] else x.sum(dim, keepdim)


def matrix_norm(input: Tensor, ord="fro", dim=(-2, -1), keepdim: bool = False, *, dtype=None, out=None) -> Tensor:
    """Computes a matrix norm over the two dimensions `dim`: the Frobenius norm, or the one given by `ord`.

    `ord` is "fro" (Frobenius), "nuc" (nuclear: the sum of the singular values), or a number for the largest or, if
    negative, the smallest of the row sums (±inf), column sums (±1) or singular values (±2). `dim` lists the dimension
    of the rows and that of the columns; with `keepdim` they are kept with size 1.

    Raises:
        RuntimeError: If the order is not supported, or `dim` is not two dimensions.

    >>> torch.linalg.matrix_norm(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    kernels.check_matrices(input._array, "matrix_norm")
    rows, columns = _matrix_dims("matrix_norm", input, dim)
    if input.dtype.category < dtypes.FLOATING:
        kernels.check_floating(input._array, "matrix_norm")
    x, ord = input if dtype is None else input.to(dtype), _order(ord)
    if ord == "fro":
        result = vector_norm(x, 2, (rows, columns), keepdim)
    elif ord == "nuc" or (not isinstance(ord, str) and abs(ord) == 2):
        kernels.check_floating(x._array, "matrix_norm")
        values = svdvals(x.movedim((rows, columns), (-2, -1)))
        result = values.sum(-1) if ord == "nuc" else _largest(values, -1, False) if ord == 2 else values.amin(-1)
        if keepdim:
            for d in sorted((rows, columns)):
                result = result.unsqueeze(d)
    elif not isinstance(ord, str) and abs(ord) in (1, math.inf):
        summed, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = vector_norm(x, 1, summed, True)
        result = _largest(sums, kept, True) if ord > 0 else sums.amin(kept, True)
        result = result if keepdim else result.squeeze((rows, columns))
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    return store_out("matrix_norm", out, result)


def norm(input: Tensor, ord=None, dim=None, keepdim: bool = False, *, out=None, dtype=None) -> Tensor:
    """Computes a vector norm over one dimension (or all), or a matrix norm over two, depending on `ord` and `dim`.

    Args:
        ord: of vectors a number, ∞ or -∞; of matrices "fro", "nuc", 1, -1, 2, -2, ∞ or -∞. None is 2 and "fro".
        dim: one dimension or two; by default all.
        keepdim: whether they are kept, with size 1.

    Raises:
        RuntimeError: If `ord` and `dim` do not determine which, or there are more than two dimensions in `dim`.

    >>> torch.linalg.norm(torch.tensor([3.0, 4.0]))
    tensor(5.)
    """
    dims = None if dim is None else as_integers(dim, "dim")
    if ord is not None and dims is None and input.ndim not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {input.ndim}D."
        )
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    two = len(dims) == 2 if dims is not None else input.ndim == 2
    if ord is not None and two:
        return matrix_norm(input, ord, dims or (0, 1), keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):  # not defined for vectors: raises
        return matrix_norm(input, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype, out=out)
    if ord is None and dims is None:  # all elements, for any shape
        dims = tuple(range(input.ndim))
    return store_out("linalg_norm", out, vector_norm(input, 2 if ord is None else ord, dims, keepdim, dtype=dtype))


def cond(input: Tensor, p=None, *, out=None) -> Tensor:
    """Computes the condition number ‖A‖ ‖A⁻¹‖ in the norm `p`, by default the ratio of the extreme singular values.

    For singular matrices it is infinite.

    Raises:
        RuntimeError: If the norm is not supported, or matrices are not square where they must be.

    >>> torch.linalg.cond(torch.tensor([[4.0, 0.0], [0.0, 2.0]]))
    tensor(2.)
    """
    kernels.check_matrices(input._array, "cond")
    p = p if p is None else _order(p)
    if p is None or (not isinstance(p, str) and abs(p) == 2):
        values = svdvals(input)
        if not values._array.shape[-1]:
            result = values.sum(-1)
        else:
            result = values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    else:
        result = _cond_by_inverse(input, p)
    return store_out("cond", out, result)


def _cond_by_inverse(A: Tensor, p) -> Tensor:
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    kernels.check_square(A._array, f"cond(ord={p})")
    if not A._array.shape[-1]:
        return A.new_zeros(A._array.shape[:-2], dtype=A.dtype.to_real())
    inverse, info = inv_ex(A)
    singular = info != 0
    if p == "nuc":  # singular values have no nan
        singular = singular | inverse.isnan().any(-1).any(-1)
    inverse = inverse.masked_fill(singular.unsqueeze(-1).unsqueeze(-1), 0)
    result = matrix_norm(A, p) * matrix_norm(inverse, p)
    if p == "nuc":
        return result.masked_fill(singular, math.nan)
    return result.masked_fill(singular | result.isnan(), math.inf)
