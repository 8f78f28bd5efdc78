"""Sums of sparse tensors, and softmax among the stored elements."""

from __future__ import annotations

from typing import Any

from tensorgrad.dispatch.kinds import op
from tensorgrad.ops.sparse.parts import coalesce, lazily, values_at, with_values
from tensorgrad.tensor import Tensor


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
softmax_ = op(
    "sparse_softmax_(input, dim: int, log: bool)",
    None,
    batch="sparse",
    input=lambda g, out, dim, log: _gradient(g, out, dim, log),
    jvp=lambda input_t, out, dim, log: with_values(out, softmax_values_tangent(values_at(input_t, out), out, dim, log)),
    backward_name="SparseSoftmaxBackward0",
    where=(),
)


def _gradient(g: Tensor, out: Tensor, dim: int, log: bool) -> Tensor:
    return with_values(out, softmax_values_grad(values_at(g, out), out, dim, log))


masked_reduction = op(
    "sparse_masked_reduction(input, mask=None, name: str = '', dims: any = (), keepdim: bool = False, "
    "dtype: any = None)",
    lazily("masked", "reduction"),
    wrt=(),
    where=(),
    doc="`torch.masked.sum` and others of a sparse tensor, without a derivative, as in PyTorch.",
)
sum_values_grad = op(
    "sparse_sum_grad(g, pattern, dims: any)",
    lazily("reduce", "sum_grad"),
    batch="sparse",
    linear="g",
    g=lambda g, pattern, dims: sparse_sum_(with_values(pattern, g), dims),
    where=(),
)
sparse_sum_ = op(
    "sparse_sum_(input, dims: any)",
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
