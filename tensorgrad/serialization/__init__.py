"""`torch.save` and `torch.load`: checkpoints in PyTorch's own format, in both directions.

tables.py     what the names in a checkpoint mean
unpickler.py  reads a pickle as data: it never imports or runs what a file names
pickler.py    writes one
describe.py   values in messages
archive.py    the zip archive around it, and replacing a file in one step
legacy.py     the format before PyTorch 1.6
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrad import devices
from tensorgrad.serialization import archive, legacy
from tensorgrad.serialization.describe import described
from tensorgrad.serialization.names import pytorch_name
from tensorgrad.serialization.pickler import Pickler
from tensorgrad.serialization.tables import UNTYPED, NoPlace, StorageType, StoredStorage, bytes_of
from tensorgrad.serialization.unpickler import Restricted, Skim
from tensorgrad.storage.stubs import Storage, storage_class

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load",
    "safe_globals", "save",
]  # fmt: skip

DEFAULT_PROTOCOL = 2
MAP_LOCATION = Callable[[Storage, str], Storage] | devices.device | str | dict[str, str] | None  # of `load`


# --- saving ----------------------------------------------------------------------------------------------------------


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Saves tensors, and values that contain them, in PyTorch's format: `torch.load` reads the file, here and there.

    Tensors that share memory share it again when they are loaded. A file that exists is replaced in one step: after a
    crash in the middle there is still the old one.

    Args:
        obj: a tensor, a `state_dict`, or any nested lists, tuples and dicts of tensors and plain values. Objects of
            other classes are pickled under the names of their classes.
        f: a path, or an object with `write`.
        pickle_protocol: that of the pickle inside.

    Raises:
        RuntimeError: tensors of different dtypes over the same memory.

    >>> import io
    >>> import tensorgrad as torch
    >>> file = io.BytesIO()
    >>> torch.save({"weight": torch.ones(2), "epoch": 3}, file)
    >>> _ = file.seek(0)
    >>> torch.load(file)
    {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    if isinstance(f, str | os.PathLike):
        if not os.path.isdir(os.path.dirname(os.path.realpath(f))):
            raise RuntimeError(f"Parent directory {os.path.dirname(f) or '.'} does not exist.")
        with archive.replacing(f) as file:
            if _use_new_zipfile_serialization:
                _write(obj, file, Path(f).name.partition(".")[0] or "archive", pickle_protocol)
            else:
                legacy.write(obj, file, pickle_protocol)
    elif hasattr(f, "write"):
        if _use_new_zipfile_serialization:
            _write(obj, f, "archive", pickle_protocol)
        else:
            legacy.write(obj, f, pickle_protocol)
    else:
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute, but it is "
            f"{type(f).__name__}"
        )


def _write(obj, file, name: str, protocol: int) -> None:
    text = io.BytesIO()
    pickler = Pickler(text, protocol)
    pickler.dump(obj)  # all of it, before the first byte is written
    with archive.Writer(file, name) as writer:
        writer.add("data.pkl", text.getvalue())
        writer.add(".format_version", b"1")
        writer.add(".storage_alignment", str(archive.ALIGNMENT).encode())
        writer.add("byteorder", sys.byteorder.encode())
        for key, storage in pickler.storages.items():
            writer.add(f"data/{key}", bytes_of(storage))
        writer.add("version", b"3\n")


# --- what a file may name --------------------------------------------------------------------------------------------

_safe: list = []


def _named_safe() -> dict[str, Any]:
    """The names that the program has declared safe."""
    named = {}
    for item in _safe:
        value, name = item if isinstance(item, tuple) else (item, f"{item.__module__}.{item.__qualname__}")
        named[name] = value
        if not isinstance(item, tuple) and (theirs := pytorch_name(value)) is not None:
            named[str(theirs)] = value
        if name.startswith("builtins."):
            named["__builtin__" + name.removeprefix("builtins")] = value
    return named


def add_safe_globals(safe_globals: list) -> None:
    """Trusts classes and functions that `load` may then call when a file names them.

    Args:
        safe_globals: the objects, or pairs (object, the full name by which files call it).

    >>> import tensorgrad as torch
    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.get_safe_globals()
    [<class 'set'>]
    >>> torch.serialization.clear_safe_globals()
    """
    _safe.extend(item for item in safe_globals if item not in _safe)


def get_safe_globals() -> list:
    """The classes and functions that `add_safe_globals` was given.

    >>> import tensorgrad as torch
    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.get_safe_globals()
    [<class 'set'>]
    >>> torch.serialization.clear_safe_globals()
    """
    return list(_safe)


def clear_safe_globals() -> None:
    """Trusts nothing but the built-in table again.

    >>> import tensorgrad as torch
    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.clear_safe_globals()
    >>> torch.serialization.get_safe_globals()
    []
    """
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: list) -> Iterator[None]:
    """`add_safe_globals` for the duration of a `with` block.

    >>> import tensorgrad as torch
    >>> with torch.serialization.safe_globals([set]):
    ...     torch.serialization.get_safe_globals()
    [<class 'set'>]
    """
    before = list(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe[:] = before


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file that `load` would refuse.

    >>> import io
    >>> import tensorgrad as torch
    >>> file = io.BytesIO()
    >>> torch.save({"weight": torch.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> torch.serialization.get_unsafe_globals_in_checkpoint(file)
    []
    """
    with _opened(f) as file:
        machine = Skim(archive.Reader(file).read("data.pkl"), lambda reference: None, _named_safe())
    machine.load()
    return sorted(machine.names)


