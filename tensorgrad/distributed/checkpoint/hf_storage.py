"""Checkpoints in files of safetensors, as the libraries of Hugging Face read them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.distributed.checkpoint import _consolidate_hf_safetensors as consolidation
from tensorgrad.distributed.checkpoint._hf_utils import (
    CUSTOM_METADATA_KEY,
    SAVED_OFFSETS_KEY,
    SHARDED_DIR_NAME,
    SUFFIX,
    _gen_file_name,
    _HFStorageInfo,
    _metadata_fn,
    pieces_in,
)
from tensorgrad.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _named, _StorageInfo
from tensorgrad.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from tensorgrad.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from tensorgrad.distributed.checkpoint.storage import WriteResult
from tensorgrad.serialization import safetensors
from tensorgrad.serialization.archive import replacing
from tensorgrad.tensor import wrap

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes the tensors of a state dict into files of safetensors. Needs the package safetensors.

    Args:
        path: the folder; it is made if needed.
        fqn_to_index_mapping: for each tensor the number of its file, from 1; by default all are in one.
        thread_count, thread_count_consolidation: accepted; files are written one after the other.
        save_distributed: whether every process writes the pieces that it holds, in files of its own. Otherwise one
            process saves whole tensors, with an index of the files.
        enable_consolidation: whether whole tensors are then made of the pieces, which are in the folder `sharded`.

    Raises:
        ValueError: from `save`, if a value is not a tensor, or several processes would write the same file.

    >>> import os, tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> folder = tempfile.mkdtemp()
    >>> model = torch.nn.Linear(2, 1)
    >>> metadata = dcp.save(model.state_dict(), storage_writer=dcp.HuggingFaceStorageWriter(folder), no_dist=True)
    >>> sorted(os.listdir(folder))
    ['model-00001-of-00001.safetensors', 'model.safetensors.index.json']
    """

    def __init__(
        self,
        path: str | os.PathLike,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
    ) -> None:
        super().__init__(path)
        self.fqn_to_index_mapping, self.save_distributed = fqn_to_index_mapping, save_distributed
        self.enable_consolidation = enable_consolidation
        self.consolidated_output_path: str | None = None
        if enable_consolidation:
            self.consolidated_output_path, self.path = str(self.path), self.path / SHARDED_DIR_NAME

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Chooses the file of each tensor.

        Raises: ValueError if a value is not a tensor or has no number, or several processes would write a file.
        """
        writers: dict[str, int] = {}
        chosen = []
        for rank, plan in enumerate(plans):
            files = {item.index.fqn: self._file(item, rank) for item in plan.items}
            for file in files.values():
                if writers.setdefault(file, rank) != rank:
                    raise ValueError(
                        f"HuggingFaceStorageWriter: the processes {writers[file]} and {rank} would both write {file}; "
                        "save with save_distributed=True, or in one process"
                    )
            chosen.append(dataclasses.replace(plan, storage_data=files))
        return chosen

    def _file(self, item: WriteItem, rank: int) -> str:
        name, numbers = item.index.fqn, self.fqn_to_index_mapping
        if item.type == WriteItemType.BYTE_IO:
            raise ValueError(
                f"HuggingFaceStorageWriter: {name} is not a tensor; files of safetensors hold only tensors"
            )
        if numbers is not None and name not in numbers:
            raise ValueError(f"HuggingFaceStorageWriter: fqn_to_index_mapping has no file for {name}")
        number, largest = (1, 1) if numbers is None else (numbers[name], max(numbers.values()))
        return _gen_file_name(number, largest, rank + 1 if self.save_distributed else None)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        """Writes the files of this process, and waits until they are on the disk."""
        files: dict[str, list[WriteItem]] = {}
        for item in plan.items:
            files.setdefault(plan.storage_data[item.index.fqn], []).append(item)
        return [result for name, items in files.items() for result in _write(self.path / name, items, planner)]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Writes the index, or makes whole tensors of the pieces, and removes those of a checkpoint before."""
        written = {result.index: result.storage_data for own in results for result in own}
        if not self.save_distributed:
            files = {index.fqn: (info.relative_path, info.length) for index, info in written.items()}
            consolidation._write_index(self.path, files)
            return
        used = {info.relative_path for info in written.values()}
        for path in self.path.glob(f"shard-*-model-*-of-*{SUFFIX}"):  # they would be read as pieces of the new one
            if path.name not in used:
                with contextlib.suppress(OSError):
                    path.unlink()
        if self.consolidated_output_path is not None:
            numbers = self.fqn_to_index_mapping or dict.fromkeys(metadata.state_dict_metadata, 1)
            consolidation.consolidate_safetensors_files(self.path, self.consolidated_output_path, numbers)

    @property
    def metadata_path(self) -> str:
        """The name of the index."""
        return _metadata_fn


def _write(path: Path, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
    tensors, offsets, results = {}, {}, []
    for item in items:
        name, data = item.index.fqn, item.tensor_data
        if name in tensors:
            raise ValueError(f"HuggingFaceStorageWriter: two pieces of {name} in one file; the format takes one")
        assert data is not None
        tensors[name], offsets[name] = planner.resolve_data(item), {SAVED_OFFSETS_KEY: list(data.chunk.offsets)}
        nbytes = tensors[name].nbytes
        results.append(WriteResult(item.index, nbytes, _StorageInfo(path.name, 0, nbytes)))
    about = {CUSTOM_METADATA_KEY: json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"}
    content = safetensors.save(tensors, about)
    with _named(path, "write"), replacing(path) as file:
        file.write(content)
    return results


class HuggingFaceStorageReader(FileSystemReader):
    """Reads tensors from files of safetensors: pieces that several processes wrote, or whole tensors.

    Args:
        path: the folder; all its files that end with `.safetensors` are read.
        thread_count: accepted; files are read one after the other.

    >>> import tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> folder = tempfile.mkdtemp()
    >>> writer = dcp.HuggingFaceStorageWriter(folder)
    >>> metadata = dcp.save({"x": torch.ones(2)}, storage_writer=writer, no_dist=True)
    >>> state = {"x": torch.zeros(2)}
    >>> dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(folder), no_dist=True)
    >>> state["x"]
    tensor([1., 1.])
    """

    def __init__(self, path: str | os.PathLike, thread_count: int = 1) -> None:
        super().__init__(path)
        self.thread_count = thread_count

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Returns what the files hold.

        Raises:
            OSError: the folder or a file cannot be read.
            pickle.UnpicklingError: a file is damaged.
        """
        with _named(self.path, "read"):
            files = sorted(path for path in self.path.iterdir() if path.name.endswith(SUFFIX))
        places: dict[MetadataIndex, _HFStorageInfo] = {}
        for path in files:
            places.update(pieces_in(path))
        tensors: dict[str, TensorStorageMetadata] = {}
        for index, info in places.items():
            assert index.offset is not None
            end = [start + n for start, n in zip(index.offset, info.shape)]
            entry = tensors.get(index.fqn) or TensorStorageMetadata(TensorProperties(info.dtype), torch.Size(end), [])
            entry.size = torch.Size(map(max, entry.size, end))
            entry.chunks.append(ChunkStorageMetadata(index.offset, info.shape))
            tensors[index.fqn] = entry
        return Metadata(tensors, storage_data=places, storage_meta=StorageMeta(load_id=self.load_id))

    def _piece(self, index: MetadataIndex, content: io.BytesIO) -> Any:
        info: Any = self._info(index)
        return wrap(np.frombuffer(content.getbuffer(), info.dtype.numpy).reshape(info.shape))
