"""How many processors a process may use, and its share of them if several ranks of a job run on the machine."""

from __future__ import annotations

import os
import sys

from tensorgrad.system import cgroups

__all__ = ["divide_among_local_ranks", "processors", "share"]


def processors() -> int:
    """Returns the number of processors that this process may use, in a container with a CPU limit too.

    >>> from tensorgrad.system.processors import processors
    >>> processors() >= 1
    True
    """
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(there, cgroups.processors() or there)


def share(ranks: int) -> int:
    """Returns the number of threads for each of so many processes, at least 1.

    >>> from tensorgrad.system.processors import share
    >>> share(10_000)
    1
    """
    return max(1, processors() // max(1, ranks))


def divide_among_local_ranks() -> None:
    """In a rank started by hand, with LOCAL_WORLD_SIZE but no OMP_NUM_THREADS: sets the latter to its share.

    It must run before NumPy is loaded, whose matrix products read the variable then.

    >>> from tensorgrad.system.processors import divide_among_local_ranks
    >>> divide_among_local_ranks()
    """
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    chosen = os.environ.get("OMP_NUM_THREADS") or "numpy" in sys.modules
    if ranks.isdecimal() and int(ranks) > 1 and not chosen:
        os.environ["OMP_NUM_THREADS"] = str(share(int(ranks)))
