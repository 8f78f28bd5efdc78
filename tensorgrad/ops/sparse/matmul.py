"""Products of sparse matrices that differ from `mm`: gradients with the pattern of the sparse operand, samples."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import alias, op
from tensorgrad.ops.complex import conj
from tensorgrad.ops.linalg.matmul import mm, nt, tn
from tensorgrad.ops.sparse.convert import mask_
from tensorgrad.ops.sparse.parts import coalesce, lazily, with_values
from tensorgrad.storage.sparse import COOArray, CSRArray, SparseArray
from tensorgrad.tensor import Tensor

alias("spmm", mm, "function")
alias("dsmm", mm, "function")


def _masked(g: Tensor, like: Tensor) -> Tensor:
    """A gradient with the pattern of a sparse operand."""
    return mask_(g, coalesce(like) if isinstance(like._array, COOArray) else like)


sampled_addmm_ = op(
    "sampled_addmm_(input, mat1, mat2, beta: number, alpha: number)",
    None,
    linear="input + mat1 * mat2",
    input=lambda g, beta: g * beta,
    mat1=lambda g, mat2, alpha: (
        mm(g, conj(mat2).mT) * alpha if mat2.dim() == 2 else (g.to_dense() @ conj(mat2).mT) * alpha
    ),
    mat2=lambda g, mat1, alpha: (
        tn(conj(mat1), g) * alpha if mat1.dim() == 2 else (conj(mat1).mT @ g.to_dense()) * alpha
    ),
    backward_name="SparseSampledAddmmBackward0",
    where=(),
)
sparse_mm_ = op(
    "sparse_mm_(mat1, mat2)",
    None,
    linear="mat1 * mat2",
    mat1=lambda g, mat1, mat2: mat1_gradient(g, mat1, mat2),
    mat2=lambda g, mat1, mat2: mat2_gradient(g, mat1, mat2),
    backward_name="SparseAddmmBackward0",
    where=(),
)


def mat1_gradient(g: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
    """The gradient of the sparse factor of a product, only where the factor stores elements."""
    if isinstance(g._array, SparseArray) or isinstance(mat2._array, SparseArray):
        return _masked(nt(g, conj(mat2)), mat1)
    pattern = coalesce(mat1) if isinstance(mat1._array, COOArray) else mat1
    return sampled_addmm_(pattern.detach(), g, conj(mat2).mT, 0, 1)


def mat2_gradient(g: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
    """The gradient of the second factor; if it is sparse, only where it stores elements."""
    made = tn(conj(mat1), g)
    return _masked(made, mat2) if isinstance(mat2._array, SparseArray) else made


REDUCTIONS = ("sum", "mean", "amax", "amin")
_reduced_mm = op(
    "sparse_mm_reduce(input, other, reduce: str)",
    None,
    outputs=("out", "chosen"),
    differentiable_outputs=1,
    input=lambda g, input, other, chosen, reduce: with_values(
        input, reduced_values_grad(g, other, input, chosen, reduce)
    ),
    other=lambda g, input, other_shape, chosen, reduce: reduced_other_grad(
        g, input, chosen, reduce, tuple(other_shape)
    ),
    backward_name="SparseMmReduceImplBackward0",
    where=(),
)
reduced_values_grad = op(
    "sparse_mm_reduce_values_grad(g, other, pattern, chosen, reduce: str)",
    lazily("matmul", "reduced_values_grad"),
    where=(),
)
reduced_other_grad = op(
    "sparse_mm_reduce_other_grad(g, input, chosen, reduce: str, shape: any)",
    lazily("matmul", "reduced_other_grad"),
    where=(),
)


def reduced_mm(input: Tensor, other: Tensor, reduce: str) -> Tensor:
    """A CSR matrix (n, k) times a dense one (k, m), the products of each row combined as `reduce` says.

    Raises: RuntimeError for other layouts, shapes or reductions.
    """
    if reduce not in REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, mean, amax or amin, got {reduce}")
    if not isinstance(input._array, CSRArray) or isinstance(other._array, SparseArray):
        raise RuntimeError(
            f"sparse.mm(reduce=): expected a CSR matrix and a dense one, got layouts {input.layout} and {other.layout}"
        )
    return _reduced_mm(input, other, reduce)[0]
