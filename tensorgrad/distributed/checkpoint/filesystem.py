"""Checkpoints in a folder, in PyTorch's format: a file `.metadata`, and `.distcp` files with the pieces.

The `.metadata` file is replaced last, in one step, and files that the one before names are never written to. So at any
moment the folder holds a whole checkpoint: the old one or the new one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pickle
import stat
import uuid
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.checkpoint import metadata_file
from tensorgrad.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tensorgrad.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from tensorgrad.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from tensorgrad.serialization.archive import replacing

__all__ = ["FileSystemReader", "FileSystemWriter", "SerializationFormat"]

METADATA, SUFFIX, VERSION, ALIGNMENT = ".metadata", ".distcp", "1.0.0", 64


class SerializationFormat(Enum):
    """The form of the pieces."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


@dataclasses.dataclass
class _StorageInfo:
    """Where a piece is."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if value is not None}


@contextlib.contextmanager
def _named(path: Path, action: str) -> Iterator[None]:
    """Adds the file's name to errors of the system."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot {action} the checkpoint: {error.strerror or error}", str(path)) from error


class FileSystemWriter(StorageWriter):
    """Writes a checkpoint into a folder. One that is there already stays valid until the new one is complete.

    Args:
        path: the folder; it is made if needed.
        single_file_per_rank: whether a process writes one file, rather than one for each piece.
        overwrite: whether a checkpoint in the folder may be replaced.
        sync_files, thread_count, per_thread_copy_ahead, cache_staged_state_dict: accepted; files always reach the disk
            before the checkpoint becomes valid.
        serialization_format: must be `TORCH_SAVE`.

    >>> import tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> folder = tempfile.mkdtemp()
    >>> metadata = dcp.save({"x": torch.ones(2)}, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)
    >>> list(metadata.state_dict_metadata)
    ['x']
    """

    def __init__(
        self,
        path: str | os.PathLike,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Any = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        if _extensions or serialization_format.value != "torch_save":
            raise NotImplementedError(
                "FileSystemWriter: only SerializationFormat.TORCH_SAVE without extensions is included"
            )
        self.path, self.single_file_per_rank, self.overwrite = Path(path), single_file_per_rank, overwrite
        self.save_id = str(uuid.uuid4())

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Begins a new checkpoint, in this folder if one is given."""
        self.path = self.path if checkpoint_id is None else Path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    @property
    def checkpoint_id(self) -> Path:
        """The folder."""
        return self.path

    def storage_meta(self) -> StorageMeta:
        """Returns the folder, and a name for this time."""
        return StorageMeta(checkpoint_id=self.path, save_id=self.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the folder is made with the plan."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Makes the folder. Raises: RuntimeError if a checkpoint is there and may not be replaced."""
        with _named(self.path, "make the folder of"):
            self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / METADATA).exists():
            raise RuntimeError(f"Checkpoint already exists and self.overwrite={self.overwrite}.")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Removes what saving that was not completed has left, and chooses file names that no file has yet."""
        with contextlib.suppress(pickle.UnpicklingError, OSError):
            left = metadata_file.loads((self.path / METADATA).read_bytes(), _StorageInfo)
            self._remove_all_but(left)
        free = not any(self.path.glob(f"__*{SUFFIX}"))
        middle = "" if free else f"{self.save_id[:8]}_"
        return [dataclasses.replace(plan, storage_data=f"__{rank}_{middle}") for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        """Writes the pieces, and waits until they are on the disk."""
        items = sorted(plan.items, key=lambda item: item.type != WriteItemType.BYTE_IO)
        files = [items] if self.single_file_per_rank and items else [[item] for item in items]
        results: list[WriteResult] = []
        for number, content in enumerate(files):
            name = f"{plan.storage_data}{number}{SUFFIX}"
            with _named(self.path / name, "write"), replacing(self.path / name) as file:
                results += [_write(file, name, item, planner.resolve_data(item)) for item in content]
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Makes the checkpoint valid, and removes the files of the one before."""
        metadata.version, metadata.storage_meta = VERSION, self.storage_meta()
        metadata.storage_data = {result.index: result.storage_data for own in results for result in own}
        with _named(self.path / METADATA, "write"), replacing(self.path / METADATA) as file:
            file.write(metadata_file.dumps(metadata))
        with contextlib.suppress(OSError):
            self._remove_all_but(metadata)

    def _remove_all_but(self, metadata: Metadata) -> None:
        """Removes the files of pieces that the valid checkpoint does not name."""
        used = {info.relative_path for info in metadata.storage_data.values()}
        for path in self.path.glob(f"__*{SUFFIX}"):
            if path.name not in used:
                with contextlib.suppress(OSError):
                    path.unlink()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Returns whether it is a path."""
        return isinstance(checkpoint_id, str | os.PathLike) and "://" not in str(checkpoint_id)


def _write(file: Any, name: str, item: WriteItem, data: Any) -> WriteResult:
    file.write(b"\0" * (-file.tell() % ALIGNMENT))
    start = file.tell()
    if item.type == WriteItemType.BYTE_IO:
        file.write(data.getbuffer())
    else:
        values = data.detach().cpu().contiguous()
        if values._storage.nbytes() != values.numel() * values.element_size():
            values = values.clone()
        torch.save(values, file)
    return WriteResult(item.index, file.tell() - start, _StorageInfo(name, start, file.tell() - start))


class FileSystemReader(StorageReader):
    """Reads a checkpoint from a folder, of tensorgrad's or PyTorch's. Nothing in its files is executed.

    Args:
        path: the folder.

    >>> import tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> folder = tempfile.mkdtemp()
    >>> metadata = dcp.save({"x": torch.ones(2)}, checkpoint_id=folder, no_dist=True)
    >>> state = {"x": torch.zeros(2)}
    >>> dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    >>> state["x"]
    tensor([1., 1.])
    """

    def __init__(self, path: str | os.PathLike, _extension_registry: Any = None) -> None:
        self.path = Path(path)
        self.load_id = str(uuid.uuid4())

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Begins to read, from this folder if one is given."""
        self.path = self.path if checkpoint_id is None else Path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    @property
    def checkpoint_id(self) -> Path:
        """The folder."""
        return self.path

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Returns what the checkpoint holds.

        Raises:
            FileNotFoundError: there is no complete checkpoint in the folder.
            pickle.UnpicklingError: the file is damaged, or is not the description of a checkpoint.
        """
        path = self.path / METADATA
        try:
            found = metadata_file.loads(path.read_bytes(), _StorageInfo)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} does not exist: there is no checkpoint in the folder, or saving it was not completed"
            ) from None
        except OSError as error:
            raise OSError(error.errno, f"cannot read the checkpoint: {error.strerror or error}", str(path)) from error
        except pickle.UnpicklingError as error:
            raise _damaged(path, error) from error
        assert found.storage_meta is not None
        found.storage_meta.load_id = self.load_id
        return found

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Receives what the checkpoint holds."""
        self.metadata, self.storage_data = metadata, metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Checks that all files are there and as long as they should be, before anything is read."""
        self.check_files({item.storage_index for item in plan.items})
        return plan

    def check_files(self, pieces: Iterable[MetadataIndex]) -> None:
        """Checks that the files of these pieces are there, and as long as the `.metadata` file says.

        Raises:
            OSError: a file is missing or cannot be read.
            pickle.UnpicklingError: a file is too short, or the `.metadata` file does not say where a piece is.
        """
        for index in pieces:
            info = self._info(index)
            path = self.path / info.relative_path
            with _named(path, "read"):
                found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise _damaged(path, ValueError("it is not a file"))
            if info.offset + info.length > found.st_size:
                needed = info.offset + info.length
                raise _damaged(path, ValueError(f"it has {found.st_size} bytes, {needed} are needed"))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Returns the plans as they are."""
        return plans

    def _info(self, index: MetadataIndex) -> _StorageInfo:
        found = self.storage_data.get(index)
        if found is None:
            raise _damaged(self.path / METADATA, ValueError(f"it does not say where {index.fqn} is"))
        return found

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        """Reads each piece that is needed, once, and copies what overlaps."""
        groups: dict[MetadataIndex, list[ReadItem]] = {}
        for item in plan.items:
            groups.setdefault(item.storage_index, []).append(item)
        for index, items in groups.items():
            info = self._info(index)
            path = self.path / info.relative_path
            with _named(path, "read"), open(path, "rb") as file:
                file.seek(info.offset)
                content = io.BytesIO(file.read(info.length))
            try:
                if items[0].type == LoadItemType.BYTE_IO:
                    planner.load_bytes(items[0], content)
                    continue
                piece = self._piece(index, content)
            except Exception as error:
                raise _damaged(path, error) from error
            for item in items:
                target = planner.resolve_tensor(item).detach()
                box = tuple(slice(s, s + n) for s, n in zip(item.storage_offsets, item.lengths))
                target.copy_(piece[box])
                planner.commit_tensor(item, target)

    def _piece(self, index: MetadataIndex, content: io.BytesIO) -> Any:
        """A stored tensor. Raises: ValueError if it is not what the metadata says."""
        piece = torch.load(content, map_location="cpu", weights_only=True)
        entry = self.metadata.state_dict_metadata[index.fqn]
        box = next(chunk for chunk in entry.chunks if chunk.offsets == index.offset)
        if not isinstance(piece, torch.Tensor) or tuple(piece.shape) != tuple(box.sizes):
            raise ValueError(f"{index.fqn} should be a tensor of size {tuple(box.sizes)}")
        if piece.dtype != entry.properties.dtype:
            raise ValueError(f"{index.fqn} should have the dtype {entry.properties.dtype}, not {piece.dtype}")
        return piece

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Returns whether it is a path."""
        return FileSystemWriter.validate_checkpoint_id(checkpoint_id)


def _damaged(path: Path, error: BaseException) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(
        f"{path} is damaged or not part of a checkpoint ({error}); load another checkpoint, or copy this one again"
    )
