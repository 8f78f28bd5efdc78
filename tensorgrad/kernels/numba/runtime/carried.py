"""Folders of kernels that a wheel or an image carries. They are read before the cache, and never written.

A folder has a folder for each level of processors (native.py), and may have files for one very processor beside them:

    x86-64-v3/versions.json, x86-64-v3/matmul-….kernels, …, x86-64-v4/…

Files are named and checked as those of the cache are (cache.py). `python -m tensorgrad.warmup --into FOLDER` writes
them. With them, neither Numba nor LLVM is needed on Linux with x86-64.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "carried")  # that a wheel may have
VERSIONS = "versions.json"  # which compiler made the files: {"numba": …, "llvmlite": …}
_PROBE = "runtime.spin"  # the family that every program needs


def folders() -> list[str]:
    """Returns the folders: those that TENSORGRAD_KERNELS names (none if it is empty), or else the package's own."""
    given = os.environ.get("TENSORGRAD_KERNELS")
    return [folder for folder in ([PACKAGE] if given is None else given.split(os.pathsep)) if os.path.isdir(folder)]


def use() -> bool:
    """Has the kernels of these folders used that fit this process best. Returns whether there are any.

    Best are those for this very processor, then those of the highest level that it has. If NUMBA_CPU_NAME or
    NUMBA_CPU_FEATURES name another processor, there are none.
    """
    found = folders()
    if not found:  # as in most programs, which need not import what follows
        return False
    from pathlib import Path

    from tensorgrad.kernels.numba.runtime import cache, internals, native, objects

    installed, given = find_spec("numba") is not None, os.environ.get("TENSORGRAD_CPU")
    if not (installed or objects.USABLE) or any(name in os.environ for name in native.GIVEN):
        return False
    for name in [given] if given else ["", *reversed(native.LEVELS)]:
        if name and (name not in native.LEVELS or native.lacking(name)):
            continue
        places = [Path(folder) / name for folder in found]
        for place in places:
            internals.MADE_WITH = {} if installed else _versions(place)
            if not (installed or internals.MADE_WITH):
                continue
            if cache.path(place, _PROBE, native.processor(name)).is_file():
                native.LEVEL, cache.CARRIED = name, places
                return True
    internals.MADE_WITH = {}
    return False


def _versions(place: Path) -> dict[str, str]:
    """Returns the versions of Numba and llvmlite that made the kernels of a folder; nothing if they are not known."""
    import json

    from tensorgrad.kernels.numba.runtime import cache

    try:
        found = json.loads(cache.trusted(place / VERSIONS, 1 << 12) or b"{}")
        made = {name: found[name] for name in ("numba", "llvmlite")}
    except (ValueError, KeyError, TypeError):
        return {}
    return made if all(isinstance(version, str) for version in made.values()) else {}
