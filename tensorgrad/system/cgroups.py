"""The memory and processors that Linux control groups allow this process, often less than the machine has.

The limits of the process's own group apply, and those of all its parents, so the lowest one counts. `root` is the
folder that contains /proc and /sys. Other systems have no such files, and no limits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["memory", "processors"]


def memory(root: str = "/") -> int | None:
    """Returns the memory limit in bytes; None if there is none.

    >>> from tensorgrad.system import cgroups
    >>> cgroups.memory("/nowhere") is None
    True
    """
    found = []
    for folder, version in _folders(root, "memory"):
        for name in ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",):
            found += _numbers(f"{folder}/{name}")
    return min(filter(None, found), default=None)


def processors(root: str = "/") -> int | None:
    """Returns the limit on CPU time as a number of processors, rounded up; None if there is none.

    >>> from tensorgrad.system import cgroups
    >>> cgroups.processors("/nowhere") is None
    True
    """
    found = []
    for folder, version in _folders(root, "cpu"):
        if version == 2:
            pair = _numbers(f"{folder}/cpu.max")
        else:
            pair = _numbers(f"{folder}/cpu.cfs_quota_us")
            pair = pair and pair + _numbers(f"{folder}/cpu.cfs_period_us")
        if len(pair) == 2 and min(pair) > 0:
            quota, period = pair
            found.append(-(-quota // period))
    return min(found, default=None)


def _folders(root: str, controller: str) -> Iterator[tuple[str, int]]:
    """The folders of the process's group and its parents, with their version, for versions that have the controller."""
    groups = os.path.join(root, "sys/fs/cgroup")
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        roots: tuple[str, ...]
        if not colon:
            continue
        if not controllers:  # version 2, alone or alongside version 1
            roots, version = (groups, f"{groups}/unified"), 2
        elif controller in controllers.split(","):  # some systems also name a shared folder after one controller
            roots, version = tuple({f"{groups}/{controllers}": 0, f"{groups}/{controller}": 0}), 1
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        # In a container the process's own group may appear as the root; missing folders are skipped.
        for root_folder in roots:
            for depth in range(len(parts) + 1):
                yield "/".join((root_folder, *parts[:depth])), version


def _read(path: str) -> str:
    """The text of a small file; "" if there is none. Every import reads some: these plain calls are the fastest."""
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, 1 << 16).decode(errors="replace")
        finally:
            os.close(file)
    return ""


def _numbers(path: str) -> list[int]:
    """The integers in a file; none if it contains something else, such as "max"."""
    words = _read(path).split()
    try:
        return list(map(int, words))
    except ValueError:
        return []
