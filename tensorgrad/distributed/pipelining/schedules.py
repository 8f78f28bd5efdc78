"""Schedules: how the microbatches of a batch go through the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.pipelining import orders
from tensorgrad.distributed.pipelining.executor import Batch, execute
from tensorgrad.distributed.pipelining.metadata import PipeliningMetadataError
from tensorgrad.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    _split_tensor,
    merge_chunks,
    split_args_kwargs_into_chunks,
)
from tensorgrad.distributed.pipelining.orders import Action
from tensorgrad.distributed.pipelining.timeline import check_order

__all__ = [
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
]


class _PipelineSchedule:
    """Cuts a batch into microbatches, runs the order of this rank, and puts the results together."""

    def __init__(
        self,
        stages: list[Any],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None,
        args_chunk_spec: Any,
        kwargs_chunk_spec: Any,
        output_merge_spec: Any,
        scale_grads: bool,
    ) -> None:
        self._stages, self._num_stages = stages, stages[0].num_stages
        self._n_microbatches, self._loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self._has_backward = loss_fn is not None
        self.rank, self.pp_group_size = stages[0].group_rank, stages[0].group_size
        self.pipeline_order: dict[int, list[Action]] = {}

    def _set_order(self, order: dict[int, list[Action]]) -> None:
        """Sets the actions of all ranks, and checks that this rank has the stages that its actions need."""
        self.pipeline_order = {rank: orders.with_reduce_grad(actions) for rank, actions in order.items()}
        place = check_order(self.pipeline_order, self._num_stages, self._n_microbatches)
        own = sorted(stage for stage, rank in place.items() if rank == self.rank)
        given = sorted(stage.stage_index for stage in self._stages)
        if own != given:
            raise ValueError(
                f"{type(self).__name__}: rank {self.rank} of {self.pp_group_size} runs the stages {own} of "
                f"{self._num_stages}, but was given {given}"
            )
        for stage in self._stages:
            stage.stage_index_to_group_rank = place

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs forward and backward passes of a whole batch. All ranks call it.

        Args:
            args: the model's positional arguments, on the first stage's rank.
            target: what the loss is computed with, on the last stage's rank.
            losses: a list that gets the loss of each microbatch, on the last stage's rank.
            return_outputs: whether to return the outputs.
            loss_kwargs: keyword arguments of the loss function.
            kwargs: keyword arguments for the stages of this rank.

        Returns:
            The outputs of the whole batch on the last stage's rank; None on the others.

        Raises:
            RuntimeError: recording of gradients is switched off, or a stage fails.
            DistBackendError: a rank of the pipeline has ended.
        """
        if self._has_backward and not torch.is_grad_enabled():
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under "
                "torch.no_grad() context. Please call eval() instead."
            )
        args_split, kwargs_split = self._split_inputs(args, kwargs)
        targets = None if target is None else list(_split_tensor(target, TensorChunkSpec(0), self._n_microbatches))
        self._step_microbatches(args_split, kwargs_split, targets, losses, return_outputs, loss_kwargs)
        last = self._last_stage()
        return merge_chunks(last.output_chunks, self._output_merge_spec) if last and return_outputs else None

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """Runs the forward passes only; see `step`. Without a target, no losses are computed."""
        before = self._has_backward
        try:
            self._has_backward = False
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _last_stage(self) -> Any:
        return next((stage for stage in self._stages if stage.is_last), None)

    def _split_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        if not args and not kwargs:
            return [()] * self._n_microbatches, [{}] * self._n_microbatches
        return split_args_kwargs_into_chunks(
            args, kwargs, self._n_microbatches, self._args_chunk_spec, self._kwargs_chunk_spec
        )

    def _check_inputs(
        self, arg_mbs: Any = None, kwarg_mbs: Any = None, target_mbs: Any = None, losses: Any = None
    ) -> tuple[list[Any], list[Any]]:
        given = {"arg_mbs": arg_mbs, "kwarg_mbs": kwarg_mbs, "target_mbs": target_mbs}
        for name, microbatches in given.items():
            if microbatches is None:
                continue
            if not isinstance(microbatches, list):
                raise TypeError(f"{name} must be a list but got a {type(microbatches)}")
            if len(microbatches) != self._n_microbatches:
                raise ValueError(f"Expecting {self._n_microbatches} {name} but got {len(microbatches)}")
        if losses is not None and not isinstance(losses, list):
            raise TypeError(f"losses must be a list but got a {type(losses)}")
        last = self._last_stage()
        needs_target = self._loss_fn is not None and (self._has_backward or losses is not None)
        if last is not None and target_mbs is None and needs_target:
            raise PipeliningMetadataError(f"Stage {last.stage_index}: loss_fn and target required for last stage")
        return arg_mbs or [()] * self._n_microbatches, kwarg_mbs or [{}] * self._n_microbatches

    def _compute_loss(self, output: Any, target: Any, loss_kwargs: dict[str, Any] | None = None) -> Any:
        assert self._loss_fn is not None
        return self._loss_fn(output, target, **(loss_kwargs or {}))

    def _step_microbatches(
        self,
        arg_mbs: list[Any] | None = None,
        kwarg_mbs: list[Any] | None = None,
        target_mbs: list[Any] | None = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
    ) -> None:
        args, kwargs = self._check_inputs(arg_mbs, kwarg_mbs, target_mbs, losses)
        loss: Callable[[Any, int], Any] | None = None
        if self._loss_fn is not None and target_mbs is not None:
            targets = target_mbs

            def loss(output: Any, microbatch: int) -> Any:
                return self._compute_loss(output, targets[microbatch], loss_kwargs)

        for stage in self._stages:
            stage.has_backward = self._has_backward
            stage.clear_runtime_states()
        actions = self.pipeline_order[self.rank]
        if not self._has_backward:
            actions = orders.forwards_of(actions)
        factor = self._n_microbatches if self.scale_grads else 1
        batch = Batch(args, kwargs, loss, return_outputs, factor)
        execute(actions, {stage.stage_index: stage for stage in self._stages}, batch)
        if self._last_stage() is not None and losses is not None:
            if len(batch.losses) != self._n_microbatches:
                raise RuntimeError(f"Expecting {self._n_microbatches} losses but got {len(batch.losses)}")
            losses[:] = [batch.losses[i] for i in range(self._n_microbatches)]


