"""Plans: what each process writes or reads, and the classes that make them."""

from __future__ import annotations

import abc
import io
import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tensorgrad.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)

__all__ = [
    "BytesIOWriteData", "LoadItemType", "LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner",
    "TensorWriteData", "WriteItem", "WriteItemType",
]  # fmt: skip


class WriteItemType(Enum):
    """What is written: a whole tensor, a piece of one, or another value."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """What is read: a tensor or another value."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """The size of a value that is not a tensor."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A piece of a tensor, and the properties and size of the whole."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Any


@dataclass(frozen=True)
class WriteItem:
    """Something to write."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """Returns the bytes of the whole tensor; None if it is not one."""
        if self.tensor_data is None:
            return None
        return math.prod(self.tensor_data.size) * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """A box to read: from a stored piece, into a part of a tensor in this process."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Any
    storage_index: MetadataIndex
    storage_offsets: Any
    lengths: Any


@dataclass(frozen=True)
class SavePlan:
    """What a process writes."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """What a process reads."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Decides what each process writes. Subclasses change what is saved, and how."""

    @abc.abstractmethod
    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        """Receives what is to be saved."""

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """Returns what this process could write."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Decides, in one process, what each of them writes."""

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Receives what this process is to write."""

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Any:
        """Returns the tensor to write, or an `io.BytesIO` for other values."""


class LoadPlanner(abc.ABC):
    """Decides what each process reads, and where to."""

    @abc.abstractmethod
    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Receives what is to be loaded, and what the checkpoint holds."""

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """Returns what this process needs."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Sees, in one process, what all of them need."""

    @abc.abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Receives what this process is to read."""

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Stores a value that is not a tensor."""

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Any:
        """Returns the tensor into which a box is read."""

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Any) -> None:
        """Is called after a box was read."""
