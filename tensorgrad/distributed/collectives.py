"""Collectives that every member of a group calls together: reductions, broadcast, gather and scatter."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tensorgrad.distributed import buffers, checks
from tensorgrad.distributed.begin import begin
from tensorgrad.distributed.group import ProcessGroup, canonical_rank, not_in_group, or_default, warn_not_in_group
from tensorgrad.distributed.reduce_op import ReduceOp, prepared
from tensorgrad.distributed.work import NO_TIMEOUT, Work

__all__ = [
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather", "reduce",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
]  # fmt: skip


def _outside(group: Any, name: str) -> bool:
    """Whether this process is not a member of the group; then nothing is to be done, with a warning."""
    if not_in_group(group):
        warn_not_in_group(name)
        return True
    return False


def _deprecated(name: str, better: str) -> None:
    warnings.warn(
        f"`torch.distributed.{name}` is deprecated. Please use `torch.distributed.{better}` instead.",
        FutureWarning,
        stacklevel=3,
    )


def broadcast(
    tensor: Any,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Sends a tensor from one process to all others, which receive it into theirs.

    Args:
        tensor: what to send, or to receive into; the same shape and dtype everywhere.
        src: the sender's global rank.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.
        group_src: the sender's rank within the group, instead of `src`.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.broadcast(torch.ones(2), src=0)
    >>> dist.destroy_process_group()
    """
    if _outside(group, "broadcast"):
        return None
    chosen = or_default(group)
    root = canonical_rank(chosen, src, group_src)
    checks.tensor(tensor, "tensor")
    checks.rank_exists("broadcast", chosen, root)
    mine = chosen.rank() == root
    array = buffers.flat(tensor) if mine else buffers.target(tensor)
    return begin(
        chosen,
        "broadcast",
        lambda comm: [comm.broadcast(buffers.as_bytes(array), root)],
        lambda: None if mine else buffers.store(tensor, array),
        [tensor],
        [array],
        async_op,
    )