class PipelineScheduleSingle(_PipelineSchedule):
    """A schedule with one stage on each rank.

    Args:
        stage: this rank's stage.
        n_microbatches: into how many parts a batch is cut.
        loss_fn: `loss_fn(output, target)`, of a microbatch; the same on all ranks. If None, there is no backward pass.
        args_chunk_spec: a `TensorChunkSpec` for each positional argument of `step`; dimension 0 if None.
        kwargs_chunk_spec: the same for keyword arguments.
        output_merge_spec: the same for the outputs.
        scale_grads: whether to divide gradients by the number of microbatches: right for a loss that is a mean.

    Raises:
        ValueError: the stage is not on its rank.
    """

    def __init__(
        self,
        stage: Any,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        super().__init__(
            [stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads
        )
        self._stage = stage
        if stage.num_stages != stage.group_size:
            raise ValueError(
                f"{type(self).__name__} runs one stage on each rank, but there are {stage.num_stages} stages and "
                f"{stage.group_size} rank(s): use ScheduleInterleaved1F1B"
            )
        place = stage.stage_index_to_group_rank
        self._set_order({place[i]: self._order_of_stage(i) for i in range(self._num_stages)})

    def _order_of_stage(self, stage_index: int) -> list[Action]:
        return orders.gpipe(stage_index, self._n_microbatches)


class _ScheduleForwardOnly(PipelineScheduleSingle):
    """Runs forward passes only."""

    def _order_of_stage(self, stage_index: int) -> list[Action]:
        return orders.forwards_of(orders.gpipe(stage_index, self._n_microbatches))

    def _step_microbatches(
        self,
        arg_mbs: list[Any] | None = None,
        kwarg_mbs: list[Any] | None = None,
        target_mbs: list[Any] | None = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if target_mbs is not None or losses is not None:
            raise RuntimeError("Forward-only schedule does not support loss computation")
        self._has_backward = False
        super()._step_microbatches(arg_mbs, kwarg_mbs, None, None, return_outputs)


class ScheduleGPipe(PipelineScheduleSingle):
    __doc__ = (
        (PipelineScheduleSingle.__doc__ or "").replace(
            "A schedule with one stage on each rank.",
            "Runs the forward passes of all microbatches, then the backward passes; one stage on each rank.",
        )
        + """
    Source: Huang et al., "GPipe: Efficient Training of Giant Neural Networks", 2019.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.pipelining import PipelineStage, ScheduleGPipe
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> stage = PipelineStage(torch.nn.Linear(2, 1), 0, 1, "cpu")
    >>> schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=torch.nn.MSELoss())
    >>> schedule.pipeline_order
    {0: [0F0, 0F1, 0B0, 0B1, 0REDUCE_GRAD]}
    >>> losses = []
    >>> output = schedule.step(torch.ones(4, 2), target=torch.zeros(4, 1), losses=losses)
    >>> output.shape, len(losses)
    (torch.Size([4, 1]), 2)
    >>> dist.destroy_process_group()
    """
    )


class Schedule1F1B(PipelineScheduleSingle):
    __doc__ = (
        (PipelineScheduleSingle.__doc__ or "")
        .replace(
            "A schedule with one stage on each rank.",
            "Runs backward passes as early as possible, so that few activations are kept; one stage on each rank.",
        )
        .replace("its rank.", "its rank, or there are fewer microbatches than stages.")
        + """
    Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", 2019.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.pipelining import PipelineStage, Schedule1F1B
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> stage = PipelineStage(torch.nn.Linear(2, 1), 0, 1, "cpu")
    >>> Schedule1F1B(stage, n_microbatches=2, loss_fn=torch.nn.MSELoss()).pipeline_order
    {0: [0F0, 0B0, 0F1, 0B1, 0REDUCE_GRAD]}
    >>> dist.destroy_process_group()
    """
    )

    def __init__(self, stage: Any, n_microbatches: int, *args: Any, **options: Any) -> None:
        if n_microbatches < stage.num_stages:
            raise ValueError(
                f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages "
                f"({stage.num_stages})."
            )
        super().__init__(stage, n_microbatches, *args, **options)

    def _order_of_stage(self, stage_index: int) -> list[Action]:
        return orders.one_forward_one_backward(stage_index, self._num_stages, self._n_microbatches)


class PipelineScheduleMulti(_PipelineSchedule):
    """A schedule with several stages on each rank: rank `r` of `n` has the stages `r`, `r + n`, `r + 2n`, ...

    Args:
        stages: this rank's stages.
        n_microbatches: into how many parts a batch is cut.
        loss_fn: `loss_fn(output, target)`, of a microbatch; the same on all ranks. If None, there is no backward pass.
        args_chunk_spec: a `TensorChunkSpec` for each positional argument of `step`; dimension 0 if None.
        kwargs_chunk_spec: the same for keyword arguments.
        output_merge_spec: the same for the outputs.
        scale_grads: whether to divide gradients by the number of microbatches: right for a loss that is a mean.
        backward_requires_autograd: must be True.
        defer_pp_recv: accepted; what is received is always waited for where it is needed.

    Raises:
        ValueError: these are not the stages of this rank, or the number of microbatches does not fit.
    """

    def __init__(
        self,
        stages: list[Any],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        if not backward_requires_autograd:
            raise NotImplementedError(f"{type(self).__name__}: backward_requires_autograd=False is not supported")
        super().__init__(
            stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads
        )
        self.n_local_stages = len(stages)
        self._set_order({rank: self._order_of_rank(rank) for rank in range(self.pp_group_size)})

    def _order_of_rank(self, rank: int) -> list[Action]:
        raise NotImplementedError("a schedule must say in which order a rank runs its stages")


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    __doc__ = (PipelineScheduleMulti.__doc__ or "").replace("A schedule", "Runs one forward and one backward pass by "
        "turns,") + """
    Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> stages = [PipelineStage(torch.nn.Linear(2, 2), i, 2, "cpu") for i in range(2)]
    >>> schedule = ScheduleInterleaved1F1B(stages, 2, loss_fn=torch.nn.MSELoss())
    >>> schedule.step(torch.ones(4, 2), target=torch.zeros(4, 2)).shape
    torch.Size([4, 2])
    >>> dist.destroy_process_group()
    """  # fmt: skip

    def _order_of_rank(self, rank: int) -> list[Action]:
        return orders.interleaved_1f1b(rank, self.pp_group_size, self.n_local_stages, self._n_microbatches)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """Each stage runs all microbatches before the next stage of its rank does. See `ScheduleInterleaved1F1B`.

    Source: Lamy-Poirier, "Breadth-First Pipeline Parallelism", 2022.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.pipelining import PipelineStage, ScheduleLoopedBFS
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> stages = [PipelineStage(torch.nn.Linear(2, 2), i, 2, "cpu") for i in range(2)]
    >>> ScheduleLoopedBFS(stages, 2).pipeline_order[0][:4]
    [0F0, 0F1, 1F0, 1F1]
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        stages: list[Any],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(
            stages,
            n_microbatches,
            loss_fn,
            output_merge_spec=output_merge_spec,
            scale_grads=scale_grads,
            backward_requires_autograd=backward_requires_autograd,
        )

    def _order_of_rank(self, rank: int) -> list[Action]:
        return orders.looped_bfs(rank, self.pp_group_size, self.n_local_stages, self._n_microbatches)


class _Absent:
    """A schedule that separates the gradients of inputs and weights."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} is not included: use ScheduleInterleaved1F1B")


class ScheduleInterleavedZeroBubble(_Absent):
    """Raises: NotImplementedError. It is not included.

    >>> from tensorgrad.distributed.pipelining import ScheduleInterleavedZeroBubble
    >>> ScheduleInterleavedZeroBubble([], 1)
    Traceback (most recent call last):
        ...
    NotImplementedError: ScheduleInterleavedZeroBubble is not included: use ScheduleInterleaved1F1B
    """


class ScheduleZBVZeroBubble(_Absent):
    """Raises: NotImplementedError. It is not included.

    >>> from tensorgrad.distributed.pipelining import ScheduleZBVZeroBubble
    >>> ScheduleZBVZeroBubble([], 1)
    Traceback (most recent call last):
        ...
    NotImplementedError: ScheduleZBVZeroBubble is not included: use ScheduleInterleaved1F1B
    """


class ScheduleDualPipeV(_Absent):
    """Raises: NotImplementedError. It is not included.

    >>> from tensorgrad.distributed.pipelining import ScheduleDualPipeV
    >>> ScheduleDualPipeV([], 1)
    Traceback (most recent call last):
        ...
    NotImplementedError: ScheduleDualPipeV is not included: use ScheduleInterleaved1F1B
    """


def get_schedule_class(schedule_name: str) -> type:
    """Returns the class of a schedule by its name in PyTorch, such as "1F1B"; letters may be small or capital.

    Raises:
        ValueError: there is no such schedule.

    >>> from tensorgrad.distributed.pipelining.schedules import get_schedule_class
    >>> get_schedule_class("gpipe").__name__
    'ScheduleGPipe'
    """
    names: dict[str, type] = {
        "1F1B": Schedule1F1B,
        "Interleaved1F1B": ScheduleInterleaved1F1B,
        "GPipe": ScheduleGPipe,
        "LoopedBFS": ScheduleLoopedBFS,
        "InterleavedZeroBubble": ScheduleInterleavedZeroBubble,
        "PipelineScheduleSingle": PipelineScheduleSingle,
        "PipelineScheduleMulti": PipelineScheduleMulti,
        "ZBVZeroBubble": ScheduleZBVZeroBubble,
        "DualPipeV": ScheduleDualPipeV,
    }
    small = {name.lower(): found for name, found in names.items()}
    if schedule_name.lower() not in small:
        raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(names)}")
    return small[schedule_name.lower()]
