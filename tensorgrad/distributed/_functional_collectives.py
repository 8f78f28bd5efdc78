"""Collectives that return new tensors, as PyTorch's module of this name: they begin now, and end at the first use.

The results are `AsyncCollectiveTensor`s. Gradients flow through them; all members must run the backward pass, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorgrad as torch
from tensorgrad.autograd import Function
from tensorgrad.distributed import collectives
from tensorgrad.distributed.collectives.gathers import all_gather_single as _gather_into
from tensorgrad.distributed.collectives.reductions import reduce_scatter_single as _scatter_into
from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.group import GroupMember, ProcessGroup
from tensorgrad.distributed.process_group import group_of_ranks, named_group
from tensorgrad.distributed.reduce_op import RedOpType, ReduceOp
from tensorgrad.tensor import Tensor, share

__all__ = [
    "REDUCE_OP_TO_STR", "AsyncCollectiveTensor", "all_gather_inplace", "all_gather_into_tensor_coalesced",
    "all_gather_single", "all_gather_single_autograd", "all_gather_single_coalesced", "all_gather_tensor",
    "all_gather_tensor_autograd", "all_gather_tensor_inplace", "all_reduce", "all_reduce_coalesced",
    "all_reduce_inplace", "all_to_all_inplace", "all_to_all_single", "all_to_all_single_autograd", "broadcast",
    "permute_tensor", "reduce_scatter_single", "reduce_scatter_single_autograd", "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor", "reduce_scatter_tensor_autograd", "reduce_scatter_tensor_coalesced",
    "reduce_scatter_tensor_inplace", "wait_tensor",
]  # fmt: skip

REDUCE_OP_TO_STR = {
    op: op.name.lower() for op in RedOpType if op not in (ReduceOp.PREMUL_SUM, ReduceOp.UNUSED)
}  # by which names functions here know an operation
_OPS = {name: op for op, name in REDUCE_OP_TO_STR.items()}


class AsyncCollectiveTensor(Tensor, plain=True):
    """The result of a collective that may still be under way. Whatever reads its values waits first.

    In PyTorch, views do not wait, and are of this class again; here they wait, and are ordinary tensors.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed import _functional_collectives as functional
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
    >>> type(x).__name__, x + 1
    ('AsyncCollectiveTensor', tensor([2., 2.]))
    >>> dist.destroy_process_group()
    """

    _work: Any = None

    @property
    def _array(self) -> Any:
        work = self._work
        if work is not None:
            work.wait()
            self._work = None
        return Tensor._array.__get__(self)

    @_array.setter
    def _array(self, array: Any) -> None:
        Tensor._array.__set__(self, array)

    @property
    def completed(self) -> bool:
        """Whether somebody has waited for it."""
        return self._work is None

    @property
    def elem(self) -> Tensor:
        """The same memory as an ordinary tensor, without waiting: its values may not be there yet."""
        work, self._work = self._work, None
        try:
            return self.as_subclass(Tensor)
        finally:
            self._work = work

    def wait(self) -> Tensor:
        """Returns the result as an ordinary tensor, once it is complete."""
        self._array  # noqa: B018 (waits)
        return self.as_subclass(Tensor)

    trigger_wait = wait

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"AsyncCollectiveTensor({self.wait()})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.wait().__reduce_ex__(protocol)


def _known_before(name: str) -> Any:
    """An attribute or a method without arguments that depends on no values: it does not wait."""
    found = Tensor.__dict__[name]

    def outline(self: AsyncCollectiveTensor) -> Tensor:
        return share(Tensor._array.__get__(self), None)

    if isinstance(found, property):
        return property(lambda self: getattr(outline(self), name), doc=found.__doc__)
    return wraps(found)(lambda self, *dim: found(outline(self), *dim))


for _name in ("shape", "ndim", "dtype", "device", "is_cuda", "size", "stride", "numel", "nelement", "dim", "__len__"):
    setattr(AsyncCollectiveTensor, _name, _known_before(_name))


class _Collective(Function):
    """Any of the collectives: `start` begins it and returns its result and `Work`; `back` does so for a gradient."""

    @staticmethod
    def forward(ctx: Any, start: Callable, back: Callable, works: list, tensor: Any) -> Any:
        ctx.start, ctx.back = start, back
        result, work = start(tensor)
        works.append(work)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, None, ctx.back(grad)


def _begun(start: Callable[[Any], tuple[Any, Any]], back: Callable[[Any], Any], tensor: Any) -> AsyncCollectiveTensor:
    works: list[Any] = []
    result = _Collective.apply(start, back, works, wait_tensor(tensor)).as_subclass(AsyncCollectiveTensor)
    result._work = works[0]
    return result


def _group(group: Any) -> ProcessGroup:
    """The group that is meant: a group, its name, a mesh of one dimension, a mesh and a dimension, or ranks.

    Raises: ValueError, RuntimeError or AssertionError if there is none.
    """
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, str):
        return named_group(group)
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise AssertionError("Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D")
        return group.get_group()
    if isinstance(group, tuple):
        if len(group) == 2 and isinstance(group[0], DeviceMesh) and isinstance(group[1], int):
            return group[0].get_group(group[1])
        raise ValueError(
            f"Invalid tuple for group must be (DeviceMesh, int). Instead got {tuple(type(item) for item in group[:2])}"
        )
    if isinstance(group, list):
        warnings.warn(
            "The combination of ranks + tag as process group identifier has been deprecated. Please switch to using "
            "ProcessGroup, DeviceMesh, or group name instead.",
            FutureWarning,
            stacklevel=3,
        )
        return group_of_ranks(group)
    raise ValueError(f"Unsupported group type: {type(group)}, {group}")


def _op(name: str) -> RedOpType:
    if name.lower() not in _OPS:
        raise RuntimeError(f"Unrecognized reduce_op: {name}")
    return _OPS[name.lower()]


def _only_sums(function: str, name: str) -> None:
    if name.lower() != "sum":
        raise RuntimeError(f"{function} backward only supports 'sum' reduction, got '{name.lower()}'")


def wait_tensor(tensor: Any) -> Any:
    """Returns the result of a collective, once it is complete; other tensors as they are.

    >>> from tensorgrad.distributed._functional_collectives import wait_tensor
    >>> wait_tensor(torch.ones(2))
    tensor([1., 1.])
    """
    return tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def broadcast(self: Any, src: int, group: Any, tag: str = "") -> Any:
    """Returns the tensor of one member, on all of them.

    Args:
        self: what the sender sends; on the others a tensor of the same shape.
        src: the sender's rank within the group.
        group: a group, its name, a mesh of one dimension, or `(mesh, dimension)`.
        tag: accepted; it changes nothing.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed._functional_collectives import broadcast
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> broadcast(torch.ones(2), 0, dist.group.WORLD).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    chosen = _group(group)

    def start(tensor: Any) -> tuple[Any, Any]:
        result = tensor.clone(memory_format=torch.contiguous_format)
        return result, collectives.broadcast(result, group=chosen, group_src=src, async_op=True)

    def back(grad: Any) -> Any:
        total = all_reduce(grad, "sum", chosen).wait()
        return total if chosen.rank() == src else torch.zeros_like(total)

    return _begun(start, back, self)


