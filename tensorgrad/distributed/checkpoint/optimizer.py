"""Reads the state of an optimizer alone, before it has one: `torch.distributed.checkpoint.optimizer`."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.checkpoint.metadata import BytesStorageMetadata
from tensorgrad.distributed.checkpoint.nested import set_element
from tensorgrad.distributed.checkpoint.planner import LoadPlanner
from tensorgrad.distributed.checkpoint.state_dict_loader import load
from tensorgrad.distributed.checkpoint.storage import StorageReader
from tensorgrad.distributed.tensor import DTensor

__all__ = ["load_sharded_optimizer_state_dict"]


def load_sharded_optimizer_state_dict(
    model_state_dict: dict[str, Any],
    optimizer_key: str,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
) -> dict[str, Any]:
    """Returns what a checkpoint has under a key, nested as it was saved. All processes of the group call it.

    State of a parameter that is divided in the model, and of its size, is divided as the parameter is.

    Args:
        model_state_dict: the model's state, which says how its parameters are divided.
        optimizer_key: the key.
        storage_reader: reads the checkpoint.
        planner: decides what is read; by default a `DefaultLoadPlanner`.

    Raises:
        CheckpointException: a process could not read what it needs.

    >>> import tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> folder, model = tempfile.mkdtemp(), torch.nn.Linear(1, 1)
    >>> optimizer = {"state": {"weight": {"exp_avg": torch.ones(1, 1)}}, "param_groups": [{"lr": 0.1}]}
    >>> metadata = dcp.save({"optimizer": optimizer, "model": model.state_dict()}, checkpoint_id=folder)
    >>> reader = dcp.FileSystemReader(folder)
    >>> dcp.optimizer.load_sharded_optimizer_state_dict(model.state_dict(), "optimizer", reader)["optimizer"]["state"]
    {'weight': {'exp_avg': tensor([[1.]])}}
    """
    metadata = storage_reader.read_metadata()
    flat: dict[str, Any] = {}
    for name, what in metadata.state_dict_metadata.items():
        path = metadata.planner_data[name]
        if path[0] != optimizer_key:
            continue
        if isinstance(what, BytesStorageMetadata):
            flat[name] = None
            continue
        like = model_state_dict.get(path[2]) if len(path) > 2 else None
        if isinstance(like, DTensor) and like.shape == what.size:
            flat[name] = torch.empty_like(like, dtype=what.properties.dtype)
        else:
            flat[name] = torch.empty(what.size, dtype=what.properties.dtype)
    load(flat, storage_reader=storage_reader, planner=planner)
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        set_element(nested, metadata.planner_data[name], value)
    return nested
