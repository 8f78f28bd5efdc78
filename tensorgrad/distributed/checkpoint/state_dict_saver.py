"""`save` and `async_save`."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.checkpoint.default_planner import DefaultSavePlanner
from tensorgrad.distributed.checkpoint.filesystem import FileSystemWriter
from tensorgrad.distributed.checkpoint.metadata import Metadata
from tensorgrad.distributed.checkpoint.planner import SavePlan, SavePlanner
from tensorgrad.distributed.checkpoint.stateful import Stateful
from tensorgrad.distributed.checkpoint.steps import Steps
from tensorgrad.distributed.checkpoint.storage import StorageWriter
from tensorgrad.distributed.group import GroupMember, ProcessGroup
from tensorgrad.distributed.process_group import is_initialized, new_group

__all__ = ["AsyncCheckpointerType", "async_save", "save"]


class AsyncCheckpointerType(Enum):
    """What saves in the background."""

    THREAD = "thread"
    PROCESS = "process"


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Saves a state dict. All processes of the group call it; each writes its shards.

    What is in the folder stays a whole checkpoint at every moment: the old one until the new one is complete.

    Args:
        state_dict: names and values: tensors, DTensors, nested dicts, plain values, and objects with `state_dict()`.
        checkpoint_id: the folder.
        storage_writer: writes it; by default a `FileSystemWriter`.
        planner: decides what is written; by default a `DefaultSavePlanner`.
        process_group: the group; the default one if None.
        no_dist: whether this process saves alone.
        use_collectives: must be True.

    Returns:
        What the checkpoint holds.

    Raises:
        CheckpointException: a process could not write; all of them get this error.

    >>> import tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> folder = tempfile.mkdtemp()
    >>> list(dcp.save({"model": torch.nn.Linear(1, 1), "epoch": 3}, checkpoint_id=folder).state_dict_metadata)
    ['model.weight', 'model.bias', 'epoch']
    """
    if not use_collectives:
        raise NotImplementedError("save: use_collectives=False is not included; leave it out")
    writer = _writer(storage_writer, checkpoint_id)
    return _save(lambda: _states(state_dict), writer, planner, Steps(process_group, no_dist))


def _writer(given: StorageWriter | None, checkpoint_id: Any) -> StorageWriter:
    if given is None:
        if not checkpoint_id:
            raise RuntimeError("`checkpoint_id` must be specified if storage_writer is None.")
        return FileSystemWriter(checkpoint_id)
    given.reset(checkpoint_id)
    return given


def _states(state_dict: dict[str, Any]) -> dict[str, Any]:
    return {name: value.state_dict() if isinstance(value, Stateful) and not isinstance(value, torch.Tensor) else value
            for name, value in state_dict.items()}  # fmt: skip


def _save(
    states: Callable[[], dict[str, Any]], writer: StorageWriter, planner: SavePlanner | None, steps: Steps
) -> Metadata:
    chosen: SavePlanner = DefaultSavePlanner() if planner is None else planner
    metadata: list[Metadata] = []

    def local() -> SavePlan:
        chosen.set_up_planner(states(), writer.storage_meta(), steps.is_coordinator)
        writer.set_up_storage_writer(steps.is_coordinator, rank=steps.rank, use_collectives=True)
        return writer.prepare_local_plan(chosen.create_local_plan())

    def divide(plans: list[SavePlan]) -> list[SavePlan]:
        divided, found = chosen.create_global_plan(plans)
        metadata.append(found)
        return writer.prepare_global_plan(divided)

    def write() -> Any:
        results = writer.write_data(chosen.finish_plan(plans[steps.rank]), chosen)
        return results.wait() if hasattr(results, "wait") else results

    def finish(results: list[Any]) -> Metadata:
        writer.finish(metadata[0], results)
        return metadata[0]

    plans = steps.together("plan", local, divide)
    return steps.together("write", write, finish)


class _Background:
    """The thread that saves, and the group in which it communicates: of its own, as the program uses the other."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child, which has neither the thread nor a place in the group."""
        self.thread: ThreadPoolExecutor | None = None
        self.world: Any = None
        self.group: Any = None

    def of(self, group: ProcessGroup | None, no_dist: bool) -> ProcessGroup | None:
        if group is not None or no_dist or not is_initialized():
            return group
        if self.world is not GroupMember.WORLD:
            self.world, self.group = GroupMember.WORLD, new_group(group_desc="checkpoints")
        return self.group


_BACKGROUND = _Background()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_BACKGROUND.forget)


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future:
    """Copies a state dict, and saves the copy in a thread while the program goes on. See `save`.

    Several calls are carried out one after the other. Wait for the last one before `destroy_process_group()`.

    Args:
        state_dict, checkpoint_id, storage_writer, planner, no_dist, use_collectives: as for `save`.
        process_group: a group that nothing else uses meanwhile; by default one is made.
        async_checkpointer_type: must be `THREAD`.
        async_stager: must be None.

    Returns:
        A future of what the checkpoint holds. If a process could not write, it has a `CheckpointException` in all.

    >>> import tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> future = dcp.async_save({"x": torch.ones(2)}, checkpoint_id=tempfile.mkdtemp(), no_dist=True)
    >>> list(future.result().state_dict_metadata)
    ['x']
    """
    if async_checkpointer_type.value != "thread" or async_stager is not None or not use_collectives:
        raise NotImplementedError("async_save: only a thread is included, without async_stager, with use_collectives")
    writer = _writer(storage_writer, checkpoint_id)
    copied: Future = Future()  # an error in one process must reach the others, which wait in their threads
    try:
        copied.set_result(_copied(_states(state_dict)))
    except Exception as error:
        copied.set_exception(error)
    steps = Steps(_BACKGROUND.of(process_group, no_dist), no_dist)
    _BACKGROUND.thread = _BACKGROUND.thread or ThreadPoolExecutor(1, "tensorgrad-checkpoint")
    return _BACKGROUND.thread.submit(_save, copied.result, writer, planner, steps)


def _copied(value: Any) -> Any:
    """The same with a copy of every tensor, in new dicts and lists."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value