def _reduction(tensor: Any, op: Any, size: int) -> tuple[np.ndarray, str, Any]:
    """An array that MPI may reduce in place: the tensor's own memory, or a copy in a dtype that MPI adds."""
    array = buffers.target(tensor)
    own = tensor._array.__class__ is np.ndarray and np.shares_memory(array, tensor._array)
    if not own:
        array[...] = buffers.host_array(tensor).reshape(-1)
    return prepared(array, op, size)


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

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.tensor([1.0, 2.0])
    >>> dist.all_reduce(x)  # of one process: its own values
    >>> x
    tensor([1., 2.])
    >>> dist.destroy_process_group()
    """
    checks.tensor(tensor, "tensor")
    if _outside(group, "all_reduce"):
        return None
    checks.complex_op("all_reduce", op, tensor)
    chosen = or_default(group)
    array, name, finish = _reduction(tensor, op, chosen.size())
    return begin(
        chosen,
        "all_reduce",
        lambda comm: [comm.all_reduce(array, name)],
        lambda: buffers.store(tensor, finish(array)),
        [tensor],
        [array],
        async_op,
    )


def all_reduce_coalesced(
    tensors: list[Any], op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several tensors. Deprecated in PyTorch.

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.all_reduce_coalesced([torch.ones(2), torch.ones(3)])
    >>> dist.destroy_process_group()
    """
    tensors = tensors if isinstance(tensors, list) else [tensors]
    checks.tensors(tensors, "tensors")
    checks.same_dtype(tensors)
    if _outside(group, "all_reduce_coalesced"):
        return None
    checks.complex_op("all_reduce", op, *tensors)
    chosen = or_default(group)
    parts = [_reduction(tensor, op, chosen.size()) for tensor in tensors]

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

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.reduce(torch.ones(2), dst=0)
    >>> dist.destroy_process_group()
    """
    if _outside(group, "reduce"):
        return None
    chosen = or_default(group)
    root = canonical_rank(chosen, dst, group_dst)
    checks.tensor(tensor, "tensor")
    checks.complex_op("reduce", op, tensor)
    checks.rank_exists("reduce", chosen, root)
    array, name, finish = _reduction(tensor, op, chosen.size())
    return begin(
        chosen,
        "reduce",
        lambda comm: [comm.reduce(array, name, root)],
        lambda: buffers.store(tensor, finish(array)) if chosen.rank() == root else None,
        [tensor],
        [array],
        async_op,
    )


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

    >>> import tensorgrad as torch
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
    if _outside(group, "all_gather"):
        return None
    chosen = or_default(group)
    if len(tensor_list) != chosen.size():
        raise RuntimeError(
            "ProcessGroupGloo::allgather: invalid output tensor list at index 0 "
            f"(expected length {chosen.size()}, got {len(tensor_list)})"
        )
    checks.same_bytes("allgather", tensor, tensor_list)
    checks.same_shapes("allgather", tensor.shape, tensor_list)
    given = buffers.flat(tensor)
    received = np.empty((chosen.size(), given.size), given.dtype)
    return begin(
        chosen,
        "all_gather",
        lambda comm: [comm.all_gather(buffers.as_bytes(given), buffers.as_bytes(received.reshape(-1)))],
        lambda: _store_each(tensor_list, received),
        list(tensor_list),
        [received],
        async_op,
    )


def _store_each(tensors: list[Any], rows: Any) -> None:
    for tensor, row in zip(tensors, rows):
        buffers.store(tensor, row)


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

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.all_gather_coalesced([[torch.zeros(2), torch.zeros(3)]], [torch.ones(2), torch.ones(3)])
    >>> dist.destroy_process_group()
    """
    if _outside(group, "all_gather_coalesced"):
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

    >>> import tensorgrad as torch
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
    if _outside(group, "all_gather_single"):
        return None
    chosen = or_default(group)
    checks.same_bytes("allgather", input_tensor, [output_tensor])
    if output_tensor.numel() != input_tensor.numel() * chosen.size():
        raise RuntimeError(
            f"output tensor size must be equal to world_size times input tensor size: expected "
            f"{input_tensor.numel() * chosen.size()} elements, got {output_tensor.numel()}"
        )
    given, received = buffers.flat(input_tensor), buffers.target(output_tensor)
    if given.size and np.shares_memory(given, received):  # the input is a part of the output
        given = given.copy()
    return begin(
        chosen,
        "all_gather_single",
        lambda comm: [comm.all_gather(buffers.as_bytes(given), buffers.as_bytes(received))],
        lambda: buffers.store(output_tensor, received),
        [output_tensor],
        [received],
        async_op,
    )


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """The former name of `all_gather_single`.

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = torch.zeros(2)
    >>> dist.all_gather_into_tensor(result, torch.ones(2))
    >>> dist.destroy_process_group()
    """
    _deprecated("all_gather_into_tensor", "all_gather_single")
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

    >>> import tensorgrad as torch
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
    if _outside(group, "gather"):
        return None
    chosen = or_default(group)
    dst = 0 if dst is None and group_dst is None else dst
    root = canonical_rank(chosen, dst, group_dst)
    checks.rank_exists("gather", chosen, root)
    mine = chosen.rank() == root
    if mine and not outputs:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if not mine and outputs:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    if mine:
        if len(outputs) != chosen.size():
            raise RuntimeError(
                f"ProcessGroupGloo::gather: Incorrect output list size {len(outputs)}. Output list size should be "
                f"{chosen.size()}, same as size of the process group."
            )
        checks.same_bytes("gather", tensor, outputs)
        checks.same_shapes("gather", tensor.shape, outputs)
    given = buffers.flat(tensor)
    received = np.empty((chosen.size() if mine else 0, given.size), given.dtype)
    into = buffers.as_bytes(received.reshape(-1)) if mine else None
    return begin(
        chosen,
        "gather",
        lambda comm: [comm.gather(buffers.as_bytes(given), into, root)],
        lambda: _store_each(outputs, received),
        outputs,
        [given, received],
        async_op,
    )


