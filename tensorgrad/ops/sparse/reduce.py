"""Sums of sparse tensors, and softmax among the stored elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.dispatch.kinds import op
from tensorgrad.layouts import sparse_coo
from tensorgrad.ops.compare import where
from tensorgrad.ops.join import cat
from tensorgrad.ops.sparse.convert import as_layout_of, to_layout, to_sparse
from tensorgrad.ops.sparse_parts import coalesce, lazily, raw_values_of, values_at, with_values
from tensorgrad.storage.sparse import COOArray
from tensorgrad.tensor import Tensor, wrap


def only_once(name: str) -> Any:
    """A formula of an op that has no derivative where it should have one. Raises: NotImplementedError."""

    def formula(g: Tensor) -> Tensor:
        raise NotImplementedError(f"derivative for {name} is not implemented")

    return formula


softmax_values_grad = op(
    "sparse_softmax_grad(g, out, dim: int, log: bool)",
    lazily("reduce", "softmax_grad"),
    g=only_once("the gradient of sparse.softmax"),
    out=only_once("the gradient of sparse.softmax"),
    batch="sparse",
    where=(),
)
softmax_values_tangent = op(
    "sparse_softmax_tangent(values, out, dim: int, log: bool)",
    lazily("reduce", "softmax_tangent"),
    values=only_once("the tangent of sparse.softmax"),
    out=only_once("the tangent of sparse.softmax"),
    batch="sparse",
    where=(),
)
sparse_softmax = op(
    "sparse_softmax(input, dim: int, log: bool)",
    None,
    batch="sparse",
    input=lambda g, out, dim, log: _gradient(g, out, dim, log),
    jvp=lambda input_t, out, dim, log: with_values(out, softmax_values_tangent(values_at(input_t, out), out, dim, log)),
    backward_name="SparseSoftmaxBackward0",
    where=(),
)


def _gradient(g: Tensor, out: Tensor, dim: int, log: bool) -> Tensor:
    return with_values(out, softmax_values_grad(values_at(g, out), out, dim, log))


def _reduced_in_groups(input, mask, name, dims, keepdim, dtype) -> Tensor:
    """A masked reduction by functions of dense tensors: those of the values that the mask includes, in groups."""
    from tensorgrad.kernels.sparse import masked as kernels
    from tensorgrad.kernels.sparse.coordinates import found_in

    array, places, true, found = kernels.groups(
        input._array, None if mask is None else mask._array, name, dims, keepdim
    )
    x = to_sparse(input)
    values = raw_values_of(x if mask is None else coalesce(x)).to(dtype)
    if mask is not None:
        positions, there = found_in(array, places)
        padded = cat([values, values.new_zeros((1, *values.shape[1:]))])
        values = padded.index_select(0, wrap(np.where(there, positions, len(array.values))))
    if true is not None:
        values = where(wrap(true), values, kernels.identity(name, dtype.numpy).item())
    if found.inner:
        values = values.sum(found.inner, keepdim=keepdim)
    count = len(found.starts) if found.indices is not None else 1
    made = values.new_full((count, *values.shape[1:]), kernels.identity(name, dtype.numpy).item())
    numbers = wrap(found.numbers)
    if name == "sum":
        made = made.index_add(0, numbers, values)
    else:
        made = made.index_reduce(0, numbers, values, name, include_self=False)
    if found.indices is None:
        made = to_layout(made.reshape(found.shape), sparse_coo, (1, 1), 0, len(found.shape))
    else:
        made = with_values(wrap(COOArray(found.indices, made.detach()._array, found.shape)), made)
    return made if x is input else as_layout_of(coalesce(made), input)


masked_reduction = op(
    "sparse_masked_reduction(input, mask=None, name: str = '', dims: any = (), keepdim: bool = False, "
    "dtype: any = None)",
    lazily("masked", "reduction"),
    twin=_reduced_in_groups,
    wrt=("input",),
    batch="sparse",
    where=(),
    doc="`torch.masked.sum` and others of a sparse tensor.",
)
sum_values_grad = op(
    "sparse_sum_grad(g, pattern, dims: any)",
    lazily("reduce", "sum_grad"),
    batch="sparse",
    linear="g",
    g=lambda g, pattern, dims: sparse_sum(with_values(pattern, g), dims),
    where=(),
)
sparse_sum = op(
    "sparse_sum(input, dims: any)",
    None,
    batch="sparse",
    linear="input",
    input=lambda g, input, dims: _sum_gradient(g, input, dims),
    backward_name="SparseSumBackward0",
    where=(),
)


def _sum_gradient(g: Tensor, input: Tensor, dims: tuple) -> Tensor:
    pattern = coalesce(input.detach())
    return with_values(pattern, sum_values_grad(g, pattern, dims))
