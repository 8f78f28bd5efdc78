"""Making distributed tensors: of one that all ranks have, of values, and of a module's parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor._redistribute import redistribute_local_tensor
from tensorgrad.distributed.tensor.dtensor import DTensor, as_dtensor, default_mesh, normalized
from tensorgrad.distributed.tensor.placement_types import Placement, Replicate
from tensorgrad.nn.parameter import Parameter

__all__ = ["distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros"]


def distribute_tensor(
    tensor: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Distributes a tensor of which every rank has the whole. All ranks of the mesh must call it.

    Args:
        tensor: the whole; a leaf.
        device_mesh: the mesh; one of all ranks if None.
        placements: one for each dimension of the mesh; `Replicate` if None.
        src_data_rank: whose values to take, by place along each dimension of the mesh; None: every rank's own.

    Raises:
        ValueError: the placements do not fit.
        RuntimeError: a placement is partial, or the tensor is not a leaf.
        NotImplementedError: the tensor has a sparse layout.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import Shard, distribute_tensor
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> distribute_tensor(torch.ones(4, 2), dist.init_device_mesh("cpu", (1,)), [Shard(0)]).to_local().shape
    torch.Size([4, 2])
    >>> dist.destroy_process_group()
    """
    mesh = default_mesh(device_mesh)
    found = normalized(placements, mesh, tensor.ndim)
    if any(p.is_partial() for p in found):
        raise RuntimeError("distribute_tensor: a tensor cannot be distributed as Partial")
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh or tensor.placements != found:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to {found}; use redistribute"
            )
        return tensor
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"distribute_tensor: expected a tensor of layout torch.strided, got {tensor.layout}")
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    with torch.no_grad():
        local = tensor.detach().clone()
        if src_data_rank is not None and mesh.get_coordinate() is not None:
            for i in range(mesh.ndim):
                collectives.broadcast(local, group=mesh.get_group(i), group_src=src_data_rank)
        spec = DTensorSpec(mesh, (Replicate(),) * mesh.ndim, tuple(tensor.shape))
        local = redistribute_local_tensor(local, spec, found)
    made = as_dtensor(local.detach(), spec.with_placements(found))
    if isinstance(tensor, Parameter):
        return made._as_parameter(tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable | None = None,
    input_fn: Callable | None = None,
    output_fn: Callable | None = None,
) -> Any:
    """Makes all parameters and buffers of a module distributed tensors; it is changed in place and returned.

    Args:
        module: the module.
        device_mesh: the mesh; one of all ranks if None.
        partition_fn: `partition_fn(name, module, mesh)` is called for every module in it, and distributes some of its
            parameters; the others are replicated.
        input_fn: `input_fn(module, arguments, mesh)` returns other arguments of forward.
        output_fn: `output_fn(module, outputs, mesh)` returns other results of forward.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import distribute_module
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> distribute_module(torch.nn.Linear(2, 3)).weight.placements
    (Replicate(),)
    >>> dist.destroy_process_group()
    """
    mesh = default_mesh(device_mesh)
    for name, inner in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, inner, mesh)
        for table in (inner._parameters, inner._buffers):
            for key, value in table.items():
                if value is not None and not isinstance(value, DTensor):
                    table[key] = distribute_tensor(value, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda module, inputs: input_fn(module, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda module, inputs, outputs: output_fn(module, outputs, mesh))
    return module


def _filled(make: Callable, name: str, example: str, doc: str) -> Any:
    """A function like `torch.zeros` that makes every rank's piece."""

    def function(
        *size: Any,
        requires_grad: bool = False,
        dtype: Any = None,
        layout: Any = None,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        mesh = default_mesh(device_mesh)
        spec = DTensorSpec(mesh, normalized(placements, mesh, len(shape)), shape)
        return as_dtensor(make(spec.local_shape(), dtype=dtype), spec).requires_grad_(requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc}

    Args:
        size: the shape of the whole.
        requires_grad: whether gradients flow to it.
        dtype: the dtype.
        layout: accepted; tensors are strided.
        device_mesh: the mesh; one of all ranks if None.
        placements: one for each dimension of the mesh; `Replicate` if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import {name}
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> {example}
    torch.Size([2, 3])
    >>> dist.destroy_process_group()
    """
    return function


zeros = _filled(torch.zeros, "zeros", "zeros(2, 3).shape", "Returns a distributed tensor of zeros.")
ones = _filled(torch.ones, "ones", "ones(2, 3).shape", "Returns a distributed tensor of ones.")
empty = _filled(torch.empty, "empty", "empty(2, 3).shape", "Returns a distributed tensor of arbitrary values.")
_SEEDS = "Each rank uses its own generator: give replicated tensors equal seeds, and divided ones different seeds."
rand = _filled(torch.rand, "rand", "rand(2, 3).shape", f"Returns uniform random numbers in [0, 1). {_SEEDS}")
randn = _filled(torch.randn, "randn", "randn(2, 3).shape", f"Returns normally distributed random numbers. {_SEEDS}")


def full(size: Sequence[int], fill_value: Any, **options: Any) -> DTensor:
    """Returns a distributed tensor of one value.

    Args:
        size: the shape of the whole.
        fill_value: the value.
        options: those of `zeros`.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import full
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> full((2,), 7.0).to_local()
    tensor([7., 7.])
    >>> dist.destroy_process_group()
    """
    make = _filled(lambda shape, dtype: torch.full(shape, fill_value, dtype=dtype), "full", "", "")
    return make(*size, **options)
