"""`torch.cuda.comm`: copies tensors from one GPU to several and back, within a process."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorgrad.cuda.devices import index_of
from tensorgrad.devices import device
from tensorgrad.tensor import Tensor

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _on(tensor: Tensor, index: int) -> Tensor:
    return tensor.to(device("cuda", index), non_blocking=True)


def broadcast(tensor: Tensor, devices=None, *, out: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """Copies a tensor to several GPUs: to new tensors on `devices`, or into the tensors `out`.

    Raises:
        RuntimeError: Unless exactly one of the two is given.

    >>> if torch.cuda.is_available():
    ...     copies = torch.cuda.comm.broadcast(torch.ones(2), [0])
    """
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )
    if out is not None:
        return tuple(t.copy_(tensor, non_blocking=True) for t in out)
    return tuple(_on(tensor, index_of(d)) for d in devices)


def broadcast_coalesced(tensors, devices, buffer_size: int = 10485760) -> list[tuple[Tensor, ...]]:
    """Copies several tensors to each GPU.

    >>> if torch.cuda.is_available():
    ...     weight, bias = torch.cuda.comm.broadcast_coalesced([torch.ones(2), torch.ones(1)], [0])[0]
    """
    return [tuple(_on(t, index_of(d)) for t in tensors) for d in devices]


def reduce_add(inputs: Sequence[Tensor], destination=None) -> Tensor:
    """Returns the sum of tensors on several GPUs, on `destination`, which must be the GPU of one of them.

    Raises:
        ValueError: If the shapes differ.
        AssertionError: For a tensor on the CPU.
        RuntimeError: For any other destination.

    >>> if torch.cuda.is_available():
    ...     total = torch.cuda.comm.reduce_add([torch.ones(2, device="cuda"), torch.ones(2, device="cuda")])
    """
    index = index_of(destination)
    for i, tensor in enumerate(inputs):
        if not tensor.is_cuda:
            raise AssertionError(f"reduce_add expects all inputs to be on GPUs, but input {i} is on CPU")
        if tensor.shape != inputs[0].shape:
            got, expected = ("x".join(map(str, t.shape)) for t in (tensor, inputs[0]))
            raise ValueError(f"input {i} has invalid size: got {got}, but expected {expected}")
    if all(t.device.index != index for t in inputs):
        raise RuntimeError("reduce_add expects destination to be on the same GPU with one of the tensors")
    total = _on(inputs[0], index)
    for tensor in inputs[1:]:
        total = total + _on(tensor, index)
    return total


def reduce_add_coalesced(inputs, destination=None, buffer_size: int = 10485760) -> tuple[Tensor, ...]:
    """Returns the sums over the GPUs of the tensors that each of them holds.

    >>> if torch.cuda.is_available():
    ...     sums = torch.cuda.comm.reduce_add_coalesced([[torch.ones(2, device="cuda")]])
    """
    return tuple(reduce_add(group, destination) for group in zip(*inputs, strict=True))


def scatter(tensor: Tensor, devices=None, chunk_sizes=None, dim: int = 0, streams=None, *, out=None):
    """Splits a tensor along a dimension over several GPUs: to new tensors on `devices`, or into the tensors `out`.

    Args:
        chunk_sizes: The length of each part; about equal by default.
        streams: The streams to copy on, one for each GPU; None for the current one.

    Raises:
        RuntimeError: If the arguments do not match each other or the tensor.

    >>> if torch.cuda.is_available():
    ...     parts = torch.cuda.comm.scatter(torch.arange(4), [0])
    """
    from tensorgrad.cuda.streams import StreamContext

    if out is not None:
        for name, given in (("devices", devices), ("chunk_sizes", chunk_sizes)):
            if given is not None:
                raise RuntimeError(f"'{name}' must not be specified when 'out' is specified, but got {name}={given}")
        parts = tensor.split([t.shape[dim] for t in out], dim)
        return tuple(target.copy_(part, non_blocking=True) for target, part in zip(out, parts, strict=True))
    if devices is None:
        raise RuntimeError("Exactly one of 'devices' and 'out' must be specified, but got neither")
    indices = [index_of(d) for d in devices]
    parts = tensor.chunk(len(indices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    made = []
    for index, part, stream in zip(indices, parts, streams or [None] * len(parts), strict=False):
        with StreamContext(stream):
            made.append(_on(part.contiguous(), index))
    return tuple(made)


def gather(tensors: Sequence[Tensor], dim: int = 0, destination=None, *, out: Tensor | None = None) -> Tensor:
    """Concatenates tensors of several GPUs along a dimension, on `destination` (the current GPU) or into `out`.

    Raises:
        RuntimeError: If both are given, or if the length of `out` is wrong.

    >>> if torch.cuda.is_available():
    ...     whole = torch.cuda.comm.gather([torch.ones(2, device="cuda"), torch.ones(1, device="cuda")])
    """
    from tensorgrad.ops.join import cat

    if out is not None:
        if destination is not None:
            raise RuntimeError(f"'destination' must not be specified when 'out' is specified, got {destination}")
        length = math.fsum(t.shape[dim] for t in tensors)
        if out.shape[dim] != length:
            raise RuntimeError(
                f"gather expects out to be of size {int(length)} in dimension {dim}, but got {out.shape[dim]}"
            )
        return out.copy_(cat([t.to(out.device) for t in tensors], dim))
    if destination is not None and device(destination).type == "cpu":
        return cat([t.cpu() for t in tensors], dim)
    index = index_of(destination)
    return cat([_on(t, index) for t in tensors], dim)
