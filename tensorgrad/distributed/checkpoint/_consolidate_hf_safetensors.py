"""Files of whole tensors from those that hold pieces."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tensorgrad as torch
from tensorgrad.distributed.checkpoint import boxes
from tensorgrad.distributed.checkpoint._hf_utils import (
    SUFFIX,
    _gen_file_name,
    _HFStorageInfo,
    _metadata_fn,
    pieces_in,
)
from tensorgrad.distributed.checkpoint.filesystem import _named
from tensorgrad.distributed.checkpoint.metadata import ChunkStorageMetadata
from tensorgrad.distributed.collectives.barriers import barrier
from tensorgrad.distributed.collectives.objects import gather_object
from tensorgrad.distributed.process_group import get_rank, get_world_size, is_initialized
from tensorgrad.serialization.archive import replacing
from tensorgrad.serialization.safetensors import NAMES

__all__ = ["consolidate_safetensors_files", "consolidate_safetensors_files_on_every_rank"]

_IN_FILES = {name: short for short, name in NAMES.items()}


class _Piece(NamedTuple):
    path: Path
    box: ChunkStorageMetadata
    info: _HFStorageInfo


class _Whole(NamedTuple):
    size: tuple[int, ...]
    dtype: torch.dtype
    pieces: list[_Piece]

    @property
    def nbytes(self) -> int:
        return math.prod(self.size) * self.dtype.itemsize


def consolidate_safetensors_files(
    input_dir: str | os.PathLike,
    output_dir: str | os.PathLike,
    fqn_to_index_mapping: dict[str, int],
    num_threads: int = 1,
) -> None:
    """Writes whole tensors, from files of pieces that `HuggingFaceStorageWriter` wrote, and an index of them.

    Args:
        input_dir: the folder with the pieces.
        output_dir: the folder for the whole tensors.
        fqn_to_index_mapping: for each tensor the number of its file, from 1.
        num_threads: accepted; the files are written one after the other.

    Raises:
        ValueError: a file was not written as part of a checkpoint, or pieces of a tensor are missing.

    >>> import os, tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> from tensorgrad.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
    >>> folder, whole = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> writer = dcp.HuggingFaceStorageWriter(folder, save_distributed=True)
    >>> metadata = dcp.save({"x": torch.ones(2)}, storage_writer=writer, no_dist=True)
    >>> consolidate_safetensors_files(folder, whole, {"x": 1})
    >>> sorted(os.listdir(whole))
    ['model-00001-of-00001.safetensors', 'model.safetensors.index.json']
    """
    numbers = set(fqn_to_index_mapping.values())
    _write_index(Path(output_dir), _consolidated(Path(input_dir), Path(output_dir), fqn_to_index_mapping, numbers))


def consolidate_safetensors_files_on_every_rank(
    input_dir: str | os.PathLike,
    output_dir: str | os.PathLike,
    fqn_to_index_mapping: dict[str, int],
    num_threads: int = 1,
    process_group: Any = None,
) -> None:
    """`consolidate_safetensors_files`, with the files divided among the processes. All processes of the group call it.

    Args:
        input_dir, output_dir, fqn_to_index_mapping, num_threads: as there.
        process_group: the group; the default one if None.

    >>> import os, tempfile
    >>> import tensorgrad.distributed.checkpoint as dcp
    >>> from tensorgrad.distributed.checkpoint import _consolidate_hf_safetensors as consolidate
    >>> folder, whole = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> writer = dcp.HuggingFaceStorageWriter(folder, save_distributed=True)
    >>> metadata = dcp.save({"x": torch.ones(2)}, storage_writer=writer, no_dist=True)
    >>> consolidate.consolidate_safetensors_files_on_every_rank(folder, whole, {"x": 1})
    >>> sorted(os.listdir(whole))
    ['model-00001-of-00001.safetensors', 'model.safetensors.index.json']
    """
    alone = not is_initialized()
    rank, size = (0, 1) if alone else (get_rank(process_group), get_world_size(process_group))
    mine = {number for number in fqn_to_index_mapping.values() if number % size == rank}
    written = [_consolidated(Path(input_dir), Path(output_dir), fqn_to_index_mapping, mine)]
    if not alone:
        gathered: list[Any] | None = [None] * size if rank == 0 else None
        gather_object(written[0], gathered, group=process_group, group_dst=0)
        written = gathered or []
    if rank == 0:
        _write_index(Path(output_dir), {name: where for own in written for name, where in own.items()})
    if not alone:
        barrier(group=process_group)


def _consolidated(
    source: Path, target: Path, numbers: dict[str, int], mine: Iterable[int]
) -> dict[str, tuple[str, int]]:
    """Writes the files with these numbers; returns for each tensor in them its file and bytes."""
    found = _wholes(source)
    missing = next((name for name in numbers if name not in found), None)
    if missing is not None:
        raise ValueError(f"{missing} should be written to a file, and is in none of the files in {source}")
    written = {}
    for number in sorted(mine):
        file = _gen_file_name(number, max(numbers.values()))
        tensors = {name: found[name] for name, its in numbers.items() if its == number}
        _write(target / file, tensors)
        written.update({name: (file, whole.nbytes) for name, whole in tensors.items()})
    return written


def _wholes(folder: Path) -> dict[str, _Whole]:
    """The tensors whose pieces are in a folder. Raises: ValueError if the pieces of one do not fill it."""
    pieces: dict[str, list[_Piece]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for index, info in pieces_in(path, need_offsets=True).items():
            assert index.offset is not None
            pieces.setdefault(index.fqn, []).append(_Piece(path, ChunkStorageMetadata(index.offset, info.shape), info))
    found = {}
    for name, own in pieces.items():
        ends = ([start + n for start, n in zip(piece.box.offsets, piece.box.sizes)] for piece in own)
        size = tuple(map(max, zip(*ends)))
        problem = boxes.problem_of([piece.box for piece in own], size)
        if problem or len({piece.info.dtype for piece in own}) > 1:
            raise ValueError(f"{folder}: {name}: {problem or 'its pieces have several dtypes'}")
        found[name] = _Whole(size, own[0].info.dtype, own)
    return found


def _write(path: Path, tensors: dict[str, _Whole]) -> None:
    """Writes whole tensors, with one of them in memory at a time."""
    header, end = {}, 0
    for name, whole in tensors.items():
        start, end = end, end + whole.nbytes
        header[name] = {"dtype": _IN_FILES[whole.dtype.name], "shape": whole.size, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with _named(path, "write"), replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for whole in tensors.values():
            values = np.empty(whole.size, whole.dtype.numpy)
            for piece in whole.pieces:
                box = tuple(slice(start, start + n) for start, n in zip(piece.box.offsets, piece.box.sizes))
                values[box] = _read(piece)
            file.write(values.reshape(-1).view(np.uint8))


def _read(piece: _Piece) -> Any:
    with _named(piece.path, "read"), open(piece.path, "rb") as file:
        file.seek(piece.info.offset)
        return np.frombuffer(file.read(piece.info.length), piece.info.dtype.numpy).reshape(piece.info.shape)


def _write_index(folder: Path, written: dict[str, tuple[str, int]]) -> None:
    """Writes which file each tensor is in."""
    total = sum(nbytes for _, nbytes in written.values())
    index = {"metadata": {"total_size": total}, "weight_map": {name: file for name, (file, _) in written.items()}}
    with _named(folder / _metadata_fn, "write"), replacing(folder / _metadata_fn) as file:
        file.write(json.dumps(index, indent=2).encode())
