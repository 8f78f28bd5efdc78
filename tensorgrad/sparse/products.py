"""Products of sparse matrices, diagonals, and systems of equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.dtypes import FLOATING, scalar_type
from tensorgrad.errors import as_number
from tensorgrad.layouts import sparse_coo, sparse_csc, sparse_csr
from tensorgrad.ops.create import zeros_like
from tensorgrad.ops.linalg import matmul
from tensorgrad.ops.sparse import arguments
from tensorgrad.ops.sparse.construct import sparse_coo_tensor, sparse_csr_tensor
from tensorgrad.ops.sparse.convert import to_sparse
from tensorgrad.ops.sparse.matmul import reduced_mm, sparse_mm
from tensorgrad.ops.sparse.matmul import sampled_addmm as sampled_products
from tensorgrad.ops.sparse.solve import solve
from tensorgrad.ops.sparse_parts import layout_of
from tensorgrad.storage.sparse import COOArray, CSRArray, SparseArray
from tensorgrad.tensor import Tensor, wrap


def _sparse(x: Any) -> bool:
    return isinstance(x, Tensor) and isinstance(x._array, SparseArray)


def mm(input: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of two matrices of which at least one is sparse; the gradient of a sparse factor has its pattern.

    Args:
        input: A matrix (n, k).
        mat2: A matrix (k, m). The result is sparse if both are.
        reduce: For CSR times dense, how the products of a row are combined: "sum", "mean", "amax" or "amin".

    Raises:
        RuntimeError: If shapes or dtypes do not fit, or `reduce` is none of these.

    >>> torch.sparse.mm(torch.eye(2).to_sparse(), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[1., 2.],
            [3., 4.]])
    """
    arguments.tensors("mm", input=input, mat2=mat2)
    if reduce is not None:
        return reduced_mm(input, mat2, reduce)
    if (_sparse(input) or _sparse(mat2)) and min(input.ndim, mat2.ndim) < 2:
        raise IndexError(f"mm: Expected two matrices, got {input.ndim}-D and {mat2.ndim}-D tensors")
    if _sparse(input):
        return sparse_mm(input, mat2)
    if _sparse(mat2):
        return sparse_mm(mat2.t(), input.t()).t()
    return matmul.mm(input, mat2)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """`beta * mat + alpha * (mat1 @ mat2)` with a sparse `mat1`, whose gradient has its pattern.

    >>> torch.sparse.addmm(torch.ones(2, 2), torch.eye(2).to_sparse(), torch.ones(2, 2), beta=2)
    tensor([[3., 3.],
            [3., 3.]])
    """
    arguments.tensors("addmm", mat=mat, mat1=mat1, mat2=mat2)
    arguments.factors("addmm", mat1, beta=beta, alpha=alpha)
    if not _sparse(mat1):
        return matmul.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)
    if isinstance(mat1._array, COOArray) and (_sparse(mat) or _sparse(mat2)):
        raise RuntimeError(
            f"addmm: not supported for layouts {mat.layout} + {mat1.layout} @ {mat2.layout}: one matrix is sparse"
        )
    if mat.dtype is not mat1.dtype:
        raise RuntimeError(f"expected scalar type {scalar_type(mat1)} but found {scalar_type(mat)}")
    product = mm(mat1, mat2)
    if beta == 0:  # `mat` is ignored, including any nan
        mat = zeros_like(mat)
    return (mat if beta == 1 else mat * beta) + (product if alpha == 1 else product * alpha)


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None
) -> Tensor:
    """`alpha * (mat1 @ mat2)` where `input`, a CSR matrix, stores elements, plus `beta * input`.

    Args:
        input: A sparse matrix (n, m), or a batch of them.
        mat1: Shape (n, k), or a batch of them, dense: one sparse matrix serves the whole batch.
        mat2: Shape (k, m), likewise.

    Raises:
        RuntimeError: If layouts, shapes or dtypes do not fit.

    >>> torch.sparse.sampled_addmm(torch.eye(2).to_sparse_csr(), torch.ones(2, 3), torch.ones(3, 2)).values()
    tensor([4., 4.])
    """
    arguments.tensors("sampled_addmm", input=input, mat1=mat1, mat2=mat2)
    arguments.factors("sampled_addmm", input, beta=beta, alpha=alpha)
    beta, alpha = as_number(beta, "beta"), as_number(alpha, "alpha")
    if not isinstance(input._array, CSRArray):
        raise NotImplementedError(f"Expected input tensor to have sparse csr layout, but got {layout_of(input)}")
    for name, given in (("mat1", mat1), ("mat2", mat2)):
        if _sparse(given):
            raise RuntimeError(f"sampled_addmm: Expected {name} to be a strided tensor, but got {layout_of(given)}")
        if given.dtype is not input.dtype:
            raise RuntimeError(
                f"sampled_addmm: Expected {name} and input to have the same dtype, but got "
                f"{scalar_type(given.dtype)} and {scalar_type(input.dtype)}"
            )
    a, b, c = mat1._array.shape, mat2._array.shape, input._array.shape
    if a[:-2] != b[:-2]:
        raise RuntimeError(
            f"sampled_addmm: Expected mat1 and mat2 to have the same batch size, but got {list(a[:-2])} and "
            f"{list(b[:-2])}"
        )
    if len(c) == 2 < len(a):
        rows, columns, elements = (
            part.expand(*a[:-2], -1) for part in (input.crow_indices(), input.col_indices(), input.values())
        )
        input = sparse_csr_tensor(rows, columns, elements, (*a[:-2], *c))
        c = input._array.shape
    if len(a) < 2 or len(b) < 2 or a[:-2] != b[:-2] or a[:-2] != c[:-2] or a[-1] != b[-2] or c[-2:] != (a[-2], b[-1]):
        raise RuntimeError(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({list(a)} and {list(b)}) to {list(c)}"
        )
    made = sampled_products(input, mat1, mat2, beta, alpha)
    if out is None:
        return made
    out._storage.write(out._array, made._array)
    return out


