"""Norms by their names in `torch`; `torch.linalg` has those that PyTorch recommends (matrix_norm.py)."""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_flag, no_dimensions, wrap_dim, wrap_dims
from tensorgrad.ops.linalg.decompose import svdvals
from tensorgrad.ops.reduce import vector_norm
from tensorgrad.tensor import Tensor


@composite()
def norm(input: Tensor, p="fro", dim=None, keepdim: bool = False, out=None, dtype=None) -> Tensor:
    """Computes the `p`-norm over `dim`, by default of all elements; "fro" is 2, "nuc" the sum of singular values.

    Args:
        p: a number, ∞ or -∞, "fro" or "nuc".
        dim: one dimension, several, or None for all elements.
        keepdim: whether they are kept, with size 1.

    >>> torch.tensor([3.0, 4.0]).norm()
    tensor(5.)
    """
    check_flag(keepdim, "keepdim")
    if isinstance(p, str) and p != "fro":
        if p != "nuc":
            raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
        if dtype is not None:
            input = input.to(dtypes.as_dtype(dtype, "linalg_matrix_norm"))
        result = _nuclear_norm(input, dim, keepdim)
        return store_out("norm", out, result)
    return vector_norm(input, 2 if p == "fro" or p is None else p, dim, keepdim, dtype=dtype, out=out)


def _nuclear_norm(input: Tensor, dim, keepdim: bool) -> Tensor:
    """Sums the singular values of the matrices in the two dimensions `dim`."""
    dims = wrap_dims((0, 1) if dim is None else dim, input.ndim)
    if len(dims) != 2 or (dim is None and input.ndim != 2):
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim} for a {input.ndim}-D tensor")
    values = svdvals(input.movedim(dims, (-2, -1))).sum(-1)
    if keepdim:
        for d in sorted(dims):
            values = values.unsqueeze(d)
    return values


@composite("function")
def frobenius_norm(input: Tensor, dim, keepdim: bool = False, *, out=None) -> Tensor:
    """Computes √(Σ |x|²) over one or two dimensions `dim` (an empty list: over all).

    Raises:
        RuntimeError: If the dtype is integral, or there are more than two dimensions in `dim`.

    >>> torch.frobenius_norm(torch.tensor([[3.0, 4.0]]), dim=(0, 1))
    tensor(5.)
    """
    dims = tuple(dim) if isinstance(dim, list | tuple) else (dim,)
    if len(dims) > 2:
        raise RuntimeError(f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead.")
    _check_norm_dtype(input)
    return vector_norm(input, 2, dims, keepdim, out=out)


def _check_norm_dtype(input: Tensor) -> None:
    if input.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            f"norm(): input dtype should be either floating point or complex. Got {scalar_type(input)} instead."
        )


@composite("function")
def nuclear_norm(input: Tensor, dim=None, keepdim: bool = False, *, out=None) -> Tensor:
    """Sums the singular values of the matrices in the two dimensions `dim` (default: the last two).

    Raises:
        RuntimeError: If the dtype is integral, or there are fewer than two dimensions.

    >>> torch.nuclear_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
    tensor(7.)
    """
    if isinstance(dim, bool):  # PyTorch's other form: nuclear_norm(input, keepdim)
        dim, keepdim = None, dim
    if input.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            f"linalg.matrix_norm: Expected a floating point or complex tensor as input. Got {scalar_type(input)}"
        )
    if input.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    dims = (-2, -1) if dim is None else tuple(dim) if isinstance(dim, list | tuple) else (dim,)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {', '.join(map(str, dims))}")
    result = _nuclear_norm(input, dims, keepdim)
    return store_out("nuclear_norm", out, result)


@composite("function")
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """Computes the `pow`-norm of each slice of `v` along `dim` (-1: of all), in a shape that broadcasts with `v`.

    Raises:
        RuntimeError: If the dtype is integral.
        IndexError: If the dimension does not exist.

    >>> torch.norm_except_dim(torch.tensor([[3.0, 4.0], [6.0, 8.0]]))
    tensor([[ 5.],
            [10.]])
    """
    _check_norm_dtype(v)
    if dim == -1:
        return vector_norm(v, pow)
    if not v.ndim:
        raise no_dimensions(dim)
    dim = wrap_dim(dim, v.ndim)
    others = [d for d in range(v.ndim) if d != dim]
    if not others:  # each slice is a single element
        return v.abs() if pow else (v != 0).to(v.dtype)
    return vector_norm(v, pow, others, True)


@composite("function")
def native_norm(input: Tensor, p=2, dim=None, keepdim: bool = False, dtype=None) -> Tensor:
    """An old name of `torch.norm`, for sparse tensors.

    >>> torch.native_norm(torch.tensor([3.0, 4.0]).to_sparse())
    tensor(5.)
    """
    return norm(input, p, dim, keepdim, dtype=dtype)
