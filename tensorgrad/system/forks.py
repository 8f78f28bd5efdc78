"""What `os.fork` needs of the package: that no lock which another thread holds at that moment is held in the child.

A forked process has one thread only. The others are gone, with whatever they were about to do, and nobody would ever
release what they held. Therefore every lock of the package comes from `lock()`, which remembers it, and all are free in
the child, but for those that the forking thread itself holds.

Some locks guard what the child goes on with: generators of random numbers, gradients. For these (`whole`) a fork waits
a moment, so that no other thread is in the middle of a change; and likewise for imports, which nobody would finish.
It holds for the processes that `multiprocessing` forks, for workers of data loaders, and for any other.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import weakref
from typing import Any

__all__ = ["adopt", "lock"]

PATIENCE = 1.0  # seconds that a fork waits for other threads in all; one of them may be waiting for this one

_locks: dict[weakref.ref, bool] = {}  # every lock that there is -> whether what it guards is to be whole in a child


class _Forks(threading.local):
    """What this thread took for the forks that it is in: the innermost last (a signal handler may fork, too)."""

    def __init__(self) -> None:
        self.taken: list[list[Any]] = []


_FORKS = _Forks()


def lock(whole: bool = False) -> Any:
    """A new lock (re-entrant), which is free in a forked child unless the forking thread holds it.

    `whole`: a fork waits until no other thread holds it, so that what it guards is whole in the child. It may be held
    for moments only, and not while other threads are waited for.

    >>> from tensorgrad.system import forks
    >>> with forks.lock():
    ...     pass
    """
    return adopt(threading.RLock(), whole)


def adopt(lock: Any, whole: bool = False) -> Any:
    """Treats a lock that somebody else has made like those of `lock()`, and returns it."""
    _locks[weakref.ref(lock, _locks.pop)] = whole
    return lock


def _owned(lock: Any) -> bool:
    """Whether this thread holds the lock; a plain one does not say, and nobody forks while holding it."""
    return hasattr(lock, "_is_owned") and lock._is_owned()


def _before() -> None:
    taken: list[Any] = []
    _FORKS.taken.append(taken)
    limit = time.monotonic() + PATIENCE
    for reference, whole in _locks.copy().items():
        if whole and (lock := reference()) is not None and not _owned(lock):
            taken.append(lock)  # first: a signal may end the waiting at any moment
            lock.acquire(timeout=max(0.0, limit - time.monotonic()))
    while _importing() and time.monotonic() < limit:
        time.sleep(1e-3)


def _importing() -> bool:
    """Whether another thread is importing a module that the child may need as well: it would wait for it for ever."""
    for name, reference in list(getattr(importlib._bootstrap, "_module_locks", {}).items()):
        owner, package = getattr(reference(), "owner", None), name.partition(".")[0]
        if owner not in (None, threading.get_ident()) and (package in _NEEDED or package in sys.stdlib_module_names):
            return True
    return False


_NEEDED = ("numpy", "tensorgrad", "torch")  # besides the standard library


def _in_parent() -> None:
    for lock in _FORKS.taken.pop():
        if _owned(lock):  # it need not have come in time
            lock.release()


def _in_child() -> None:
    taken = {id(lock) for lock in _FORKS.taken.pop()}
    for reference in list(_locks):
        lock = reference()
        if lock is not None and (id(lock) in taken or not _owned(lock)):
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
