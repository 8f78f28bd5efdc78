"""Products of sparse matrices that differ from `mm`: gradients with the pattern of the sparse operand, samples."""

from __future__ import annotations

from typing import Any

from tensorgrad.dispatch.kinds import alias, composite, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.errors import check_string
from tensorgrad.ops.complex import conj
from tensorgrad.ops.linalg.matmul import mm, nt, tn
from tensorgrad.ops.sparse import arguments
from tensorgrad.ops.sparse.convert import mask_
from tensorgrad.ops.sparse.reduce import only_once
from tensorgrad.ops.sparse_parts import coalesce, lazily, values_at, with_values
from tensorgrad.storage.sparse import COOArray, CSRArray, SparseArray
from tensorgrad.tensor import Tensor

alias("spmm", mm, "function")
alias("dsmm", mm, "function")


@composite("function", name="_sparse_broadcast_to")
def sparse_broadcast_to(self: Tensor, size: Any) -> Tensor:
    """Returns a COO tensor with its dimensions of size 1 repeated, and new sparse ones in front."""
    return _broadcast(self, tuple(size))


_broadcast = op("sparse_broadcast(input, size: any)", None, wrt=(), batch="sparse", where=())


def _is_coo(x: Any) -> bool:
    return isinstance(x, Tensor) and isinstance(x._array, COOArray)


_rows_of = op(
    "sparse_rows_of(product, sparse)",
    lazily("matmul", "stored_rows"),
    batch="sparse",
    linear="product",
    product=lambda g: g.to_dense(),
    where=(),
    doc="The rows of a product in which its sparse factor stores elements, as a COO tensor with one sparse dimension.",
)


@composite()
def hspmm(mat1: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the product of a sparse COO matrix (n, k) and a dense one (k, m) as a hybrid COO tensor of rows.

    Raises:
        RuntimeError: For other layouts.

    >>> torch.hspmm(torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse(), torch.ones(2, 3)).values()
    tensor([[2., 2., 2.]])
    """
    arguments.tensors("hspmm", mat1=mat1, mat2=mat2)
    if not _is_coo(mat1) or isinstance(mat2._array, SparseArray):
        raise NotImplementedError("hspmm: expected a sparse COO matrix and a dense one")
    return store_out("hspmm", out, _rows_of(mm(mat1, mat2), mat1.detach()))


@composite()
def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta=1, alpha=1, out: Tensor | None = None) -> Tensor:
    """Returns `beta * input + alpha * (mat1 @ mat2)`, all sparse COO matrices but for the dense `mat2`.

    The result, also COO, stores every element of the rows in which `mat1` stores some. It is not coalesced.

    Raises:
        RuntimeError: For other layouts.

    >>> s = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    >>> torch.sspaddmm(s, s, torch.ones(2, 2)).to_dense()
    tensor([[2., 4.],
            [0., 0.]])
    """
    arguments.tensors("sspaddmm", input=input, mat1=mat1, mat2=mat2)
    arguments.factors("sspaddmm", input, beta=beta, alpha=alpha)
    if not isinstance(input._array, SparseArray):
        raise RuntimeError("tensor.sspaddmm(...) can only be called on sparse tensors")
    if not _is_coo(input) or not _is_coo(mat1) or isinstance(mat2._array, SparseArray):
        raise RuntimeError("sspaddmm: expected two sparse COO matrices and a dense one")
    product = _elements(hspmm(mat1, mat2))
    if input.shape != product.shape:
        raise RuntimeError(
            f"sspaddmm: Argument #1: Expected dim 0 size {product.shape[0]}, and dim 1 size {product.shape[1]}, got "
            f"{list(input.shape)}"
        )
    given = input if beta == 1 else input * beta
    return store_out("sspaddmm", out, given + (product if alpha == 1 else product * alpha))


_elements = op(
    "sparse_elements(input)",
    lazily("convert", "elements"),
    batch="sparse",
    linear="input",
    input=lambda g: g,
    where=(),
    doc="A hybrid COO tensor with all of its dimensions sparse.",
)


@composite()
def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """Returns the product of a sparse COO matrix and a dense one as a COO tensor: see `sspaddmm`.

    Raises:
        RuntimeError: For other layouts.

    >>> torch.smm(torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse(), torch.ones(2, 2)).to_dense()
    tensor([[2., 2.],
            [0., 0.]])
    """
    arguments.tensors("smm", input=input, mat2=mat2)
    if not _is_coo(input) or isinstance(mat2._array, SparseArray):
        raise RuntimeError("smm: expected a sparse COO matrix and a dense one")
    return _elements(hspmm(input, mat2))


alias("saddmm", sspaddmm, "function")
alias("hsmm", hspmm, "function")


def _masked(g: Tensor, like: Tensor) -> Tensor:
    """A gradient with the pattern of a sparse operand."""
    return mask_(g, coalesce(like) if isinstance(like._array, COOArray) else like)


sampled_addmm = op(
    "sampled_addmm(input, mat1, mat2, beta: number, alpha: number)",
    None,
    batch="sparse",
    jvp=lambda input, input_t, mat1, mat1_t, mat2, mat2_t, beta, alpha: sampled_addmm(
        sampled_addmm(with_values(input.detach(), values_at(input_t, input)), mat1_t, mat2, beta, alpha),
        mat1,
        mat2_t,
        1,
        alpha,
    ),
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
sparse_mm = op(
    "sparse_mm(mat1, mat2)",
    None,
    batch="sparse",
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
    return sampled_addmm(pattern.detach(), g, conj(mat2).mT, 0, 1)


def mat2_gradient(g: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
    """The gradient of the second factor; if it is sparse, only where it stores elements."""
    made = tn(conj(mat1), g)
    return _masked(made, mat2) if isinstance(mat2._array, SparseArray) else made


REDUCTIONS = ("sum", "mean", "amax", "amin")
_reduced_mm = op(
    "sparse_mm_reduce(input, other, reduce: str)",
    None,
    batch="sparse",
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
    batch="sparse",
    g=only_once("the gradient of sparse.mm(reduce=)"),
    where=(),
)
reduced_other_grad = op(
    "sparse_mm_reduce_other_grad(g, input, chosen, reduce: str, shape: any)",
    lazily("matmul", "reduced_other_grad"),
    batch="sparse",
    g=only_once("the gradient of sparse.mm(reduce=)"),
    where=(),
)


def reduced_mm(input: Tensor, other: Tensor, reduce: str) -> Tensor:
    """A CSR matrix (n, k) times a dense one (k, m), the products of each row combined as `reduce` says.

    Raises: RuntimeError for other layouts, shapes or reductions.
    """
    arguments.tensors("mm", input=input, mat2=other)
    check_string(reduce, "reduce")
    if reduce not in REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, mean, amax or amin, got {reduce}")
    if not isinstance(input._array, CSRArray) or isinstance(other._array, SparseArray):
        raise NotImplementedError(
            f"sparse.mm(reduce=): expected a CSR matrix and a dense one, got layouts {input.layout} and {other.layout}"
        )
    return _reduced_mm(input, other, reduce)[0]