def all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:
    """Returns the combined tensors of all members.

    Args:
        self: a tensor of the same shape everywhere; it does not change.
        reduceOp: "sum", "avg", "product", "min", "max", "band", "bor" or "bxor".
        group: a group, its name, a mesh of one dimension, or `(mesh, dimension)`.
        tag: accepted; it changes nothing.

    Raises:
        RuntimeError: there is no such operation or group; in the backward pass, the operation is not "sum".

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed._functional_collectives import all_reduce
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> all_reduce(torch.ones(2), "sum", dist.group.WORLD).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    chosen, op = _group(group), _op(reduceOp)

    def start(tensor: Any) -> tuple[Any, Any]:
        result = tensor.clone(memory_format=torch.contiguous_format)
        return result, collectives.all_reduce(result, op, chosen, async_op=True)

    def back(grad: Any) -> Any:
        _only_sums("all_reduce", reduceOp)
        return all_reduce(grad, "sum", chosen).wait()

    return _begun(start, back, self)


def all_reduce_coalesced(self: list[Any], reduceOp: str, group: Any, tag: str = "") -> list[Any]:
    """`all_reduce` of several tensors."""
    return [all_reduce(tensor, reduceOp, group, tag) for tensor in self]


def all_gather_single(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """Returns the tensors of all members, joined along a dimension.

    Args:
        self: a tensor of the same shape everywhere.
        gather_dim: the dimension.
        group: a group, its name, a mesh of one dimension, or `(mesh, dimension)`.
        tag: accepted; it changes nothing.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed._functional_collectives import all_gather_single
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> all_gather_single(torch.ones(2), 0, dist.group.WORLD).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    chosen = _group(group)

    def start(tensor: Any) -> tuple[Any, Any]:
        rows = tensor.shape[0] if tensor.ndim else 1
        result = tensor.new_empty((rows * chosen.size(), *tensor.shape[1:]))
        return result, _gather_into(result, tensor.contiguous(), chosen, async_op=True)

    def back(grad: Any) -> Any:
        return reduce_scatter_single(grad, "sum", 0, chosen).wait().reshape(self.shape)

    result = _begun(start, back, self)
    return result if gather_dim == 0 else torch.cat(result.chunk(chosen.size()), gather_dim)


