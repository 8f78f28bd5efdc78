"""The implementation of `torch.load`: detects the format, reads the pickle, and places each storage on its device."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorgrad import devices
from tensorgrad.ops.pytorch.storage_values import TypedStorage, UntypedStorage, memory_of, shown
from tensorgrad.serialization import archive, first_bytes, legacy
from tensorgrad.serialization.allowed_names import get_safe_globals
from tensorgrad.serialization.defaults import LoadEndianness, get_default_load_endianness, get_default_mmap_options
from tensorgrad.serialization.describe import described
from tensorgrad.serialization.names import pytorch_name
from tensorgrad.serialization.tables import UNTYPED, NoPlace, StorageType, as_text, stored
from tensorgrad.serialization.unpickler import Restricted, Skim
from tensorgrad.storage import recycling
from tensorgrad.storage.stubs import Storage, storage_class


def read(f: Any, map_location: Any, weights_only: bool, mapped: bool, options: dict[str, Any]) -> Any:
    """Returns the value in a path or file. Raises: see `torch.load`."""
    recycling.start()  # loading repeatedly would otherwise allocate new memory every time
    place = Places(map_location)
    with opened(f) as file:
        start = file.tell()
        head = file.read(first_bytes.LENGTH)
        file.seek(start)
        if head[:4] == b"PK\x03\x04":
            return _load_archive(archive.CheckpointReader(file), place, weights_only, options, f if mapped else None)
        if mapped:
            raise RuntimeError("mmap can only be used with files in the zip format, which torch.save writes since 1.6")
        what = first_bytes.kind(head)
        if what is not None:
            raise pickle.UnpicklingError(f"the file is not a checkpoint, but {what}")
        return _load_legacy(file.read(), place, weights_only, options)


def names_refused(f: Any) -> list[str]:
    """Returns the names in a file that are neither known nor declared safe."""
    with opened(f) as file:
        machine = Skim(archive.CheckpointReader(file).read("data.pkl"), lambda reference: None, named_safe())
    machine.load()
    return sorted(machine.names)


def named_safe() -> dict[str, Any]:
    """Returns the names that the program has declared safe."""
    named = {}
    for item in get_safe_globals():
        value, name = item if isinstance(item, tuple) else (item, f"{item.__module__}.{item.__qualname__}")
        named[name] = value
        if not isinstance(item, tuple) and (theirs := pytorch_name(value)) is not None:
            named[str(theirs)] = value
        if name.startswith("builtins."):
            named["__builtin__" + name.removeprefix("builtins")] = value
    return named


@contextlib.contextmanager
def opened(f) -> Iterator[Any]:
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            yield file
        return
    if not (hasattr(f, "read") and hasattr(f, "seek") and hasattr(f, "tell")):
        raise AttributeError(
            f"{type(f).__name__} cannot be loaded from. You can only torch.load from a file that is seekable. Please "
            "pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        )
    yield f


def _unpickle(text, persistent, weights_only: bool, options: dict, start: int = 0, outside: int = 0):
    """Returns (value, end) of a pickle."""
    if weights_only:
        machine = Restricted(text, persistent, named_safe(), start, outside)
        machine.encoding = options.get("encoding", machine.encoding)
        return machine.load(), machine.end
    from tensorgrad.serialization.trusting import trusting

    stream = io.BytesIO(text)
    stream.seek(start)
    options = dict(options)
    machine = trusting(options.pop("pickle_module", None) or pickle)(stream, persistent, **options)
    return machine.load(), stream.tell()


def _default_order() -> bytes:
    """The byte order of a file that does not specify it."""
    chosen = get_default_load_endianness() or LoadEndianness.LITTLE
    return (sys.byteorder if chosen.name == "NATIVE" else chosen.name.lower()).encode()


def _load_archive(reader: archive.CheckpointReader, place: Places, weights_only: bool, options: dict, mapped):
    persistent = storages(reader, place, "data", mapped)
    text = reader.read("data.pkl")
    value, _ = _unpickle(text, persistent, weights_only, options, outside=2 * reader.length)
    return value


def storages(reader: archive.Reader, place: Places, folder: str, mapped=None) -> Callable[[Any], Any]:
    """Returns a function from references in a pickle to the storages in a folder of the archive.

    Args:
        mapped: The path of the archive, if it is to be mapped into memory.
    """
    order = bytes(reader.read("byteorder")) if reader.has("byteorder") else _default_order()
    if order not in (b"little", b"big"):
        raise pickle.UnpicklingError(f"unknown byte order {described(order)}")
    kept = get_default_mmap_options() == getattr(mmap, "MAP_SHARED", 1)
    file = np.memmap(mapped, np.uint8, "r+" if kept else "c").view(np.ndarray) if mapped is not None else None
    made: dict[str, Storage] = {}

    def persistent(reference) -> UntypedStorage | TypedStorage:
        kind, key, location, elements = _reference(reference)
        if key not in made:
            size = reader.size(f"{folder}/{key}")
            if size != elements * kind.itemsize:
                raise pickle.UnpicklingError(
                    f"the file is damaged: storage {described(key)} has {size} bytes, which does not match "
                    f"{described(elements)} elements"
                )
            if file is not None:
                start = reader.start(f"{folder}/{key}")
                content = file[start : start + size]
            else:
                content = reader.read(f"{folder}/{key}")
            if order != sys.byteorder.encode():
                content = _swapped(content, kind)
            made[key] = place(content, location)
        return stored(made[key], kind)

    return persistent


def _reference(reference) -> tuple:
    """The type, key, location and number of elements of a reference to a storage."""
    right = type(reference) is tuple and len(reference) == 5 and type(reference[0]) in (str, bytes)
    if not right or as_text(reference[0]) != "storage":
        raise pickle.UnpicklingError("the file refers to something that is not a storage, which was refused")
    kind, elements = reference[1], reference[4]
    key, location = map(as_text, reference[2:4])
    plain = type(key) is str and type(location) is str and type(elements) is int
    if not (plain and isinstance(kind, StorageType) and elements >= 0):
        raise pickle.UnpicklingError("the file contains an invalid description of a storage")
    return kind, key, location, elements


def _swapped(content: np.ndarray, kind: StorageType) -> np.ndarray:
    if kind == UNTYPED:
        raise pickle.UnpicklingError("the file has the other byte order, and a storage without a type")
    size = kind.itemsize // 2 if kind.dtype.is_complex else kind.itemsize
    return np.ascontiguousarray(content.reshape(-1, size)[:, ::-1]).reshape(-1)


def _load_legacy(data: bytes, place: Places, weights_only: bool, options: dict):
    def refuse(reference):
        raise pickle.UnpicklingError("the file refers to a storage in an invalid place")

    def skim(announced, start: int) -> int:
        machine = Skim(data, announced, start=start)
        machine.load()
        return machine.end

    return legacy.read(
        data,
        skim,
        lambda persistent, start: _unpickle(data, persistent, weights_only, options, start, 2 * len(data))[0],
        lambda start: _unpickle(data, refuse, True, {}, start),
        place,
    )


class Places:
    """Applies `map_location`: called with the contents of a storage and its location in the file."""

    def __init__(self, map_location):
        self.rule = map_location

    def __call__(self, content: np.ndarray, location: str) -> Storage:
        rule = self.rule
        if callable(rule) and not isinstance(rule, devices.device):
            on_cpu = storage_class(devices.CPU).of(content)
            placed = rule(shown(on_cpu), location)
            if placed is None:
                return self._on(content, location)
            return memory_of(placed)
        if isinstance(rule, dict):
            location = str(rule.get(location, location))
        elif rule is not None:
            location = str(devices.device(rule) if isinstance(rule, int) else rule)
        return self._on(content, location)

    def _on(self, content: np.ndarray, location: str) -> Storage:
        try:
            device = devices.device(location)
        except (RuntimeError, ValueError):
            raise NoPlace(
                f"don't know how to restore data location of a storage (tagged with {described(location)})"
            ) from None
        if device.type == "cpu":
            return storage_class(device).of(content)
        try:
            cls = storage_class(device)
        except Exception as error:
            raise NoPlace(
                f"Attempting to deserialize object on a {device.type.upper()} device, which cannot be used here "
                f"({error}). If you are running on a CPU-only machine, please use torch.load with "
                "map_location=torch.device('cpu') to map your storages to the CPU."
            ) from error
        return cls.of(cls.from_host(content, device))
