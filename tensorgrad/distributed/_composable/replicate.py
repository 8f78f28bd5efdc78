"""`replicate`: what `DistributedDataParallel` does, without a wrapper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import tensorgrad as torch
from tensorgrad.distributed.fsdp.fully_shard import FSDPModule
from tensorgrad.nn.container import ParameterList
from tensorgrad.nn.module import Module
from tensorgrad.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DDP", "replicate"]


class _State:
    """What `replicate` knows of a module. The `DistributedDataParallel` is made at the first forward pass."""

    def __init__(self, module: Module, ignored: set[Module], options: dict[str, Any]) -> None:
        self.ignored, self.options = ignored, options
        self.sync = True
        self.hooks: list[tuple[tuple, dict[str, Any]]] = []
        self.ddp: DistributedDataParallel | None = None

    def _collected(self, module: Module) -> list[Any]:
        """The parameters of a module, but for those that are ignored, or divided by `fully_shard`."""
        if module in self.ignored or isinstance(module, FSDPModule):
            return []
        found = list(module.parameters(recurse=False))
        for child in module.children():
            found += self._collected(child)
        return found

    def before(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Called before each forward pass."""
        if self.ddp is None:
            unique = list({id(p): p for p in self._collected(module)}.values())
            self.ddp = DistributedDataParallel(ParameterList(unique), **self.options)
        for given, options in self.hooks:
            self.ddp.register_comm_hook(*given, **options)
        self.hooks = []
        self.ddp.require_backward_grad_sync = self.sync
        return self.ddp._pre_forward(*args, **kwargs)

    def after(self, module: Module, args: tuple, output: Any) -> Any:
        """Called after each forward pass."""
        assert self.ddp is not None
        return self.ddp._post_forward(output)


class DDP:
    """What a module becomes by `replicate`: these methods are added to its own."""

    _replicated: _State

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Containers make others of their class, for example of a slice: these are not replicated."""
        original = cls.__mro__[2]
        return original.__new__(original, *args, **kwargs)

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Sets whether the next passes average gradients over the ranks; if not, they accumulate."""
        self._replicated.sync = requires_gradient_sync

    def register_comm_hook(self, *args: Any, **kwargs: Any) -> None:
        """As `DistributedDataParallel.register_comm_hook`."""
        self._replicated.hooks.append((args, kwargs))

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise AssertionError("DDP does not support deepcopy. Please use state dict for serialization.")


def replicate(module: Any, ignored_modules: Iterable[Any] | None = None, **kwargs: Any) -> Any:
    """Trains a module in several processes: gradients are averaged over the group while they are computed.

    The module is changed in place: its class gets the methods of `DDP`, and the names in its `state_dict` stay.

    Args:
        module: the model, or a part of it.
        ignored_modules: parts whose gradients are not averaged.
        kwargs: those of `DistributedDataParallel`; and `device_id`, a device or its number.

    Raises:
        RuntimeError: `device_id` is neither, or `fully_shard` divides the module.
        AssertionError: it is replicated already.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed._composable import replicate
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = replicate(torch.nn.Linear(2, 1))
    >>> model(torch.ones(3, 2)).sum().backward()
    >>> model.weight.grad
    tensor([[3., 3.]])
    >>> dist.destroy_process_group()
    """
    if "device_id" in kwargs:
        device = kwargs.pop("device_id")
        if not isinstance(device, int | torch.device):
            raise RuntimeError(f"Expected device_id to be int or torch.device, but got {type(device)}")
        on_cpu = next((p.device.type for p in module.parameters()), "cpu") == "cpu"
        kwargs["device_ids"] = None if on_cpu or getattr(device, "type", "cuda") == "cpu" else [device]
    if isinstance(module, FSDPModule):
        raise RuntimeError("Cannot apply `replicate()` on a Module already managed by `fully_shard`")
    if isinstance(module, DDP):
        raise AssertionError("Each distinct composable distributed API can only be applied to a module once.")
    state = _State(module, set(ignored_modules or ()), kwargs)
    module.register_forward_pre_hook(state.before, with_kwargs=True)
    module.register_forward_hook(state.after)
    module.__dict__["_replicated"] = state
    kind = type(module)
    module.__class__ = type(f"DDP{kind.__name__}", (DDP, kind), {})
    return module


def _state(module: Any) -> _State:
    return module._replicated


replicate.state = _state  # type: ignore[attr-defined]
