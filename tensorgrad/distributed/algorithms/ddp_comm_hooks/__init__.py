"""`torch.distributed.algorithms.ddp_comm_hooks`: ways to combine gradients, for `DistributedDataParallel`."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from tensorgrad.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


class _Entry(NamedTuple):
    """A hook, and the rank of its approximation if it needs a `PowerSGDState`."""

    comm_hook: Any
    rank: int | None = None

    def __call__(self, model: Any, state: Any, **options: Any) -> None:
        if self.rank is not None:
            options.setdefault("matrix_approximation_rank", self.rank)
            state = powerSGD_hook.PowerSGDState(state, **options)
        elif options:
            raise TypeError(f"{self.comm_hook.__name__} takes no options, but got {', '.join(options)}")
        model.register_comm_hook(state, self.comm_hook)


class DDPCommHookType(Enum):
    """The communication hooks by name; `value(model=model, state=process_group)` registers one.

    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks import DDPCommHookType
    >>> [kind.name for kind in DDPCommHookType][:3]
    ['ALLREDUCE', 'FP16_COMPRESS', 'BF16_COMPRESS']
    """

    ALLREDUCE = _Entry(default_hooks.allreduce_hook)
    FP16_COMPRESS = _Entry(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = _Entry(default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = _Entry(quantization_hooks.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = _Entry(quantization_hooks.quantization_perchannel_hook)
    POWER_SGD = _Entry(powerSGD_hook.powerSGD_hook, 1)
    POWER_SGD_RANK2 = _Entry(powerSGD_hook.powerSGD_hook, 2)
    BATCHED_POWER_SGD = _Entry(powerSGD_hook.batched_powerSGD_hook, 1)
    BATCHED_POWER_SGD_RANK2 = _Entry(powerSGD_hook.batched_powerSGD_hook, 2)
    NOOP = _Entry(debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Makes a model combine its gradients by one of the hooks.

    Args:
        comm_hook_type: which one.
        model: a `DistributedDataParallel`.
        state: the process group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, register_ddp_comm_hook
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    >>> register_ddp_comm_hook(DDPCommHookType.FP16_COMPRESS, model)
    >>> model(torch.ones(3, 2)).sum().backward()
    >>> model.module.weight.grad
    tensor([[3., 3.]])
    >>> dist.destroy_process_group()
    """
    comm_hook_type.value(model=model, state=state)
