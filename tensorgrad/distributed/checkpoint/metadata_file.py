"""The `.metadata` file: a pickle in PyTorch's form, which is read as data and checked before it is used."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import tensorgrad as torch
from tensorgrad import dtypes, layouts
from tensorgrad.distributed.checkpoint import metadata as entries
from tensorgrad.distributed.checkpoint.boxes import problem_of
from tensorgrad.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from tensorgrad.serialization.describe import described
from tensorgrad.serialization.pickler import Pickler
from tensorgrad.serialization.tables import named
from tensorgrad.serialization.unpickler import Restricted

__all__ = ["dumps", "loads"]


class _Pickler(Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Writes layouts as PyTorch does, and paths as strings."""
        if isinstance(obj, layouts.layout):
            return named("torch.serialization", "_get_layout"), (f"torch.{obj.name}",)
        return super().reducer_override(obj)


def dumps(metadata: Metadata) -> bytes:
    """The contents of the file."""
    where = metadata.storage_meta
    if where is not None and where.checkpoint_id is not None:
        where = dataclasses.replace(where, checkpoint_id=str(where.checkpoint_id))
    stream = io.BytesIO()
    _Pickler(stream, 4).dump(dataclasses.replace(metadata, storage_meta=where))
    return stream.getvalue()


class _Reader(Restricted):
    def key(self, key: Any, inside: bool = False) -> Any:
        """Allows the names of pieces as keys, of strings and tuples of integers."""
        if type(key) is not MetadataIndex:
            return super().key(key, inside)
        offset = key.__dict__.get("offset")
        if type(key.__dict__.get("fqn")) is not str or not (offset is None or _is_size(offset)):
            raise UnpicklingError("the name of a piece is not a string and a tuple of integers")
        super().key((key.fqn, *(offset or ())))
        return key


def _path(*parts: Any) -> str:
    if not all(type(part) is str for part in parts):
        raise UnpicklingError("a path that does not consist of strings")
    return str(Path(*parts))


