"""What `os.fork` needs of the package: that a lock which another thread holds at that moment is free in the child.

A forked process has one thread only, so nobody would ever release it. Importing this registers the care; it is done
for the processes that `multiprocessing` forks, for workers of data loaders, and for any other.
"""

from __future__ import annotations

import os
import threading

from tensorgrad import tensor
from tensorgrad.generator import default_generator
from tensorgrad.ops import callpath


def _before() -> None:
    default_generator.lock.acquire()  # so that no other thread is in the middle of a draw: the child's state is whole


def _in_parent() -> None:
    default_generator.lock.release()


def _in_child() -> None:
    default_generator.lock = threading.RLock()
    tensor._NEW_STORAGE = threading.Lock()
    callpath._lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