def spdiags(diagonals: Tensor, offsets: Tensor, shape: tuple[int, int], layout: Any = None) -> Tensor:
    """Returns a sparse matrix with given diagonals.

    Args:
        diagonals: Shape (number of diagonals, length): element k of a row stands in column k.
        offsets: For each diagonal how far it is above the main one (below, if negative), all different.
        shape: Of the matrix.
        layout: Of the matrix: COO by default.

    Raises:
        RuntimeError: If the arguments do not fit each other.

    >>> torch.sparse.spdiags(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1]), (3, 3)).to_dense()
    tensor([[0., 2., 0.],
            [0., 0., 3.],
            [0., 0., 0.]])
    """
    arguments.tensors("spdiags", diagonals=diagonals, offsets=offsets)
    size = arguments.sizes("spdiags", "shape", shape)
    arguments.layouts("spdiags", layout=layout)
    if layout not in (None, sparse_coo, sparse_csr, sparse_csc):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
    if len(size) != 2:
        raise RuntimeError("Output shape must be 2d")
    steps = offsets._array.reshape(-1)
    if steps.dtype.name != "int64":
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {scalar_type(offsets.dtype)}")
    if offsets.dim() > 1:
        raise RuntimeError("Offsets must be scalar or vector")
    rows = diagonals if diagonals.dim() == 2 else diagonals.reshape(1, -1)
    if diagonals.dim() > 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if len(steps) != rows.shape[0]:
        raise RuntimeError(f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({len(steps)})")
    if len(np.unique(steps)) != len(steps):
        raise RuntimeError("Offset tensor contains duplicate values")
    height, width = size
    columns = [
        np.arange(max(int(k), 0), max(max(int(k), 0), min(rows.shape[1], width, height + int(k)))) for k in steps
    ]
    of = np.repeat(np.arange(len(steps)), [len(c) for c in columns])
    column = np.concatenate(columns) if columns else np.empty(0, np.int64)
    at = np.stack([column - steps[of], column])
    made = sparse_coo_tensor(wrap(at), rows[wrap(of), wrap(column)], (height, width))
    return made if layout is None or layout is sparse_coo else to_sparse(made, layout=layout)


def spsolve(input: Tensor, other: Tensor, *, left: bool = True) -> Tensor:
    """Solves `input @ x = other` for a square sparse matrix in CSR layout. Needs the package SciPy.

    `other` is a vector (n,), or a matrix (n, k) of several right sides. Gradients flow to both; that of the matrix has
    its pattern.

    Raises:
        ImportError: Without SciPy.
        RuntimeError: For another layout, shapes that do not fit, or a singular matrix.

    >>> import tensorgrad as torch  # needs the package scipy
    >>> torch.sparse.spsolve(torch.tensor([[2.0, 0.0], [0.0, 4.0]]).to_sparse_csr(), torch.ones(2))
    tensor([0.5000, 0.2500])
    """
    arguments.tensors("spsolve", input=input, other=other)
    if not isinstance(input._array, CSRArray):
        raise RuntimeError(f"spsolve: expected a matrix of layout torch.sparse_csr, got {layout_of(input)}")
    if input.dim() != 2 or input.shape[0] != input.shape[1] or other.shape[0] != input.shape[0] or not left:
        raise RuntimeError(
            f"spsolve: expected a square matrix and as many right sides, got {list(input.shape)} and "
            f"{list(other.shape)}"
        )
    if other.ndim not in (1, 2) or input.dtype != other.dtype or input.dtype.category < FLOATING:
        raise RuntimeError(
            f"spsolve: expected a vector, or a matrix of right sides, and one dtype that is not integral, got shape "
            f"{list(other.shape)}, {input.dtype} and {other.dtype}"
        )
    return solve(input, other, False)