def loads(data: bytes, storage_info: type) -> Metadata:
    """What the file says. Raises: pickle.UnpicklingError for anything that no checkpoint has; executes nothing."""
    module = "torch.distributed.checkpoint"
    allowed: dict[str, Any] = {f"{module}.metadata.{name}": getattr(entries, name) for name in entries.__all__}
    allowed[f"{module}.metadata._MEM_FORMAT_ENCODING"] = entries._MEM_FORMAT_ENCODING
    allowed[f"{module}.filesystem._StorageInfo"] = storage_info
    allowed |= {f"{pathlib}.{name}": _path for pathlib in ("pathlib", "pathlib._local")
                for name in ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")}  # fmt: skip

    def refuse(reference: Any) -> Any:
        raise UnpicklingError("it refers to a storage, which no such file does")

    return _checked(_Reader(data, refuse, allowed).load(), storage_info)


def _is_size(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) <= 64 and all(type(n) is int and 0 <= n < 2**62 for n in value)


def _need(right: bool, what: str) -> None:
    if not right:
        raise UnpicklingError(f"{what} is not as in a checkpoint")


def _fields(value: Any, kind: type, what: str) -> dict[str, Any]:
    """The fields of an entry that must be of some class; those with a default may be missing."""
    _need(type(value) is kind, f"{what}: {described(value)}")
    return {field.name: value.__dict__[field.name] for field in dataclasses.fields(kind)
             if field.name in value.__dict__}  # fmt: skip


def _checked(value: Any, storage_info: type) -> Metadata:
    """The same made anew from values that are checked."""
    found = _fields(value, Metadata, "the whole")
    known, where = found.get("state_dict_metadata"), found.get("storage_data")
    _need(type(known) is dict and type(where) is dict, "the list of values")
    assert isinstance(known, dict) and isinstance(where, dict)
    result: dict[str, Any] = {}
    for name, entry in known.items():
        _need(type(name) is str, "a name")
        result[name] = BytesStorageMetadata() if type(entry) is BytesStorageMetadata else _tensor(name, entry)
    storage: dict[MetadataIndex, Any] = {}
    for index, info in where.items():
        of = _fields(index, MetadataIndex, "the name of a piece")
        _need(type(of.get("fqn")) is str and (of.get("offset") is None or _is_size(of["offset"])), "a piece's name")
        part = _fields(info, storage_info, f"the place of {described(of['fqn'])}")
        path, offset, length = part.get("relative_path"), part.get("offset"), part.get("length")
        plain = type(path) is str and type(offset) is int and type(length) is int and offset >= 0 and length >= 0
        _need(plain, f"the place of {described(of['fqn'])}")
        _need(path not in ("", ".", "..") and not set("/\\\0:") & set(str(path)), f"the file name {described(path)}")
        if part.get("transform_descriptors"):
            raise UnpicklingError("its files are compressed by an extension of PyTorch's, which is not included")
        storage[MetadataIndex(of["fqn"], of.get("offset"))] = storage_info(path, offset, length)
    for name, entry in result.items():
        _check_pieces(name, entry, storage)
    meta = found.get("storage_meta")
    about = _fields(meta, StorageMeta, "the description of the place") if meta is not None else {}
    texts = {name: text for name, text in about.items() if type(text) is str}
    paths = found.get("planner_data")
    version = found.get("version")
    return Metadata(
        result,
        _paths(paths),
        storage,
        StorageMeta(texts.get("checkpoint_id"), texts.get("save_id")),
        version if type(version) is str else None,
    )


def _tensor(name: str, entry: Any) -> TensorStorageMetadata:
    found = _fields(entry, TensorStorageMetadata, described(name))
    size, chunks = found.get("size"), found.get("chunks")
    _need(_is_size(size) and type(chunks) is list, f"the size of {described(name)}")
    assert chunks is not None and size is not None
    pieces = []
    for chunk in chunks:
        box = _fields(chunk, ChunkStorageMetadata, f"a piece of {described(name)}")
        _need(_is_size(box.get("offsets")) and _is_size(box.get("sizes")), f"a piece of {described(name)}")
        pieces.append(ChunkStorageMetadata(torch.Size(box["offsets"]), torch.Size(box["sizes"])))
    problem = problem_of(pieces, size)
    if problem is not None:
        raise UnpicklingError(f"{described(name)}: {problem}")
    properties = _fields(found.get("properties"), TensorProperties, f"the properties of {described(name)}")
    _need(isinstance(properties.get("dtype"), dtypes.dtype), f"the dtype of {described(name)}")
    return TensorStorageMetadata(TensorProperties(properties["dtype"]), torch.Size(size), pieces)


def _check_pieces(name: str, entry: Any, storage: dict[MetadataIndex, Any]) -> None:
    """Every piece must be somewhere, in at least as many bytes as its values have."""
    if isinstance(entry, BytesStorageMetadata):
        return _need(MetadataIndex(name) in storage, f"the place of {described(name)}")
    for chunk in entry.chunks:
        info = storage.get(MetadataIndex(name, chunk.offsets))
        needed = math.prod(chunk.sizes) * entry.properties.dtype.itemsize
        _need(info is not None and info.length >= needed, f"the place of {described(name)} at {tuple(chunk.offsets)}")


LONGEST_LIST = 1_000_000  # of state dicts


def _is_key(key: Any) -> bool:
    return type(key) is str or (type(key) is int and 0 <= key < LONGEST_LIST)


def _paths(value: Any) -> Any:
    """The paths of keys in the nested state dict, if that is what the file has."""
    if type(value) is not dict:
        return None
    right: Callable[[Any], bool] = lambda path: type(path) is tuple and all(map(_is_key, path))
    return {name: path for name, path in value.items() if type(name) is str and path and right(path)}
