"""`fully_shard`: data-parallel training in which every rank keeps only its piece of each parameter.

Source: Rajbhandari et al., 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models* (stage 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.fsdp.around_forward import State, after_forward, before_forward
from tensorgrad.distributed.fsdp.param_group import ParamGroup, divided_over
from tensorgrad.distributed.fsdp.policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from tensorgrad.distributed.tensor.dtensor import default_mesh
from tensorgrad.nn.container import ModuleDict, ModuleList
from tensorgrad.nn.module import Module

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "share_comm_ctx"]

DEFAULT_PRECISION, DEFAULT_OFFLOAD = MixedPrecisionPolicy(), OffloadPolicy()


class UnshardHandle:
    """What `FSDPModule.unshard(async_op=True)` returns."""

    def __init__(self, group: ParamGroup) -> None:
        self._group = group

    def wait(self) -> None:
        """Waits until the parameters are there."""
        self._group.gather()


class FSDPModule:
    """What a module becomes by `fully_shard`: these methods are added to its own."""

    _fsdp: State

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers the module's parameters.

        Args:
            async_op: return a handle whose `wait()` finishes it.
        """
        self._fsdp.group.start()
        if async_op:
            return UnshardHandle(self._fsdp.group)
        self._fsdp.group.gather()
        return None

    def reshard(self) -> None:
        """Drops the gathered parameters: each rank has its pieces."""
        self._fsdp.group.release()

    def _states(self: Any, recurse: bool) -> list[State]:
        modules = self.modules() if recurse else [self]
        return [module._fsdp for module in modules if isinstance(module, FSDPModule)]

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Sets whether backward averages gradients over the ranks; if not, they accumulate, undivided.

        Args:
            requires_gradient_sync: False in all but the last of several backward passes before a step.
            recurse: whether for all such modules inside, too.
        """
        for state in self._states(recurse):
            state.group.sync = requires_gradient_sync

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Sets whether parameters are dropped after forward, and gathered again for backward."""
        for state in self._states(recurse):
            state.reshard = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Sets whether parameters are dropped after backward."""
        for state in self._states(recurse):
            state.group.reshard_after_backward = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Sets whose parameters begin to travel when this module's forward begins."""
        self._fsdp.forward_prefetch = [module._fsdp.group for module in modules]

    def set_modules_to_backward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """Sets whose parameters begin to travel when this module's backward begins."""
        self._fsdp.backward_prefetch = [module._fsdp.group for module in modules]

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Sets by what the sum of all ranks' gradients is divided, in place of their number."""
        self._fsdp.group.divide = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Sets whether gradients are averaged over the copies, on a mesh of two dimensions; if not, pieces accumulate.

        Args:
            requires_all_reduce: False in all but the last of several backward passes before a step.
            recurse: whether for all such modules inside, too.
        """
        for state in self._states(recurse):
            state.group.reduce_over_replicas = requires_all_reduce

    def set_all_reduce_hook(self, hook: Callable[[torch.Tensor], None], *, stream: Any = None) -> None:
        """Sets a function that is called with the averaged gradients of this rank, a flat tensor that it may change.

        Args:
            hook: the function.
            stream: accepted; there are no streams on the CPU.
        """
        self._fsdp.group.on_reduced = hook

    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params: bool, *, recurse: bool = True) -> None:
        """Sets whether parameters without a gradient count as zeros: ranks may then use different parameters.

        Args:
            reduce_scatter_unused_params: whether they do.
            recurse: whether for all such modules inside, too.
        """
        groups = [state.group for state in self._states(recurse)]
        for group in groups:
            group.family = groups if reduce_scatter_unused_params else []

    def reset_iter_state(self) -> None:
        """Drops what an exception in forward or backward has left. Gradients of that iteration are lost."""
        for state in self._states(True):
            state.group.forget()
            state.hooks.clear()

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted: gradients are reduced before backward returns, each time."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Accepted: backward gathers parameters only when it needs them."""

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Accepted: means are sums that are divided afterwards."""

    def set_post_optim_event(self, event: Any) -> None:
        """Accepted: there are no streams on the CPU."""

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: int, *, recurse: bool = True) -> None:
        """Accepted: there is at most one buffer at a time."""

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None:
        """Accepted: it changes nothing."""

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """Accepted: it changes nothing."""

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None:
        """Accepted: it changes nothing."""

    def set_custom_all_gather(self, comm: Any) -> None:
        """Raises: NotImplementedError. Parameters are gathered by the group's own operation."""
        raise NotImplementedError("FSDPModule: set_custom_all_gather is not included; parameters are gathered by MPI")

    def set_custom_reduce_scatter(self, comm: Any) -> None:
        """Raises: NotImplementedError. Gradients are reduced by the group's own operation."""
        raise NotImplementedError("FSDPModule: set_custom_reduce_scatter is not included; gradients are reduced by MPI")

    def _set_unshard_async_op(self, async_op: bool) -> None:
        """Accepted: parameters always travel in the background."""


