"""`DistributedDataParallel`: every process trains the same model on its own part of the data."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.distributed.grad_bucket import BuiltinCommHookType
from tensorgrad.distributed.group import GroupMember, default_group
from tensorgrad.distributed.utils import (
    _apply_to_tensors,
    _copy_in_shared_memory,
    _sync_module_states,
    _sync_params_and_buffers,
    _verify_param_shape_across_processes,
)
from tensorgrad.nn.module import Module
from tensorgrad.nn.parallel.reducer import Reducer
from tensorgrad.nn.parallel.sink import through_sink
from tensorgrad.nn.parallel.uneven_inputs import UnevenInputs

__all__ = ["DistributedDataParallel"]

MIB = 1024 * 1024
FIRST_BUCKET, OTHER_BUCKETS = 1, 25  # MiB


def _find_tensors(value: Any) -> list[Any]:
    """The tensors in nested lists, tuples, dicts and data classes."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return [tensor for item in value for tensor in _find_tensors(item)] if isinstance(value, list | tuple) else []


class DistributedDataParallel(Module, UnevenInputs):
    """Trains one model in several processes: gradients are averaged over the group while they are computed.

    All processes must make the wrapper with the same model, and run the same number of backward passes. At first the
    weights of rank 0 are sent to all. Names in the `state_dict` have the prefix `module.`.

    Args:
        module: the model, stored as the attribute `module`.
        device_ids, output_device: for one CUDA device, to which inputs are moved; None otherwise.
        dim: stored, but not used.
        broadcast_buffers: whether buffers are sent from rank 0 at the start and before each forward pass.
        init_sync: whether to compare shapes and send rank 0's weights at the start.
        process_group: the group; the default one if None.
        bucket_cap_mb: gradients travel in buckets of this size, in MiB; at first 1, then 25, if None.
        find_unused_parameters: whether to look for parameters that the outputs do not depend on.
        check_reduction: deprecated.
        gradient_as_bucket_view: whether gradients share the memory of the buckets.
        static_graph: whether all passes use the same parameters, each equally often. Then unused parameters are found
            without a search, and reentrant checkpoints may share parameters.
        delay_all_reduce_named_params, param_to_hook_all_reduce, mixed_precision, skip_all_reduce_unused_params: not
            supported.
        device_mesh: a mesh of one dimension, instead of `process_group`.
        bucket_cap_mb_list: the sizes of the first bucket, the second, and so on.
        batched_grad_copy: accepted; it changes nothing.
        forward_sync_buffers: whether buffers are sent before each forward pass; replaces `broadcast_buffers`.

    Raises:
        RuntimeError: no parameter requires a gradient, or shapes differ between processes.
        ValueError: arguments do not fit.
        NotImplementedError: an option is not supported.

    Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    >>> model(torch.ones(3, 2)).sum().backward()
    >>> model.module.weight.grad
    tensor([[3., 3.]])
    >>> dist.destroy_process_group()
    """

    _compiled_inside = "module"  # what `torch.compile` makes plans of: what comes before and after runs as it is

    def __init__(
        self,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: Any = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        UnevenInputs.__init__(self)
        if (delay_all_reduce_named_params is None) != (param_to_hook_all_reduce is None):
            raise ValueError(
                "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time."
            )
        refused = {
            "delay_all_reduce_named_params": (delay_all_reduce_named_params, "leave it out"),
            "mixed_precision": (mixed_precision, "use torch.autocast around the forward pass"),
            "skip_all_reduce_unused_params": (skip_all_reduce_unused_params, "use find_unused_parameters=True"),
        }
        for name, (given, instead) in refused.items():
            if given not in (None, False):
                raise NotImplementedError(f"DistributedDataParallel: {name} is not supported; {instead}")
        if process_group and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None:
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            self.device_mesh = device_mesh
            process_group = device_mesh.get_group(mesh_dim=0)
        self.process_group = default_group() if process_group is None else process_group
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._module_parameters = [p for n, p in module.named_parameters() if n not in self.parameters_to_ignore]
        if not any(p.requires_grad for p in self._module_parameters):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        kinds = {p.device.type for p in self._module_parameters}
        if len(kinds) != 1:
            raise ValueError(
                "DistributedDataParallel's input module must be on the same type of devices, but input module "
                f"parameters locate in {kinds}."
            )
        self.device_type = next(iter(kinds))
        if self.device_type == "cpu" and (device_ids or output_device):
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with "
                "single-device/multiple-device GPU modules or CPU modules, but got device_ids "
                f"{device_ids}, output_device {output_device}, and module parameters "
                f"{ {p.device for p in self._module_parameters} }."
            )
        if any(isinstance(p, torch.nn.parameter.UninitializedParameter) for p in self._module_parameters):
            raise RuntimeError(
                "Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a dummy "
                "forward pass to correctly initialize the modules"
            )
        if check_reduction:
            warnings.warn(
                "The `check_reduction` argument in `DistributedDataParallel` module is deprecated. Please avoid using "
                "it.",
                FutureWarning,
                stacklevel=2,
            )
        self.device_ids, self.output_device = device_ids or None, output_device
        self.dim, self.module, self.device = dim, module, self._module_parameters[0].device
        self._has_buffers = any(True for _ in module.buffers())
        at_start = True if broadcast_buffers is None or forward_sync_buffers is not None else broadcast_buffers
        self.forward_sync_buffers = at_start if forward_sync_buffers is None else forward_sync_buffers
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.broadcast_bucket_size = 250 * MIB
        sizes = bucket_cap_mb_list or ([FIRST_BUCKET, OTHER_BUCKETS] if bucket_cap_mb is None else [bucket_cap_mb])
        self._limits = [int(size * MIB) for size in sizes]
        if init_sync:
            _verify_param_shape_across_processes(self.process_group, [p for _, p in self._trained()])
            _sync_module_states(
                module, self.process_group, self.broadcast_bucket_size, 0, self.parameters_to_ignore, at_start
            )
        self._make_reducer()
        if init_sync:  # all processes are here, so that the first pass can be like those that follow, to the bit
            self.reducer.decide()

    @property
    def broadcast_buffers(self) -> bool:
        """Whether buffers are sent before each forward pass: the former name of `forward_sync_buffers`."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    def _trained(self) -> list[tuple[str, Any]]:
        named = self.module.named_parameters()
        return [(n, p) for n, p in named if p.requires_grad and n not in self.parameters_to_ignore]

    def _make_reducer(self) -> None:
        self._modules_inside = list(self.module.modules())  # to go through the tree costs as much as a small layer
        self._buffers_bytes: dict[int, Any] = {}
        names, parameters = zip(*self._trained())
        self.reducer = Reducer(
            list(parameters),
            list(names),
            self.process_group,
            self._limits,
            self.find_unused_parameters,
            self.gradient_as_bucket_view,
        )
        if self.static_graph:
            self.reducer.set_static_graph()

    def _set_static_graph(self) -> None:
        """What `static_graph=True` does, for a wrapper that has not been used yet."""
        if self.static_graph:
            warnings.warn("You've set static_graph to be True, no need to set it again.", stacklevel=2)
            return
        self.reducer.set_static_graph()
        self.static_graph = True
        if self.find_unused_parameters:
            warnings.warn(
                "You passed find_unused_parameters=true to DistributedDataParallel, `_set_static_graph` will detect "
                "unused parameters automatically, so you do not need to set find_unused_parameters=true, just be sure "
                "these unused parameters will not change during training loop while calling `_set_static_graph`.",
                stacklevel=2,
            )

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Returns facts about the wrapper: what PyTorch reports before the first timed iteration."""
        parameters, group = self.reducer.parameters, self.process_group
        device = self.device_ids[0] if self.device_ids else ""
        return {
            "world_size": group.size(), "rank": group.rank(), "backend_name": str(group.backend),
            "module_name": type(self.module).__name__, "iteration": self.reducer.passes,
            "num_parameter_tensors": len(parameters),
            "total_parameter_size_bytes": sum(p.numel() * p.element_size() for p in parameters),
            "dtypes": ", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
            "bucket_sizes": ", ".join(str(b.size * b.parameters[0].element_size()) for b in self.reducer.buckets),
            "bucket_cap_bytes": self._limits[-1], "device_ids": str(device), "output_device": -1,
            "is_multi_device_module": 0, "broadcast_buffers": int(self.forward_sync_buffers),
            "find_unused_parameters": int(self.find_unused_parameters), "static_graph": int(self.static_graph),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "has_sync_bn": int(any(isinstance(m, torch.nn.SyncBatchNorm) for m in self.module.modules())),
            "master_addr": os.environ.get("MASTER_ADDR", "N/A"), "master_port": os.environ.get("MASTER_PORT", "N/A"),
            "torch_distributed_debug": os.environ.get("TORCH_DISTRIBUTED_DEBUG", "N/A"),
        }  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not GroupMember.WORLD:
            raise RuntimeError(
                "DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, "
                "when you have called init_process_group and have not passed process_group argument to DDP constructor"
            )
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("process_group", "reducer", "_modules_inside", "_buffers_bytes")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group = default_group()
        self._make_reducer()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this context gradients are only accumulated; the next backward pass outside averages them all.

        The forward pass must be inside of the context, too.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Makes a function combine the gradients of each bucket, in place of the mean.

        Args:
            state: what the function receives first.
            hook: called as `hook(state, bucket)` with a `torch.distributed.GradBucket` whose gradients are not divided
                yet; returns a future of the result.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook = (state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """Like `register_comm_hook`, for a hook that PyTorch has written in C++.

        Args:
            comm_hook_type: a `torch.distributed.BuiltinCommHookType`.
        """
        from tensorgrad.distributed.algorithms.ddp_comm_hooks import default_hooks

        hooks = {
            BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
            BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook,
        }
        if not isinstance(comm_hook_type, BuiltinCommHookType):
            raise TypeError(
                "_register_builtin_comm_hook(): expected a torch.distributed.BuiltinCommHookType, but got "
                f"{comm_hook_type!r}"
            )
        if self.reducer.hook is not None:
            raise RuntimeError("register_builtin_comm_hook or register_comm_hook can only be called once.")
        self.register_comm_hook(self.process_group, hooks[comm_hook_type])

    def _send_buffers(self, has_inputs: bool = True) -> None:
        if self._has_buffers and self.require_forward_param_sync and self.forward_sync_buffers:
            if self.parameters_to_ignore:
                named = self.module.named_buffers()
                buffers = [b for name, b in named if name not in self.parameters_to_ignore]
            else:
                buffers = [b for m in self._modules_inside for b in m._buffers.values() if b is not None]
            if buffers:
                source = self._common_rank(has_inputs) if self._join_config.enable else 0
                if self.reducer.in_place and all([b._array.__class__ is np.ndarray for b in buffers]):
                    _copy_in_shared_memory(self.process_group, buffers, source, self._buffers_bytes)
                else:
                    buffers = [b.detach() for b in buffers]
                    _sync_params_and_buffers(self.process_group, buffers, self.broadcast_bucket_size, source)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's own result."""
        inputs, kwargs = self._pre_forward(*inputs, **kwargs)
        return self._post_forward(self.module(*inputs, **kwargs))

    def _pre_forward(self, *inputs: Any, **kwargs: Any) -> tuple[Any, Any]:
        """What comes before the module: buffers are sent. Returns its arguments, on its device."""
        self.reducer.divisor = self._announce()
        if torch.is_grad_enabled():
            self.reducer.rebuild()
        self._send_buffers()
        if self.device_ids:
            inputs, kwargs = _apply_to_tensors(lambda tensor: tensor.to(self.device), (inputs, kwargs))
        return inputs, kwargs

    def _post_forward(self, output: Any) -> Any:
        """What comes after the module: a backward pass is expected. Returns its result."""
        self.require_forward_param_sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        if self.require_forward_param_sync:
            search = self.find_unused_parameters and not self.static_graph
            self.reducer.prepare_for_backward(_find_tensors(output) if search else [])
            if search or self.static_graph:
                output = through_sink(self.reducer, output)
        return output

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Any, params_and_buffers_to_ignore: Any) -> None:
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    def _check_reducer_finalized(self) -> None:
        self.reducer.check_finished()
