"""What `DistributedDataParallel` does when some processes have run out of inputs."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.algorithms.join import Join, Joinable, JoinHook
from tensorgrad.distributed.reduce_op import ReduceOp
from tensorgrad.distributed.utils import _sync_module_states

__all__ = ["UnevenInputs"]


class _ModelHook(JoinHook):
    def __init__(self, model: Any, divide_by_initial_world_size: bool) -> None:
        self.model = model
        model._divide_by_initial_world_size = divide_by_initial_world_size

    def main_hook(self) -> None:
        """Takes part in a forward and a backward pass of the others, without gradients."""
        model = self.model
        _, with_grad, with_backward = model._exchange_plans(0, 0, 0)
        if with_grad:
            model.reducer.rebuild()
        model._send_buffers(False)
        model.require_forward_param_sync = bool(with_backward)
        if with_backward:
            model.reducer.contribute_zeros()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Gives all processes the model of one that joined last."""
        model = self.model
        source = model._common_rank(is_last_joiner)
        _sync_module_states(
            model.module,
            model.process_group,
            model.broadcast_bucket_size,
            source,
            model.parameters_to_ignore,
            model.forward_sync_buffers,
        )


class UnevenInputs(Joinable):
    """The part of `DistributedDataParallel` for different numbers of inputs in the processes."""

    process_group: Any
    device: Any
    require_backward_grad_sync: bool

    def __init__(self) -> None:
        super().__init__()
        self._divide_by_initial_world_size = True

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """In the context that this returns, processes may have different numbers of inputs.

        Those that have no more take part in the others' communication, with gradients of zero. At the end, all get the
        model of one of the processes that had the most inputs.

        Args:
            divide_by_initial_world_size: whether gradients are divided by the number of all processes, or only of
                those that still have inputs.
            enable: whether to do anything at all.
            throw_on_early_termination: whether all processes get an error as soon as one has no more inputs.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        >>> with model.join():
        ...     for x in torch.ones(3, 4, 2):
        ...         model(x).sum().backward()
        >>> dist.destroy_process_group()
        """
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Returns the hook for `Join`; its argument is `divide_by_initial_world_size`, see `join`."""
        return _ModelHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """The device of the model."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The group of the model."""
        return self.process_group

    def _announce(self) -> float:
        """Tells processes that have joined what comes. Returns what gradients are to be divided by."""
        size = self.process_group.size()
        if not self._join_config.enable:
            return size
        Join.notify_join_context(self)
        with_grad = torch.is_grad_enabled()
        active, _, _ = self._exchange_plans(1, with_grad, with_grad and self.require_backward_grad_sync)
        return size if self._divide_by_initial_world_size else active

    def _exchange_plans(self, active: int, with_grad: int, with_backward: int) -> list[float]:
        """How many processes have inputs, record gradients, and are going to average them."""
        plans = torch.tensor([float(active), float(with_grad), float(with_backward)], device=self.device)
        collectives.all_reduce(plans, group=self.process_group)
        return plans.tolist()

    def _common_rank(self, is_candidate: bool) -> int:
        """The highest rank of those that are candidates."""
        rank = torch.tensor([self.process_group.rank() if is_candidate else -1], device=self.device)
        collectives.all_reduce(rank, op=ReduceOp.MAX, group=self.process_group)
        return int(rank.item())
