"""Collectives that are differentiable: each returns new tensors, and its backward pass is a collective again.

All members of the group must run the backward pass, too.
"""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.autograd import Function
from tensorgrad.distributed import collectives
from tensorgrad.distributed.group import ProcessGroup, get_group_rank, or_default
from tensorgrad.distributed.reduce_op import ReduceOp

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter",
    "scatter",
]  # fmt: skip


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Any) -> Any:
        ctx.op, ctx.group = op, group
        result = tensor.clone(memory_format=torch.contiguous_format)
        collectives.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, root: int, group: Any, tensor: Any) -> Any:
        ctx.root, ctx.group = root, group
        result = tensor.clone(memory_format=torch.contiguous_format)
        collectives.broadcast(result, group=group, group_src=root)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        total = _Reduce.apply(ctx.root, ReduceOp.SUM, ctx.group, grad)
        return None, None, total if ctx.group.rank() == ctx.root else torch.zeros_like(total)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, root: int, op: Any, group: Any, tensor: Any) -> Any:
        ctx.root, ctx.group = root, group
        result = tensor.clone(memory_format=torch.contiguous_format)
        collectives.reduce(result, op=op, group=group, group_dst=root)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, None, _Broadcast.apply(ctx.root, ctx.group, grad)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, root: int, group: Any, tensor: Any) -> Any:
        ctx.root, ctx.group = root, group
        results = [torch.zeros_like(tensor) for _ in range(group.size())]
        collectives.gather(tensor, results if group.rank() == root else None, group=group, group_dst=root)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, _Scatter.apply(ctx.root, ctx.group, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, root: int, group: Any, *tensors: Any) -> Any:
        ctx.root, ctx.group = root, group
        result = torch.zeros_like(tensors[0])
        collectives.scatter(result, list(tensors) if group.rank() == root else None, group=group, group_src=root)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, *_Gather.apply(ctx.root, ctx.group, grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Any) -> Any:
        ctx.group = group
        results = [torch.empty_like(tensor) for _ in range(group.size())]
        collectives.all_gather(results, tensor, group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, *grads)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, *tensors: Any) -> Any:
        ctx.group = group
        result = torch.empty_like(tensors[group.rank()])
        collectives.reduce_scatter(result, list(tensors), op, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, *_AllGather.apply(ctx.group, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, shapes: list[Any], *tensors: Any) -> Any:
        ctx.group, ctx.shapes = group, [tensor.shape for tensor in tensors]
        results = [tensors[0].new_empty(shape) for shape in shapes]
        collectives.all_to_all(results, list(tensors), group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, shape: Any, incoming: Any, outgoing: Any, tensor: Any) -> Any:
        ctx.group, ctx.shape, ctx.incoming, ctx.outgoing = group, tensor.shape, incoming, outgoing
        result = tensor.new_empty(shape)
        collectives.all_to_all_single(result, tensor, incoming, outgoing, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, ctx.shape, ctx.outgoing, ctx.incoming, grad)


def broadcast(tensor: Any, src: int, group: ProcessGroup | None = None) -> Any:
    """Returns the tensor of one process, on all of them.

    Args:
        tensor: what the sender sends; on the others a tensor of the same shape.
        src: the sender's global rank.
        group: the group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import broadcast
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> broadcast(torch.ones(2), src=0)
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    chosen = or_default(group)
    return _Broadcast.apply(get_group_rank(chosen, src), chosen, tensor)


def gather(tensor: Any, dst: int = 0, group: ProcessGroup | None = None) -> tuple[Any, ...]:
    """Returns the tensors of all processes, on one of them; zeros on the others.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import gather
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> gather(torch.ones(2))
    (tensor([1., 1.]),)
    >>> dist.destroy_process_group()
    """
    chosen = or_default(group)
    return _Gather.apply(get_group_rank(chosen, dst), chosen, tensor)


def scatter(tensors: list[Any], src: int = 0, group: ProcessGroup | None = None) -> Any:
    """Returns this process's item of a list that one process has; the others give tensors of the same shape.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import scatter
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> scatter([torch.ones(2)])
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    chosen = or_default(group)
    return _Scatter.apply(get_group_rank(chosen, src), chosen, *tensors)


def reduce(tensor: Any, dst: int, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None) -> Any:
    """Returns the combined tensors of all processes, on one of them. Gradients are those of a sum.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import reduce
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> reduce(torch.ones(2), dst=0)
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    chosen = or_default(group)
    return _Reduce.apply(get_group_rank(chosen, dst), op, chosen, tensor)


def reduce_scatter(
    output: Any, input_list: list[Any], op: Any = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Any:
    """Returns this process's item of the combined lists of all processes.

    Args:
        output: accepted for compatibility; the result is a new tensor.
        input_list: one tensor per process.
        op: how to combine.
        group: the group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import reduce_scatter
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> reduce_scatter(torch.zeros(2), [torch.ones(2)])
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    return _ReduceScatter.apply(op, or_default(group), *input_list)


def all_gather(tensor: Any, group: ProcessGroup | None = None) -> tuple[Any, ...]:
    """Returns the tensors of all processes, on all of them.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import all_gather
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> all_gather(torch.ones(2))
    (tensor([1., 1.]),)
    >>> dist.destroy_process_group()
    """
    return _AllGather.apply(or_default(group), tensor)


def all_to_all(
    output_tensor_list: list[Any], input_tensor_list: list[Any], group: ProcessGroup | None = None
) -> tuple[Any, ...]:
    """Sends each process one tensor of a list, and returns those that arrive.

    Args:
        output_tensor_list: tensors of the shapes that arrive; their values do not change.
        input_tensor_list: one tensor per process, to send.
        group: the group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import all_to_all
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> all_to_all([torch.zeros(2)], [torch.ones(2)])
    (tensor([1., 1.]),)
    >>> dist.destroy_process_group()
    """
    return _AllToAll.apply(or_default(group), [tensor.shape for tensor in output_tensor_list], *input_tensor_list)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: ProcessGroup | None = None,
) -> Any:
    """Splits a tensor along its first dimension, sends each process its part, and returns what arrives, joined.

    Args:
        output: a tensor of the result's shape; its values do not change.
        input: what to send.
        output_split_sizes, input_split_sizes: rows from and to each process; equal parts if None.
        group: the group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import all_to_all_single
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> all_to_all_single(torch.zeros(2), torch.ones(2))
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    return _AllToAllSingle.apply(or_default(group), output.shape, output_split_sizes, input_split_sizes, input)


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None) -> Any:
    """Returns the combined tensors of all processes. Gradients are combined by the same operation.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.nn.functional import all_reduce
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.ones(2, requires_grad=True)
    >>> all_reduce(x).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    return _AllReduce.apply(op, or_default(group), tensor)
