"""Functions that PyTorch has removed. The names remain and raise errors that name the replacements."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import composite
from tensorgrad.tensor import Tensor

REMOVED = "This function was deprecated since version 1.9 and is now removed."


@composite()
def solve(input: Tensor, A: Tensor, *, out=None):
    """Removed in favor of `torch.linalg.solve(A, B)`.

    Raises:
        RuntimeError: Always.

    >>> torch.solve(torch.ones(1, 1), torch.ones(1, 1))
    Traceback (most recent call last):
        ...
    RuntimeError: ... Write torch.linalg.solve(A, B) for torch.solve(B, A).solution: the matrix comes first. ...
    """
    raise RuntimeError(
        f"{REMOVED} `torch.solve` is deprecated in favor of `torch.linalg.solve`. Write torch.linalg.solve(A, B) for "
        "torch.solve(B, A).solution: the matrix comes first. torch.linalg.lu_factor gives the LU factorization."
    )


@composite()
def symeig(input: Tensor, eigenvectors: bool = False, upper: bool = True, *, out=None):
    """Removed in favor of `torch.linalg.eigh` and `torch.linalg.eigvalsh`.

    Raises:
        RuntimeError: Always.

    >>> torch.symeig(torch.ones(1, 1))
    Traceback (most recent call last):
        ...
    RuntimeError: ... Write torch.linalg.eigvalsh(A, UPLO='U' if upper else 'L') for torch.symeig(A, upper=upper), ...
    """
    raise RuntimeError(
        f"{REMOVED} Write torch.linalg.eigvalsh(A, UPLO='U' if upper else 'L') for torch.symeig(A, upper=upper), and "
        "torch.linalg.eigh(A, UPLO=...) for eigenvectors=True; by default they read the lower triangle."
    )


@composite()
def eig(self: Tensor, eigenvectors: bool = False, *, e=None, v=None):
    """Removed in favor of `torch.linalg.eig` and `torch.linalg.eigvals`.

    Raises:
        RuntimeError: Always.

    >>> torch.eig(torch.ones(1, 1))
    Traceback (most recent call last):
        ...
    RuntimeError: ... Write torch.linalg.eigvals(A) for torch.eig(A), ...
    """
    raise RuntimeError(
        f"{REMOVED} Write torch.linalg.eigvals(A) for torch.eig(A), and torch.linalg.eig(A) for eigenvectors=True; "
        "their results are complex."
    )


@composite()
def lstsq(input: Tensor, A: Tensor, *, out=None):
    """Removed in favor of `torch.linalg.lstsq(A, B)`.

    Raises:
        RuntimeError: Always.

    >>> torch.lstsq(torch.ones(1, 1), torch.ones(1, 1))
    Traceback (most recent call last):
        ...
    RuntimeError: ... Write torch.linalg.lstsq(A, B).solution for the first rows of ...
    """
    raise RuntimeError(
        f"{REMOVED} `torch.lstsq` is deprecated in favor of `torch.linalg.lstsq`. Write torch.linalg.lstsq(A, B)"
        ".solution for the first rows of torch.lstsq(B, A).solution: the matrix comes first, and the residuals are "
        "returned separately. torch.linalg.qr gives the QR decomposition."
    )


@composite("function")
def matrix_rank(input: Tensor, tol=None, symmetric: bool = False, *, out=None):
    """Removed in favor of `torch.linalg.matrix_rank`.

    Raises:
        RuntimeError: Always.

    >>> torch.matrix_rank(torch.ones(1, 1))
    Traceback (most recent call last):
        ...
    RuntimeError: ... Please use the `torch.linalg.matrix_rank` function instead; ...
    """
    raise RuntimeError(
        f"{REMOVED} Please use the `torch.linalg.matrix_rank` function instead; its parameter 'hermitian' replaces "
        "'symmetric'."
    )