# --- loading ---------------------------------------------------------------------------------------------------------


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Loads what `torch.save` (PyTorch's or this one) wrote, or PyTorch before 1.6.

    By default the file is read as data: tensors, numbers, texts, lists, dicts and a few more. A file that names
    anything else is refused, and nothing in it is ever executed. With `weights_only=False` the file is a program:
    Python's own unpickler imports and calls whatever it says. Use that only for files that you made yourself, such as
    whole saved modules.

    Args:
        f: a path, or a file that can be read and sought.
        map_location: where storages go: a device or its name, a dict from names to names, or a function of (storage on
            the CPU, name) that returns a storage or None.
        pickle_module: whose `Unpickler` reads the file, with `weights_only=False`; giving one means that.
        weights_only: see above. With TORCH_FORCE_WEIGHTS_ONLY_LOAD=1 in the environment it is True whatever a program
            says; with TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 it is False where the program says nothing.
        mmap: map the file into memory instead of reading it (a path is needed): storages are read when they are first
            used, and changes to them never reach the file.

    Returns: the saved value.

    Raises:
        pickle.UnpicklingError: the file is damaged, cut short, or asks for a name that data do not need.
        RuntimeError: it holds tensors of a device that is not here, and no `map_location` says where they should go.

    >>> import io
    >>> import tensorgrad as torch
    >>> file = io.BytesIO()
    >>> torch.save(torch.arange(3), file)
    >>> _ = file.seek(0)
    >>> torch.load(file)
    tensor([0, 1, 2])
    """
    weights_only = _weights_only(weights_only, pickle_module)
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if mmap and not isinstance(f, str | os.PathLike):
        raise ValueError("f must be a string filename in order to use mmap argument")
    pickle_load_args["pickle_module"] = pickle_module
    place = _Places(map_location)
    with _opened(f) as file:
        start = file.tell()
        magic = file.read(4)
        file.seek(start)
        if magic == b"PK\x03\x04":
            return _load_archive(archive.Reader(file), place, weights_only, pickle_load_args, f if mmap else None)
        if mmap:
            raise RuntimeError("mmap can only be used with files in the zip format, which torch.save writes since 1.6")
        return _load_legacy(file.read(), place, weights_only, pickle_load_args)


def _weights_only(given: bool | None, pickle_module: Any) -> bool:
    """What an argument, or its absence, and two environment variables say."""
    everything, nothing = (
        os.environ.get(f"TORCH_FORCE_{name}_LOAD", "0").lower() in ("1", "y", "yes", "true")
        for name in ("WEIGHTS_ONLY", "NO_WEIGHTS_ONLY")
    )
    if everything and nothing:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both "
            "were set."
        )
    if everything:
        return True
    if given is None and nothing:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the`weights_only` argument was not "
            "explicitly passed to `torch.load`, forcing weights_only=False.",
            stacklevel=3,
        )
        return False
    return pickle_module is None if given is None else given


@contextlib.contextmanager
def _opened(f) -> Iterator[Any]:
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
    """(value, end) of a pickle."""
    if weights_only:
        machine = Restricted(text, persistent, _named_safe(), start, outside)
        return machine.load(), machine.end
    from tensorgrad.serialization.trusting import trusting

    stream = io.BytesIO(text)
    stream.seek(start)
    options = dict(options)
    machine = trusting(options.pop("pickle_module", None) or pickle)(stream, persistent, **options)
    return machine.load(), stream.tell()


def _load_archive(reader: archive.Reader, place: _Places, weights_only: bool, options: dict, mapped):
    order = bytes(reader.read("byteorder")) if reader.has("byteorder") else b"little"
    if order not in (b"little", b"big"):
        raise pickle.UnpicklingError(f"unknown byte order {described(order)}")
    file = np.memmap(mapped, np.uint8, "c").view(np.ndarray) if mapped is not None else None
    made: dict[str, StoredStorage] = {}

    def persistent(reference) -> StoredStorage | Storage:
        kind, key, location, elements = _reference(reference)
        if key not in made:
            size = reader.size(f"data/{key}")
            if size != elements * kind.itemsize:
                raise pickle.UnpicklingError(
                    f"the file is damaged: storage {described(key)} has {size} bytes, which are not "
                    f"{described(elements)} elements"
                )
            if file is not None:
                start = reader.start(f"data/{key}")
                content = file[start : start + size]
            else:
                content = reader.read(f"data/{key}")
            if order != sys.byteorder.encode():
                content = _swapped(content, kind)
            made[key] = StoredStorage(place(content, location), kind.dtype)
        return StoredStorage(made[key].storage, kind.dtype)

    text = reader.read("data.pkl")
    value, _ = _unpickle(text, persistent, weights_only, options, outside=2 * reader.length)
    return value.public() if isinstance(value, StoredStorage) else value


def _reference(reference) -> tuple:
    """Type, key, location and number of elements of a reference to a storage."""
    right = type(reference) is tuple and len(reference) == 5 and type(reference[0]) is str
    if not right or reference[0] != "storage":
        raise pickle.UnpicklingError("the file refers to something that is not a storage, which was refused")
    _, kind, key, location, elements = reference
    plain = type(key) is str and type(location) is str and type(elements) is int
    if not (plain and isinstance(kind, StorageType) and elements >= 0):
        raise pickle.UnpicklingError("the file describes a storage wrongly")
    return kind, key, location, elements


def _swapped(content: np.ndarray, kind: StorageType) -> np.ndarray:
    if kind == UNTYPED:
        raise pickle.UnpicklingError("the file has the other byte order, and a storage without a type")
    size = kind.itemsize // 2 if kind.dtype.is_complex else kind.itemsize
    return np.ascontiguousarray(content.reshape(-1, size)[:, ::-1]).reshape(-1)


def _load_legacy(data: bytes, place: _Places, weights_only: bool, options: dict):
    def refuse(reference):
        raise pickle.UnpicklingError("the file refers to a storage where none can be")

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


class _Places:
    """Where storages go, by `map_location`: called with their bytes and the location in the file."""

    def __init__(self, map_location):
        self.rule = map_location

    def __call__(self, content: np.ndarray, location: str) -> Storage:
        rule = self.rule
        if callable(rule) and not isinstance(rule, devices.device):
            on_cpu = storage_class(devices.CPU).of(content)
            placed = rule(on_cpu, location)
            if placed is None:
                return self._on(content, location)
            return getattr(placed, "_storage", placed)
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