def all_gather_single_coalesced(self: list[Any], group: Any, tag: str = "") -> list[Any]:
    """`all_gather_single` of several tensors, along the first dimension."""
    return [all_gather_single(tensor, 0, group, tag) for tensor in self]


def reduce_scatter_single(self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Any:
    """Returns this member's part of the combined tensors of all members.

    Args:
        self: a tensor of the same shape everywhere.
        reduceOp: see `all_reduce`.
        scatter_dim: the dimension that is divided.
        group: a group, its name, a mesh of one dimension, or `(mesh, dimension)`.
        tag: accepted; it changes nothing.

    Raises:
        AssertionError: the dimension cannot be divided evenly.
        RuntimeError: there is no such operation or group; in the backward pass, the operation is not "sum".

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed._functional_collectives import reduce_scatter_single
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> reduce_scatter_single(torch.ones(2), "sum", 0, dist.group.WORLD).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    chosen, op = _group(group), _op(reduceOp)
    if self.shape[scatter_dim] % chosen.size():
        raise AssertionError(
            f"input dimension {scatter_dim} ({self.shape[scatter_dim]} must be a multiple of group_size "
            f"{chosen.size()})"
        )
    parts = self if scatter_dim == 0 else torch.cat(wait_tensor(self).chunk(chosen.size(), scatter_dim))

    def start(tensor: Any) -> tuple[Any, Any]:
        result = tensor.new_empty((tensor.shape[0] // chosen.size(), *tensor.shape[1:]))
        return result, _scatter_into(result, tensor.contiguous(), op, chosen, async_op=True)

    def back(grad: Any) -> Any:
        _only_sums("reduce_scatter_tensor", reduceOp)
        return all_gather_single(grad, 0, chosen).wait()

    return _begun(start, back, parts)


def reduce_scatter_single_coalesced(
    inputs: list[Any], reduceOp: str, scatter_dim: list[int], group: Any, tag: str = ""
) -> list[Any]:
    """`reduce_scatter_single` of several tensors, each along its own dimension."""
    if len(scatter_dim) != len(inputs):
        raise AssertionError(f"Length of scatter_dim ({len(scatter_dim)}) must equal length of inputs ({len(inputs)})")
    return [reduce_scatter_single(tensor, reduceOp, dim, group, tag) for tensor, dim in zip(inputs, scatter_dim)]


def all_to_all_single(
    self: Any, output_split_sizes: list[int] | None, input_split_sizes: list[int] | None, group: Any, tag: str = ""
) -> Any:
    """Splits a tensor along its first dimension, sends each member its part, and returns what arrives, joined.

    Args:
        self: what to send.
        output_split_sizes, input_split_sizes: rows from and to each member; equal parts if both are None.
        group: a group, its name, a mesh of one dimension, or `(mesh, dimension)`.
        tag: accepted; it changes nothing.

    Raises:
        AssertionError: only one of the two lists is given, or not of integers.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed._functional_collectives import all_to_all_single
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> all_to_all_single(torch.ones(2), None, None, dist.group.WORLD).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    for name, sizes in (("output_split_sizes", output_split_sizes), ("input_split_sizes", input_split_sizes)):
        if sizes is not None and not all(isinstance(size, int) for size in sizes):
            raise AssertionError(f"All {name} must be int or SymInt, got {sizes}")
    chosen = _group(group)
    if output_split_sizes is None or input_split_sizes is None:
        if output_split_sizes is not input_split_sizes:
            raise AssertionError(
                "output_split_sizes and input_split_sizes must either be specified together or both set to None"
            )
        output_split_sizes = input_split_sizes = [self.shape[0] // chosen.size()] * chosen.size()
    incoming, outgoing = list(output_split_sizes), list(input_split_sizes)

    def start(tensor: Any) -> tuple[Any, Any]:
        result = tensor.new_empty((sum(incoming), *tensor.shape[1:]))
        sent = tensor.contiguous()
        return result, collectives.all_to_all_single(result, sent, incoming, outgoing, chosen, async_op=True)

    def back(grad: Any) -> Any:
        return all_to_all_single(grad, outgoing, incoming, chosen).wait()

    return _begun(start, back, self)


def permute_tensor(self: Any, src_dst: list[int], group: Any, tag: str = "") -> Any:
    """Returns what another member sends: member `m` sends its tensor to member `src_dst[m]`.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed._functional_collectives import permute_tensor
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> permute_tensor(torch.ones(2), [0], dist.group.WORLD).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    chosen = _group(group)
    here = chosen.rank()
    outgoing = [self.numel() if src_dst[here] == dst else 0 for dst in range(chosen.size())]
    incoming = [self.numel() if dst == here else 0 for dst in src_dst]
    return all_to_all_single(self, incoming, outgoing, chosen)


# --- other names, and forms that write to a tensor ---


def _renamed(old: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function under its former name."""

    def call(*args: Any, **options: Any) -> Any:
        where = "`torch.distributed._functional_collectives"
        warnings.warn(
            f"{where}.{old}` is deprecated. Please use {where}.{function.__name__}` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **options)

    call.__name__ = call.__qualname__ = old
    call.__doc__ = f"The former name of `{function.__name__}`."
    return call


all_gather_single_autograd, reduce_scatter_single_autograd = all_gather_single, reduce_scatter_single
all_to_all_single_autograd = all_to_all_single
all_gather_tensor = _renamed("all_gather_tensor", all_gather_single)
all_gather_tensor_autograd = _renamed("all_gather_tensor_autograd", all_gather_single)
all_gather_into_tensor_coalesced = _renamed("all_gather_into_tensor_coalesced", all_gather_single_coalesced)
reduce_scatter_tensor = _renamed("reduce_scatter_tensor", reduce_scatter_single)
reduce_scatter_tensor_autograd = _renamed("reduce_scatter_tensor_autograd", reduce_scatter_single)
reduce_scatter_tensor_coalesced = _renamed("reduce_scatter_tensor_coalesced", reduce_scatter_single_coalesced)


def _synchronous(async_op: bool) -> None:
    if async_op:
        raise AssertionError("Can't remap async version of inplace op to functional collective")


def all_reduce_inplace(tensor: Any, op: str = "sum", group: Any = None, async_op: bool = False, tag: str = "") -> Any:
    """Writes `all_reduce` of a tensor to it, and returns it."""
    _synchronous(async_op)
    return tensor.copy_(all_reduce(tensor, op, group or GroupMember.WORLD, tag))


def all_gather_tensor_inplace(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False, tag: str = "", gather_dim: int = 0
) -> Any:
    """Writes `all_gather_single` to a tensor, and returns it."""
    _synchronous(async_op)
    return output_tensor.copy_(all_gather_single(input_tensor, gather_dim, group or GroupMember.WORLD, tag))


def all_gather_inplace(
    tensor_list: list[Any], tensor: Any, group: Any = None, async_op: bool = False, tag: str = ""
) -> list[Any]:
    """Writes the tensors of all members to a list of tensors, and returns it."""
    _synchronous(async_op)
    if tensor.ndim and not all(t.shape[0] == tensor.shape[0] for t in tensor_list):
        raise AssertionError("Remapping variable size all_gather is not yet supported")
    whole = all_gather_single(tensor, 0, group or GroupMember.WORLD, tag)
    for target, part in zip(tensor_list, whole.chunk(len(tensor_list))):
        target.copy_(part.reshape(target.shape))
    return tensor_list


def reduce_scatter_tensor_inplace(
    output: Any,
    input: Any,
    op: str = "sum",
    group: Any = None,
    async_op: bool = False,
    scatter_dim: int = 0,
    tag: str = "",
) -> Any:
    """Writes `reduce_scatter_single` to a tensor, and returns it."""
    _synchronous(async_op)
    return output.copy_(reduce_scatter_single(input, op, scatter_dim, group or GroupMember.WORLD, tag))


def all_to_all_inplace(
    output: Any,
    input: Any,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
    tag: str = "",
) -> Any:
    """Writes `all_to_all_single` to a tensor, and returns it."""
    _synchronous(async_op)
    chosen = group or GroupMember.WORLD
    return output.copy_(all_to_all_single(input, output_split_sizes, input_split_sizes, chosen, tag))


def _resolve_group_name(group: Any, tag: str = "") -> str:
    """The name of a group that is given in any of the ways of `all_reduce`."""
    return _group(group).group_name
