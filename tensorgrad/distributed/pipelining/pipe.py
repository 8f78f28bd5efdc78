"""`pipeline`: divides an `nn.Sequential` into stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.pipelining.stage import PipelineStage

__all__ = ["Pipe", "SplitPoint", "build_stage", "pipe_split", "pipeline"]


class SplitPoint(Enum):
    """Where a model is divided: before a module runs, or after it.

    >>> from tensorgrad.distributed.pipelining import SplitPoint
    >>> SplitPoint.BEGINNING
    <SplitPoint.BEGINNING: 1>
    """

    BEGINNING = 1
    END = 2


@dataclass
class PipeInfo:
    """What `build_stage` needs to know of a `Pipe`. There is no graph, as nothing is traced."""

    graph: Any
    num_stages: int
    has_loss_and_backward: bool


class Pipe(torch.nn.Module):
    """A model divided into stages; made by `pipeline`. Calling it runs the whole model.

    >>> from tensorgrad.distributed.pipelining import SplitPoint, pipeline
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    >>> pipe = pipeline(model, (torch.ones(4, 2),), split_spec={"1": SplitPoint.BEGINNING})
    >>> pipe.num_stages, list(pipe.get_stage_module(1).state_dict())
    (2, ['1.weight', '1.bias'])
    """

    def __init__(self, stages: list[Any]) -> None:
        super().__init__()
        self.split_gm = torch.nn.Sequential()
        for i, stage in enumerate(stages):
            self.split_gm.add_module(f"submod_{i}", stage)
        self.num_stages, self.has_loss_and_backward = len(stages), False

    def forward(self, *args: Any) -> Any:
        """The model's own result."""
        return self.split_gm(*args)

    def get_stage_module(self, stage_idx: int) -> Any:
        """Returns the part of the model that is a stage. Its parameters keep the names they have in the model."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return self.split_gm[stage_idx]

    def info(self) -> PipeInfo:
        """Returns what `build_stage` needs."""
        return PipeInfo(None, self.num_stages, self.has_loss_and_backward)

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """Returns a stage for a schedule, moved to the device."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self.info(), device, group)


def build_stage(
    stage_module: Any, stage_index: int, pipe_info: PipeInfo, device: Any, group: Any = None
) -> PipelineStage:
    """Returns a stage of a pipe, for a schedule.

    Args:
        stage_module: this stage's part of the model; it is moved to the device.
        stage_index: its place.
        pipe_info: from `pipe.info()`.
        device: where the stage runs.
        group: the process group; the default one if None.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.pipelining import build_stage, pipeline
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> pipe = pipeline(torch.nn.Sequential(torch.nn.Linear(2, 1)), (torch.ones(1, 2),))
    >>> build_stage(pipe.get_stage_module(0), 0, pipe.info(), "cpu").num_stages
    1
    >>> dist.destroy_process_group()
    """
    stage_module.to(device)
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)


def pipe_split() -> None:
    """Does nothing: in PyTorch it marks where a traced model is divided, and here no model is traced.

    >>> from tensorgrad.distributed.pipelining import pipe_split
    >>> pipe_split()
    """


def pipeline(
    module: Any,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[..., Any] | None = None,
) -> Pipe:
    """Divides an `nn.Sequential` into stages, which share its modules.

    Args:
        module: the model. Wrap the parts of other models in `PipelineStage` yourself.
        mb_args: the arguments of a microbatch: one tensor.
        mb_kwargs: an `nn.Sequential` has none.
        split_spec: where to divide: names of the model's direct children.
        split_policy: not supported.

    Raises:
        NotImplementedError: the model is not an `nn.Sequential`, or needs to be traced.
        AttributeError: there is no such child.
        ValueError: arguments do not fit, a stage would be empty, or two stages would share a parameter.

    >>> from tensorgrad.distributed.pipelining import SplitPoint, pipeline
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> pipeline(model, (torch.ones(4, 2),), split_spec={"1": SplitPoint.END}).num_stages
    2
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    advice = "make the stages yourself: PipelineStage(part_of_the_model, stage_index, num_stages, device)"
    if type(module) is not torch.nn.Sequential:
        raise NotImplementedError(f"pipeline divides an nn.Sequential, not a {type(module).__name__}; {advice}")
    if split_policy is not None:
        raise NotImplementedError(f"pipeline: split_policy is not supported; {advice}")
    if mb_kwargs or len(mb_args) != 1:
        raise ValueError("pipeline: an nn.Sequential takes one positional argument")
    spec = split_spec or {}
    for name, point in spec.items():
        if "." in name:
            raise NotImplementedError(f"pipeline divides between direct children, not at {name}; {advice}")
        getattr(module, name)
        if not isinstance(point, SplitPoint):
            raise ValueError("Unknown split point type.")
    parts: list[Any] = [torch.nn.Sequential()]
    for name, child in module._modules.items():  # also a module that is there twice
        if spec.get(name) is SplitPoint.BEGINNING:
            parts.append(torch.nn.Sequential())
        parts[-1].add_module(name, child)
        if spec.get(name) is SplitPoint.END:
            parts.append(torch.nn.Sequential())
    if not all(len(part) for part in parts):
        raise ValueError(f"pipeline: a stage would be empty with {spec}")
    owner: dict[Any, int] = {}
    for i, part in enumerate(parts):
        for name, parameter in part.named_parameters():
            if owner.setdefault(parameter, i) != i:
                raise ValueError(f"pipeline: stages {owner[parameter]} and {i} would share the parameter {name}")
    return Pipe(parts)
