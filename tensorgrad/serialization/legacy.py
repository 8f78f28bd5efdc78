"""Reads and writes the format before PyTorch 1.6: five pickles in a row, then the contents of the storages.

The pickles are a magic number, a version, system information, the values, and the keys of the storages in the
order in which these follow: each a number of elements (8 bytes) and the elements. The values refer to storages that
come after them, so they are read twice: first to find the storages, without building anything, then to build them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

import numpy as np

from tensorgrad.ops.pytorch.storage_values import TypedStorage, UntypedStorage
from tensorgrad.serialization.archive import Stream
from tensorgrad.serialization.describe import described
from tensorgrad.serialization.pickler import Pickler
from tensorgrad.serialization.tables import StorageType, as_text, bytes_of, stored
from tensorgrad.storage.stubs import Storage

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
LONGEST = 256  # characters in the name of a storage


class _Pickler(Pickler):
    """Writes references in the old format, which also specify a part of the storage (None: all of it)."""

    def __init__(self, file, protocol: int):
        super().__init__(file, protocol)
        self.elements: dict[str, int] = {}

    def persistent_id(self, obj):
        """Returns the reference to write for a storage."""
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
    pickler.dump(obj)  # completely, before the first byte is written
    keys = sorted(pickler.storages)
    pickle.dump(keys, text, protocol)
    stream = Stream(file)
    stream.write(text.getvalue())
    for key in keys:
        stream.write(pickler.elements[key].to_bytes(8, "little"))
        stream.write(bytes_of(pickler.storages[key]).tobytes())
    stream.flush()


def read(data, skim: Callable, values: Callable, plain: Callable, place: Callable):
    """Returns the value in `data`, a complete file in the old format.

    Args:
        skim: `skim(persistent, start)` calls `persistent` with each reference in a pickle, and returns its end.
        values: `values(persistent, start)` reads a pickle.
        plain: `plain(start)` reads a pickle without storages, and returns (value, end).
        place: `place(bytes, location)` creates a storage.

    Raises: UnpicklingError if it is not such a file.
    """
    if bytes(data[257:262]) == b"ustar":
        raise UnpicklingError("the file is a tar archive, which PyTorch wrote before version 0.1.10: it cannot be read")
    try:
        magic, at = plain(0)
    except UnpicklingError:
        if bytes(data[:1]) == b"\x80":  # how pickles begin
            raise
        begins = described(bytes(data[:16]))
        raise UnpicklingError(f"the file is not a checkpoint, but something that begins with {begins}") from None
    if type(magic) is not int or magic != MAGIC:
        raise UnpicklingError("the file is not a PyTorch checkpoint: neither a zip archive nor the older format")
    version, at = plain(at)
    if type(version) is not int or version != VERSION:
        raise UnpicklingError(
            f"the file has version {described(version)} of the old format; only {VERSION} is supported"
        )
    facts, at = plain(at)
    if isinstance(facts, dict) and facts.get("little_endian") is False:
        raise UnpicklingError("the file was written on a big-endian machine in the old format, which cannot be read")
    del facts
    storages = _Storages(len(data), place)
    keys, after = plain(skim(storages.announced, at))
    storages.fill(data, keys, after)
    return values(storages.placed, at)


class _Storages:
    """The storages that the values of a file refer to."""

    def __init__(self, available: int, place: Callable):
        self.available, self.place = available, place  # bytes: storages cannot be longer than the file
        self.kinds: dict[str, tuple[StorageType, int]] = {}  # key -> (type, elements)
        self.bytes: dict[str, np.ndarray] = {}
        self.made: dict[Any, Storage] = {}

    def announced(self, reference) -> None:
        """Records a storage that the file refers to."""
        if isinstance(reference, tuple) and reference[:1] == ("module",):  # a class with its source, not a storage
            return
        kind, key, _, elements, view = _checked(reference)
        if key not in self.kinds:
            self.kinds[key] = kind, elements
            self.available -= elements * kind.itemsize
            if self.available < 0:
                raise UnpicklingError("the file is cut short: its storages are longer than the file")
        self._compare(key, kind, elements)
        if view is not None and view[1] + view[2] > elements:
            raise UnpicklingError("the file describes a part that reaches beyond its storage")

    def _compare(self, key: str, kind: StorageType, elements: int) -> None:
        known, length = self.kinds.get(key, (kind, -1))
        if length != elements or (elements and known != kind):  # an empty storage may be of several types
            raise UnpicklingError(f"the file describes storage {described(key)} inconsistently")

    def fill(self, data, keys, at: int) -> None:
        """Reads the bytes, which begin at `at`, in the order of `keys`."""
        right = isinstance(keys, list) and all(type(key) is str for key in keys) and len(keys) == len(self.kinds)
        if not right or set(keys) != set(self.kinds):
            raise UnpicklingError("the file's list of storages does not match the storages that its values refer to")
        for key in keys:
            kind, elements = self.kinds[key]
            count, size = int.from_bytes(data[at : at + 8], "little", signed=True), elements * kind.itemsize
            if count != elements or at + 8 + size > len(data):
                raise UnpicklingError(f"the file is damaged: storage {described(key)} has the wrong length")
            self.bytes[key] = np.frombuffer(data, np.uint8, size, at + 8).copy()
            at += 8 + size

    def placed(self, reference) -> UntypedStorage | TypedStorage:
        """Returns the storage of a reference, or a part of one (which very old files could refer to directly)."""
        kind, key, location, elements, view = _checked(reference)
        self._compare(key, kind, elements)
        if (key, view) not in self.made:
            content = _part(self.bytes[key], kind, view)
            self.made[key, view] = self.place(content, location)
        return stored(self.made[key, view], kind)


def _part(content: np.ndarray, kind: StorageType, view) -> np.ndarray:
    return content if view is None else content[view[1] * kind.itemsize : (view[1] + view[2]) * kind.itemsize]


def _checked(reference) -> tuple:
    """The type, key, location, number of elements and view of a reference."""
    right = type(reference) is tuple and len(reference) == 6 and type(reference[0]) in (str, bytes)
    if not right or as_text(reference[0]) != "storage":
        raise UnpicklingError("the file refers to something that is not a storage, which was refused")
    kind, elements, view = reference[1], reference[4], reference[5]
    key, location = map(as_text, reference[2:4])
    part = view is None or (
        isinstance(view, tuple) and len(view) == 3 and type(view[0]) is str
        and all(type(n) is int and n >= 0 for n in view[1:])
    )  # fmt: skip
    texts = all(type(text) is str and len(text) <= LONGEST for text in (key, location))
    if not (part and texts and isinstance(kind, StorageType) and type(elements) is int and elements >= 0):
        raise UnpicklingError("the file contains an invalid description of a storage")
    return kind, key, location, elements, view