def scatter(
    tensor: Any,
    scatter_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Sends every process one tensor of a list that one process has.

    Args:
        tensor: to receive into; the same shape and dtype everywhere.
        scatter_list: on the sender one tensor per process, elsewhere None.
        src: the sender's global rank; 0 by default.
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.
        group_src: the sender's rank within the group, instead of `src`.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.zeros(2)
    >>> dist.scatter(x, [torch.ones(2)], src=0)
    >>> x
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    checks.tensor(tensor, "tensor")
    inputs = scatter_list or []
    if inputs:
        checks.tensors(inputs, "scatter_list")
    checks.same_dtype(tensor, inputs)
    if _outside(group, "scatter"):
        return None
    chosen = or_default(group)
    src = 0 if src is None and group_src is None else src
    root = canonical_rank(chosen, src, group_src)
    checks.rank_exists("scatter", chosen, root)
    mine = chosen.rank() == root
    if mine and not inputs:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    if not mine and inputs:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    if mine:
        if len(inputs) != chosen.size():
            raise RuntimeError(
                f"ProcessGroupGloo::scatter: Incorrect input list size {len(inputs)}. Input list size should be "
                f"{chosen.size()}, same as size of the process group."
            )
        checks.same_bytes("scatter", tensor, inputs)
        checks.same_shapes("scatter", tensor.shape, inputs)
    given = np.concatenate([buffers.flat(part) for part in inputs]) if mine else None
    received = buffers.target(tensor)
    return begin(
        chosen,
        "scatter",
        lambda comm: [
            comm.scatter(None if given is None else buffers.as_bytes(given), buffers.as_bytes(received), root)
        ],
        lambda: buffers.store(tensor, received),
        [tensor],
        [received],
        async_op,
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

    >>> import tensorgrad as torch
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
    if _outside(group, "reduce_scatter"):
        return None
    checks.complex_op("reduce_scatter", op, output, *input_list)
    chosen = or_default(group)
    if len(input_list) != chosen.size():
        raise RuntimeError("invalid input tensor list size, must be world size")
    checks.same_bytes("reduce_scatter", output, input_list)
    own = input_list[chosen.rank()]
    if own.numel() != output.numel():
        checks.same_shapes("reduce_scatter", own.shape, [output])
    given = np.concatenate([buffers.flat(part) for part in input_list])
    return _reduce_scatter(output, given, [part.numel() for part in input_list], op, chosen, async_op)


def _reduce_scatter(
    output: Any, given: np.ndarray, counts: list[int], op: Any, group: ProcessGroup, async_op: bool
) -> Work | None:
    array, name, finish = prepared(given, op, group.size())
    received = np.empty(counts[group.rank()], array.dtype)
    return begin(
        group,
        "reduce_scatter",
        lambda comm: [comm.reduce_scatter(array, received, counts, name)],
        lambda: buffers.store(output, finish(received)),
        [output],
        [array],
        async_op,
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

    >>> import tensorgrad as torch
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
    if _outside(group, "reduce_scatter_single"):
        return None
    checks.complex_op("reduce_scatter_single", op, input)
    chosen = or_default(group)
    checks.same_bytes("reduce_scatter", output, [input])
    if output.numel() * chosen.size() != input.numel():
        raise RuntimeError(
            "input tensor must be the same size as output size times world size: expected "
            f"{output.numel() * chosen.size()} elements, got {input.numel()}"
        )
    return _reduce_scatter(output, buffers.flat(input), [output.numel()] * chosen.size(), op, chosen, async_op)


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """The former name of `reduce_scatter_single`.

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.zeros(2)
    >>> dist.reduce_scatter_tensor(x, torch.ones(2))
    >>> dist.destroy_process_group()
    """
    _deprecated("reduce_scatter_tensor", "reduce_scatter_single")
    return reduce_scatter_single(output, input, op, group, async_op)


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

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.zeros(2)
    >>> dist.all_to_all_single(x, torch.ones(2))
    >>> x
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    if _outside(group, "all_to_all_single"):
        return None
    checks.tensor(output, "output")
    checks.tensor(input, "input")
    checks.same_dtype(output, input)
    checks.same_bytes("alltoall_base", input, [output])
    chosen = or_default(group)
    incoming = _splits(output, output_split_sizes, chosen.size())
    outgoing = _splits(input, input_split_sizes, chosen.size())
    given, received = buffers.flat(input), buffers.target(output)
    if given.size and received.size and np.shares_memory(given, received):
        given = given.copy()
    return _exchange(given, outgoing, received, incoming, lambda: buffers.store(output, received), [output], chosen,
                     "all_to_all_single", async_op)  # fmt: skip


def _exchange(
    given: np.ndarray,
    outgoing: list[int],
    received: np.ndarray,
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

    >>> import tensorgrad as torch
    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> result = [torch.zeros(2)]
    >>> dist.all_to_all(result, [torch.ones(2)])
    >>> result
    [tensor([1., 1.])]
    >>> dist.destroy_process_group()
    """
    if _outside(group, "all_to_all"):
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
    given = np.concatenate([buffers.flat(tensor) for tensor in input_tensor_list])
    incoming = [tensor.numel() for tensor in output_tensor_list]
    received = np.empty(sum(incoming), given.dtype)
    rows = np.split(received, np.cumsum(incoming)[:-1])
    return _exchange(
        given,
        [tensor.numel() for tensor in input_tensor_list],
        received,
        incoming,
        lambda: _store_each(output_tensor_list, rows),
        list(output_tensor_list),
        chosen,
        "all_to_all",
        async_op,
    )


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None
) -> Work | None:
    """Waits until all processes of a group have called it.

    Args:
        group: the group; the default one if None.
        async_op: whether to return a `Work` without waiting.
        device_ids: accepted; changes nothing.
        timeout: a timedelta; by default the group's.

    Returns:
        A `Work` if `async_op`, else None.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.barrier()
    >>> dist.destroy_process_group()
    """
    if _outside(group, "barrier"):
        return None
    chosen = or_default(group)
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    limit = NO_TIMEOUT if timeout is None else timeout
    return begin(chosen, "barrier", lambda comm: [comm.barrier()], lambda: None, [], [], async_op, limit)
