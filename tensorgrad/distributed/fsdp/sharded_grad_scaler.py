"""Loss scaling where each rank has only a part of the gradients."""

from __future__ import annotations

from typing import Any

from tensorgrad.amp.grad_scaler import GradScaler
from tensorgrad.distributed.collectives import all_reduce
from tensorgrad.distributed.group import ProcessGroup

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """A `GradScaler` whose ranks agree: if a gradient overflowed on one of them, all of them skip the step.

    Gradients of float16 are unscaled, too.

    Args:
        device, init_scale, backoff_factor, growth_factor, growth_interval, enabled: as in `GradScaler`.
        process_group: the ranks that have parts of the same gradients; None is the default group.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> optimizer, scaler = torch.optim.SGD([w], lr=0.5), ShardedGradScaler("cpu")
    >>> scaler.scale(w.sum()).backward()
    >>> _ = scaler.step(optimizer)
    >>> scaler.update()
    >>> w.detach()
    tensor([0.5000, 0.5000])
    >>> dist.destroy_process_group()
    """

    _unscales_halves = True

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        if self._enabled:
            self.process_group = process_group

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients by the scale in place, and tells all ranks whether one was infinite or nan.

        Raises:
            RuntimeError: If that was already done since the last `update`, or after `step`.
            AssertionError: Before the first `scale`.
        """
        super().unscale_(optimizer)
        if not self._enabled:
            return
        for found in self._of(optimizer)["found_inf_per_device"].values():
            if self._device != "cpu" and found.device.type == "cpu":  # the group is of GPUs
                there = found.to(self._device)
                all_reduce(there, group=self.process_group)
                found.copy_(there)
            else:
                all_reduce(found, group=self.process_group)
