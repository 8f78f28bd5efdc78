"""Sums and softmax of sparse tensors."""

from __future__ import annotations

from typing import Any

from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import wrap_dim, wrap_dims
from tensorgrad.ops import reduce as dense_reductions
from tensorgrad.ops.copy import to
from tensorgrad.ops.sparse import arguments
from tensorgrad.ops.sparse.reduce import sparse_softmax, sparse_sum
from tensorgrad.ops.sparse_parts import coalesce, values
from tensorgrad.storage.sparse import COOArray
from tensorgrad.tensor import Tensor


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of a COO tensor over dimensions; its gradient has the tensor's pattern.

    Dense if no sparse dimension is left, else sparse.

    >>> torch.sparse.sum(torch.tensor([[0.0, 2.0], [3.0, 4.0]]).to_sparse(), 0).to_dense()
    tensor([3., 6.])
    """
    arguments.tensors("sum", input=input)
    dtype = arguments.kind("sum", dtype)
    if not isinstance(input._array, COOArray):
        refused = RuntimeError if dim is None else NotImplementedError
        raise refused(f"sparse.sum: expected a COO tensor, got layout {input.layout}")
    input = input if dtype is None else to(input, dtype)
    dims = () if dim is None else wrap_dims(dim if isinstance(dim, tuple | list) else (dim,), input.dim())
    if not dims:
        return dense_reductions.sum(values(coalesce(input)))
    return sparse_sum(input, tuple(dims))


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Softmax along a dimension, among the stored elements: those that are not stored count as -inf.

    >>> torch.sparse.softmax(torch.tensor([[0.0, 2.0], [1.0, 1.0]]).to_sparse(), 1).values()
    tensor([1.0000, 0.5000, 0.5000])
    """
    return _softmax(input, dim, dtype, False)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `sparse.softmax`.

    >>> torch.sparse.log_softmax(torch.tensor([[0.0, 2.0], [1.0, 1.0]]).to_sparse(), 1).values()
    tensor([ 0.0000, -0.6931, -0.6931])
    """
    return _softmax(input, dim, dtype, True)


def _softmax(input: Tensor, dim: int, dtype: Any, log: bool) -> Tensor:
    name = "log_softmax" if log else "softmax"
    arguments.tensors(name, input=input)
    dim, dtype = arguments.integer(name, "dim", dim), arguments.kind(name, dtype)
    if not isinstance(input._array, COOArray):
        raise NotImplementedError(f"sparse.softmax: expected a COO tensor, got layout {input.layout}")
    input = input if dtype is None else to(input, dtype)
    if not input.is_floating_point():
        raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_type(input)}'")
    return sparse_softmax(input, wrap_dim(dim, input.dim()), log)
