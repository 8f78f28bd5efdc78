"""Checkpoints of many pieces and files of `torch.save`, made from each other."""

from __future__ import annotations

import os
from pickle import UnpicklingError
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.checkpoint.default_planner import DefaultLoadPlanner
from tensorgrad.distributed.checkpoint.filesystem import FileSystemReader
from tensorgrad.distributed.checkpoint.metadata import TensorStorageMetadata
from tensorgrad.distributed.checkpoint.nested import set_element
from tensorgrad.distributed.checkpoint.state_dict_loader import _load_state_dict as _load_state_dict
from tensorgrad.distributed.checkpoint.state_dict_loader import load
from tensorgrad.distributed.checkpoint.state_dict_saver import save

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike, torch_save_path: str | os.PathLike) -> None:
    """Writes everything in a checkpoint to one file, for `torch.load`.

    Args:
        dcp_checkpoint_dir: the checkpoint's folder.
        torch_save_path: the file.

    Raises:
        OSError: a file of the checkpoint is missing or cannot be read.
        pickle.UnpicklingError: a file is damaged.

    >>> import os, tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> from tensorgrad.distributed.checkpoint.format_utils import dcp_to_torch_save
    >>> folder = tempfile.mkdtemp()
    >>> metadata = dcp.save({"a": {"x": torch.ones(2)}}, checkpoint_id=folder)
    >>> dcp_to_torch_save(folder, os.path.join(folder, "all.pt"))
    >>> torch.load(os.path.join(folder, "all.pt"))
    {'a': {'x': tensor([1., 1.])}}
    """
    reader = FileSystemReader(dcp_checkpoint_dir)
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, True)
    reader.check_files(metadata.storage_data)  # before memory for all of it is asked for
    flat: dict[str, Any] = {
        name: torch.empty(tuple(entry.size), dtype=entry.properties.dtype, device="cpu")
        if isinstance(entry, TensorStorageMetadata) else None
        for name, entry in metadata.state_dict_metadata.items()
    }  # fmt: skip
    load(flat, checkpoint_id=dcp_checkpoint_dir, planner=DefaultLoadPlanner(flatten_state_dict=False), no_dist=True)
    nested: dict[str, Any] = {}
    paths = _checked({name: (metadata.planner_data or {}).get(name, (name,)) for name in flat}, dcp_checkpoint_dir)
    for name, path in paths.items():
        set_element(nested, path, flat[name])
    torch.save(nested, torch_save_path)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty dictionary with what a checkpoint has; accelerate merges checkpoints with it.

    Args:
        keys: The names, or the beginnings of paths such as `model.layer`, that are loaded; by default all.

    >>> import tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> from tensorgrad.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner
    >>> folder = tempfile.mkdtemp()
    >>> metadata = dcp.save({"model": {"w": torch.ones(2)}, "epoch": 3}, checkpoint_id=folder)
    >>> found = {}
    >>> dcp.load(found, checkpoint_id=folder, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    >>> found["model"]["w"], found["epoch"]
    (tensor([1., 1.]), 3)
    """

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        self.keys = keys
        super().__init__(*args, **kwargs)

    def _is_wanted(self, name: str, path: tuple) -> bool:
        paths = (".".join(map(str, path[:n])) for n in range(1, len(path) + 1))
        return self.keys is None or name in self.keys or any(each in self.keys for each in paths)

    def set_up_planner(self, state_dict: dict[str, Any], metadata: Any = None, is_coordinator: bool = False) -> None:
        """Makes room for what is loaded.

        Raises:
            RuntimeError: the dictionary is not empty, or nothing is known of the checkpoint.
        """
        if state_dict or metadata is None:
            raise RuntimeError("_EmptyStateDictLoadPlanner: expected an empty state_dict, and a checkpoint's metadata")
        for name, entry in metadata.state_dict_metadata.items():
            path = (metadata.planner_data or {}).get(name, (name,))
            if not self._is_wanted(name, path):
                continue
            value = None
            if isinstance(entry, TensorStorageMetadata):
                value = torch.empty(tuple(entry.size), dtype=entry.properties.dtype, device="cpu")
            set_element(state_dict, path, value)
        super().set_up_planner(state_dict, metadata, is_coordinator)


def _checked(paths: dict[str, Any], folder: str | os.PathLike) -> dict[str, Any]:
    """The same. Raises: pickle.UnpicklingError if two of the paths of keys exclude each other."""
    kinds: dict[Any, Any] = {}
    for path in paths.values():
        for n in range(len(path) + 1):
            kind = type(path[n]) if n < len(path) else path  # the kind of keys of a container, or a value
            if kinds.setdefault(path[:n], kind) is not kind:
                file = os.path.join(folder, ".metadata")
                raise UnpicklingError(f"{file} is damaged: {path} and another of its paths of keys exclude each other")
    return paths


def torch_save_to_dcp(torch_save_path: str | os.PathLike, dcp_checkpoint_dir: str | os.PathLike) -> None:
    """Makes a checkpoint of a file that `torch.save` wrote.

    Args:
        torch_save_path: the file.
        dcp_checkpoint_dir: the checkpoint's folder.

    >>> import os, tempfile
    >>> from tensorgrad.distributed.checkpoint.format_utils import torch_save_to_dcp
    >>> folder = tempfile.mkdtemp()
    >>> torch.save({"x": torch.ones(2)}, os.path.join(folder, "all.pt"))
    >>> torch_save_to_dcp(os.path.join(folder, "all.pt"), folder)
    """
    save(torch.load(torch_save_path, map_location="cpu"), checkpoint_id=dcp_checkpoint_dir, no_dist=True)
