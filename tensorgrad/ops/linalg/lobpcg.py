"""`torch.lobpcg`: some extreme eigenpairs of a large symmetric matrix, with derivatives.

The iteration is in `kernels/array/lobpcg.py`. Its result does not depend on the steps taken, so the derivative is that
of the eigenpairs themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dtypes import scalar_type
from tensorgrad.kernels.array import lobpcg as kernels
from tensorgrad.ops.join import cat
from tensorgrad.ops.linalg.linalg import adjoint, identity, real_dtype, solve_matrices
from tensorgrad.ops.linalg.matmul import matmul, nt, tn
from tensorgrad.ops.pointwise import conj
from tensorgrad.ops.random.sample import randn
from tensorgrad.tensor import Tensor, wrap


def _gradient(grads, A, B, E, X):
    """Source: J. Magnus, "On differentiating eigenvalues and eigenvectors", 1985: dλ = xᴴ dA x and
    dx = (λ I - A)⁺ dA x. Here (λ I - A)⁺ is split into the part in the span of the vectors found, where it is diagonal,
    and the rest, where λ I - A is regular and is solved with (after filling in ones for the vectors found)."""
    if B is not None:
        raise ValueError("lobpcg.backward does not support backward with B != I yet.")
    g_e, g_x = grads
    middle: Any = None if g_e is None else g_e.diag_embed().to(X.dtype)
    if g_x is None:
        return [matmul(matmul(X, middle), adjoint(X)), None]
    inside = tn(conj(X), g_x)
    gap = E.unsqueeze(-2) - E.unsqueeze(-1)
    turned = inside / (gap + identity(gap))
    turned = turned - turned.diagonal(0, -2, -1).diag_embed()
    middle = turned if middle is None else middle + turned
    outside = g_x - matmul(X, inside)
    columns = []
    for j in range(X._array.shape[-1]):
        value = E[..., j, None, None]
        regular = value * identity(A) - A + matmul(X * (1 - value.squeeze(-1) + E).unsqueeze(-2), adjoint(X))
        columns.append(solve_matrices(regular, outside[..., j, None]))
    return [nt(matmul(X, middle) + cat(columns, -1), conj(X)), None]


def _kernel(xp, A, B, start, iK, k, niter, tol, largest, method, watch):
    """Returns the eigenpairs of every matrix of a stack, computed one after the other."""
    lead, m = A.shape[:-2], A.shape[-1]
    values = xp.empty((*lead, k), real_dtype(A.dtype))
    vectors = xp.empty((*lead, m, k), A.dtype)
    each = [None if x is None else xp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (B, iK)]
    for i in np.ndindex(*lead):
        b, inverse = (None if x is None else x[i] for x in each)
        values[i], vectors[i] = kernels.lobpcg(
            xp, A[i], b, inverse, start[i], k, niter, tol, largest, method != "basic", watch and watch(A[i], b, inverse)
        )
    return values, vectors


_eigenpairs = op(
    "lobpcg(A, B=None, start=None, iK=None, k: int = 1, niter: int = -1, tol: float = 0.0, "
    "largest: bool = True, method: str = 'ortho', watch: any = None)",
    _kernel,
    backward=_gradient,
    wrt=("A", "B"),
    outputs=("E", "X"),
    differentiable_outputs=2,
    shape=lambda a, b, start, ik, k, *rest: [((*a.shape[:-2], k), real_dtype(a.dtype)), ((*a.shape[:-1], k), a.dtype)],
    where=(),
)


class LOBPCG:
    """The state of the iteration that is passed to a `tracker`.

    `A`, `B`, `iK` are the arguments; `E`, `X`, `R`, `S` the eigenvalues, vectors, residuals and the basis;
    `iparams`, `fparams`, `bparams` parameters and `ivars`, `fvars`, `bvars`, `tvars` variables by name. A tracker stops
    the iteration by setting `bvars["force_stop"] = True`.
    """

    def __init__(self, method: str, iparams: dict, fparams: dict, bparams: dict, A, B, iK):
        self.method, self.iparams, self.fparams, self.bparams = method, iparams, fparams, bparams
        self.A, self.B, self.iK = A, B, iK
        self.ivars: dict[str, int] = {}
        self.fvars: dict[str, float] = {}
        self.bvars: dict[str, bool] = {"force_stop": False}
        self.tvars: dict[str, Tensor] = {}

    def step(self, tracker: Callable, number, converged, values, x, residual, error, basis) -> bool:
        """Passes a step to the tracker; returns whether it requested to stop."""
        left = self.iparams["niter"] - number
        self.ivars.update(istep=number, converged_count=converged, iterations_left=left)
        self.tvars["rerr"] = wrap(error)
        self.E, self.X, self.R, self.S = wrap(values), wrap(x), wrap(residual), wrap(basis)
        tracker(self)
        return self.bvars["force_stop"]


def _watched(tracker: Callable | None, method: str, iparams: dict, fparams: dict, bparams: dict):
    """Returns the kernel's callback: for every matrix a function that is called after each step."""
    if tracker is None:
        return None

    def watch(A, B, iK):
        tensors = (None if x is None else wrap(x) for x in (A, B, iK))
        state = LOBPCG(method, iparams, fparams, bparams, *tensors)
        return lambda *seen: state.step(tracker, *seen)

    return watch


