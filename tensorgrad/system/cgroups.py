"""What the control groups of Linux let this process use: memory and processors, often less than the machine has.

The limits of the process's own group hold, and those of every group around it; so the least of them counts. `root` is
where /proc and /sys are found. On other systems there are no such files, and no limits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["memory", "processors"]


def memory(root: str = "/") -> int | None:
    """The bytes that the groups allow; None if they do not say.

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
    """The processors' worth of time that the groups allow, rounded up; None if they do not say.

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
    """The folders of the process's group and of those around it, with their version, where that has the controller."""
    groups = os.path.join(root, "sys/fs/cgroup")
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        places: tuple[str, ...]
        if not colon:
            continue
        if not controllers:  # version 2, alone or beside version 1
            places, version = (groups, f"{groups}/unified"), 2
        elif controller in controllers.split(","):  # some name the folder of several after one of them, too
            places, version = tuple({f"{groups}/{controllers}": 0, f"{groups}/{controller}": 0}), 1
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        # A container's own group may be shown as the outermost one: folders that are absent are passed over.
        for place in places:
            for depth in range(len(parts) + 1):
                yield "/".join((place, *parts[:depth])), version


def _read(path: str) -> str:
    """The text of a small file; "" if there is none. Every import reads some: the plain calls take the least time."""
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, 1 << 16).decode(errors="replace")
        finally:
            os.close(file)
    return ""


def _numbers(path: str) -> list[int]:
    """The numbers in a file; none where it says something else, as "max"."""
    words = _read(path).split()
    try:
        return list(map(int, words))
    except ValueError:
        return []
