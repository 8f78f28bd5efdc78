"""Moving a tensor from one placement to another along one dimension of a mesh, with gradients.

A gradient is placed like its tensor: it is divided where the tensor is divided, and whole where the tensor is whole or
partial (the derivative by a term of a sum is that by the sum). So the backward pass of each move is a move too.
"""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.function import Function
from tensorgrad.distributed import collectives
from tensorgrad.distributed.reduce_op import ReduceOp
from tensorgrad.distributed.tensor.placement_types import chunk_sizes

__all__ = ["add_gradients", "exchange", "gather", "gather_array", "part", "reduce", "reduce_scatter", "scaled"]

OPS = {
    "sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "product": ReduceOp.PRODUCT, "max": ReduceOp.MAX, "min": ReduceOp.MIN,
}  # fmt: skip


def gather_array(tensor: Any, dim: int, length: int, group: Any) -> Any:
    """The pieces of all ranks joined along a dimension of this length, outside autograd."""
    if group.size() == 1:
        return tensor.detach().clone()
    piece = -(-length // group.size())
    rows = tensor.detach().movedim(dim, 0)
    if rows.shape[0] < piece:  # only the last piece that has elements can be shorter: the padding comes at the end
        padded = rows.new_zeros((piece, *rows.shape[1:]))
        padded[: rows.shape[0]] = rows
        rows = padded
    whole = rows.new_empty((piece * group.size(), *rows.shape[1:]))
    collectives.all_gather_single(whole, rows.contiguous(), group)
    return whole[:length].movedim(0, dim).contiguous()


def reduce_scatter_array(tensor: Any, dim: int, op: Any, group: Any) -> Any:
    """This rank's piece of the combined tensors of all ranks, outside autograd."""
    rows = tensor.detach().movedim(dim, 0)
    pieces = list(rows.split(chunk_sizes(rows.shape[0], group.size())))
    result = rows.new_empty(pieces[group.rank()].shape)
    collectives.reduce_scatter(result, pieces, op, group)
    return result.movedim(0, dim).contiguous()


class _Gather(Function):
    """Shard to Replicate. If every rank's gradient is only a term of the whole one, they are added on the way back."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, dim: int, length: int, group: Any, gradients_are_terms: bool) -> Any:
        ctx.dim, ctx.group, ctx.gradients_are_terms = dim, group, gradients_are_terms
        return gather_array(tensor, dim, length, group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        back = reduce_scatter if ctx.gradients_are_terms else part
        return back(grad, ctx.dim, ctx.group), None, None, None, None


class _GatherAgain(Function):
    """The result of a gather that was made before, now with gradients that are terms of a sum."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, whole: Any, dim: int, group: Any) -> Any:
        ctx.dim, ctx.group = dim, group
        return whole.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return reduce_scatter(grad, ctx.dim, ctx.group), None, None, None


class _Part(Function):
    """Replicate to Shard."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, dim: int, group: Any) -> Any:
        ctx.dim, ctx.group, ctx.length = dim, group, tensor.shape[dim]
        pieces = tensor.detach().split(chunk_sizes(ctx.length, group.size()), dim)
        return pieces[group.rank()].clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return gather(grad, ctx.dim, ctx.length, ctx.group), None, None


class _Reduce(Function):
    """Partial to Replicate."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, op: str, group: Any) -> Any:
        ctx.op, ctx.size = op, group.size()
        result = tensor.detach().clone()
        collectives.all_reduce(result, OPS[op], group)
        if op not in ("sum", "avg"):
            ctx.save_for_backward(tensor, result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.op == "avg":
            grad = grad / ctx.size
        elif ctx.op != "sum":
            tensor, result = ctx.saved_tensors
            grad = grad * (result / tensor) if ctx.op == "product" else grad * (tensor == result)
        return grad, None, None


class _ReduceScatter(Function):
    """Partial to Shard."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, dim: int, group: Any, op: str) -> Any:
        ctx.dim, ctx.group, ctx.length, ctx.op = dim, group, tensor.shape[dim], op
        return reduce_scatter_array(tensor, dim, OPS[op], group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad = gather(grad, ctx.dim, ctx.length, ctx.group)
        return grad / ctx.group.size() if ctx.op == "avg" else grad, None, None, None


class _Exchange(Function):
    """Shard of one dimension to Shard of another."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, before: int, after: int, length: int, group: Any) -> Any:
        ctx.before, ctx.after, ctx.group, ctx.length = before, after, group, tensor.shape[after]
        lengths = chunk_sizes(length, group.size())
        pieces = [p.contiguous() for p in tensor.detach().split(chunk_sizes(ctx.length, group.size()), after)]
        shape = list(pieces[group.rank()].shape)
        received = [tensor.new_empty((*shape[:before], n, *shape[before + 1 :])) for n in lengths]
        collectives.all_to_all(received, pieces, group)
        return torch.cat(received, before)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _Exchange.apply(grad, ctx.after, ctx.before, ctx.length, ctx.group), None, None, None, None


class _Scaled(Function):
    """Replicate to Partial: every rank has an equal share."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, divisor: int) -> Any:
        return tensor.detach() / divisor

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, None


class _AddGradients(Function):
    """The same tensor; the gradients of all ranks are added."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, group: Any) -> Any:
        ctx.group = group
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return reduce(grad, "sum", ctx.group), None


def gather(tensor: Any, dim: int, length: int, group: Any) -> Any:
    """Shard to Replicate: the pieces of all ranks, joined along `dim`, which then has this length."""
    whole = _Gather.apply(tensor, dim, length, group, False)
    if whole.grad_fn is not None:
        whole.grad_fn.gathered = tensor, dim, group
    return whole


def part(tensor: Any, dim: int, group: Any) -> Any:
    """Replicate to Shard: this rank's piece."""
    return _Part.apply(tensor, dim, group)


def reduce(tensor: Any, op: str, group: Any) -> Any:
    """Partial to Replicate: the sum (or `op`) of all ranks' tensors."""
    return _Reduce.apply(tensor, op, group)


def reduce_scatter(tensor: Any, dim: int, group: Any, op: str = "sum") -> Any:
    """Partial to Shard: this rank's piece of the sum (or `op`) of all ranks' tensors."""
    return _ReduceScatter.apply(tensor, dim, group, op)


def exchange(tensor: Any, before: int, after: int, length: int, group: Any) -> Any:
    """Shard of the dimension `before`, which has this length in all, to Shard of the dimension `after`."""
    return _Exchange.apply(tensor, before, after, length, group)


def scaled(tensor: Any, op: str, group: Any) -> Any:
    """Replicate to Partial: what gives the tensor again when all ranks' are combined."""
    return _Scaled.apply(tensor, group.size()) if op == "sum" else tensor


def add_gradients(tensor: Any, group: Any) -> Any:
    """The same tensor, for use in a computation whose result differs by rank: gradients are added over the ranks.

    Of a tensor that was just gathered, they are added and divided in one step.
    """
    if not tensor.requires_grad or group.size() == 1 or not torch.is_grad_enabled():
        return tensor
    origin = getattr(tensor.grad_fn, "gathered", None)
    if origin is not None and origin[2] is group:
        return _GatherAgain.apply(origin[0], tensor, origin[1], group)
    return _AddGradients.apply(tensor, group)
