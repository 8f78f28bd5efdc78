"""Combining the tensors of all processes: sums, products, minima, maxima."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.collectives import buffers, checks
from tensorgrad.distributed.collectives.begin import begin
from tensorgrad.distributed.group import ProcessGroup, canonical_rank, or_default
from tensorgrad.distributed.mpi.communicator import MPICommunicator
from tensorgrad.distributed.reduce_op import ReduceOp, kind_of, prepared
from tensorgrad.distributed.work import Work

__all__ = [
    "all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor",
]  # fmt: skip


def _reduction(tensor: Any, op: Any, group: ProcessGroup) -> tuple[Any, str, Any]:
    """An array that may be reduced in place: the tensor's own memory, or a copy in a dtype that can be added."""
    array = buffers.target(tensor, group)
    buffers.copy_to(array, tensor, group)
    return _prepared(array, op, group)


def _prepared(array: Any, op: Any, group: ProcessGroup) -> tuple[Any, str, Any]:
    array, name, finish = buffers.at_home(prepared, array, op, group.size())
    return array, name, lambda result: buffers.at_home(finish, result)


def all_reduce(
    tensor: Any, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Combines the tensors of all processes; every process has the result in its tensor.

    Args:
        tensor: input and output; the same shape and dtype everywhere.
        op: how to combine; see `ReduceOp`. float16 and bfloat16 are added in float32.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.

    Returns:
        A `Work` if `async_op`, else None.

    Raises:
        ValueError: the operation has no meaning for complex tensors.
        RuntimeError: it does not exist for the dtype.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.tensor([1.0, 2.0])
    >>> dist.all_reduce(x)  # of one process: its own values
    >>> x
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    return start_all_reduce(tensor, op, group, async_op)


def start_all_reduce(
    tensor: Any, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = True, watched: bool = True
) -> Work | None:
    """`all_reduce` for callers that may keep it moving themselves: `watched` says whether a thread is to do that."""
    checks.tensor(tensor, "tensor")
    if checks.outside(group, "all_reduce"):
        return None
    checks.complex_op("all_reduce", op, tensor)
    chosen = or_default(group)
    array, name, finish = _reduction(tensor, op, chosen)
    return begin(
        chosen,
        "all_reduce",
        lambda comm: [comm.all_reduce(array, name)],
        lambda: buffers.store(tensor, finish(array)),
        [tensor],
        [array],
        async_op,
        alike=lambda: [tensor, f"op {kind_of(op).name}"],
        watched=watched,
    )


def sums_in_place(group: ProcessGroup) -> bool:
    """Whether `start_sums` can be used: all members are on one machine, and share memory. All must ask."""
    if group.shares_memory is None:
        group.shares_memory = False
        if isinstance(group.communicator, MPICommunicator):
            all_can = torch.tensor([int(group.communicator.can_share())], device="cpu")
            all_reduce(all_can, ReduceOp.MIN, group)
            if all_can.item():
                group.communicator.share()
                group.shares_memory = True
    return group.shares_memory


def start_sums(arrays: list[Any], factor: float, group: ProcessGroup, watched: bool) -> Any:
    """Begins to replace arrays on the host by their sums over a group for which `sums_in_place`.

    Args:
        arrays: contiguous, all float32 or all float64.
        factor: each array of this process is multiplied by it first.
        watched: whether a thread keeps the operation moving.
    """
    return begin(
        group,
        "all_reduce",
        lambda comm: [comm.sum_in_place(arrays, factor)],
        lambda: None,
        [],
        arrays,
        True,
        alike=lambda: [f"{sum(array.size for array in arrays)} elements of {arrays[0].dtype.name}"],
        watched=watched,
    )


def start_copies(arrays: list[Any], root: int, group: ProcessGroup) -> None:
    """Replaces arrays on the host by those of one member of a group for which `sums_in_place`.

    Args:
        arrays: flat and contiguous, of bytes.
        root: the member's rank within the group.
    """
    begin(
        group,
        "broadcast",
        lambda comm: [comm.copy_in_place(arrays, root)],
        lambda: None,
        [],
        arrays,
        False,
        alike=lambda: [f"{sum(array.size for array in arrays)} bytes from rank {group.ranks[root]}"],
    )


def all_reduce_coalesced(
    tensors: list[Any], op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several tensors. Deprecated in PyTorch.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.all_reduce_coalesced([torch.ones(2), torch.ones(3)])
    >>> dist.destroy_process_group()
    """
    tensors = tensors if isinstance(tensors, list) else [tensors]
    checks.tensors(tensors, "tensors")
    checks.same_dtype(tensors)
    if checks.outside(group, "all_reduce_coalesced"):
        return None
    checks.complex_op("all_reduce", op, *tensors)
    chosen = or_default(group)
    parts = [_reduction(tensor, op, chosen) for tensor in tensors]

    def finish() -> None:
        for tensor, (array, _, convert) in zip(tensors, parts):
            buffers.store(tensor, convert(array))

    return begin(
        chosen,
        "all_reduce_coalesced",
        lambda comm: [comm.all_reduce(array, name) for array, name, _ in parts],
        finish,
        list(tensors),
        [part[0] for part in parts],
        async_op,
        alike=lambda: [*tensors, f"op {kind_of(op).name}"],
    )


def reduce(
    tensor: Any,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combines the tensors of all processes; one of them has the result in its tensor.

    Args:
        tensor: input, and on the receiver output.
        dst: the receiver's global rank.
        op: how to combine; see `ReduceOp`.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.
        group_dst: the receiver's rank within the group, instead of `dst`.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.reduce(torch.ones(2), dst=0)
    >>> dist.destroy_process_group()
    """
    if checks.outside(group, "reduce"):
        return None
    chosen = or_default(group)
    root = canonical_rank(chosen, dst, group_dst)
    checks.tensor(tensor, "tensor")
    checks.complex_op("reduce", op, tensor)
    checks.rank_exists("reduce", chosen, root)
    array, name, finish = _reduction(tensor, op, chosen)
    return begin(
        chosen,
        "reduce",
        lambda comm: [comm.reduce(array, name, root)],
        lambda: buffers.store(tensor, finish(array)) if chosen.rank() == root else None,
        [tensor],
        [array],
        async_op,
        alike=lambda: [tensor, f"op {kind_of(op).name}, to rank {chosen.ranks[root]}"],
    )


def reduce_scatter(
    output: Any,
    input_list: list[Any],
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Combines lists of tensors over all processes, and gives each process its item of the result.

    Args:
        output: to receive into.
        input_list: one tensor per process.
        op: how to combine; see `ReduceOp`.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.zeros(2)
    >>> dist.reduce_scatter(x, [torch.ones(2)])
    >>> x
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    checks.tensor(output, "output")
    checks.tensors(input_list, "input_list")
    checks.same_dtype(output, input_list)
    if checks.outside(group, "reduce_scatter"):
        return None
    checks.complex_op("reduce_scatter", op, output, *input_list)
    chosen = or_default(group)
    if len(input_list) != chosen.size():
        raise RuntimeError("invalid input tensor list size, must be world size")
    checks.same_bytes("reduce_scatter", output, input_list)
    own = input_list[chosen.rank()]
    if own.numel() != output.numel():
        checks.same_shapes("reduce_scatter", own.shape, [output])
    given = buffers.concatenated([buffers.flat(part, chosen) for part in input_list])
    return _reduce_scatter(output, given, [part.numel() for part in input_list], op, chosen, async_op)


def _reduce_scatter(
    output: Any, given: Any, counts: list[int], op: Any, group: ProcessGroup, async_op: bool
) -> Work | None:
    array, name, finish = _prepared(given, op, group)
    received = buffers.empty((counts[group.rank()],), array)
    return begin(
        group,
        "reduce_scatter",
        lambda comm: [comm.reduce_scatter(array, received, counts, name)],
        lambda: buffers.store(output, finish(received)),
        [output],
        [array, received],
        async_op,
        alike=lambda: [f"{given.dtype.name}, parts of {counts} elements, op {kind_of(op).name}"],
    )


def reduce_scatter_single(
    output: Any, input: Any, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Combines a tensor over all processes, and gives each process an equal part of the result.

    Args:
        output: to receive into.
        input: the parts for all processes, joined along the first dimension, or stacked in a new one.
        op: how to combine; see `ReduceOp`.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.

    Returns:
        A `Work` if `async_op`, else None.

    Raises:
        RuntimeError: sizes do not fit.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.zeros(2)
    >>> dist.reduce_scatter_single(x, torch.ones(2))
    >>> x
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    checks.tensor(output, "output")
    checks.tensor(input, "input")
    if checks.outside(group, "reduce_scatter_single"):
        return None
    checks.complex_op("reduce_scatter_single", op, input)
    chosen = or_default(group)
    checks.same_bytes("reduce_scatter", output, [input])
    if output.numel() * chosen.size() != input.numel():
        raise RuntimeError(
            "input tensor must be the same size as output size times world size: expected "
            f"{output.numel() * chosen.size()} elements, got {input.numel()}"
        )
    return _reduce_scatter(output, buffers.flat(input, chosen), [output.numel()] * chosen.size(), op, chosen, async_op)


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """The former name of `reduce_scatter_single`.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.zeros(2)
    >>> dist.reduce_scatter_tensor(x, torch.ones(2))
    >>> dist.destroy_process_group()
    """
    checks.deprecated("reduce_scatter_tensor", "reduce_scatter_single")
    return reduce_scatter_single(output, input, op, group, async_op)
