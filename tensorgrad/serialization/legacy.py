"""Reads and writes the format before PyTorch 1.6: five pickles one after another, then the bytes of the storages.

The pickles are a magic number, a version, facts about the machine, the values, and the keys of the storages in the
order in which these follow: each a count of elements (8 bytes) and the elements. The values refer to storages that
come after them, so they are read twice: once to learn of the storages, once to build.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

import numpy as np

from tensorgrad.serialization.pickler import Pickler
from tensorgrad.serialization.tables import StorageType, StoredStorage, bytes_of
from tensorgrad.storage.cpu import CPUStorage

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001


class _Pickler(Pickler):
    """References in the old format: they say, too, which part of the storage is meant (None: all of it)."""

    def __init__(self, file, protocol: int):
        super().__init__(file, protocol)
        self.elements: dict[str, int] = {}

    def persistent_id(self, obj):
        """How a storage is written."""
        reference = super().persistent_id(obj)
        if reference is None:
            return None
        self.elements.setdefault(reference[2], reference[4])
        return (*reference, None)


def write(obj, file, protocol: int) -> None:
    """Writes a whole file in the old format."""
    text = io.BytesIO()
    facts = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    for value in (MAGIC, VERSION, facts):
        pickle.dump(value, text, protocol)
    pickler = _Pickler(text, protocol)
    pickler.dump(obj)  # all of it, before the first byte is written
    keys = sorted(pickler.storages)
    pickle.dump(keys, text, protocol)
    file.write(text.getvalue())
    for key in keys:
        file.write(pickler.elements[key].to_bytes(8, "little"))
        file.write(bytes_of(pickler.storages[key]).tobytes())


def read(data, values: Callable, plain: Callable, place: Callable):
    """The value in `data`, a whole file in the old format.

    Args:
        values: `values(persistent, start)` reads a pickle and returns (value, end).
        plain: the same without storages.
        place: `place(bytes, location)` makes a storage.

    Raises: UnpicklingError for anything else than such a file.
    """
    magic, at = plain(0)
    if magic != MAGIC:
        raise UnpicklingError("the file is not a PyTorch checkpoint: neither a zip archive nor the older format")
    version, at = plain(at)
    if version != VERSION:
        raise UnpicklingError(f"the file has version {version!r:.20} of the old format; only {VERSION} is known")
    facts, at = plain(at)
    if isinstance(facts, dict) and facts.get("little_endian") is False:
        raise UnpicklingError("the file was written on a big-endian machine in the old format, which cannot be read")
    storages = _Storages(len(data), place)
    _, end = values(storages.announced, at)
    keys, after = plain(end)
    storages.fill(data, keys, after)
    value, _ = values(storages.placed, at)
    return value


class _Storages:
    """What the values of a file refer to."""

    def __init__(self, available: int, place: Callable):
        self.available, self.place = available, place  # bytes: no file has storages longer than itself
        self.kinds: dict[str, tuple[StorageType, int]] = {}  # key -> (type, elements)
        self.bytes: dict[str, np.ndarray] = {}  # zeros at first
        self.made: dict[Any, StoredStorage] = {}

    def announced(self, reference) -> StoredStorage:
        """Notes a storage that the file refers to; something of its size stands for it."""
        kind, key, _, elements, view = _checked(reference)
        if key not in self.kinds:
            self.kinds[key] = kind, elements
            self.available -= elements * kind.itemsize
            if self.available < 0:
                raise UnpicklingError("the file is cut short: its storages are longer than all of it")
            self.bytes[key] = np.zeros(elements * kind.itemsize, np.uint8)
        if self.kinds[key] != (kind, elements):
            raise UnpicklingError(f"the file describes storage {key!r:.40} in two ways")
        if view is not None and view[1] + view[2] > elements:
            raise UnpicklingError("the file describes a part that reaches beyond its storage")
        return StoredStorage(CPUStorage.of(_part(self.bytes[key], kind, view)), kind.dtype)

    def fill(self, data, keys, at: int) -> None:
        """Reads the bytes, which begin at `at`, in the order of `keys`."""
        if not isinstance(keys, list) or set(map(str, keys)) != set(self.kinds) or len(keys) != len(self.kinds):
            raise UnpicklingError("the file's list of storages is not that of the storages that its values refer to")
        for key in keys:
            kind, elements = self.kinds[key]
            count, size = int.from_bytes(data[at : at + 8], "little", signed=True), elements * kind.itemsize
            if count != elements or at + 8 + size > len(data):
                raise UnpicklingError(f"the file is damaged: storage {key!r:.40} has another length than it should")
            self.bytes[key][:] = np.frombuffer(data, np.uint8, size, at + 8)
            at += 8 + size

    def placed(self, reference) -> StoredStorage:
        """The storage of a reference, or the part of one that (long ago) could be referred to by itself."""
        kind, key, location, _, view = _checked(reference)
        if (key, view) not in self.made:
            content = _part(self.bytes[key], kind, view)
            self.made[key, view] = StoredStorage(self.place(content, location), kind.dtype)
        return self.made[key, view]


def _part(content: np.ndarray, kind: StorageType, view) -> np.ndarray:
    return content if view is None else content[view[1] * kind.itemsize : (view[1] + view[2]) * kind.itemsize]


def _checked(reference) -> tuple:
    """Type, key, location, number of elements and view of a reference."""
    if not isinstance(reference, tuple) or len(reference) != 6 or reference[0] != "storage":
        raise UnpicklingError("the file refers to something that is not a storage, which was refused")
    _, kind, key, location, elements, view = reference
    part = view is None or (
        isinstance(view, tuple) and len(view) == 3 and type(view[0]) is str
        and all(type(n) is int and n >= 0 for n in view[1:])
    )  # fmt: skip
    texts = type(key) is str and type(location) is str
    if not (part and texts and isinstance(kind, StorageType) and type(elements) is int and elements >= 0):
        raise UnpicklingError("the file describes a storage wrongly")
    return kind, key, location, elements, view
