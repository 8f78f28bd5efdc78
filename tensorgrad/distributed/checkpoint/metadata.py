"""What a checkpoint's `.metadata` file says: which tensors there are, and where their pieces are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import tensorgrad as torch

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
    "TensorStorageMetadata",
]  # fmt: skip


@dataclass
class ChunkStorageMetadata:
    """A box within a tensor: a piece that is stored on its own.

    >>> from tensorgrad.distributed.checkpoint import ChunkStorageMetadata
    >>> ChunkStorageMetadata(torch.Size([0, 2]), torch.Size([3, 2])).sizes
    torch.Size([3, 2])
    """

    offsets: torch.Size
    sizes: torch.Size


class _MEM_FORMAT_ENCODING(Enum):
    """The numbers of memory formats in files."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


_FORMATS = [torch.contiguous_format, torch.channels_last, torch.preserve_format]


@dataclass
class TensorProperties:
    """The properties of a tensor besides its shape."""

    dtype: Any = field(default_factory=torch.get_default_dtype)
    layout: Any = field(default=torch.strided)
    requires_grad: bool = False
    memory_format: Any = field(default=torch.contiguous_format)
    pin_memory: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        encoded = _MEM_FORMAT_ENCODING(_FORMATS.index(self.memory_format))
        return self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory = state
        self.memory_format = _FORMATS[encoded.value]

    @staticmethod
    def create_from_tensor(tensor: Any) -> TensorProperties:
        """Returns the properties of a tensor."""
        return TensorProperties(tensor.dtype, torch.strided, tensor.requires_grad)


@dataclass
class TensorStorageMetadata:
    """A tensor of a checkpoint: its whole size, and its pieces."""

    properties: TensorProperties
    size: torch.Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """A value of a checkpoint that is not a tensor."""


@dataclass
class StorageMeta:
    """Where a checkpoint was written, and a name for this time."""

    checkpoint_id: str | os.PathLike | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """Everything that a checkpoint holds.

    Attributes:
        state_dict_metadata: what is known of each value, by its name.
        planner_data: for each name the path of keys in the nested state dict.
        storage_data: for each piece, the file and the bytes in it.
    """

    state_dict_metadata: dict[str, Any]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """The name of a piece: a value's name and, for a tensor, the piece's offsets.

    Args:
        fqn: the value's name, with dots between the keys.
        offset: where the piece begins in the tensor.
        index: its place in the list of pieces, if known; not compared.

    >>> from tensorgrad.distributed.checkpoint import MetadataIndex
    >>> MetadataIndex("weight", (0, 2)) == MetadataIndex("weight", (0, 2), 1)
    True
    """

    fqn: str
    offset: torch.Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "offset", None if offset is None else torch.Size(offset))
