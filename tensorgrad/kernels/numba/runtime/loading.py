"""Loads kernels into this process from the cache."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorgrad.system import forks

LOCK = forks.lock()  # held while kernels are loaded or compiled
_SHORT = 5e-4  # seconds a loading thread keeps the GIL while another waits for it
loaded: dict[str, Any] = {}  # kernels by name


@contextmanager
def briefly() -> Iterator[None]:
    """Shortens the interval at which threads switch, so others get the GIL soon while this one imports and loads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SHORT))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def load(kernel: str, library: Any) -> Any:
    """Makes a kernel from the functions in a library. Raises: Missing if one of them is not there."""
    from tensorgrad.kernels.numba.runtime import launch

    family, _, name = kernel.rpartition(".")
    with launch.taking_from(library):
        made = importlib.import_module(f"tensorgrad.kernels.numba.{family}").KERNELS[name]()
    loaded[kernel] = made
    return made


def cached(kernel: str) -> Any:
    """Returns the kernel from the cache; None if it is not there. The caller holds LOCK."""
    from tensorgrad.kernels.numba.runtime import cache, launch

    if kernel in loaded:
        return loaded[kernel]
    family, _, name = kernel.rpartition(".")
    library = cache.read(family)
    if name not in library.proven:
        return None
    try:
        return load(kernel, library)
    except launch.Missing:
        return None


def in_cache(kernel: str) -> bool:
    """Returns whether a kernel is in the cache."""
    from tensorgrad.kernels.numba.runtime import cache

    family, _, name = kernel.rpartition(".")
    return name in cache.read(family).proven
