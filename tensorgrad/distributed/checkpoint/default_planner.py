"""The plans that are made unless a program brings its own planner."""

from __future__ import annotations

import dataclasses
import io
import math
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.checkpoint import boxes
from tensorgrad.distributed.checkpoint.local_pieces import is_sharded, local_box, local_tensor
from tensorgrad.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from tensorgrad.distributed.checkpoint.nested import flatten_state_dict, set_element
from tensorgrad.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner"]


class DefaultSavePlanner(SavePlanner):
    """Every process writes its shards. What several processes hold is written once, by the one with the least to write.

    Args:
        flatten_state_dict: whether values of nested dicts are stored one by one.
        flatten_sharded_tensors, dedup_replicated_tensors, enable_plan_caching: accepted; they change nothing.
        dedup_save_to_lowest_rank: whether what several processes hold is written by the first of them.

    >>> from tensorgrad.distributed.checkpoint import DefaultSavePlanner
    >>> planner = DefaultSavePlanner()
    >>> planner.set_up_planner({"model": {"weight": torch.ones(2)}})
    >>> [item.index.fqn for item in planner.create_local_plan().items]
    ['model.weight']
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict, self.dedup_save_to_lowest_rank = flatten_state_dict, dedup_save_to_lowest_rank
        self.mappings: dict[str, Any] = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        """Receives what is to be saved."""
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        """Returns everything that this process holds."""
        items = [item for name, value in self.state_dict.items() for item in _write_items(name, value)]
        return SavePlan(items, planner_data=self.mappings)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Divides the work among the processes.

        Raises:
            ValueError: the processes disagree about a value, or the shards of a tensor do not fill it.
        """
        items = _divided([plan.items for plan in all_plans], self.dedup_save_to_lowest_rank)
        known: dict[str, Any] = {}
        for own in items:
            for place, item in enumerate(own):
                own[place] = _registered(known, item)
        for name, entry in known.items():
            problem = isinstance(entry, TensorStorageMetadata) and boxes.problem_of(entry.chunks, entry.size)
            if problem:
                raise ValueError(f"Failed to validate global plan: {name}: {problem}")
        paths: dict[str, Any] = {}
        for plan in all_plans:
            for name, path in (plan.planner_data or {}).items():
                paths.setdefault(name, path)
        plans = [dataclasses.replace(plan, items=own) for plan, own in zip(all_plans, items)]
        return plans, Metadata(known, planner_data=paths if self.flatten_state_dict else None)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Receives what this process is to write."""
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        """Returns what to write."""
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Returns a value of the state dict, of a sharded tensor the part in this process."""
        value = self.state_dict[index.fqn]
        return local_tensor(value) if isinstance(value, torch.Tensor) else value

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """Returns a tensor as it is, and other values as bytes."""
        if write_item.type == WriteItemType.BYTE_IO:
            stream = io.BytesIO()
            torch.save(object, stream)
            return stream
        return object


def _write_items(name: str, value: Any) -> list[WriteItem]:
    if not isinstance(value, torch.Tensor):
        return [WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO)]
    box = local_box(value)
    if box is None:
        return []
    kind = WriteItemType.SHARD if is_sharded(value) else WriteItemType.TENSOR
    data = TensorWriteData(box, TensorProperties.create_from_tensor(value), torch.Size(value.shape))
    return [WriteItem(MetadataIndex(name, box.offsets), kind, tensor_data=data)]


def _divided(plans: list[list[WriteItem]], lowest: bool) -> list[list[WriteItem]]:
    """What each process writes, if everything is written once."""
    owners: dict[MetadataIndex, list[int]] = {}
    sizes: dict[MetadataIndex, int] = {}
    first: dict[MetadataIndex, WriteItem] = {}
    for rank, items in enumerate(plans):
        for item in items:
            owners.setdefault(item.index, []).append(rank)
            data = item.tensor_data
            other = first.setdefault(item.index, item).tensor_data
            if (data is None) != (other is None):
                raise ValueError(f"{item.index.fqn} is a tensor in some processes, but not in all")
            if data is not None and other is not None and _kind(data) != _kind(other):
                raise ValueError(_difference(item.index.fqn, _kind(other), _kind(data)))
            sizes[item.index] = 0 if data is None else math.prod(data.chunk.sizes) * data.properties.dtype.itemsize
    load = [0] * len(plans)
    chosen: dict[MetadataIndex, int] = {}
    for index in sorted(owners, key=lambda index: (len(owners[index]) > 1, -sizes[index])):  # what has no choice first
        ranks = owners[index]
        rank = ranks[0] if lowest or index.offset is None else min(ranks, key=lambda r: load[r])
        chosen[index] = rank
        load[rank] += sizes[index]
    return [[item for item in items if chosen[item.index] == rank] for rank, items in enumerate(plans)]


