"""Collecting a tensor of every process, on one of them or on all."""

from __future__ import annotations

from typing import Any

from tensorgrad.distributed.collectives import buffers, checks
from tensorgrad.distributed.collectives.begin import begin
from tensorgrad.distributed.group import ProcessGroup, canonical_rank, or_default
from tensorgrad.distributed.work import Work

__all__ = ["all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "gather"]


def all_gather(
    tensor_list: list[Any], tensor: Any, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Collects a tensor of every process in a list, on all of them.

    Args:
        tensor_list: one tensor per process, to receive into.
        tensor: what this process contributes; the same shape and dtype everywhere.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.

    Returns:
        A `Work` if `async_op`, else None.

    Raises:
        RuntimeError: the list has not as many tensors as there are processes, or they do not fit.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = [torch.zeros(2)]
    >>> dist.all_gather(result, torch.ones(2))
    >>> result
    [tensor([1., 1.])]
    >>> dist.destroy_process_group()
    """
    checks.tensors(tensor_list, "tensor_list")
    checks.tensor(tensor, "tensor")
    checks.same_dtype(tensor_list, tensor)
    if checks.outside(group, "all_gather"):
        return None
    chosen = or_default(group)
    if len(tensor_list) != chosen.size():
        raise RuntimeError(
            "ProcessGroupGloo::allgather: invalid output tensor list at index 0 "
            f"(expected length {chosen.size()}, got {len(tensor_list)})"
        )
    checks.same_bytes("allgather", tensor, tensor_list)
    checks.same_shapes("allgather", tensor.shape, tensor_list)
    given = buffers.flat(tensor, chosen)
    received = buffers.empty((chosen.size(), given.size), given)
    return begin(
        chosen,
        "all_gather",
        lambda comm: [comm.all_gather(buffers.as_bytes(given), buffers.as_bytes(received.reshape(-1)))],
        lambda: buffers.store_each(tensor_list, received),
        list(tensor_list),
        [given, received],
        async_op,
        alike=lambda: [tensor],
    )


def all_gather_coalesced(
    output_tensor_lists: list[list[Any]],
    input_tensor_list: list[Any],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`all_gather` of several tensors. Deprecated in PyTorch.

    Args:
        output_tensor_lists: for each process, tensors to receive its inputs into.
        input_tensor_list: what this process contributes.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.all_gather_coalesced([[torch.zeros(2), torch.zeros(3)]], [torch.ones(2), torch.ones(3)])
    >>> dist.destroy_process_group()
    """
    if checks.outside(group, "all_gather_coalesced"):
        return None
    checks.tensors(input_tensor_list, "input_tensor_list")
    works = [
        all_gather([outputs[index] for outputs in output_tensor_lists], tensor, group, True)
        for index, tensor in enumerate(input_tensor_list)
    ]
    for work in works[:-1] if async_op else works:
        if work is not None:
            work.wait()
    return works[-1] if async_op and works else None


def all_gather_single(
    output_tensor: Any, input_tensor: Any, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Collects a tensor of every process in one tensor, on all of them.

    Args:
        output_tensor: to receive into: the inputs joined along the first dimension, or stacked in a new one.
        input_tensor: what this process contributes; the same shape and dtype everywhere.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.

    Returns:
        A `Work` if `async_op`, else None.

    Raises:
        RuntimeError: sizes or dtypes do not fit.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = torch.zeros(2)
    >>> dist.all_gather_single(result, torch.ones(2))
    >>> result
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    checks.tensor(input_tensor, "input_tensor")
    checks.tensor(output_tensor, "output_tensor")
    if checks.outside(group, "all_gather_single"):
        return None
    chosen = or_default(group)
    checks.same_bytes("allgather", input_tensor, [output_tensor])
    if output_tensor.numel() != input_tensor.numel() * chosen.size():
        raise RuntimeError(
            f"output tensor size must be equal to world_size times input tensor size: expected "
            f"{input_tensor.numel() * chosen.size()} elements, got {output_tensor.numel()}"
        )
    received = buffers.target(output_tensor, chosen)
    given = buffers.apart(buffers.flat(input_tensor, chosen), received)  # the input may be a part of the output
    return begin(
        chosen,
        "all_gather_single",
        lambda comm: [comm.all_gather(buffers.as_bytes(given), buffers.as_bytes(received))],
        lambda: buffers.store(output_tensor, received),
        [output_tensor],
        [given, received],
        async_op,
        alike=lambda: [input_tensor],
    )


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """The former name of `all_gather_single`.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = torch.zeros(2)
    >>> dist.all_gather_into_tensor(result, torch.ones(2))
    >>> dist.destroy_process_group()
    """
    checks.deprecated("all_gather_into_tensor", "all_gather_single")
    return all_gather_single(output_tensor, input_tensor, group, async_op)


def gather(
    tensor: Any,
    gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Collects a tensor of every process in a list, on one of them.

    Args:
        tensor: what this process contributes; the same shape and dtype everywhere.
        gather_list: on the receiver one tensor per process, elsewhere None.
        dst: the receiver's global rank; 0 by default.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.
        group_dst: the receiver's rank within the group, instead of `dst`.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = [torch.zeros(2)]
    >>> dist.gather(torch.ones(2), result, dst=0)
    >>> result
    [tensor([1., 1.])]
    >>> dist.destroy_process_group()
    """
    checks.tensor(tensor, "tensor")
    outputs = gather_list or []
    if outputs:
        checks.tensors(outputs, "gather_list")
    checks.same_dtype(tensor, outputs)
    if checks.outside(group, "gather"):
        return None
    chosen = or_default(group)
    dst = 0 if dst is None and group_dst is None else dst
    root = canonical_rank(chosen, dst, group_dst)
    checks.rank_exists("gather", chosen, root)
    mine = chosen.rank() == root
    checks.one_per_rank(
        "gather", tensor, outputs, chosen.size(), mine, argument="gather_list", end="destination", list_of="output"
    )
    given = buffers.flat(tensor, chosen)
    received = buffers.empty((chosen.size() if mine else 0, given.size), given)
    into = buffers.as_bytes(received.reshape(-1)) if mine else None
    return begin(
        chosen,
        "gather",
        lambda comm: [comm.gather(buffers.as_bytes(given), into, root)],
        lambda: buffers.store_each(outputs, received),
        outputs,
        [given, received],
        async_op,
        alike=lambda: [tensor, f"to rank {chosen.ranks[root]}"],
    )
