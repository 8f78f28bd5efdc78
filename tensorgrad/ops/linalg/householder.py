"""Householder reflections: the packed QR decomposition, and products with the matrix Q that it represents.

Column i of the packed form has, below its diagonal, a vector v (with an implicit one on the diagonal), and Q is the
product of the reflections I - τᵢ v vᴴ. Together they are I - V T Vᴴ with a triangular T, so Q need not be built column
by column, and the derivatives follow from those of products and triangular systems.

Source: T. Joffrain, T. Low, E. Quintana-Ortí, R. van de Geijn, F. Van Zee, "Accumulating Householder transformations,
revisited", 2006: T = (D⁻¹ + striu(Vᴴ V))⁻¹, D = diag(τ); here (I + D striu(Vᴴ V))⁻¹ D, in which τ may be 0.
"""

from __future__ import annotations

from tensorgrad import return_types
from tensorgrad.dispatch.kernel_errors import unsupported
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.no_derivative import not_implemented
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import no_dimensions
from tensorgrad.ops import create
from tensorgrad.ops.linalg.linalg import adjoint, named, solve_triangles
from tensorgrad.ops.linalg.matmul import matmul, nt, tn
from tensorgrad.ops.pointwise import conj
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor


def _check_matrices(name: str, **tensors: Tensor) -> None:
    for argument, x in tensors.items():
        if x._array.ndim < 2:
            raise RuntimeError(f"torch.{name}: {argument} must have at least 2 dimensions.")


def _check_floating(x: Tensor, name: str) -> None:
    if x._array.dtype.kind not in "fc" or x._array.dtype.itemsize == 2:
        unsupported(name, x._array)


_geqrf = op(
    "geqrf(input)",
    "linalg.geqrf",
    strides="columns rows",
    batch="leading",
    backward=not_implemented("geqrf"),
    wrt=("input",),
    outputs=("a", "tau"),
    differentiable_outputs=2,
    shape=lambda a: [a.shape, (*a.shape[:-2], min(a.shape[-2:]))],
    backward_name="GeqrfBackward0",
    where=(),
)


@composite()
def geqrf(input: Tensor, *, out=None) -> return_types.geqrf:
    """Computes the packed QR decomposition of matrices (*, m, n).

    Returns R on and above the diagonal with the reflections below it, and their factors `tau` (*, min(m, n)), from
    which `torch.linalg.householder_product` makes Q. Not differentiable; use `torch.linalg.qr` for that.

    Raises:
        RuntimeError: If there are fewer than two dimensions.
        NotImplementedError: If the dtype is integral or a 16-bit float.

    >>> torch.geqrf(torch.tensor([[3.0], [4.0]]))
    torch.return_types.geqrf(
    a=tensor([[-5.0000],
            [ 0.5000]]),
    tau=tensor([1.6000]))
    """
    _check_matrices("geqrf", input=input)
    _check_floating(input, "geqrf")
    return named(return_type("geqrf"), _geqrf(input), out, geqrf)


def _vectors(packed: Tensor) -> Tensor:
    """Returns V: the strict lower triangle, with ones on the diagonal."""
    return packed.tril(-1) + create.eye(*packed._array.shape[-2:], dtype=packed.dtype, device=packed.device)


def _inner(V: Tensor, tau: Tensor, projected: Tensor) -> Tensor:
    """Returns T x, given x = Vᴴ y."""
    column = tau.unsqueeze(-1)
    return solve_triangles(column * tn(conj(V), V), column * projected, True, True)


def _inner_adjoint(V: Tensor, tau: Tensor, projected: Tensor) -> Tensor:
    """Returns Tᴴ x, given x = Vᴴ y."""
    column = tau.unsqueeze(-1)
    return conj(column) * solve_triangles(adjoint(column * tn(conj(V), V)), projected, False, True)


def householder_product(input: Tensor, tau: Tensor, *, out=None) -> Tensor:
    """Computes the first n columns of the product of k reflections, given in the packed form of `torch.geqrf`.

    `input` is (*, m, n) with m ≥ n, `tau` (*, k) with k ≤ n; the result is (*, m, n).

    Raises:
        RuntimeError: If the shapes or dtypes do not fit.
        NotImplementedError: If the dtype is integral or a 16-bit float.

    >>> h, tau = torch.geqrf(torch.tensor([[3.0], [4.0]]))
    >>> torch.linalg.householder_product(h, tau)
    tensor([[-0.6000],
            [-0.8000]])
    """
    _check_product(input, tau)
    m, n = input._array.shape[-2:]
    V = _vectors(input[..., : tau._array.shape[-1]])
    eye = create.eye(n, m, dtype=input.dtype, device=input.device)
    result = eye - nt(_inner(V, tau, adjoint(V[..., :n, :])).transpose(-2, -1), V)
    result = result.transpose(-2, -1)  # column by column, as LAPACK leaves it
    return store_out("householder_product", out, result)