def share_comm_ctx(modules: list[FSDPModule]) -> None:
    """Accepted: there are no streams to share on the CPU.

    >>> from tensorgrad.distributed.fsdp import share_comm_ctx
    >>> share_comm_ctx([])
    """


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable | None = None,
    mp_policy: MixedPrecisionPolicy = DEFAULT_PRECISION,
    offload_policy: OffloadPolicy = DEFAULT_OFFLOAD,
    ignored_params: set | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """Divides a module's parameters among the ranks, and gathers them when the module runs.

    Call it on the layers first and on the whole module last: each call takes the parameters that no earlier one took.
    Parameters become `DTensor`s placed `Shard(0)`; make the optimizer afterwards. All ranks must
    start with equal parameters. Those of tensor-parallel layers are divided further: parallelize the model over one
    dimension of a mesh first, and give another one here.

    Args:
        module: the module; it is changed in place, and gets the methods of `FSDPModule`.
        mesh: the ranks; all of them if None. Of two dimensions, the first one has copies.
        reshard_after_forward: drop the gathered parameters after forward, and gather them again for backward. None:
            True except for the module that is not inside another such module.
        shard_placement_fn: not supported; all parameters are divided along their first dimension.
        mp_policy: dtypes.
        offload_policy: `CPUOffloadPolicy()` keeps pieces, gradients and the optimizer's state in main memory, when
            the mesh is one of GPUs.
        ignored_params: parameters that stay as they are.
        dp_mesh_dims: not supported.

    Returns:
        The module.

    Raises:
        ValueError: the module is a list or dictionary without forward, or the mesh has more than two dimensions.
            Or a parameter is a `DTensor` on a mesh that does not belong to the same mesh as `mesh`.
        NotImplementedError: an argument that is not supported.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.fsdp import fully_shard
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = fully_shard(torch.nn.Linear(2, 3))
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> model.weight.placements, model.weight.grad.full_tensor().shape
    ((Shard(dim=0),), torch.Size([3, 2]))
    >>> dist.destroy_process_group()
    """
    if isinstance(module, ModuleList | ModuleDict) and type(module).forward is Module.forward:
        raise ValueError(f"fully_shard does not support containers that do not implement forward: {module}")
    if shard_placement_fn is not None or dp_mesh_dims is not None:
        raise NotImplementedError(
            "fully_shard: shard_placement_fn and dp_mesh_dims are not supported; parameters are divided along their "
            "first dimension"
        )
    if isinstance(module, FSDPModule):
        raise ValueError("fully_shard has already been called on this module")
    mesh = default_mesh(mesh)
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    own, offload = _own_parameters(module, ignored_params or set()), isinstance(offload_policy, CPUOffloadPolicy)
    group = divided_over(mesh, own, mp_policy, offload)
    cls = type(module)
    module.__class__ = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})
    reshard = None if reshard_after_forward is None else bool(reshard_after_forward)
    module._fsdp = State(group, mp_policy, reshard)
    for inner in module.modules():
        if inner is not module and isinstance(inner, FSDPModule) and inner._fsdp.reshard is None:
            inner._fsdp.reshard = True
    module.register_forward_pre_hook(_before, prepend=True, with_kwargs=True)
    module.register_forward_hook(_after, always_call=True)
    module.register_state_dict_pre_hook(lambda module, *args: module._fsdp.group.release())
    return module


def _own_parameters(module: Any, ignored: set) -> list[tuple[Any, list]]:
    """The parameters that no inner `fully_shard` has taken, with all modules that have them."""
    found: dict[int, tuple[Any, list]] = {}

    def visit(inner: Any) -> None:
        for name, parameter in inner._parameters.items():
            if parameter is None or any(parameter is other for other in ignored):
                continue
            found.setdefault(id(parameter), (parameter, []))[1].append((inner, name))
        for child in inner.children():
            if not isinstance(child, FSDPModule):
                visit(child)

    visit(module)
    return list(found.values())


def _before(module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return before_forward(module._fsdp, args, kwargs)


def _after(module: Any, args: tuple, output: Any) -> Any:
    return after_forward(module._fsdp, output)


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Makes another method gather the parameters as forward does. Nothing happens to a module without `fully_shard`.

    Args:
        module: the module.
        method_name: the method, such as "generate".

    Raises:
        ValueError: the module has no such method.

    >>> from tensorgrad.distributed.fsdp import register_fsdp_forward_method
    >>> register_fsdp_forward_method(torch.nn.Linear(2, 3), "forward")
    """
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name, None)
    if method is None:
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    inner: Callable = method

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = before_forward(module._fsdp, args, kwargs)
        result: Any = None
        try:
            result = inner(*args, **kwargs)
        finally:
            result = after_forward(module._fsdp, result)
        return result

    setattr(module, method_name, wrapped)
