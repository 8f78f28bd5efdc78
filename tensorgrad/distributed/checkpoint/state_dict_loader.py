"""`load`."""

from __future__ import annotations

import os
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.checkpoint.default_planner import DefaultLoadPlanner
from tensorgrad.distributed.checkpoint.filesystem import FileSystemReader
from tensorgrad.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from tensorgrad.distributed.checkpoint.stateful import Stateful
from tensorgrad.distributed.checkpoint.steps import Steps
from tensorgrad.distributed.checkpoint.storage import StorageReader
from tensorgrad.distributed.group import ProcessGroup

__all__ = ["load"]


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Loads a checkpoint into the tensors of a state dict. All processes of the group call it.

    The number of processes and the sharding may differ from those that saved. Each process reads the pieces that
    overlap with what it holds. If a file turns out to be damaged while it is read, some tensors have new values and
    some old ones.

    Args:
        state_dict: names and values, with tensors of the right size; objects with `load_state_dict()` get their state.
        checkpoint_id: the folder.
        storage_reader: reads it; by default a `FileSystemReader`.
        planner: decides what is read; by default a `DefaultLoadPlanner`.
        process_group: the group; the default one if None.
        no_dist: whether this process loads alone.

    Raises:
        CheckpointException: a process could not read what it needs; all of them get this error.

    >>> import tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> folder = tempfile.mkdtemp()
    >>> metadata = dcp.save({"x": torch.arange(3), "epoch": 3}, checkpoint_id=folder)
    >>> state = {"x": torch.zeros(3, dtype=torch.int64), "epoch": 0}
    >>> dcp.load(state, checkpoint_id=folder)
    >>> state
    {'x': tensor([0, 1, 2]), 'epoch': 3}
    """
    if storage_reader is None:
        if not checkpoint_id:
            raise RuntimeError("`checkpoint_id` must be specified if storage_reader is None.")
        storage_reader = FileSystemReader(checkpoint_id)
    else:
        storage_reader.reset(checkpoint_id)
    reader, steps = storage_reader, Steps(process_group, no_dist)
    chosen: LoadPlanner = DefaultLoadPlanner() if planner is None else planner
    objects = {name: value for name, value in state_dict.items()
               if isinstance(value, Stateful) and not isinstance(value, torch.Tensor)}  # fmt: skip
    states: dict[str, Any] = {}

    def local() -> LoadPlan:
        for name, value in state_dict.items():
            states[name] = objects[name].state_dict() if name in objects else value
        metadata = reader.read_metadata()
        chosen.set_up_planner(states, metadata, steps.is_coordinator)
        reader.set_up_storage_reader(metadata, steps.is_coordinator, rank=steps.rank)
        return reader.prepare_local_plan(chosen.create_local_plan())

    def read() -> None:
        result = reader.read_data(chosen.finish_plan(plans[steps.rank]), chosen)
        if hasattr(result, "wait"):
            result.wait()

    def hand_over() -> None:
        for name, value in states.items():
            if name in objects:
                objects[name].load_state_dict(value)
            else:
                state_dict[name] = value

    with torch.no_grad():
        plans = steps.together("plan", local, lambda p: reader.prepare_global_plan(chosen.create_global_plan(p)))
        steps.together("read", read, lambda results: None)
    steps.together("load", hand_over, lambda results: None)


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    """`load`, as accelerate calls it."""
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)
