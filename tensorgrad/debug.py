"""DEBUG levels: what the library reports about its work on standard error.

    DEBUG=1  the devices in use, and how many threads the BLAS has
    DEBUG=2  every op, with the shapes of its inputs and results, and its time
    DEBUG=3  which kernel ran it
    DEBUG=4  every call that fell back: composite twins run for missing kernels, kernels that declined

    DEBUG=help  prints this list

Each level includes those below it. Read once from the environment on import; `set_level` changes it.
"""

from __future__ import annotations

import itertools
import os
import sys

from tensorgrad import settings
from tensorgrad.devices import TYPES
from tensorgrad.rows import kernel_tables, switches
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.system import blas
from tensorgrad.tensor import Tensor, tensors_in


class _Debug:
    level = 0


def say(text: str) -> None:
    """Prints one line on standard error."""
    print(f"tensorgrad: {text}", file=sys.stderr)


def set_level(level: int) -> None:
    """Sets the debug level; 0 is silent and costs nothing.

    Raises: ValueError if there is no such level.
    """
    if level not in range(5):
        raise ValueError(f"DEBUG must be 0, 1, 2, 3 or 4, got {level}")
    before, _Debug.level = _Debug.level, level
    if level and not before:
        _devices()
    if (level >= 2) != (before >= 2):
        (switches.observe if level >= 2 else switches.unobserve)(_observe, "DEBUG")
    kernel_tables.NOTICE = say if level >= 4 else None


def from_environment() -> None:
    """Sets the level from the environment variable DEBUG. Reports and ignores an invalid value."""
    text = os.environ.get("DEBUG", "0") or "0"
    if text in ("0", "1", "2", "3", "4"):
        set_level(int(text))
    elif text.lower() == "help":
        for line in (__doc__ or "").splitlines():
            if line.startswith("    DEBUG="):
                say(line.strip())
    elif text.lower() not in ("false", "true", "no", "yes"):  # DEBUG as other programs use it
        say(f"DEBUG={text!r} ignored: expected 0, 1, 2, 3 or 4")


def _devices() -> None:
    import numpy as np

    threads = ", ".join(f"{each.name} {each.threads()} threads" for each in blas.libraries()) or "threads unknown"
    devices = ", ".join(sorted({s.device_type for s in STORAGES.values()} & TYPES))
    say(f"devices {devices}; NumPy {np.__version__}, {threads}, {os.cpu_count()} processors")


def _describe(value) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
        return f"[{', '.join(_describe(v) for v in value)}]"
    return getattr(value, "__name__", "function") if callable(value) else repr(value)


def _observe(op, args, result, start: float, seconds: float) -> None:
    line = f"{op.name}({', '.join(_describe(a) for a in args)}) -> {_describe(result)}  {seconds * 1e6:.1f} us"
    if _Debug.level >= 3:
        first = next(iter(tensors_in(args)), None)
        if first is not None:
            line += f"  [{_kernel(op, args, first._array.__class__)}]"
    say(line)


def _kernel(op, args, array_type) -> str:
    """The kernel that an op uses. On large arrays a compiled kernel may silently decline; then both are named."""
    name = _kernel_name(op.compiled.kernels[array_type])
    row = kernel_tables.COMPILED.get(op.name)
    if row is None or row.ready is None or STORAGES[array_type].device_type != "cpu":
        return name
    sized = next(itertools.islice(tensors_in(args), row.sized, None), None)
    large = sized is not None and sized._array.size >= row.elements and not settings.SETTINGS.deterministic
    return f"tensorgrad.kernels.compiled.{row.kernel}, or where it declines {name}" if large else name


def _kernel_name(kernel) -> str:
    return f"{getattr(kernel, '__module__', None) or 'numpy'}.{getattr(kernel, '__name__', kernel)}"
