"""`torch.save` and `torch.load`: checkpoints in PyTorch's own format, in both directions.

reading.py    what `load` does: finds the format, and a place for each storage
writing.py    what `save` does
tables.py     what the names in a checkpoint mean
unpickler.py  reads a pickle as data: it never imports or runs what a file names
pickler.py    writes one
describe.py   values in messages
archive.py    the zip archive around it, and replacing a file in one step
legacy.py     the format before PyTorch 1.6
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from tensorgrad import devices
from tensorgrad.ops.pytorch.storage_values import UntypedStorage

__all__ = [
    "LoadEndianness", "add_safe_globals", "clear_safe_globals", "get_default_load_endianness",
    "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "safe_globals", "save",
    "set_default_load_endianness", "set_default_mmap_options",
]  # fmt: skip

DEFAULT_PROTOCOL = 2
MAP_LOCATION = (
    Callable[[UntypedStorage, str], UntypedStorage] | devices.device | str | dict[str, str] | None
)  # of `load`


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
    from tensorgrad.serialization import writing

    writing.write(obj, f, pickle_protocol, _use_new_zipfile_serialization)


# --- what a file may name --------------------------------------------------------------------------------------------

_safe: list = []


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
    from tensorgrad.serialization import reading

    return reading.names_refused(f)


# --- what `load` does where neither the file nor the call says it -----------------------------------------------------


class LoadEndianness(Enum):
    """Byte orders: this machine's, and the two that there are.

    >>> import tensorgrad as torch
    >>> [order.name for order in torch.serialization.LoadEndianness]
    ['NATIVE', 'LITTLE', 'BIG']
    """

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_default: dict[str, Any] = {"endianness": None, "mmap": mmap.MAP_PRIVATE if hasattr(mmap, "MAP_PRIVATE") else None}


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order of files that do not name theirs; None, which is little, unless it was set.

    >>> import tensorgrad as torch
    >>> torch.serialization.get_default_load_endianness() is None
    True
    """
    return _default["endianness"]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets the byte order of files that do not name theirs. Raises: TypeError for anything else.

    >>> import tensorgrad as torch
    >>> torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG)
    >>> torch.serialization.get_default_load_endianness()
    <LoadEndianness.BIG: 3>
    >>> torch.serialization.set_default_load_endianness(None)
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _default["endianness"] = endianness


def get_default_mmap_options() -> int | None:
    """How `load(..., mmap=True)` maps files: `mmap.MAP_PRIVATE` unless it was set. (None on Windows.)

    >>> import mmap
    >>> import tensorgrad as torch
    >>> torch.serialization.get_default_mmap_options() == getattr(mmap, "MAP_PRIVATE", None)
    True
    """
    return _default["mmap"]


class set_default_mmap_options:
    """Sets how `load(..., mmap=True)` maps files, for a `with` block or from now on.

    Args:
        flags: `mmap.MAP_PRIVATE`: changes to the tensors never reach the file; or `mmap.MAP_SHARED`: they do.
            (Then the file's checksums no longer fit, and it can only be mapped again, not read.)

    Raises: ValueError for other flags, RuntimeError on Windows.

    >>> import mmap
    >>> import tensorgrad as torch
    >>> with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
    ...     torch.serialization.get_default_mmap_options() == mmap.MAP_SHARED
    True
    """

    def __init__(self, flags: int):
        if get_default_mmap_options() is None:
            raise RuntimeError("Changing the default mmap options is currently not supported for Windows")
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                f"but got {flags}"
            )
        self.prev = _default["mmap"]
        _default["mmap"] = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _default["mmap"] = self.prev


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
    from tensorgrad.serialization import reading

    pickle_load_args["pickle_module"] = pickle_module
    return reading.read(f, map_location, weights_only, bool(mmap), pickle_load_args)


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