@composite("function")
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Callable | None = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes the `k` (1) largest (or smallest) λ of A x = λ B x, best first, and their x: E (*, k) and X (*, m, k).

    A (*, m, m) is symmetric, B (default: the identity) positive-definite. The iteration starts from X (*, m, n), or
    from `n` (default: `k`) random vectors, preconditions the residuals with `iK`, and ends after `niter` steps
    (default: 1000; -1: no limit), or when all residuals relative to the norms are below `tol` (default: √eps). `method`
    "ortho" is robust, "basic" cheaper. `tracker` is called after every step with the state of the iteration (see
    `LOBPCG`). Derivatives are supported without B only, and are symmetric.

    Raises:
        ValueError: If A has fewer than 3 n rows.
        RuntimeError: If the shapes do not fit.

    >>> E, X = torch.lobpcg(torch.diag(torch.arange(1.0, 10.0)), k=1)
    >>> E.round(decimals=3)
    tensor([9.])
    """
    n, k = _check("lobpcg", A, B, X, iK, k, n)
    m = A._array.shape[-1]
    largest, method = largest is None or largest, method or "ortho"
    niter = 1000 if niter is None else niter
    tol = math.sqrt(dtypes.finfo(A.dtype).eps) if tol is None else tol
    if X is None:
        X = randn(*A._array.shape[:-1], n, dtype=A.dtype, device=A.device)
    iparams = {"m": m, "n": n, "k": k, "niter": niter, **(ortho_iparams or {})}
    fparams, bparams = {"tol": tol, **(ortho_fparams or {})}, {"largest": largest, **(ortho_bparams or {})}
    watch = _watched(tracker, method, iparams, fparams, bparams)
    if A.requires_grad:
        A = (A + adjoint(A)) / 2  # makes the gradient symmetric
    return _eigenpairs(A, B, X.detach(), iK, k, niter, tol, largest, method, watch)


def _check(name: str, A: Tensor, B, X, iK, k, n) -> tuple[int, int]:
    """Returns the numbers of vectors to iterate and to return. Raises: RuntimeError, ValueError."""
    shape = A._array.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise RuntimeError(f"torch.{name}: A must be square, got shape {list(shape)}")
    if A._array.dtype.kind not in "fc" or A._array.dtype.itemsize == 2:
        raise RuntimeError(f"torch.{name}: expected A of a 32- or 64-bit floating point type, got {scalar_type(A)}")
    for argument, x in (("B", B), ("iK", iK)):
        if x is not None and x._array.shape[-2:] != shape[-2:]:
            raise RuntimeError(
                f"torch.{name}: A and {argument} must have same shape, got {list(shape)} and {list(x._array.shape)}"
            )
    if X is not None and (X._array.ndim != len(shape) or X._array.shape[:-1] != shape[:-1]):
        raise RuntimeError(
            f"torch.{name}: X shape mismatch: got {list(X._array.shape)}, expected {[*shape[:-1]]} and the number of "
            "vectors"
        )
    for argument, x in (("B", B), ("X", X), ("iK", iK)):
        if x is not None and x.dtype is not A.dtype:
            raise RuntimeError(f"torch.{name}: expected {argument} of dtype {A.dtype} as A, got {x.dtype}")
    if k is None:
        k = 1 if X is None else X._array.shape[-1]
    n = X._array.shape[-1] if X is not None else k if n is None else n
    if k < 1 or n < 1:
        raise ValueError(f"torch.{name}: expected at least one eigenpair, got k={k}, n={n}")
    if shape[-1] < 3 * n:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={shape[-1]}) is smaller than 3 x the "
            f"number of requested eigenpairs (={n})"
        )
    return n, min(k, n)
