"""Files of safetensors as pieces of a checkpoint: their names, and what their headers say.

A file begins with the length of its header, 8 bytes, and the header: JSON with the dtype, the shape and the place of
each tensor. A file that holds pieces says under `DCP_SHARDING_INFO` where they begin in the whole tensors.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorgrad as torch
from tensorgrad import dtypes
from tensorgrad.distributed.checkpoint.filesystem import _damaged, _named
from tensorgrad.distributed.checkpoint.metadata import MetadataIndex
from tensorgrad.serialization.describe import described
from tensorgrad.serialization.safetensors import NAMES

__all__ = ["CUSTOM_METADATA_KEY", "SAVED_OFFSETS_KEY", "SHARDED_DIR_NAME", "SUFFIX", "pieces_in"]

_metadata_fn = "model.safetensors.index.json"
SUFFIX, SHARDED_DIR_NAME = ".safetensors", "sharded"
CUSTOM_METADATA_KEY, SAVED_OFFSETS_KEY = "DCP_SHARDING_INFO", "saved_offsets"


@dataclass
class _HFStorageInfo:
    """Where a piece is, and what it is."""

    relative_path: str
    shape: torch.Size
    dtype: torch.dtype
    offset: int
    length: int


def _gen_file_name(index: int, largest_index: int, shard_index: int | None = None) -> str:
    """The name of a file: of whole tensors, or of the pieces of one process.

    >>> from tensorgrad.distributed.checkpoint._hf_utils import _gen_file_name
    >>> _gen_file_name(1, 2), _gen_file_name(1, 1, shard_index=3)
    ('model-00001-of-00002.safetensors', 'shard-00003-model-00001-of-00001.safetensors')
    """
    shard = "" if shard_index is None else f"shard-{shard_index:05d}-"
    return f"{shard}model-{index:05d}-of-{largest_index:05d}{SUFFIX}"


def pieces_in(path: Path, need_offsets: bool = False) -> dict[MetadataIndex, _HFStorageInfo]:
    """What a file holds. Without `DCP_SHARDING_INFO` its tensors are whole.

    Args:
        path: the file.
        need_offsets: whether it must have been written as part of a checkpoint.

    Raises:
        OSError: the file cannot be read.
        pickle.UnpicklingError: it is damaged.
        ValueError: it was not written as part of a checkpoint, but should.
    """
    with _named(path, "read"), open(path, "rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= size - 8 else b""
    try:
        header = json.loads(text)
        offsets = json.loads(header.pop("__metadata__", {}).get(CUSTOM_METADATA_KEY, "null"))
        if offsets is not None or not need_offsets:
            return dict(_piece(path, size - 8 - length, entry, offsets) for entry in header.items())
    except Exception as error:
        raise _damaged(path, error) from error
    raise ValueError(f"{path} was not written as part of a checkpoint: it has no {CUSTOM_METADATA_KEY}")


def _piece(path: Path, size: int, entry: tuple[str, Any], offsets: Any) -> tuple[MetadataIndex, _HFStorageInfo]:
    """A tensor of a header. Raises: ValueError if it is not in the file, and other errors of wrong types."""
    name, about = entry
    if about["dtype"] not in NAMES:
        raise ValueError(f"{described(name)} has the unknown dtype {described(about['dtype'])}")
    dtype, shape, (start, end) = (
        dtypes.BY_NAME[NAMES[about["dtype"]]],
        torch.Size(about["shape"]),
        about["data_offsets"],
    )
    offset = torch.Size([0] * len(shape) if offsets is None else offsets[name][SAVED_OFFSETS_KEY])
    if len(offset) != len(shape) or min((0, *shape, *offset)) < 0:
        raise ValueError(f"{described(name)} has the size {tuple(shape)} and begins at {tuple(offset)}")
    if not 0 <= start <= end <= size or end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{described(name)} does not fit the bytes {start} to {end} of {size}")
    begin = path.stat().st_size - size
    return MetadataIndex(name, offset), _HFStorageInfo(path.name, shape, dtype, begin + start, end - start)
