"""Every process sends a part to every other."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from tensorgrad.distributed.collectives import buffers, checks
from tensorgrad.distributed.collectives.begin import begin
from tensorgrad.distributed.group import ProcessGroup, or_default
from tensorgrad.distributed.work import Work

__all__ = ["all_to_all", "all_to_all_single"]


def _splits(tensor: Any, sizes: list[int] | None, members: int) -> list[int]:
    """How many elements of a tensor belong to each process. Raises: RuntimeError if that does not come out even."""
    first = tensor.shape[0] if tensor.ndim else 1
    row = tensor.numel() // first if first else 0
    if not sizes:
        if first % members:
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        return [first // members * row] * members
    if len(sizes) != members:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(sizes) != first:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    return [size * row for size in sizes]


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Splits a tensor along its first dimension, and sends each process its part; joins what arrives.

    Args:
        output: to receive into.
        input: what to send.
        output_split_sizes: how many rows come from each process; equal parts if None.
        input_split_sizes: how many rows go to each process; equal parts if None.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.

    Returns:
        A `Work` if `async_op`, else None.

    Raises:
        RuntimeError: the sizes do not fit.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.zeros(2)
    >>> dist.all_to_all_single(x, torch.ones(2))
    >>> x
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    if checks.outside(group, "all_to_all_single"):
        return None
    checks.tensor(output, "output")
    checks.tensor(input, "input")
    checks.same_dtype(output, input)
    checks.same_bytes("alltoall_base", input, [output])
    chosen = or_default(group)
    incoming = _splits(output, output_split_sizes, chosen.size())
    outgoing = _splits(input, input_split_sizes, chosen.size())
    received = buffers.target(output, chosen)
    given = buffers.apart(buffers.flat(input, chosen), received)
    return _exchange(given, outgoing, received, incoming, lambda: buffers.store(output, received), [output], chosen,
                     "all_to_all_single", async_op)  # fmt: skip


def _exchange(
    given: Any,
    outgoing: list[int],
    received: Any,
    incoming: list[int],
    finish: Any,
    tensors: list[Any],
    group: ProcessGroup,
    name: str,
    async_op: bool,
) -> Work | None:
    own = group.rank()
    if outgoing[own] != incoming[own]:
        raise RuntimeError(
            f"{name}: rank {own} sends itself {outgoing[own]} elements but expects {incoming[own]} from itself"
        )
    width = given.itemsize
    return begin(
        group,
        name,
        lambda comm: [
            comm.all_to_all(
                buffers.as_bytes(given),
                [count * width for count in outgoing],
                buffers.as_bytes(received),
                [count * width for count in incoming],
            )
        ],
        finish,
        tensors,
        [given, received],
        async_op,
        alike=lambda: [given.dtype.name],
    )


def all_to_all(
    output_tensor_list: list[Any],
    input_tensor_list: list[Any],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Sends each process one tensor of a list, and receives one from each.

    Args:
        output_tensor_list: one tensor per process, to receive into.
        input_tensor_list: one tensor per process, to send.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = [torch.zeros(2)]
    >>> dist.all_to_all(result, [torch.ones(2)])
    >>> result
    [tensor([1., 1.])]
    >>> dist.destroy_process_group()
    """
    if checks.outside(group, "all_to_all"):
        return None
    checks.tensors(output_tensor_list, "output_tensor_list")
    checks.tensors(input_tensor_list, "input_tensor_list")
    checks.same_dtype(output_tensor_list, input_tensor_list)
    chosen = or_default(group)
    for kind, given_list in (("input", input_tensor_list), ("output", output_tensor_list)):
        if len(given_list) != chosen.size():
            raise RuntimeError(
                f"ProcessGroupGloo::alltoall: {kind} tensor list size {len(given_list)} does not match world size "
                f"{chosen.size()}"
            )
    checks.same_bytes("alltoall", input_tensor_list[0], input_tensor_list + output_tensor_list)
    given = buffers.concatenated([buffers.flat(tensor, chosen) for tensor in input_tensor_list])
    incoming = [tensor.numel() for tensor in output_tensor_list]
    received = buffers.empty((sum(incoming),), given)
    ends = list(accumulate(incoming))
    rows = [received[end - count : end] for end, count in zip(ends, incoming)]
    return _exchange(
        given,
        [tensor.numel() for tensor in input_tensor_list],
        received,
        incoming,
        lambda: buffers.store_each(output_tensor_list, rows),
        list(output_tensor_list),
        chosen,
        "all_to_all",
        async_op,
    )
