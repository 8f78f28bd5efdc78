"""Makes the package's locks safe for `os.fork`: no lock is held in the child by a thread that no longer exists.

A forked process has only one thread. The other threads are gone, and would never release the locks that they held.
Therefore every lock of the package is created by `lock()`, which registers it, and all are released in the child,
except those that the forking thread itself holds.

Some locks guard state that the child continues to use: random number generators, gradients. For these (`whole`) a fork
waits briefly, so that no other thread is in the middle of a change; likewise for imports, which would never finish.
This applies to processes that `multiprocessing` forks, to data loader workers, and to any others.
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

PATIENCE = 1.0  # seconds that a fork waits for other threads in total; one of them may be waiting for this one

_locks: dict[weakref.ref, bool] = {}  # every lock -> whether the state it guards must be consistent in a child


class _Forks(threading.local):
    """The locks that this thread acquired for its current forks, innermost last (a signal handler may fork, too)."""

    def __init__(self) -> None:
        self.taken: list[list[Any]] = []


_FORKS = _Forks()


def lock(whole: bool = False) -> Any:
    """Creates a re-entrant lock, which is free in a forked child unless the forking thread holds it.

    With `whole`, a fork waits until no other thread holds it, so that the state it guards is consistent in the child.
    Hold it only briefly, and never while waiting for other threads.

    >>> from tensorgrad.system import forks
    >>> with forks.lock():
    ...     pass
    """
    return adopt(threading.RLock(), whole)


def adopt(lock: Any, whole: bool = False) -> Any:
    """Treats a lock created elsewhere like those of `lock()`, and returns it."""
    _locks[weakref.ref(lock, _locks.pop)] = whole
    return lock


def _owned(lock: Any) -> bool:
    """Whether this thread holds the lock; a plain lock cannot tell, but is never held while forking."""
    return hasattr(lock, "_is_owned") and lock._is_owned()


def _before() -> None:
    taken: list[Any] = []
    _FORKS.taken.append(taken)
    limit = time.monotonic() + PATIENCE
    for reference, whole in _locks.copy().items():
        if whole and (lock := reference()) is not None and not _owned(lock):
            taken.append(lock)  # first: a signal may interrupt the waiting at any moment
            lock.acquire(timeout=max(0.0, limit - time.monotonic()))
    while _importing() and time.monotonic() < limit:
        time.sleep(1e-3)


def _importing() -> bool:
    """Whether another thread is importing a module that the child may need as well: the child would wait forever."""
    for name, reference in list(getattr(importlib._bootstrap, "_module_locks", {}).items()):
        owner, package = getattr(reference(), "owner", None), name.partition(".")[0]
        if owner not in (None, threading.get_ident()) and (package in _NEEDED or package in sys.stdlib_module_names):
            return True
    return False


_NEEDED = ("ml_dtypes", "numpy", "tensorgrad", "torch")  # in addition to the standard library


def _in_parent() -> None:
    for lock in _FORKS.taken.pop():
        if _owned(lock):  # acquiring it may have timed out
            lock.release()


def _in_child() -> None:
    taken = {id(lock) for lock in _FORKS.taken.pop()}
    for reference in list(_locks):
        lock = reference()
        if lock is not None and (id(lock) in taken or not _owned(lock)):
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):  # missing on systems without fork
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