def _kind(data: TensorWriteData) -> tuple[Any, tuple[int, ...]]:
    return data.properties.dtype, tuple(data.size)


def _difference(name: str, one: tuple[Any, Any], other: tuple[Any, Any]) -> str:
    return f"{name} differs between processes: {one[0]} of size {one[1]}, and {other[0]} of size {other[1]}"


def _registered(known: dict[str, Any], item: WriteItem) -> WriteItem:
    """Adds what is written to the metadata, and returns the item with its place in the list of pieces."""
    name, data = item.index.fqn, item.tensor_data
    if data is None:
        if isinstance(known.setdefault(name, BytesStorageMetadata()), BytesStorageMetadata):
            return item
        raise ValueError(f"{name} is a tensor in some processes, but not in all")
    entry = known.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
    if not isinstance(entry, TensorStorageMetadata):
        raise ValueError(f"{name} is a tensor in some processes, but not in all")
    known_kind = entry.properties.dtype, tuple(entry.size)
    if known_kind != _kind(data):
        raise ValueError(_difference(name, known_kind, _kind(data)))
    entry.chunks.append(data.chunk)
    return dataclasses.replace(item, index=dataclasses.replace(item.index, index=len(entry.chunks) - 1))


class DefaultLoadPlanner(LoadPlanner):
    """Every process reads what overlaps with the part of each tensor that it holds.

    Args:
        flatten_state_dict: as when it was saved.
        flatten_sharded_tensors: accepted; changes nothing.
        allow_partial_load: whether values that the checkpoint does not have stay as they are.

    >>> from tensorgrad.distributed.checkpoint import DefaultLoadPlanner
    >>> DefaultLoadPlanner(allow_partial_load=True).allow_partial_load
    True
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load
        self.original_state_dict: dict[str, Any] = {}
        self.mappings: dict[str, Any] = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Receives what is to be loaded, and what the checkpoint holds."""
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """Returns what this process needs.

        Raises:
            RuntimeError: the checkpoint does not have a value.
            ValueError: a tensor has another size there.
        """
        assert self.metadata is not None
        items: list[ReadItem] = []
        for name, value in self.state_dict.items():
            entry = self.metadata.state_dict_metadata.get(name)
            if entry is not None:
                items += _read_items(name, entry, value)
            elif not self.allow_partial_load:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Returns the plans as they are."""
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Returns the plan as it is."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Stores a value that is not a tensor. The file is read as data: nothing in it is executed."""
        name, loaded = read_item.dest_index.fqn, torch.load(value, weights_only=True)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded

    def resolve_tensor(self, read_item: ReadItem) -> Any:
        """Returns the part of a tensor into which a box is read."""
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Any) -> None:
        """Does nothing: the box was read into the tensor itself."""

    def lookup_tensor(self, index: MetadataIndex) -> Any:
        """Returns a tensor of the state dict, of a sharded one the part in this process."""
        return local_tensor(self.state_dict[index.fqn])

    def transform_tensor(self, read_item: ReadItem, tensor: Any) -> Any:
        """Returns the part of a tensor that is read."""
        return tensor[tuple(slice(s, s + n) for s, n in zip(read_item.dest_offsets, read_item.lengths))]


def _read_items(name: str, entry: Any, value: Any) -> list[ReadItem]:
    if isinstance(entry, BytesStorageMetadata):
        index, none = MetadataIndex(name), torch.Size([0])
        return [ReadItem(LoadItemType.BYTE_IO, index, none, index, none, none)]
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"Invalid checkpoint metadata for {name}, expected BytesStorageMetadata but found {type(entry)}: it is a "
            f"tensor in the checkpoint, and {type(value).__name__} in the state dict"
        )
    if tuple(entry.size) != tuple(value.shape):
        raise ValueError(f"Size mismatch between saved {entry.size} and current: {value.shape} for {name}")
    box = local_box(value)
    return (
        []
        if box is None
        else [
            _read_item(name, box, i, piece)
            for i, piece in enumerate(entry.chunks)
            if 0 not in box.sizes and boxes.overlap(box, piece)
        ]
    )


def _read_item(name: str, box: ChunkStorageMetadata, number: int, piece: ChunkStorageMetadata) -> ReadItem:
    common = boxes.overlap(box, piece)
    assert common is not None
    starts, lengths = common
    return ReadItem(
        LoadItemType.TENSOR,
        MetadataIndex(name, box.offsets),
        torch.Size(s - o for s, o in zip(starts, box.offsets)),
        MetadataIndex(name, piece.offsets, number),
        torch.Size(s - o for s, o in zip(starts, piece.offsets)),
        torch.Size(lengths),
    )
