"""`torch.load` and the meaning of its arguments."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from tensorgrad import devices
from tensorgrad.ops.pytorch.storage_values import UntypedStorage

MAP_LOCATION = (
    Callable[[UntypedStorage, str], UntypedStorage] | devices.device | str | dict[str, str] | None
)  # the type of this argument of `load`


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Loads a file written by `torch.save` (PyTorch's or this one), or by PyTorch before 1.6.

    By default the file is read as data: tensors, numbers, strings, lists, dicts and a few more. A file that names
    anything else is refused, and nothing in it is ever executed. With `weights_only=False` the file is a program:
    Python's own unpickler imports and calls whatever it contains. Use that only for files that you created yourself,
    such as whole saved modules.

    Args:
        f: A path, or a readable and seekable file.
        map_location: Where to put storages: a device or its name, a dict from names to names, or a function of (storage
            on the CPU, name) that returns a storage or None.
        pickle_module: The module whose `Unpickler` reads the file if `weights_only=False`, which it implies.
        weights_only: See above. If TORCH_FORCE_WEIGHTS_ONLY_LOAD=1 is set in the environment, it is always True; with
            TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 the default is False.
        mmap: Map the file into memory instead of reading it (requires a path): storages are read when they are first
            used, and changes to them never reach the file.
        **pickle_load_args: With `encoding="bytes"`, strings written by Python 2 become bytes; with the name of another
            encoding than UTF-8 they are decoded by it. With `weights_only=False`, all options of Python's unpickler.

    Returns:
        The saved value.

    Raises:
        pickle.UnpicklingError: If the file is damaged, cut short, or contains names that data does not need.
        RuntimeError: If it contains tensors of a device that is not available, and `map_location` does not move them.

    >>> import io
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
    pickle_load_args.setdefault("encoding", "utf-8")
    return reading.read(f, map_location, weights_only, bool(mmap), pickle_load_args)


def _weights_only(given: bool | None, pickle_module: Any) -> bool:
    """The value of `weights_only` according to the argument and two environment variables."""
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


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """Returns the names in a file that `load` would refuse.

    >>> import io
    >>> file = io.BytesIO()
    >>> torch.save({"weight": torch.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> torch.serialization.get_unsafe_globals_in_checkpoint(file)
    []
    """
    from tensorgrad.serialization import reading

    return reading.names_refused(f)
