"""Where checkpoints are kept: the classes that write and read them."""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import Any

from tensorgrad.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tensorgrad.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner

__all__ = ["StorageReader", "StorageWriter", "WriteResult"]


@dataclass(frozen=True)
class WriteResult:
    """What was written, and where."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes a checkpoint. Subclasses choose the place and the form."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Begins a new checkpoint, at this place if one is given."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Prepares this process."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Sees what this process could write."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Sees, in one process, what each of them writes."""

    @abc.abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        """Writes; returns the list of `WriteResult`, or a future of it."""

    @abc.abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Makes the checkpoint valid, in one process."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Returns whether it can write there."""

    def storage_meta(self) -> StorageMeta | None:
        """Returns what to record about this checkpoint."""
        return None


class StorageReader(abc.ABC):
    """Reads a checkpoint."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Begins to read a checkpoint, at this place if one is given."""

    @abc.abstractmethod
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Returns what the checkpoint holds."""

    @abc.abstractmethod
    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Prepares this process."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Sees what this process needs, before any process reads."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Sees, in one process, what all of them need."""

    @abc.abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Any:
        """Reads; returns None, or a future."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Returns whether it can read from there."""