def _check_product(input: Tensor, tau: Tensor) -> None:
    name = "linalg.householder_product"
    _check_matrices(name, input=input)
    m, n = input._array.shape[-2:]
    if m < n:
        raise RuntimeError(f"torch.{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if not tau._array.ndim:
        raise no_dimensions(-1)
    if n < tau._array.shape[-1]:
        raise RuntimeError(f"torch.{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    _check_factors(name, input, tau)
    if input.dtype is not tau.dtype:
        raise RuntimeError(
            f"torch.{name}: tau dtype {scalar_type(tau)} does not match input dtype {scalar_type(input)}"
        )
    _check_floating(input, "orgqr")


def _check_factors(name: str, input: Tensor, tau: Tensor) -> None:
    """Raises: RuntimeError unless there is a vector of factors for each matrix."""
    have, want = tau._array.shape, input._array.shape[:-2]
    if len(have) != len(want) + 1:
        raise RuntimeError(
            f"torch.{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {len(have)} "
            f"and input.ndim is equal to {len(want) + 2}"
        )
    if have[:-1] != want:
        raise RuntimeError(
            f"torch.{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(have[:-1])}"
        )


@composite()
def orgqr(input: Tensor, input2: Tensor, *, out=None) -> Tensor:
    """Alias of `torch.linalg.householder_product`.

    >>> torch.orgqr(torch.tensor([[-5.0], [0.5]]), torch.tensor([1.6]))
    tensor([[-0.6000],
            [-0.8000]])
    """
    result = householder_product(input, input2)
    return store_out("orgqr", out, result)


@composite()
def ormqr(input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False, *, out=None):
    """Multiplies C by the full m × m matrix Q of the reflections (`input`, `input2`), without forming Q.

    Computes Q C, or C Q if not `left`; with `transpose`, Qᴴ instead of Q. `input` is (*, m, n), `input2` (*, k), and C
    is `input3`, (*, m, p) or (*, p, m).

    Raises:
        RuntimeError: If the shapes or dtypes do not fit.
        NotImplementedError: If the dtype is integral or a 16-bit float.

    >>> h, tau = torch.geqrf(torch.tensor([[3.0], [4.0]]))
    >>> torch.ormqr(h, tau, torch.tensor([[3.0], [4.0]]), transpose=True).round()
    tensor([[-5.],
            [ 0.]])
    """
    _check_applied(input, input2, input3, left)
    other = input3 if left else adjoint(input3)
    V = _vectors(input[..., : input2._array.shape[-1]])
    inner = _inner_adjoint if transpose == left else _inner
    inside = inner(V, input2, tn(conj(V), other))
    if left:  # column by column, as LAPACK leaves it
        result = (other.transpose(-2, -1).contiguous() - nt(inside.transpose(-2, -1), V)).transpose(-2, -1)
    else:
        result = adjoint(other.contiguous() - matmul(V, inside))
    return store_out("ormqr", out, result)


def _check_applied(input: Tensor, tau: Tensor, other: Tensor, left: bool) -> None:
    _check_matrices("ormqr", input=input, other=other)
    a, c = input._array.shape, other._array.shape
    side = -2 if left else -1
    if not tau._array.ndim:
        raise no_dimensions(-1)
    k = tau._array.shape[-1]
    if c[side] != a[-2]:
        raise RuntimeError(f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]")
    if k != min(c[side], a[-1]):
        raise RuntimeError(f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])")
    _check_factors("ormqr", input, tau)
    if len(c) != len(a):
        raise RuntimeError(
            "torch.ormqr: Expected other to have the same number of dimensions as input, but got other.ndim equal to "
            f"{len(c)} and input.ndim is equal to {len(a)}"
        )
    if c[:-2] != a[:-2]:
        raise RuntimeError(
            f"torch.ormqr: Expected batch dimensions of other to be equal to input.shape[:-2], but got {list(c[:-2])}"
        )
    for name, x in (("tau", tau), ("other", other)):
        if x.dtype is not input.dtype:
            raise RuntimeError(
                f"torch.ormqr: Expected input and {name} to have the same dtype, but input has dtype "
                f"{scalar_type(input)} and {name} has dtype {scalar_type(x)}"
            )
    _check_floating(input, "ormqr")
